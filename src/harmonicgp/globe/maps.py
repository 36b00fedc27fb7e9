"""Pictures of fields on the globe: equirectangular maps with coastlines, and zonal spectra.

The coastline is the contour of height zero of the relief in the library; nothing is downloaded.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from harmonicgp._extras import require
from harmonicgp.backend.files import replacing
from harmonicgp.globe.coordinates import merge_meridians, sort_latitudes
from harmonicgp.globe.relief import Relief, load_relief
from harmonicgp.io.container import PathLike
from harmonicgp.io.drawing import BLUE, GREY, styled_figure, text
from harmonicgp.tables.columns import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: The most cells of a map; of larger grids only every second, third, ... row and column is drawn.
MOST_COLUMNS, MOST_ROWS = 1800, 900
#: The length of the equator in kilometres, for wavelengths.
EQUATOR = 40030.0
_DPI = 110
_MISSING = "#d3d7dc"
_COLOURS = {"signed": "RdYlBu_r", "positive": "viridis"}
_STYLE = {
    "axes.titlesize": 10.5,
    "figure.titlesize": 12,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "xtick.color": "#3b434b",
    "ytick.color": "#3b434b",
}


@dataclass(frozen=True)
class Panel:
    """One map: values [R, C] at latitudes by longitudes, NaN where a cell is missing.

    `kind` is "signed" (colours about zero) or "positive" (from zero, unless the values lie far from it). Without `limits` the
    colours span all but the most extreme half per cent of the values; panels with the same limits have the same colours.

    Examples:
        >>> Panel("Height", np.zeros((2, 3)), "positive", "km").limits is None
        True
    """

    title: str
    values: Array = field(repr=False, compare=False)
    kind: Literal["signed", "positive"] = "signed"
    units: str = ""
    limits: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if self.kind not in _COLOURS:
            raise ValueError(f"kind of a panel must be one of {', '.join(_COLOURS)}; got {self.kind!r}.")
        if self.limits is not None:
            low, high = self.limits
            if not (math.isfinite(low) and math.isfinite(high) and low < high):
                raise ValueError(f"limits must be two finite numbers, the lower one first; got {self.limits}.")


@dataclass(frozen=True)
class _Grid:
    """The rows and columns to draw, northwards and eastwards, and the edges of their cells."""

    rows: Array
    columns: Array
    x: Array  #: edges, degrees east, ascending [columns + 1]
    y: Array  #: edges, degrees north, ascending [rows + 1]
    whole: bool  #: whether the columns go around the globe

    @property
    def extent(self) -> tuple[float, float, float, float]:
        """West, east, south and north of the map, at most once around the globe and not beyond the poles."""
        west, east = float(self.x[0]), float(self.x[-1])
        east = west + 360 if self.whole else min(east, west + 360)
        return west, east, max(float(self.y[0]), -90.0), min(float(self.y[-1]), 90.0)

    @property
    def ratio(self) -> float:
        """Height by width: true to scale in the middle of a region, and limited so that narrow strips stay visible."""
        west, east, south, north = self.extent
        stretch = 1.0
        if east - west <= 120:
            stretch = 1 / max(math.cos(math.radians((south + north) / 2)), 0.1)
        return min(max(stretch * (north - south) / (east - west), 0.2), 1.8)


def draw_maps(path: PathLike, longitudes: Array, latitudes: Array, panels: Sequence[Panel], title: str = "") -> None:
    """Write a PNG with a map for every panel, all on the same grid of longitudes [C] and latitudes [R], in degrees.

    Rows and columns may have any order and longitudes any convention: a grid around the globe is drawn from its westernmost
    longitude in -180..180, a region from its western edge. Missing cells are grey. At most 1800 x 900 cells are drawn.

    Examples:
        >>> import tempfile
        >>> relief = load_relief()
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     draw_maps(f"{folder}/map.png", *relief[:2], [Panel("Height", relief.height, units="km")])
    """
    if not panels:
        raise ValueError("there is nothing to draw: give at least one panel.")
    grid, relief = _grid(np.asarray(longitudes, np.float64), np.asarray(latitudes, np.float64)), load_relief()
    rows, columns = len(latitudes), len(longitudes)
    for panel in panels:
        shape = np.shape(panel.values)
        if shape != (rows, columns):
            hint = ": transpose them" if shape == (columns, rows) else ""
            raise ValueError(
                f"values of the panel {panel.title!r} have shape {shape}, but there are {rows} latitudes and {columns} "
                f"longitudes{hint}."
            )
    tall = grid.ratio >= 0.8
    across = min(len(panels), 3 if tall and len(panels) != 4 else 2)
    down = -(-len(panels) // across)
    width = (6.0 if tall else 8.5) if across == 1 else {2: 5.0 if tall else 6.0, 3: 4.2}[across]
    width = min(width, 1.3 + 7 / grid.ratio)
    height = (width - 1.3) * grid.ratio + 0.65  # beside a map are its labels and its colour bar
    with _figure(path, across * width, down * height + (0.4 if title else 0), "a map") as figure:
        axes = figure.subplots(down, across, squeeze=False).ravel()
        for axis, panel in zip(axes, panels, strict=False):
            _draw_panel(axis, panel, grid, relief)
            axis.set_title(text(panel.title, int(9 * width)))
        for axis in axes[len(panels) :]:
            axis.remove()
        if title:
            figure.suptitle(text(title, int(9 * across * width)))


def draw_spectrum(path: PathLike, power: Array, data_power: Array | None = None, title: str = "") -> None:
    """Write a PNG with the power [T + 1] of the frequencies t = 0..T of the longitude, and optionally that of the data.

    Both axes are logarithmic, t = 0 has a separate strip, and the wavelength at the equator is on top. Powers that are zero, not
    finite, or below 10^-12 of the largest are left out.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     draw_spectrum(f"{folder}/spectrum.png", 1 / np.arange(1.0, 50) ** 2)
    """
    curves = [("model", _powers(power, "power"), BLUE)]
    if data_power is not None:
        curves.insert(0, ("data", _powers(data_power, "data_power"), GREY))
    last = max(len(values) for _, values, _ in curves) - 1
    with _figure(path, 8.5, 4.6, "a spectrum") as figure:
        zero, axis = figure.subplots(1, 2, sharey=True, width_ratios=(1, 18))
        for name, values, colour in curves:
            model = name == "model"
            zero.plot([0], values[:1], "o", color=colour, ms=5 if model else 8)
            size = (3.5 if model else 5.5) if len(values) <= 40 else 0
            axis.plot(
                np.arange(1, len(values)), values[1:], "o-", color=colour, ms=size, lw=1.6 if model else 1.0, label=name
            )
        finite = np.concatenate([values[np.isfinite(values)] for _, values, _ in curves])
        low, high = (max(finite.min(), finite.max() * 1e-12), finite.max()) if finite.size else (0.1, 1.0)
        margin = max((high / low) ** 0.05, 1.3, math.sqrt(10 * low / high))  # the axis spans a factor of ten at least
        zero.set(xlim=(-1, 1), yscale="log", ylabel="power")
        zero.set_xticks([0])
        limits = (0.85, 1.15 * max(last, 2))
        axis.set(xlim=limits, xscale="log", ylim=(low / margin, high * margin))
        axis.set_xlabel("frequency t of the longitude, waves around the globe")
        _plain_ticks(axis, *limits)
        axis.tick_params(axis="y", which="both", length=0)
        for part in (zero, axis):
            part.grid(color="#e6e9ec", lw=0.6)
        if len(curves) > 1:
            axis.legend(loc="lower left")
        if not finite.size:
            axis.text(0.5, 0.5, "no power", ha="center", va="center", transform=axis.transAxes)
        top = axis.twiny()
        top.set(xscale="log", xlim=limits, xlabel="wavelength at the equator, km")
        _plain_ticks(top, *limits, length=EQUATOR)
        if title:
            figure.suptitle(text(title, 76))


# The grid -------------------------------------------------------------------------------------------------------------


def _grid(longitudes: Array, latitudes: Array) -> _Grid:
    """The cells in order, at most `MOST_ROWS` x `MOST_COLUMNS` of them."""
    for degrees, name in ((longitudes, "longitudes"), (latitudes, "latitudes")):
        if degrees.ndim != 1 or not degrees.size or not np.isfinite(degrees).all():
            raise ValueError(f"{name} must be a list of finite numbers, in degrees; got shape {degrees.shape}.")
    _, place = sort_latitudes(latitudes, "latitudes", "the map")
    rows = np.argsort(place)[:: -(-len(latitudes) // MOST_ROWS)]
    columns, lon, whole = _eastwards(longitudes)
    thin = slice(None, None, -(-len(columns) // MOST_COLUMNS))
    columns, lon, lat = columns[thin], lon[thin], latitudes[rows]
    step = min((float(np.median(np.diff(at))) for at in (lon, lat) if len(at) > 1), default=1.0)
    return _Grid(rows, columns, _edges(lon, step), _edges(lat, step), whole)


def _eastwards(longitudes: Array) -> tuple[Array, Array, bool]:
    """The order of the columns from west to east, their longitudes without a jump, and whether they go around the globe."""
    columns, _ = merge_meridians(longitudes, "longitudes", "the map")
    wrapped = np.mod(longitudes + 180, 360) - 180
    order = columns[np.argsort(wrapped[columns], kind="stable")]
    gaps = np.diff(wrapped[order], append=wrapped[order[0]] + 360)  # to the next one east
    whole = len(order) > 1 and bool(gaps.max() < 1.5 * np.median(gaps))
    if not whole:
        order = np.roll(order, -1 - int(gaps.argmax()))  # starts east of the widest gap
    lon = wrapped[order]
    return order, lon + 360 * (lon < lon[0]), whole


def _edges(centres: Array, step: float) -> Array:
    """Edges [n + 1] of cells with centres [n], ascending; a single cell is `step` wide."""
    if len(centres) == 1:
        return np.array([centres[0] - step / 2, centres[0] + step / 2])
    extended = np.pad(centres, 1, mode="reflect", reflect_type="odd")
    return (extended[1:] + extended[:-1]) / 2


# Drawing --------------------------------------------------------------------------------------------------------------


@contextmanager
def _figure(path: PathLike, width: float, height: float, purpose: str) -> Iterator[Figure]:
    """A figure in the style of maps, written to the path at the end."""
    with styled_figure(width, height, _STYLE, purpose) as figure:
        layout: Any = figure.get_layout_engine()
        layout.set(h_pad=0.08, w_pad=0.06)
        yield figure
        with replacing(path) as file:
            figure.savefig(file, format="png", dpi=_DPI)


def _draw_panel(axis: Axes, panel: Panel, grid: _Grid, relief: Relief) -> None:
    values = np.ma.asarray(panel.values)[np.ix_(grid.rows, grid.columns)].astype(np.float64)
    values = np.ma.masked_invalid(values)  # in addition to the mask of the panel
    numbers = values.compressed()
    low, high = panel.limits or _limits(numbers, panel.kind)
    axis.set_facecolor(_MISSING)
    image: Any = axis.pcolorfast(grid.x, grid.y, values, cmap=_colours(panel.kind, low, high), vmin=low, vmax=high)
    image.set_interpolation("antialiased")  # grids may have more columns than the picture has pixels
    west, east, south, north = grid.extent
    _draw_coast(axis, relief, grid.extent)
    axis.set(xlim=(west, east), ylim=(south, north), aspect="auto")
    axis.set_box_aspect(grid.ratio)
    _degree_ticks(axis, grid)
    if numbers.size:
        bar = axis.inset_axes((1.025, 0.0, 0.025, 1.0))
        above, below = bool(numbers.max() > high), bool(numbers.min() < low)
        extend = "both" if above and below else "max" if above else "min" if below else "neither"
        figure = axis.get_figure()
        assert figure is not None
        figure.colorbar(image, cax=bar, extend=extend, extendfrac=0.03, label=text(panel.units, 24))
    else:
        box = {"facecolor": _MISSING, "edgecolor": "none"}
        axis.text(0.5, 0.5, "no values", ha="center", va="center", transform=axis.transAxes, bbox=box)


def _limits(values: Array, kind: str) -> tuple[float, float]:
    """The range of the colours: all values except the most extreme half per cent at each end; never empty."""
    if not values.size:
        return (-1.0, 1.0) if kind == "signed" else (0.0, 1.0)
    if kind == "signed":
        size = np.abs(values)
        reach = float(np.quantile(size, 0.995)) or float(size.max()) or 1.0
        return -reach, reach
    low, high = (float(limit) for limit in np.quantile(values, [0.005, 0.995]))
    if high - low <= 1e-9 * max(abs(low), abs(high)):  # a constant
        low, high = min(low, 0.0), max(high, 0.0)
    elif 0 <= low <= high / 2:
        low = 0.0
    return (low, high) if low < high else (0.0, float(values.max()) if values.max() > 0 else 1.0)


def _colours(kind: str, low: float, high: float) -> Any:
    """The colours from low to high; the middle colour of signed maps is at zero for any limits."""
    colours = require("matplotlib", "plot", "a map").colormaps[_COLOURS[kind]]
    if kind == "signed" and low != -high:
        reach = 2 * max(abs(low), abs(high))
        colours = require("matplotlib.colors", "plot", "a map").ListedColormap(
            colours(np.linspace(0.5 + low / reach, 0.5 + high / reach, 256))
        )
    return colours


def _draw_coast(axis: Axes, relief: Relief, extent: tuple[float, float, float, float]) -> None:
    """Draw the contour of height zero within the extent and two degrees around it."""
    west, east, south, north = extent
    lon = np.concatenate([relief.longitude + turn for turn in (-360, 0, 360)])
    columns = np.flatnonzero((lon > west - 2) & (lon < east + 2))
    rows = np.flatnonzero((relief.latitude > south - 2) & (relief.latitude < north + 2))
    height = relief.height[np.ix_(rows, columns % len(relief.longitude))]
    if height.min() < 0 < height.max():
        axis.contour(lon[columns], relief.latitude[rows], height, levels=[0.0], colors="black", linewidths=0.5)


def _degree_ticks(axis: Axes, grid: _Grid) -> None:
    """Label the axes with round degrees and their hemisphere."""
    tickers = require("matplotlib.ticker", "plot", "a map")
    west, east, south, north = grid.extent
    round_steps = [1, 1.5, 2, 3, 5, 10]
    for part, low, high, cells, wide, step in (
        (axis.xaxis, west, east, grid.columns, 270, 60),
        (axis.yaxis, south, north, grid.rows, 120, 30),
    ):
        if len(cells) == 1:
            part.set_major_locator(tickers.FixedLocator([(low + high) / 2]))
        elif high - low > wide:
            part.set_major_locator(tickers.MultipleLocator(step))
        else:
            part.set_major_locator(tickers.MaxNLocator(5, steps=round_steps))
    axis.xaxis.set_major_formatter(tickers.FuncFormatter(lambda x, _: _degree_label((x + 180) % 360 - 180, "WE")))
    axis.yaxis.set_major_formatter(tickers.FuncFormatter(lambda y, _: _degree_label(y, "SN")))


def _degree_label(degrees: float, sides: str) -> str:
    degrees = round(degrees, 6)
    side = "" if degrees in (0, -180, 180) else sides[int(degrees > 0)]
    return f"{abs(degrees):.6g}°{side}"


# Spectra --------------------------------------------------------------------------------------------------------------


def _powers(values: Array, name: str) -> Array:
    """Powers for a logarithmic axis: NaN in place of zero."""
    powers = np.array(values, np.float64)
    if powers.ndim != 1 or not powers.size:
        raise ValueError(f"{name} must be a list, one number for each frequency t = 0..T; got shape {powers.shape}.")
    if (powers < 0).any():
        raise ValueError(f"{name} must not be negative; the smallest is {np.nanmin(powers):g}.")
    powers[~np.isfinite(powers) | (powers == 0)] = np.nan
    return powers


def _round_numbers(low: float, high: float) -> list[float]:
    """The numbers 1, 2, 5, 10, ... between low and high; only powers of ten if these are many."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    numbers = [k * 10.0**e for e in decades for k in (1, 2, 5) if low <= k * 10.0**e <= high]
    return numbers if len(numbers) <= 14 else [10.0**e for e in decades if low <= 10.0**e <= high]


def _plain_ticks(axis: Axes, low: float, high: float, length: float | None = None) -> None:
    """Label the x axis with round numbers of x or, with a length, of length / x."""
    numbers = _round_numbers(low, high) if length is None else _round_numbers(length / high, length / low)
    places = numbers if length is None else [length / number for number in numbers]
    axis.set_xticks(places, [f"{number:,.6g}" for number in numbers])
    axis.set_xticks([], minor=True)
