"""What pictures share: colours, text that matplotlib may draw, and a figure in a style of its own."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from harmonicgp._extras import require

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which colour-blind readers tell apart.
BLUE, ORANGE, GREEN, PINK, SKY, GREY, BLACK = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#8a9199",
    "#1c2126",
)


_STYLE = {  # of all pictures
    "font.size": 10,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "axes.edgecolor": "#57606a",
    "axes.linewidth": 0.7,
    "axes.formatter.useoffset": False,
    "figure.facecolor": "white",
}


def text(value: object, most: int = 32) -> str:
    """A user's words as matplotlib may draw them: one line, not too long, no formula language."""
    line = "".join(c if c.isprintable() else " " for c in str(value).encode("utf-8", "replace").decode())
    line = line if len(line) <= most else line[: most - 1] + "…"
    return line.replace("$", r"\$")


@contextmanager
def styled_figure(width: float, height: float, style: Mapping[str, Any], purpose: str) -> Iterator[Figure]:
    """A figure in inches; matplotlib's settings are ours and `style` inside, and as before afterwards."""
    styles = require("matplotlib.style", "plot", purpose)
    figures = require("matplotlib.figure", "plot", purpose)
    with styles.context(["default", _STYLE, dict(style)]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # a name in letters that the font lacks
        yield figures.Figure(figsize=(width, height), layout="constrained")
