"""Fields on grids of longitude and latitude: read from xarray, found among scattered points, and given back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from harmonicgp._extras import require
from harmonicgp.globe.lattices import find_lattice, lattice_of, places_on
from harmonicgp.tables.columns import Array

if TYPE_CHECKING:
    import xarray

#: The least share of cells that scattered points fill if they are to be a grid.
LEAST_FILLED = 0.05

_SAME = 1e-9  # degrees between coordinates that are one
_ROUNDING = 1e-5  # degrees by which float32 radians may pass a pole
_REPEATED = 1e-6  # relative difference of values that are one, in a column that is given twice
_FIELD = "a field on a grid"
_NAMES = {"longitude": ("lon", "longitude"), "latitude": ("lat", "latitude")}
_AXIS = {"longitude": "X", "latitude": "Y"}
_UNITS = {
    kind: tuple(f"degree{s}{letter}" for s in ("", "s") for letter in (f"_{word}", f"_{word[0]}", word[0]))
    for kind, word in (("longitude", "east"), ("latitude", "north"))
}
# What a template says of its own values, and a result must say for itself.
_OF_VALUES = frozenset(
    {"units", "long_name", "standard_name", "valid_min", "valid_max", "valid_range", "actual_range", "cell_methods"}
    | {"ancillary_variables", "flag_values", "flag_masks", "flag_meanings"}
    | {"scale_factor", "add_offset", "_FillValue", "missing_value"}
)


@dataclass(frozen=True)
class GridAxes:
    """Where the cells of a grid are."""

    latitudes: Array  #: [rows], float64, degrees, rising
    longitudes: Array  #: [columns], float64, degrees, in the convention and the order of the source, each meridian once
    order: int | None  #: n if all longitudes lie on a lattice of n around the circle


@dataclass(frozen=True)
class Template:
    """What a result needs to look like its source."""

    dims: tuple[str, ...]  #: in the order of the source
    latitude: str
    longitude: str
    rows: Array  #: for each latitude of the source, its row in `GridAxes`
    columns: Array  #: for each longitude of the source, its column in `GridAxes`
    extra_shape: tuple[int, ...]  #: sizes of the other dimensions, in order
    coords: xarray.Dataset  #: the coordinates, and no data
    attrs: dict[str, Any]  #: of the source

    @property
    def extra(self) -> tuple[str, ...]:
        """Names of the other dimensions, in order."""
        return tuple(dim for dim in self.dims if dim not in (self.latitude, self.longitude))


@dataclass(frozen=True)
class GridData:
    """One or several fields on a grid, NaN where a value is missing."""

    axes: GridAxes
    values: Array  #: [slices, rows, columns], float64
    extra: tuple[str, ...] = ()  #: dimensions that the slices run over, in C order; none for a plain map
    name: str | None = None
    units: str | None = None
    notes: tuple[str, ...] = ()  #: what was changed on reading
    template: Template | None = None  #: None for points
    noise: Array | None = None  #: known noise of points, [rows, columns], NaN where missing


# From and to xarray --------------------------------------------------------------------------------------------------


def read_grid(data: xarray.DataArray) -> GridData:
    """A field with its missing values; dimensions other than longitude and latitude become slices."""
    xr = require("xarray", "geo", _FIELD)
    if isinstance(data, xr.Dataset):
        raise TypeError(f"a field is one variable; choose one of the dataset: {_listed(data.data_vars)}.")
    if not isinstance(data, xr.DataArray):
        raise TypeError(f"a field must be an xarray.DataArray; got {type(data).__name__}.")
    subject = "the field" if data.name is None else f"the field {data.name!r}"
    axes, template = axes_of(data)
    if data.dtype.kind not in "fiub":
        raise TypeError(f"{subject} has values of type {data.dtype}; they must be real numbers: use .astype(float).")
    source = data.transpose(*template.extra, template.latitude, template.longitude).compute().values
    _check_fill(source, data.attrs, subject)
    values = np.array(source, dtype=np.float64).reshape(-1, len(template.rows), len(template.columns))
    infinite = np.isinf(values)
    if infinite.any():
        raise ValueError(f"{subject} has {int(infinite.sum())} infinite values: make them NaN if they are missing.")
    if np.isnan(values).all():
        raise ValueError(f"{subject} has no value: all {values.size} cells are missing.")
    by_latitude = np.argsort(template.rows)
    if (by_latitude[1:] < by_latitude[:-1]).any():
        values = np.ascontiguousarray(values[:, by_latitude])  # sums must not depend on the order of the source
    values, notes = _without_repeats(values, template, subject)
    return GridData(
        axes,
        values,
        template.extra,
        None if data.name is None else str(data.name),
        None if data.attrs.get("units") is None else str(data.attrs["units"]),
        notes,
        template,
    )


def axes_of(
    grid: xarray.DataArray | xarray.Dataset | tuple[Any, Any] | Mapping[str, Any],
) -> tuple[GridAxes, Template]:
    """The cells of a field, of the coordinates of a dataset, or of one-dimensional (lon, lat); no value is read."""
    xr = require("xarray", "geo", _FIELD)
    sizes: dict[str, int] | None = None
    attrs: dict[str, Any] = {}
    if isinstance(grid, xr.DataArray):
        subject = "the field" if grid.name is None else f"the field {grid.name!r}"
        sizes, attrs, frame = dict(grid.sizes), dict(grid.attrs), grid.coords.to_dataset()
    elif isinstance(grid, xr.Dataset):
        subject, frame = "the dataset", grid.coords.to_dataset()
    elif isinstance(grid, tuple) and len(grid) == 2:
        subject, frame = "the pair (lon, lat)", _frame(xr, {"lat": grid[1], "lon": grid[0]})
    elif isinstance(grid, Mapping):
        subject, frame = "the grid", _frame(xr, grid)
    else:
        raise TypeError(
            "a grid must be an xarray.DataArray, an xarray.Dataset, a pair (lon, lat) or a dict of lon and lat; "
            f"got {type(grid).__name__}."
        )
    latitude, longitude = (_found(frame, kind, subject) for kind in ("latitude", "longitude"))
    sizes = {name: frame.sizes[name] for name in (latitude, longitude)} if sizes is None else sizes
    frame = frame.drop_dims([dim for dim in frame.dims if dim not in sizes]).compute()
    latitudes, longitudes = _degrees(frame[latitude], subject), _degrees(frame[longitude], subject)
    rising, rows = _sorted_latitudes(latitudes, latitude, subject)
    kept, columns = _meridians(longitudes, longitude, subject)
    template = Template(
        tuple(sizes),
        latitude,
        longitude,
        rows,
        columns,
        tuple(size for dim, size in sizes.items() if dim not in (latitude, longitude)),
        frame,
        attrs,
    )
    return GridAxes(rising, longitudes[kept], find_lattice(longitudes[kept])), template


def to_dataarray(
    values: Array,
    template: Template,
    name: str | None = None,
    units: str | None = None,
    long_name: str | None = None,
) -> xarray.DataArray:
    """Values [rows, columns], or with slices before these, with the dimensions and coordinates of the source.

    What the source's attributes say of its own values (units, standard_name, valid_range, ...) is left out.
    """
    xr = require("xarray", "geo", _FIELD)
    values = np.asarray(values)
    cells = (len(np.unique(template.rows)), len(np.unique(template.columns)))
    flat = (math.prod(template.extra_shape), *cells)
    full = (*template.extra_shape, *cells)
    if values.shape not in (cells, flat, full):
        shapes = " or ".join(str(list(shape)) for shape in dict.fromkeys((cells, flat, full)))
        raise ValueError(f"values of shape {list(values.shape)} do not fit the grid: they must be {shapes}.")
    extra, frame = template.extra, template.coords
    if values.shape == cells:
        frame, extra = frame.drop_dims(extra, errors="ignore"), ()
    else:
        values = values.reshape(full)
    attrs = {key: value for key, value in template.attrs.items() if key not in _OF_VALUES}
    attrs |= {key: value for key, value in (("units", units), ("long_name", long_name)) if value is not None}
    result = xr.DataArray(
        values[..., template.rows[:, None], template.columns],
        frame.coords,
        (*extra, template.latitude, template.longitude),
        name,
        attrs,
    )
    return result.transpose(*(dim for dim in template.dims if dim in result.dims), transpose_coords=False)


# From points ---------------------------------------------------------------------------------------------------------


def grid_from_points(lon: Array, lat: Array, y: Array, noise: Array | None = None) -> GridData | None:
    """Scattered points as a grid with missing cells; None if they are no grid, mostly empty, or share a cell.

    Examples:
        >>> grid = grid_from_points(np.array([10.0, 0, 10]), np.array([5.0, -5, -5]), np.array([1.0, 2, 3]))
        >>> grid.axes.longitudes, grid.values
        (array([ 0., 10.]), array([[[ 2.,  3.], [nan,  1.]]]))
    """
    lon, lat, y = (np.asarray(a, dtype=np.float64) for a in (lon, lat, y))
    v = None if noise is None else np.asarray(noise, dtype=np.float64)
    shapes = [list(a.shape) for a in (lon, lat, y, v) if a is not None]
    if y.ndim != 1 or any(shape != shapes[0] for shape in shapes):
        raise ValueError(f"lon, lat, y and noise must be vectors of one length; got shapes {shapes}.")
    if not len(y) or not all(math.isfinite(a.min()) and math.isfinite(a.max()) for a in (lon, lat, y)):
        return None
    if max(-lat.min(), lat.max()) > 90:
        return None
    distinct = np.unique(lon)
    lattice = lattice_of(distinct)
    if lattice is None:
        return None
    places, first = np.unique(places_on(distinct, *lattice), return_index=True)
    by_longitude = np.argsort(first)  # `distinct` rises: so do the longitudes that come first at their places
    longitudes = distinct[first[by_longitude]]
    levels = np.unique(lat)
    new = np.concatenate(([True], np.diff(levels) > _SAME))
    latitudes = levels[new]
    cells = len(latitudes) * len(longitudes)
    if not LEAST_FILLED * cells <= len(y) <= cells:
        return None
    row = (np.cumsum(new) - 1)[np.searchsorted(levels, lat)]
    cell = row * len(longitudes) + np.argsort(by_longitude)[np.searchsorted(places, places_on(lon, *lattice))]
    filled = np.zeros(cells, dtype=bool)
    filled[cell] = True
    if np.count_nonzero(filled) < len(y):
        return None

    def on_cells(a: Array) -> Array:
        field = np.full(cells, np.nan)
        field[cell] = a
        return field.reshape(len(latitudes), len(longitudes))

    return GridData(
        GridAxes(latitudes, longitudes, lattice[0]), on_cells(y)[None], noise=None if v is None else on_cells(v)
    )


# Coordinates ---------------------------------------------------------------------------------------------------------


def _listed(names: Any) -> str:
    return ", ".join(repr(name) for name in names) or "none"


def _frame(xr: Any, entries: Mapping[Any, Any]) -> Any:
    """A dataset of one-dimensional coordinates, each its own dimension."""
    coords = {}
    for name, entry in entries.items():
        array = np.asanyarray(entry)
        if array.ndim != 1:
            raise ValueError(
                f"{name} has shape {list(array.shape)}: a grid has one-dimensional lon and lat, not their mesh; pass the "
                "cells as points if they are no such grid."
            )
        attrs = dict(getattr(entry, "attrs", {}))
        for kind, names in _NAMES.items():
            if str(name).lower() in names:
                attrs = {"standard_name": kind, "units": _UNITS[kind][3], **attrs}
        coords[name] = (name, array, attrs)
    return xr.Dataset(coords=coords)


def _rank(name: object, attrs: Mapping[Any, Any], kind: str) -> int | None:
    """How a coordinate shows that it is a longitude or a latitude: 0 by name, more by its attributes, None not at all."""
    units = str(attrs.get("units", "")).strip()
    standard = attrs.get("standard_name")
    if str(name).lower() in _NAMES[kind]:
        return 0
    if standard == kind:
        return 1
    if units.lower() in (unit.lower() for unit in _UNITS[kind]):
        return 2
    angle = units.lower().startswith(("deg", "rad", "°"))
    if standard is None and angle and str(attrs.get("axis", "")).upper() == _AXIS[kind]:
        return 3
    return None


def _found(frame: Any, kind: str, subject: str) -> str:
    """The name of the coordinate that is the longitude or the latitude, and a dimension."""
    ranks = {name: _rank(name, coord.attrs, kind) for name, coord in frame.coords.items()}
    ranked = {name: rank for name, rank in ranks.items() if rank is not None}
    usable = {name: rank for name, rank in ranked.items() if frame[name].dims == (name,)}
    if usable:
        best = [name for name, rank in usable.items() if rank == min(usable.values())]
        if len(best) > 1:
            raise ValueError(f"{subject} has several coordinates of {kind}: {_listed(best)}; drop all but one.")
        return str(best[0])
    short, units = _NAMES[kind][0], _UNITS[kind][3]
    if not ranked:
        raise ValueError(
            f"{subject} has no coordinate of {kind}; it has {_listed(frame.coords)}. Name it {short!r} with .rename(...), "
            f"or set its attribute units to {units!r}."
        )
    name = min(ranked, key=lambda key: ranked[key])
    dims = frame[name].dims
    if len(dims) > 1:
        raise ValueError(
            f"{name!r} of {subject} runs over {_listed(dims)}: the grid is curvilinear, not one of longitude and latitude. "
            "Pass its cells as points."
        )
    if not dims:
        raise ValueError(f"{name!r} of {subject} is one number, not a dimension: use .expand_dims({name!r}).")
    other = "longitude" if kind == "latitude" else "latitude"
    shared = [c for c, coord in frame.coords.items() if _rank(c, coord.attrs, other) is not None and coord.dims == dims]
    if shared:
        raise ValueError(
            f"{name!r} and {shared[0]!r} of {subject} both run over {dims[0]!r}: these are points, not a grid. Use "
            f".unstack({dims[0]!r}) if they were stacked, or pass them as points."
        )
    raise ValueError(
        f"{name!r} of {subject} runs over {dims[0]!r}; it must be a dimension itself: "
        f"use .swap_dims({{{dims[0]!r}: {name!r}}})."
    )


def _degrees(coord: Any, subject: str) -> Array:
    """A coordinate in degrees, finite and not empty."""
    if coord.dtype.kind not in "fiu":
        raise TypeError(f"{coord.name!r} of {subject} has type {coord.dtype}; degrees must be real numbers.")
    units = str(coord.attrs.get("units", "")).strip().lower()
    values = np.array(coord.values, dtype=np.float64)
    if not len(values):
        raise ValueError(f"{coord.name!r} of {subject} is empty.")
    if not np.isfinite(values).all():
        at = int(np.flatnonzero(~np.isfinite(values))[0])
        raise ValueError(f"{coord.name!r} of {subject} is {values[at]} at position {at}: drop cells of unknown place.")
    if units.startswith("rad"):
        return np.rad2deg(values)
    if units and "deg" not in units and "°" not in units:
        raise ValueError(f"{coord.name!r} of {subject} is in {units!r}; it must be in degrees or radians.")
    return values


def _sorted_latitudes(latitudes: Array, name: str, subject: str) -> tuple[Array, Array]:
    """Latitudes from south to north, and the place of each given one among them."""
    far = np.abs(latitudes) > 90.0 + _ROUNDING
    if far.any():
        raise ValueError(
            f"{name!r} of {subject} has the latitude {latitudes[far][0]:g}, beyond ±90 degrees: are longitude and latitude "
            "swapped?"
        )
    by_latitude = np.argsort(latitudes)
    rising = np.clip(latitudes[by_latitude], -90.0, 90.0)
    same = np.flatnonzero(np.diff(rising) <= _SAME)
    if len(same):
        raise ValueError(f"{name!r} of {subject} has the latitude {rising[same[0]]:g} twice: drop one of the rows.")
    return rising, np.argsort(by_latitude)


def _meridians(longitudes: Array, name: str, subject: str) -> tuple[Array, Array]:
    """The positions of longitudes that are kept, and for each given one its number among these.

    Of a meridian given twice, 360 degrees apart or as the first and the last column, the earlier column is kept.
    """
    last = len(longitudes) - 1
    tolerance = min(1e-4, 1e-2 * float(np.median(np.diff(np.sort(longitudes))))) if last else 0.0
    span = float(longitudes.max() - longitudes.min())
    if span > 360.0 + tolerance:
        raise ValueError(f"{name!r} of {subject} spans {span:g} degrees; longitudes may span 360 at most.")
    stands_for = np.arange(last + 1)
    by_phase = np.argsort(np.mod(longitudes, 360.0), kind="stable")
    after = np.roll(by_phase, -1)
    turns = (longitudes[after] - longitudes[by_phase]) / 360.0
    close = (np.abs(turns - np.rint(turns)) * 360.0 <= tolerance) & (by_phase != after)
    for pair in zip(by_phase[close].tolist(), after[close].tolist(), strict=True):
        a, b = min(pair), max(pair)
        gap = abs(longitudes[a] - longitudes[b])
        if _SAME < gap < 180.0:
            continue  # close, but two
        if (gap < 180.0 and not (span > 180.0 and (a, b) == (0, last))) or {stands_for[a], stands_for[b]} - {a, b}:
            raise ValueError(
                f"{name!r} of {subject} has the longitude {longitudes[b]:g} twice: drop one of the columns."
            )
        stands_for[b] = a
    kept, columns = np.unique(stands_for, return_inverse=True)
    return kept, columns


def _without_repeats(values: Array, template: Template, subject: str) -> tuple[Array, tuple[str, ...]]:
    """Values without the columns that repeat a meridian, if they agree; and what is to be said of it."""
    kept, first = np.unique(template.columns, return_index=True)
    notes = []
    if len(kept) == len(template.columns):
        return values, ()
    given = template.coords[template.longitude].values
    for later in np.setdiff1d(np.arange(len(template.columns)), first):
        earlier = first[template.columns[later]]
        a, b = values[..., earlier], values[..., later]
        pair = f"the columns at {template.longitude} = {given[earlier]:g} and {given[later]:g}"
        both = ~(np.isnan(a) | np.isnan(b))
        gap = np.abs(a - b)[both]
        if gap.size and gap.max() > _REPEATED * max(np.abs(a[both]).max(), np.abs(b[both]).max()):
            raise ValueError(
                f"{pair} of {subject} are one meridian, but their values differ by up to {gap.max():g}: drop one of them."
            )
        values[..., earlier] = np.where(np.isnan(a), b, a)
        notes.append(f"{pair} are one meridian; the latter is left out.")
    return values[..., first], tuple(notes)


def _check_fill(values: Array, attrs: Mapping[Any, Any], subject: str) -> None:
    """An error if values are there that the attributes call missing: xarray has not decoded them."""
    for key in ("_FillValue", "missing_value"):
        for fill in np.atleast_1d(attrs.get(key, np.nan)):
            count = np.count_nonzero(values == fill)
            if count:
                raise ValueError(
                    f"{subject} has {count} values of {fill}, its {key}: use xarray.decode_cf(...), or "
                    f".where(data != {fill}), to make them missing."
                )
