"""A picture of a search for a symmetry."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from harmonicgp._extras import require

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from harmonicgp.symmetry.choice import SymmetryChoice

_SAME, _OTHER, _PLAIN = "#1b7837", "#b2abd2", "#878787"


def draw_symmetries(choice: SymmetryChoice, path: str | Path | None) -> Figure:
    """A picture with a row for each candidate: bound and what is left of the kernel, against one block; how far inputs move."""
    Figure = require(
        "matplotlib.figure", "plot", "a picture of symmetries"
    ).Figure  # no pyplot: the caller's windows stay
    rows = choice.ranked
    if not rows:
        raise ValueError("nothing was compared, so there is nothing to draw.")
    places = range(len(rows))[::-1]
    figure = Figure(figsize=(13, 1.6 + 0.36 * len(rows)), layout="constrained")
    axes = figure.subplots(1, 3, sharey=True)
    colours = [_PLAIN if row["same"] is None else _SAME if row["same"] else _OTHER for row in rows]
    panels = (
        ("bound, above one block", "nats a row, in the same round", [row["gain"] for row in rows], "{:+.3f}"),
        ("left of the kernel", "one block: 1", [_left(row) for row in rows], "{:.2f}"),
        ("moved inputs, from the others", "distance (MMD)", [row.get("distance") for row in rows], "{:.3f}"),
    )
    rounds = max(row["round"] for row in rows)
    for axis, (title, unit, values, form) in zip(axes, panels, strict=True):
        axis.barh(list(places), [value or 0.0 for value in values], color=colours, height=0.7)
        for place, value, row in zip(places, values, rows, strict=True):
            words = "" if value is None else form.format(value)
            if unit.startswith("distance") and row.get("p_value") is not None:
                words += f"  p = {row['p_value']:.2g}"
            if unit.startswith("nats") and value is not None and rounds > 1:
                words += f"  round {row['round']}"
            axis.annotate(
                words, (max(value or 0.0, 0.0), place), (4, 0), textcoords="offset points", va="center", fontsize=8
            )
        axis.set_title(title, fontsize=10)
        axis.set_xlabel(unit, fontsize=9)
        known = [0.0, *(value for value in values if value is not None)]
        low, high = min(known), max(known)
        span = high - low or 0.1
        room = 0.3 if unit.startswith("one block") else 0.7  # for what is written beside the bars
        axis.set_xlim(low - 0.06 * span if low < 0 else 0.0, high + room * span)
        axis.locator_params(axis="x", nbins=5)
        axis.grid(axis="x", alpha=0.3)
        axis.axvline(0, color="black", lw=0.8)
    axes[0].set_yticks(list(places), [_marked(row, choice) for row in rows])
    found = choice.suggested
    none = "No symmetry of the inputs was found" + (" before time was up" if choice.cut else "")
    first = none if found is None else _plain(f"* suggested: {choice.label(found)}")
    if choice.instead:
        first += f"; a fit of so few rows is {choice.instead}"
    elif _takes(choice):
        first += "; + what a fit takes"
    legend = "Green: moved inputs look like the others; violet: they leave the data; grey: one block."
    figure.suptitle(f"{first}.\n{legend}", fontsize=11)
    if path is not None:
        figure.savefig(path, dpi=120)
    return figure


def _takes(choice: SymmetryChoice) -> bool:
    """Whether a fit takes what the search has chosen: few rows are not searched, nor columns taken as periodic unasked."""
    return not choice.instead and not choice.candidate.periods


def _left(row: dict[str, Any]) -> float | None:
    own, plain = row.get("residual"), row["plain_residual"]
    return own / plain if own is not None and plain else None


def _marked(row: dict[str, Any], choice: SymmetryChoice) -> str:
    marks = "*" * (row["name"] == choice.suggested) + "+" * bool(row["chosen"] and _takes(choice))
    return _plain(f"{choice.label(row['name'])} {marks}".rstrip())


def _plain(words: str) -> str:
    return words.replace("$", r"\$")  # not mathematics
