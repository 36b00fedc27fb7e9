"""The two ways to fit a field of longitude and latitude: waves along the parallels, or rows with neighbours.

Waves cost little for millions of cells around the globe, but resolve only what their frequencies and inducing latitudes
resolve, and over a narrow region nearly all of their frequencies are spent on the rest of the circle. Rows with neighbours
resolve every cell. They are taken for narrow grids, and where near values say that waves would leave much of the field.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from harmonicgp.globe.cells import CellTable
from harmonicgp.globe.fields import Points
from harmonicgp.globe.fitted_cells import FittedCells, fit_cells
from harmonicgp.globe.fitted_maps import FittedMaps
from harmonicgp.globe.fitted_rows import EXACT, FieldRows, FittedRows, fit_rows
from harmonicgp.globe.fitting import LARGE_RESIDUAL, fit_maps, fit_scattered
from harmonicgp.globe.grids import GridData
from harmonicgp.globe.learning import UNEVEN_COLUMNS, latitude_span
from harmonicgp.globe.model import largest_sizes, point_sizes
from harmonicgp.globe.options import Options

#: A field that predicts in the units of the data, without noise.
FittedField: TypeAlias = FittedMaps | FittedRows | FittedCells
#: A grid is narrow if it holds less than this share of the longitudes of its circle.
NARROW = 1 / 12
#: Values up to which "auto" looks at neighbours: a model with them holds all.
MOST_ROWS = 1_000_000


def fit_field(data: GridData | Points | CellTable, options: Options) -> tuple[FittedField, dict[str, Any]]:
    """Fit what was read. Also gives further fitted attributes of the estimator."""
    if isinstance(data, CellTable):
        return fit_cells(data, options)
    forced = options.neighbours is not None and options.neighbours > 0
    if forced:
        _check(data, options)
    if forced or _asks(data, options):
        rows = FieldRows.of(data, options)
        if len(rows.y) < 3:
            raise ValueError(f"{len(rows.y)} cells have a value: at least three are needed.")
        local = rows.local(options)
        left = local.share_left(*resolution(data, options))
        if forced or left > LARGE_RESIDUAL or _is_narrow(data):
            field, attributes = fit_rows(rows, local, options)
            return field, attributes | {"notes_": [*_notes(data), _words(field, left)]}
    return fit_scattered(data, options) if isinstance(data, Points) else fit_maps(data, options)


def resolution(data: GridData | Points, options: Options) -> tuple[float, float, float]:
    """Degrees of latitude and of longitude that waves resolve at most, and the latitude nearest to the equator."""
    m, t_max = _sizes(data, options)
    latitudes = data.X[:, 1].numpy() if isinstance(data, Points) else data.axes.latitudes
    return _extent(data) / m, 180 / max(t_max, 1), float(latitudes[np.abs(latitudes).argmin()])


def _asks(data: GridData | Points, options: Options) -> bool:
    """Whether "auto" is to look at near values: of one field, not huge, that is narrow or too fine for waves."""
    if options.neighbours == 0 or options.by is not None or options.of_waves:
        return False
    if isinstance(data, Points):
        return EXACT < len(data.X) <= MOST_ROWS
    axes, present = data.axes, int(np.isfinite(data.values).sum())
    if len(data.values) > 1 or present > MOST_ROWS:
        return False
    m, t_max = _sizes(data, options)
    coarse = m < len(axes.latitudes) or t_max < (axes.order or 2 * UNEVEN_COLUMNS) // 2
    return _is_narrow(data) or (coarse and present > EXACT)


def _is_narrow(data: GridData | Points) -> bool:
    """Whether a grid holds few of the longitudes of its circle."""
    if isinstance(data, Points) or data.axes.order is None:
        return False
    return len(data.axes.longitudes) < NARROW * data.axes.order


def _sizes(data: GridData | Points, options: Options) -> tuple[int, int]:
    """Inducing latitudes and frequencies that waves may have."""
    if isinstance(data, Points):
        m, t_max = point_sizes(_extent(data))
    else:
        axes = data.axes
        m, t_max = largest_sizes(len(axes.latitudes), axes.order or UNEVEN_COLUMNS, _extent(data), options.memory)
    return options.n_inducing or m, t_max


def _extent(data: GridData | Points) -> float:
    """Degrees of latitude over which inducing latitudes lie."""
    if isinstance(data, Points):
        south, north = latitude_span(data.X[:, 1].numpy())
        return north - south
    latitudes = data.axes.latitudes
    step = float(np.diff(latitudes).max()) if len(latitudes) > 1 else 1.0
    return min(180.0, float(latitudes[-1] - latitudes[0]) + step)


def _check(data: GridData | Points, options: Options) -> None:
    """Raise for what does not go together with a number of neighbours."""
    if options.by is not None or (isinstance(data, GridData) and len(data.values) > 1):
        raise ValueError("neighbours= is for one field: fit one slice, leave by= out, or give neighbours=0.")
    if options.of_waves:
        raise ValueError(f"{', '.join(options.of_waves)} can be given for waves: give neighbours=0 with them.")


def _words(field: FittedRows, left: float) -> str:
    """How a field of rows was fitted, and why, for its notes."""
    k = field.regressor.neighbours_
    kind = f"rows with {k} neighbours" if k else f"rows, {field.regressor.model_.n_features:,} inducing points"
    return f"{kind}, for waves would leave {left:.2g} times the noise or cost more: neighbours=0 takes waves."


def _notes(data: GridData | Points) -> tuple[str, ...]:
    return () if isinstance(data, Points) else data.notes
