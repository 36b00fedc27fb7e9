"""A picture of a search for a symmetry."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from harmonicgp._extras import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from harmonicgp.symmetry.choice import SymmetryChoice

Row = dict[str, Any]

_SAME, _OTHER, _PLAIN = "#1b7837", "#b2abd2", "#878787"
_LEGEND = "Green: moved inputs look like the others; violet: they differ from the data; grey: one block."


def draw_symmetries(choice: SymmetryChoice, path: str | Path | None) -> Figure:
    """Draw for each candidate its gain and its kernel residual against one block, and the distance of moved inputs."""
    # Without pyplot, the figures of the caller stay as they are.
    figure_class = require("matplotlib.figure", "plot", "a picture of symmetries").Figure
    rows = choice.ranked
    if not rows:
        raise ValueError("nothing was compared, so there is nothing to draw.")
    figure: Figure = figure_class(figsize=(13, 1.6 + 0.36 * len(rows)), layout="constrained")
    bound, kernel, inputs = figure.subplots(1, 3, sharey=True)
    several = max(row["round"] for row in rows) > 1
    for place, row in enumerate(reversed(rows)):
        gain, residual, plain = row["gain"], row.get("residual"), row["plain_residual"]
        ratio = residual / plain if residual is not None and plain else None
        when = f"  round {row['round']}" if gain is not None and several else ""
        chance = "" if row.get("p_value") is None else f"  p = {row['p_value']:.2g}"
        colour = _PLAIN if row["same"] is None else _SAME if row["same"] else _OTHER
        _draw_bar(bound, place, colour, gain, "+.3f", when)
        _draw_bar(kernel, place, colour, ratio, ".2f", "")
        _draw_bar(inputs, place, colour, row.get("distance"), ".3f", chance)
    _finish(bound, "bound, above one block", "nats a row, in the same round")
    _finish(kernel, "kernel left unexplained", "one block: 1", margin=0.3)
    _finish(inputs, "moved inputs against the others", "distance (MMD)")
    bound.set_yticks(range(len(rows)), [_marked(row, choice) for row in reversed(rows)])
    figure.suptitle(f"{_headline(choice)}.\n{_LEGEND}", fontsize=11)
    if path is not None:
        figure.savefig(path, dpi=120)
    return figure


def _draw_bar(axis: Axes, place: int, colour: str, value: float | None, form: str, remark: str) -> None:
    """Draw a bar for a value, if there is one, and write the value and a remark beside it."""
    axis.barh(place, value or 0.0, color=colour, height=0.7)
    words = ("" if value is None else format(value, form)) + remark
    end = (max(value or 0.0, 0.0), place)
    axis.annotate(words, end, (4, 0), textcoords="offset points", va="center", fontsize=8)


def _finish(axis: Axes, title: str, unit: str, margin: float = 0.7) -> None:
    """Set title, unit and limits; `margin` is the room for words beside the bars, as a share of their span."""
    axis.set_title(title, fontsize=10)
    axis.set_xlabel(unit, fontsize=9)
    bars: Any = axis.patches
    widths = [0.0, *(bar.get_width() for bar in bars)]
    low, high = min(widths), max(widths)
    span = high - low or 0.1
    axis.set_xlim(low - 0.06 * span if low < 0 else 0.0, high + margin * span)
    axis.locator_params(axis="x", nbins=5)
    axis.grid(axis="x", alpha=0.3)
    axis.axvline(0, color="black", lw=0.8)


def _headline(choice: SymmetryChoice) -> str:
    if choice.suggested is None:
        first = "No symmetry of the inputs was found" + (" in the time that there was" if choice.cut else "")
    else:
        first = _plain(f"* suggested: {choice.label(choice.suggested)}")
    if choice.instead:
        return f"{first}; a fit to so few rows is {choice.instead}"
    return f"{first}; + what a fit takes" if _takes(choice) else first


def _takes(choice: SymmetryChoice) -> bool:
    """Whether a fit makes the same choice: it does not for few rows, nor for columns that are not declared periodic."""
    return not choice.instead and not choice.candidate.periods


def _marked(row: Row, choice: SymmetryChoice) -> str:
    marks = "*" * (row["name"] == choice.suggested) + "+" * bool(row["chosen"] and _takes(choice))
    return _plain(f"{choice.label(row['name'])} {marks}".rstrip())


def _plain(words: str) -> str:
    return words.replace("$", r"\$")  # not mathematics
