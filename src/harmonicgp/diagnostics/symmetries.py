"""A picture of a search for a symmetry."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from harmonicgp._extras import require

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from harmonicgp.estimators.choice import SymmetryChoice

_SAME, _OTHER, _PLAIN = "#1b7837", "#b2abd2", "#878787"


def draw_symmetries(choice: SymmetryChoice, path: str | Path | None) -> Figure:
    """A picture with a row for each candidate: bound against one block, share of the kernel left, distance of moved inputs."""
    matplotlib = require("matplotlib", "plot", "a picture of symmetries")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = choice.ranked
    if not rows:
        raise ValueError("nothing was compared, so there is nothing to draw.")
    places = range(len(rows))[::-1]
    figure, axes = plt.subplots(1, 3, figsize=(13, 1.6 + 0.36 * len(rows)), layout="constrained", sharey=True)
    colours = [_PLAIN if row["same"] is None else _SAME if row["same"] else _OTHER for row in rows]
    panels = (
        ("bound, against one block", "nats a row", [row["gain"] for row in rows], "{:+.3f}"),
        ("what the inducing points leave", "share of the kernel", [row.get("residual") for row in rows], "{:.3f}"),
        ("moved inputs from the others", "distance (MMD)", [row.get("distance") for row in rows], "{:.3f}"),
    )
    for axis, (title, unit, values, form) in zip(axes, panels, strict=True):
        axis.barh(list(places), [value or 0.0 for value in values], color=colours, height=0.7)
        for place, value, row in zip(places, values, rows, strict=True):
            words = "" if value is None else form.format(value)
            if unit.startswith("distance") and row.get("p_value") is not None:
                words += f"  p = {row['p_value']:.2g}"
            axis.annotate(
                words, (max(value or 0.0, 0.0), place), (4, 0), textcoords="offset points", va="center", fontsize=8
            )
        axis.set_title(title, fontsize=10)
        axis.set_xlabel(unit, fontsize=9)
        axis.margins(x=0.8 if unit.startswith("distance") else 0.25)
        if unit.startswith("distance") and not any(values):
            axis.set_xlim(0.0, 0.1)
        axis.locator_params(axis="x", nbins=5)
        axis.grid(axis="x", alpha=0.3)
        axis.axvline(0, color="black", lw=0.8)
    axes[0].set_yticks(list(places), [_marked(row, choice) for row in rows])
    found = choice.suggested
    figure.suptitle(
        ("No symmetry of the inputs was found" if found is None else _plain(f"* suggested: {choice.label(found)}"))
        + "; + what a fit takes.\n"
        "Green: moved inputs look like the others; violet: they leave the data; grey: one block.",
        fontsize=11,
    )
    if path is not None:
        figure.savefig(path, dpi=120)
    plt.close(figure)
    return figure


def _marked(row: dict[str, Any], choice: SymmetryChoice) -> str:
    marks = "*" * (row["name"] == choice.suggested) + "+" * bool(row["chosen"])
    return _plain(f"{choice.label(row['name'])} {marks}".rstrip())


def _plain(words: str) -> str:
    return words.replace("$", r"\$")  # not mathematics
