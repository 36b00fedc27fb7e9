"""Fields on grids of longitude and latitude: conversion from and to xarray, and from points that lie on a grid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from harmonicgp._extras import require
from harmonicgp.globe.coordinates import (
    SAME_DEGREES,
    coordinate_frame,
    degrees,
    find_coordinate,
    find_lattice,
    merge_meridians,
    places_on,
    quoted,
    sort_latitudes,
)
from harmonicgp.tables.columns import Array

if TYPE_CHECKING:
    import xarray

#: Points are read as a grid if they fill at least this share of its cells.
LEAST_FILLED = 0.05

_REPEATED = 1e-6  # relative difference up to which values of two columns of one meridian count as equal
_FIELD = "a field on a grid"
# Attributes that describe the values of the source, not those of a result.
_OF_VALUES = frozenset(
    {"units", "long_name", "standard_name", "valid_min", "valid_max", "valid_range", "actual_range", "cell_methods"}
    | {"ancillary_variables", "flag_values", "flag_masks", "flag_meanings"}
    | {"scale_factor", "add_offset", "_FillValue", "missing_value"}
)


@dataclass(frozen=True)
class GridAxes:
    """The longitudes and latitudes of the cells of a grid."""

    latitudes: Array  #: [rows], float64, degrees, ascending
    longitudes: Array  #: [columns], float64, degrees, in the convention and order of the source, each meridian once
    order: int | None  #: n if all longitudes lie on a lattice of n longitudes around the circle

    @property
    def cells(self) -> tuple[Array, Array]:
        """Latitudes [rows, 1] and longitudes [1, columns]."""
        return self.latitudes[:, None], self.longitudes[None, :]

    @property
    def points(self) -> Array:
        """Longitude and latitude of every cell, longitudes last: [cells, 2]."""
        latitudes, longitudes = np.broadcast_arrays(*self.cells)
        return np.stack((longitudes.ravel(), latitudes.ravel()), 1)


@dataclass(frozen=True)
class Template:
    """Dimensions, coordinates and attributes of a DataArray, for results that look like it."""

    frame: xarray.DataArray  #: like the source, without its values
    latitude: str  #: name of the latitude
    longitude: str  #: name of the longitude
    rows: Array  #: the row in `GridAxes` of each latitude of the source
    columns: Array  #: the column in `GridAxes` of each longitude of the source

    @property
    def extra(self) -> tuple[str, ...]:
        """Names of the other dimensions, in order."""
        return tuple(str(dim) for dim in self.frame.dims if dim not in (self.latitude, self.longitude))

    @property
    def extra_shape(self) -> tuple[int, ...]:
        """Sizes of the other dimensions."""
        return tuple(self.frame.sizes[dim] for dim in self.extra)

    def with_slices(self, by: str | None, labels: Array) -> Template:
        """The same map with one further dimension `by` and its coordinates; with none if `by` is None."""
        varying = [name for name, coord in self.frame.coords.items() if not set(self.extra).isdisjoint(coord.dims)]
        frame = self.frame.drop_vars(varying).isel(dict.fromkeys(self.extra, 0))
        if by is not None:
            dims = [dim for dim in self.frame.dims if dim == by or dim in frame.dims]
            frame = frame.drop_vars(by, errors="ignore").expand_dims({by: labels})
            frame = frame.transpose(*(dims if by in dims else frame.dims), transpose_coords=False)
        return replace(self, frame=frame)


@dataclass(frozen=True)
class GridData:
    """One or several fields on a grid, NaN where a value is missing."""

    axes: GridAxes
    values: Array  #: [slices, rows, columns], float64; the slices run over `template.extra` in C order
    name: str | None = None
    units: str | None = None
    notes: tuple[str, ...] = ()  #: changes made when reading, in words
    template: Template | None = None  #: None for points
    noise: Array | None = None  #: known variances of the noise, in the shape of the values, NaN where missing


# From and to xarray --------------------------------------------------------------------------------------------------


def read_grid(data: xarray.DataArray) -> GridData:
    """Read a field. Dimensions other than longitude and latitude become slices; missing values stay NaN."""
    xr = require("xarray", "geo", _FIELD)
    if isinstance(data, xr.Dataset):
        raise TypeError(f"a field is one variable; choose one of the dataset: {quoted(data.data_vars)}.")
    if not isinstance(data, xr.DataArray):
        raise TypeError(
            f"a field must be an xarray.DataArray; got {type(data).__name__}. HarmonicGPField takes plain arrays too."
        )
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
        values = np.ascontiguousarray(values[:, by_latitude])  # so that sums do not depend on the order of the source
    values, notes = _without_repeats(values, template, subject)
    name, units = (None if text is None else str(text) for text in (data.name, data.attrs.get("units")))
    return GridData(axes, values, name, units, notes, template)


def axes_of(
    grid: xarray.DataArray | xarray.Dataset | tuple[Any, Any] | Mapping[str, Any],
) -> tuple[GridAxes, Template]:
    """The cells of a DataArray, of a Dataset, or of one-dimensional (lon, lat). Values are not read."""
    xr = require("xarray", "geo", _FIELD)
    sizes: dict[Any, int] | None = None
    attrs: dict[str, Any] = {}
    if isinstance(grid, xr.DataArray):
        subject = "the field" if grid.name is None else f"the field {grid.name!r}"
        sizes, attrs, coords = dict(grid.sizes), grid.attrs, grid.coords.to_dataset()
    elif isinstance(grid, xr.Dataset):
        subject, coords = "the dataset", grid.coords.to_dataset()
    elif isinstance(grid, tuple) and len(grid) == 2:
        subject, coords = "the pair (lon, lat)", coordinate_frame(xr, {"lat": grid[1], "lon": grid[0]})
    elif isinstance(grid, Mapping):
        subject, coords = "the grid", coordinate_frame(xr, grid)
    else:
        raise TypeError(
            "a grid must be an xarray.DataArray, an xarray.Dataset, a pair (lon, lat) or a dict of lon and lat; "
            f"got {type(grid).__name__}."
        )
    latitude, longitude = (find_coordinate(coords, kind, subject) for kind in ("latitude", "longitude"))
    sizes = {dim: coords.sizes[dim] for dim in (latitude, longitude)} if sizes is None else sizes
    coords = coords.drop_dims([dim for dim in coords.dims if dim not in sizes]).compute()
    latitudes, rows = sort_latitudes(degrees(coords[latitude], subject), latitude, subject)
    longitudes = degrees(coords[longitude], subject)
    first, columns = merge_meridians(longitudes, longitude, subject)
    frame = xr.DataArray(np.broadcast_to(False, tuple(sizes.values())), coords.coords, tuple(sizes), attrs=attrs)
    lattice = find_lattice(longitudes[first])
    axes = GridAxes(latitudes, longitudes[first], None if lattice is None else lattice[0])
    return axes, Template(frame, latitude, longitude, rows, columns)


def to_dataarray(
    values: Array,
    template: Template,
    name: str | None = None,
    units: str | None = None,
    long_name: str | None = None,
) -> xarray.DataArray:
    """Values [..., rows, columns], slices first, as a DataArray with the dimensions and coordinates of the source.

    Attributes that describe the values of the source (units, standard_name, valid_range, ...) are left out.
    """
    frame = template.frame
    cells = values[..., template.rows[:, None], template.columns]
    sorted_frame = frame.transpose(*template.extra, template.latitude, template.longitude, transpose_coords=False)
    result = sorted_frame.copy(data=cells.reshape(sorted_frame.shape)).transpose(*frame.dims, transpose_coords=False)
    attrs = {key: value for key, value in frame.attrs.items() if key not in _OF_VALUES}
    attrs |= {key: value for key, value in (("units", units), ("long_name", long_name)) if value is not None}
    result.attrs = attrs
    return result.rename(name)


# From points ---------------------------------------------------------------------------------------------------------


def grid_from_points(lon: Array, lat: Array, y: Array, noise: Array | None = None) -> GridData | None:
    """Finite points [n] as a grid with missing cells; None if they lie on no grid, fill little of it, or share a cell.

    Examples:
        >>> grid = grid_from_points(np.array([10.0, 0, 10]), np.array([5.0, -5, -5]), np.array([1.0, 2, 3]))
        >>> grid.axes.longitudes, grid.values
        (array([ 0., 10.]), array([[[ 2.,  3.], [nan,  1.]]]))
    """
    distinct = np.unique(lon)
    lattice = find_lattice(distinct)
    if lattice is None or np.abs(lat).max() > 90:
        return None
    places, first = np.unique(places_on(distinct, *lattice), return_index=True)
    by_longitude = np.argsort(first)  # `distinct` ascends, and so do the first longitudes of the lattice places
    longitudes = distinct[first[by_longitude]]
    levels = np.unique(lat)
    new = np.concatenate(([True], np.diff(levels) > SAME_DEGREES))
    latitudes = levels[new]
    cells = len(latitudes) * len(longitudes)
    if not LEAST_FILLED * cells <= len(y) <= cells:
        return None
    row = (np.cumsum(new) - 1)[np.searchsorted(levels, lat)]
    cell = row * len(longitudes) + np.argsort(by_longitude)[np.searchsorted(places, places_on(lon, *lattice))]
    if len(np.unique(cell)) < len(y):
        return None

    def on_cells(a: Array) -> Array:
        field = np.full(cells, np.nan)
        field[cell] = a
        return field.reshape(1, len(latitudes), len(longitudes))

    axes = GridAxes(latitudes, longitudes, lattice[0])
    return GridData(axes, on_cells(y), noise=None if noise is None else on_cells(noise))


def _without_repeats(values: Array, template: Template, subject: str) -> tuple[Array, tuple[str, ...]]:
    """The values without columns that repeat a meridian, and notes on these. Raises a ValueError if repeats differ."""
    _, first = np.unique(template.columns, return_index=True)
    if len(first) == len(template.columns):
        return values, ()
    longitudes, notes = template.frame[template.longitude].values, []
    for later in np.setdiff1d(np.arange(len(template.columns)), first):
        earlier = first[template.columns[later]]
        a, b = values[..., earlier], values[..., later]
        pair = f"the columns at {template.longitude} = {longitudes[earlier]:g} and {longitudes[later]:g}"
        present = ~(np.isnan(a) | np.isnan(b))
        gap = np.abs(a - b)[present]
        if gap.size and gap.max() > _REPEATED * max(np.abs(a[present]).max(), np.abs(b[present]).max()):
            raise ValueError(
                f"{pair} of {subject} are one meridian, but their values differ by up to {gap.max():g}: drop one of them."
            )
        values[..., earlier] = np.where(np.isnan(a), b, a)
        notes.append(f"{pair} are one meridian; the latter is left out.")
    return values[..., first], tuple(notes)


def _check_fill(values: Array, attrs: Mapping[Any, Any], subject: str) -> None:
    """Raise a ValueError if values equal the fill value of the attributes: then xarray has not decoded them."""
    for key in ("_FillValue", "missing_value"):
        for fill in np.atleast_1d(attrs.get(key, np.nan)):
            count = np.count_nonzero(values == fill)
            if count:
                raise ValueError(
                    f"{subject} has {count} values of {fill}, its {key}: use xarray.decode_cf(...), or "
                    f".where(data != {fill}), to make them missing."
                )
