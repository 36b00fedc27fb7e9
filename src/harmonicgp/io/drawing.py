"""Common parts of all pictures: colours, safe text, and figures in one style."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from harmonicgp._extras import require

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The colours of Okabe and Ito, which colour-blind readers can distinguish.
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
    """A user's text for matplotlib: one line of at most `most` characters, without formulas.

    Examples:
        >>> text("words", 4)
        'wor…'
    """
    line = "".join(c if c.isprintable() else " " for c in str(value).encode("utf-8", "replace").decode())
    line = line if len(line) <= most else line[: most - 1] + "…"
    return line.replace("$", r"\$")


@contextmanager
def styled_figure(width: float, height: float, style: Mapping[str, Any], purpose: str) -> Iterator[Figure]:
    """A figure of a size in inches. Matplotlib's settings are changed inside and restored afterwards."""
    styles = require("matplotlib.style", "plot", purpose)
    figures = require("matplotlib.figure", "plot", purpose)
    with styles.context(["default", _STYLE, dict(style)]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # names in letters that are not in the font
        yield figures.Figure(figsize=(width, height), layout="constrained")
