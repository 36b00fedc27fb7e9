"""The choice between the two ways to fit a field of longitude and latitude: waves along the parallels, or rows with neighbours.

Waves are cheap for millions of cells around the globe. Their resolution is limited by their frequencies and inducing latitudes,
and over a narrow region most frequencies describe the rest of the circle. Rows with neighbours resolve every cell. They are used
for narrow grids, and where a kernel learned from nearest neighbours says that waves would miss much of the field.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from harmonicgp.backend.threads import stop_spinning
from harmonicgp.globe.cells import CellTable
from harmonicgp.globe.fields import Points
from harmonicgp.globe.fitted_cells import FittedCells, fit_cells
from harmonicgp.globe.fitted_maps import FittedMaps
from harmonicgp.globe.fitted_rows import EXACT, FieldRows, FittedRows, fit_rows
from harmonicgp.globe.fitting import LARGE_RESIDUAL, fit_maps, fit_scattered
from harmonicgp.globe.grids import GridData
from harmonicgp.globe.learning import UNEVEN_COLUMNS, grid_span, latitude_span
from harmonicgp.globe.model import largest_sizes, point_sizes
from harmonicgp.globe.options import Options
from harmonicgp.globe.places import Source

#: A fitted field. It predicts in the units of the data, without noise.
FittedField: TypeAlias = FittedMaps | FittedRows | FittedCells
#: A grid is narrow if it has less than this share of the longitudes of its circle.
NARROW = 1 / 12
#: Up to this many values "auto" considers neighbours: a model with neighbours stores all values.
MOST_ROWS = 1_000_000


def fit_field(data: GridData | Points | CellTable, options: Options) -> tuple[FittedField, dict[str, Any]]:
    """Fit the data of `globe.reading.read`. Also returns further fitted attributes of the estimator."""
    stop_spinning()
    if isinstance(data, CellTable):
        return fit_cells(data, options)
    required = bool(options.neighbours)
    if required:
        _check_neighbours(data, options)
    if required or _needs_comparison(data, options):
        rows, source = _rows_of(data, options)
        local = rows.local_model(options)
        residual = local.residual_share(*resolution(data, options))
        if required or residual > LARGE_RESIDUAL or _is_narrow(data):
            field, attributes = fit_rows(rows, local, source, options)
            return field, attributes | {"notes_": [*rows.notes, _note(field, residual)]}
    return fit_scattered(data, options) if isinstance(data, Points) else fit_maps(data, options)


def _rows_of(data: GridData | Points, options: Options) -> tuple[FieldRows, Source | None]:
    """The values as rows of longitude and latitude, and the coordinates of their grid, if they have any."""
    if isinstance(data, Points):
        return FieldRows.of_points(data, options.mean), None
    source = None if data.template is None else Source.of(data, None)
    return FieldRows.of_grid(data, data.axes.points, options.mean), source


def resolution(data: GridData | Points, options: Options) -> tuple[float, float, float]:
    """The finest resolution of waves in degrees of latitude and of longitude, and the latitude nearest to the equator."""
    m, t_max = _sizes(data, options)
    latitudes = data.X[:, 1].numpy() if isinstance(data, Points) else data.axes.latitudes
    return _extent(data) / m, 180 / max(t_max, 1), float(latitudes[np.abs(latitudes).argmin()])


def _needs_comparison(data: GridData | Points, options: Options) -> bool:
    """Whether "auto" compares rows with waves: for one field, not huge, that is narrow or finer than waves can be."""
    if options.neighbours == 0 or options.by is not None or options.of_waves:
        return False
    if isinstance(data, Points):
        return EXACT < len(data.X) <= MOST_ROWS
    axes, present = data.axes, int(np.isfinite(data.values).sum())
    if len(data.values) > 1 or present > MOST_ROWS:
        return False
    m, t_max = _sizes(data, options)
    is_fine = m < len(axes.latitudes) or t_max < (axes.order or 2 * UNEVEN_COLUMNS) // 2
    return _is_narrow(data) or (is_fine and present > EXACT)


def _is_narrow(data: GridData | Points) -> bool:
    """Whether a grid has few of the longitudes of its circle."""
    if isinstance(data, Points) or data.axes.order is None:
        return False
    return len(data.axes.longitudes) < NARROW * data.axes.order


def _sizes(data: GridData | Points, options: Options) -> tuple[int, int]:
    """The largest numbers of inducing latitudes and of frequencies of waves."""
    if isinstance(data, Points):
        m, t_max = point_sizes(_extent(data))
    else:
        axes = data.axes
        m, t_max = largest_sizes(len(axes.latitudes), axes.order or UNEVEN_COLUMNS, _extent(data), options.memory)
    return options.n_inducing or m, t_max


def _extent(data: GridData | Points) -> float:
    """The degrees of latitude that the inducing latitudes of waves cover."""
    south, north = latitude_span(data.X[:, 1].numpy()) if isinstance(data, Points) else grid_span(data.axes)
    return north - south


def _check_neighbours(data: GridData | Points, options: Options) -> None:
    """Raise a ValueError for data and arguments that exclude neighbours."""
    if options.by is not None or (isinstance(data, GridData) and len(data.values) > 1):
        raise ValueError("neighbours= is for one field: fit one slice, leave by= out, or give neighbours=0.")
    if options.of_waves:
        raise ValueError(f"{', '.join(options.of_waves)} can be given for waves only: give neighbours=0 with them.")


def _note(field: FittedRows, residual: float) -> str:
    """The note of a fit by rows: its sizes and the reason."""
    k = field.regressor.neighbours_
    kind = f"rows with {k} neighbours" if k else f"rows, {field.regressor.model_.n_features:,} inducing points"
    return f"{kind}: waves would miss {residual:.2g} times the noise, or cost more. neighbours=0 takes waves."
