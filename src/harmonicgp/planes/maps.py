"""Pictures of fields in a region: the data with their holes, the mean, the error bar and a sample."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from harmonicgp.backend.files import replacing
from harmonicgp.io.drawing import BLUE, GREY, styled_figure, text
from harmonicgp.planes.coordinates import Coordinate
from harmonicgp.planes.frames import GridFrame
from harmonicgp.planes.region import FittedPlane
from harmonicgp.tables.columns import Array

#: The most cells of a picture along an axis; of larger grids only every second, third, ... one is drawn.
MOST = 1200
_DPI = 110
_MISSING = "#d3d7dc"


def draw_region(path: str | Path, fitted: FittedPlane, name: str, units: str, seed: int) -> None:
    """Write a PNG of a fitted field: maps of the last two axes, lines for one axis, or scattered points.

    Of three axes the first cell of the first axis is drawn; of several slices the first.
    """
    mean, variance, frame = fitted.moments(None)
    draw, _ = fitted.samples(None, 1, seed + 1)
    data = _observed(fitted, frame)
    panels = [
        (f"{name}: data", data, False),
        ("mean", mean[0], False),
        ("error bar (standard deviation of the field)", np.sqrt(variance[0]), True),
        ("a sample of the posterior", draw[0, 0], False),
    ]
    if frame is None:
        _points(path, fitted, panels, units)
    elif len(frame.axes) == 1:
        _lines(path, fitted, frame, panels, units)
    else:
        _maps(path, fitted, frame, panels, units)


def _observed(fitted: FittedPlane, frame: GridFrame | None) -> Array:
    """The data at the places of a prediction, NaN where missing; nothing for the cells of an uneven grid."""
    values = fitted.scale * fitted.field.data.y[0].numpy()
    if fitted.cells is not None:
        return values[fitted.cells]
    if frame is not None and fitted.template is not None:
        return np.full(int(np.prod(frame.shape)), np.nan)
    return values


def _limits(panels: Any) -> tuple[float, float]:
    """The range of colours of values: all but the most extreme half per cent of mean and data."""
    values = np.concatenate([part[np.isfinite(part)] for _, part, is_error in panels[:2] if not is_error])
    low, high = (float(v) for v in np.quantile(values, (0.005, 0.995)))
    return (low, high) if high > low else (low - 1.0, high + 1.0)


def _settings(panels: Any, is_error: bool, values: Array) -> dict[str, Any]:
    if is_error:
        return {"vmin": 0.0, "vmax": float(np.quantile(values, 0.995)) or 1.0, "cmap": "magma"}
    low, high = _limits(panels)
    return {"vmin": low, "vmax": high, "cmap": "viridis"}


def _maps(path: str | Path, fitted: FittedPlane, frame: GridFrame, panels: Any, units: str) -> None:
    """Four maps of the last two axes; latitudes and lengths grow upwards, rows of arrays downwards."""
    kinds = {c.name: c for c in fitted.plane.coordinates}
    down, across = (kinds[axis] for axis in frame.axes[-2:])
    if down.kind == "longitude" or (down.name.lower() in ("x", "easting") and across.kind == "length"):
        down, across = across, down
    x, y = _axis(frame, fitted, across), _axis(frame, fitted, down)
    thin = [slice(None, None, -(-len(part) // MOST)) for part in (y, x)]
    ratio = _ratio(fitted, x, y)
    width = 5.2
    height = min(max(0.8 * width * ratio, 1.4), 7.0)
    with styled_figure(2 * width, 2 * height + 0.8, {}, "a map") as figure:
        for i, (title, values, is_error) in enumerate(panels):
            grid = frame.select(values[None])[0]
            grid = grid[0] if grid.ndim == 3 else grid
            grid = grid if frame.axes[-2] == down.name else grid.T
            axis = figure.add_subplot(2, 2, i + 1)
            axis.set_facecolor(_MISSING)
            mesh = axis.pcolormesh(
                x[thin[1]], y[thin[0]], np.ma.masked_invalid(grid[thin[0], thin[1]]), shading="nearest", rasterized=True,
                **_settings(panels, is_error, values),
            )  # fmt: skip
            axis.set_title(text(title, 60), fontsize=10)
            if down.kind == "number":
                axis.invert_yaxis()
            figure.colorbar(mesh, ax=axis, label=text(units, 24), shrink=0.95)
            axis.set_xlabel(_label(across) if i > 1 else "")
            axis.set_ylabel(_label(down) if i % 2 == 0 else "")
            axis.ticklabel_format(useOffset=False, style="plain")
        _write(path, figure)


def _axis(frame: GridFrame, fitted: FittedPlane, coordinate: Coordinate) -> Array:
    """Coordinates of an axis as numbers, longitudes without a jump."""
    position = frame.axes.index(coordinate.name)
    values = frame.values.get(coordinate.name)
    if values is None:
        return np.arange(float(frame.shape[position]))
    numbers = coordinate.numbers(values)
    if coordinate.kind == "longitude":
        middle = fitted.plane.origin[position]
        numbers = middle + np.mod(numbers - middle + 180.0, 360.0) - 180.0
    return numbers


def _ratio(fitted: FittedPlane, x: Array, y: Array) -> float:
    """Height by width of the region; limited so that narrow ones stay visible."""
    kinds = {c.kind for c in fitted.plane.coordinates}
    width, height = float(np.ptp(x)) or 1.0, float(np.ptp(y)) or 1.0
    if {"longitude", "latitude"} <= kinds:
        width *= float(np.cos(np.deg2rad(y.mean())))
    elif "time" in kinds:
        return 0.7
    return min(max(height / width, 0.2), 1.4)


def _label(coordinate: Coordinate) -> str:
    return text(coordinate.name + (f" ({coordinate.units})" if coordinate.units else ""), 40)


def _lines(path: str | Path, fitted: FittedPlane, frame: GridFrame, panels: Any, units: str) -> None:
    """Data, mean, twice the error bar and a sample of one axis."""
    (coordinate,) = fitted.plane.coordinates
    x, label = _axis(frame, fitted, coordinate), _label(coordinate)
    dates = frame.values.get(coordinate.name)
    if dates is not None and dates.dtype.kind == "M":
        x, label = dates, text(coordinate.name, 40)
    data, mean, std, draw = (frame.select(values[None])[0] for _, values, _ in panels)
    order = np.argsort(x)
    with styled_figure(8.5, 4.2, {}, "a field") as figure:
        axis = figure.add_subplot()
        band = (mean - 2 * std)[order], (mean + 2 * std)[order]
        axis.fill_between(x[order], *band, color=BLUE, alpha=0.2, lw=0, label="two error bars")
        axis.plot(x[order], draw[order], color=GREY, lw=0.8, label="a sample")
        axis.plot(x[order], mean[order], color=BLUE, lw=1.4, label="mean")
        axis.plot(x, data, "k.", ms=3, label="data")
        axis.set(xlabel=label, ylabel=text(units, 24), title=text(panels[0][0].removesuffix(": data")))
        axis.legend()
        _write(path, figure)


def _points(path: str | Path, fitted: FittedPlane, panels: Any, units: str) -> None:
    """The data, mean and error bar at scattered points."""
    X = fitted.field.data.places.X.numpy()
    X = X if fitted.cells is None else X[fitted.cells]
    X = X / np.array(fitted.plane.factors) + np.array(fitted.plane.origin)  # in the units of the user
    labels = [_label(c) for c in fitted.plane.coordinates]
    x, y = (X[:, 0], X[:, 1]) if X.shape[1] > 1 else (X[:, 0], panels[0][1])
    thin = slice(None, None, -(-len(x) // 50_000))
    with styled_figure(10.4, 8.0, {}, "a map") as figure:
        for i, (title, values, is_error) in enumerate(panels):
            axis = figure.add_subplot(2, 2, i + 1)
            axis.set_facecolor(_MISSING)
            size = float(np.clip(4e4 / max(len(x), 1), 0.5, 12.0))
            dots = axis.scatter(
                x[thin], y[thin], c=values[thin], s=size, lw=0, rasterized=True, **_settings(panels, is_error, values)
            )
            axis.set_title(text(title, 60), fontsize=10)
            figure.colorbar(dots, ax=axis, label=text(units, 24), shrink=0.95)
            axis.set_xlabel(text(labels[0], 40) if i > 1 else "")
            axis.set_ylabel(text(labels[1], 40) if i % 2 == 0 and len(labels) > 1 else "")
            if {"longitude", "time"}.isdisjoint(c.kind for c in fitted.plane.coordinates) and len(labels) > 1:
                axis.set_aspect("equal", adjustable="datalim")
            axis.ticklabel_format(useOffset=False, style="plain")
        _write(path, figure)


def _write(path: str | Path, figure: Any) -> None:
    with replacing(path) as file:
        figure.savefig(file, format="png", dpi=_DPI)
