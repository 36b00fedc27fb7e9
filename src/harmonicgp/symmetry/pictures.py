"""A picture of a search for a symmetry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harmonicgp._extras import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from harmonicgp.symmetry.choice import SymmetryChoice

Row = dict[str, Any]

_SAME, _OTHER, _PLAIN = "#1b7837", "#b2abd2", "#878787"
_LEGEND = "Green: moved inputs look like the others; violet: they leave the data; grey: one block."


@dataclass(frozen=True)
class _Panel:
    """A column of bars: a value of each candidate, and what is written beside it."""

    title: str
    unit: str
    value: Callable[[Row], float | None]
    form: str
    margin: float = 0.7  #: room beside the bars, as a share of their span
    remark: Callable[[Row], str] = lambda row: ""

    def text(self, row: Row) -> str:
        value = self.value(row)
        return ("" if value is None else self.form.format(value)) + self.remark(row)

    def draw(self, axis: Axes, rows: list[Row]) -> None:
        """Draw the bars, the first candidate on top."""
        values = [self.value(row) for row in rows]
        places = list(range(len(rows)))[::-1]
        axis.barh(places, [value or 0.0 for value in values], color=[_colour(row) for row in rows], height=0.7)
        for place, value, row in zip(places, values, rows, strict=True):
            end = (max(value or 0.0, 0.0), place)
            axis.annotate(self.text(row), end, (4, 0), textcoords="offset points", va="center", fontsize=8)
        axis.set_title(self.title, fontsize=10)
        axis.set_xlabel(self.unit, fontsize=9)
        present = [0.0, *(value for value in values if value is not None)]
        low, high = min(present), max(present)
        span = high - low or 0.1
        axis.set_xlim(low - 0.06 * span if low < 0 else 0.0, high + self.margin * span)
        axis.locator_params(axis="x", nbins=5)
        axis.grid(axis="x", alpha=0.3)
        axis.axvline(0, color="black", lw=0.8)


def draw_symmetries(choice: SymmetryChoice, path: str | Path | None) -> Figure:
    """Draw a row for each candidate: gain in bound and residual of the kernel against one block; distance of moved inputs."""
    # No pyplot: the caller's windows stay.
    figure_class = require("matplotlib.figure", "plot", "a picture of symmetries").Figure
    rows = choice.ranked
    if not rows:
        raise ValueError("nothing was compared, so there is nothing to draw.")
    figure: Figure = figure_class(figsize=(13, 1.6 + 0.36 * len(rows)), layout="constrained")
    axes = figure.subplots(1, 3, sharey=True)
    for axis, panel in zip(axes, _panels(rows), strict=True):
        panel.draw(axis, rows)
    axes[0].set_yticks(list(range(len(rows)))[::-1], [_marked(row, choice) for row in rows])
    figure.suptitle(f"{_headline(choice)}.\n{_LEGEND}", fontsize=11)
    if path is not None:
        figure.savefig(path, dpi=120)
    return figure


def _panels(rows: list[Row]) -> list[_Panel]:
    rounds = max(row["round"] for row in rows)

    def round_of(row: Row) -> str:
        return f"  round {row['round']}" if row["gain"] is not None and rounds > 1 else ""

    def p_value(row: Row) -> str:
        return "" if row.get("p_value") is None else f"  p = {row['p_value']:.2g}"

    return [
        _Panel(
            "bound, above one block",
            "nats a row, in the same round",
            lambda row: row["gain"],
            "{:+.3f}",
            remark=round_of,
        ),
        _Panel("left of the kernel", "one block: 1", _relative_residual, "{:.2f}", margin=0.3),
        _Panel(
            "moved inputs, from the others", "distance (MMD)", lambda row: row.get("distance"), "{:.3f}", remark=p_value
        ),
    ]


def _colour(row: Row) -> str:
    return _PLAIN if row["same"] is None else _SAME if row["same"] else _OTHER


def _headline(choice: SymmetryChoice) -> str:
    if choice.suggested is None:
        first = "No symmetry of the inputs was found" + (" before time was up" if choice.cut else "")
    else:
        first = _plain(f"* suggested: {choice.label(choice.suggested)}")
    if choice.instead:
        return f"{first}; a fit of so few rows is {choice.instead}"
    return f"{first}; + what a fit takes" if _takes(choice) else first


def _takes(choice: SymmetryChoice) -> bool:
    """Whether a fit takes what the search has chosen: few rows are not searched, nor columns taken as periodic unasked."""
    return not choice.instead and not choice.candidate.periods


def _relative_residual(row: Row) -> float | None:
    residual, plain = row.get("residual"), row["plain_residual"]
    return residual / plain if residual is not None and plain else None


def _marked(row: Row, choice: SymmetryChoice) -> str:
    marks = "*" * (row["name"] == choice.suggested) + "+" * bool(row["chosen"] and _takes(choice))
    return _plain(f"{choice.label(row['name'])} {marks}".rstrip())


def _plain(words: str) -> str:
    return words.replace("$", r"\$")  # not mathematics
