"""The data of `HarmonicGPField`: DataArrays, Datasets, NumPy grids, data frames and arrays of points, read into one value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from harmonicgp.planes.coordinates import Coordinate, Lattice, Plane
from harmonicgp.planes.frames import GridFrame, kept_attrs
from harmonicgp.tables.columns import Array

#: Points are a grid if they fill at least this share of its cells.
FILLED = 0.05
#: Pairs of columns of a data frame that are coordinates.
_PAIRS = (("lon", "lat"), ("longitude", "latitude"), ("x", "y"), ("easting", "northing"), ("e", "n"), ("row", "column"))


@dataclass(frozen=True)
class RegionData:
    """Values of P fields at places of a plane."""

    plane: Plane
    corners: Array  #: coordinates of the places, or of the cells of an outline of the grid, [m, d]
    X: Array  #: places on the plane, [n, d]
    values: Array  #: [P, n], NaN where missing
    noise: Array | None  #: known variances, [P, n]
    covariates: Array  #: [n, c]
    names: tuple[str, ...]  #: of the covariates
    shape: tuple[int, ...] | None  #: of the lattice; None for scattered points
    steps: tuple[float, ...] | None
    frame: GridFrame | None  #: None for points
    cells: Array | None  #: for points on a lattice: their cells
    name: str | None
    units: str | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class PlaneTarget:
    """The places of a prediction."""

    points: Array  #: coordinates, [m, d]
    covariates: Array  #: [m, c]
    frame: GridFrame | None  #: None for points


def read_region(data: Any, y: Any, noise_std: Any, by: str | None, coordinates: str) -> RegionData:
    """Read a DataArray, a Dataset with the name y of its target, a NumPy grid, or points with values y."""
    covariates: dict[str, Any] = {}
    if hasattr(data, "data_vars"):
        if not isinstance(y, str) or y not in data.data_vars:
            present = ", ".join(repr(str(name)) for name in data.data_vars)
            raise ValueError(f"name the target of the Dataset: fit(data, name), one of {present}.")
        covariates = {str(name): data[name] for name in data.data_vars if name != y}
        data, y = data[y], None
    if hasattr(data, "dims"):
        if y is not None:
            raise ValueError("a DataArray holds its values: fit(data) takes no y.")
        return _read_grid(data, covariates, noise_std, by, coordinates)
    if y is None:
        array = np.asarray(data)
        if array.ndim < 1 or array.ndim > 4 or array.dtype.kind not in "fiub":
            raise TypeError(
                f"a field is a DataArray, a grid of numbers, or points with values: fit(X, y); got {type(data).__name__}."
            )
        return _read_array(array.astype(np.float64), noise_std, by)
    if by is not None:
        raise ValueError("by= takes slices of a grid; points have none.")
    return _read_points(data, y, noise_std, coordinates)


# Grids ----------------------------------------------------------------------------------------------------------------


def _read_grid(data: Any, covariates: Mapping[str, Any], noise_std: Any, by: str | None, mode: str) -> RegionData:
    name = None if data.name is None else str(data.name)
    subject = "the field" if name is None else f"the field {name!r}"
    if by is not None and by not in data.dims:
        raise ValueError(f"{subject} has no dimension {by!r}; it has {', '.join(map(str, data.dims))}.")
    single = [dim for dim in data.dims if data.sizes[dim] == 1 and dim != by]
    axes = [str(dim) for dim in data.dims if dim != by and dim not in single]
    if not axes:
        axes, single = [str(single[-1])] if single else [], single[:-1]
    data = data.isel(dict.fromkeys(single, 0), drop=True)
    raw, found, attrs = _axes_of(data, axes, mode)
    corners = _outline([raw[dim] for dim in axes])
    plane = Plane.of(found, corners)
    if data.dtype.kind not in "fiub":
        raise TypeError(f"{subject} has values of type {data.dtype}; they must be real numbers: use .astype(float).")
    order = [*([by] if by else []), *axes]
    values = _stacked(data, order, by)
    _check_values(values, subject)
    noise = None if noise_std is None else _variances(noise_std, data, order, by)
    labels: dict[str, Any] = {dim: data[dim].values for dim in order if dim in data.coords}
    frame = GridFrame(
        tuple(str(dim) for dim in data.dims), tuple(axes), labels, tuple(len(raw[dim]) for dim in axes),
        tuple(np.arange(len(raw[dim])) for dim in axes), by, attrs,
    )  # fmt: skip
    extra = _covariate_columns(covariates, frame, data)
    units = data.attrs.get("units")
    return _on_lattice(
        RegionData(
            plane, corners, np.empty((0, 0)), values, noise, extra, tuple(covariates), None, None, frame, None, name,
            None if units is None else str(units),
        ),
        [raw[dim] for dim in axes],
    )  # fmt: skip


def _axes_of(data: Any, axes: Sequence[str], mode: str) -> tuple[dict[str, Array], list[Coordinate], dict[str, Any]]:
    """Numbers of the coordinates, what they are, and their attributes."""
    raw, found, attrs = {}, [], {}
    geographic = {"auto": None, "plane": False, "geographic": True}[mode]
    for dim in axes:
        if dim in data.coords:
            entry = data[dim]
            coordinate = Coordinate.of(dim, entry.dtype, entry.attrs, geographic)
            raw[dim], attrs[dim] = coordinate.numbers(entry.values), kept_attrs(entry.attrs)
        else:
            coordinate, raw[dim] = Coordinate(dim, "number", "cells"), np.arange(float(data.sizes[dim]))
        found.append(coordinate)
    return raw, found, attrs


def _outline(raw: Sequence[Array]) -> Array:
    """Points that have every coordinate of the axes, [largest, d]."""
    n = max(len(values) for values in raw)
    return np.stack([np.pad(values, (0, n - len(values)), mode="edge") for values in raw], 1)


def _stacked(data: Any, order: Sequence[str], by: str | None) -> Array:
    """Values with the slices first, [P, *shape]."""
    values = np.array(data.transpose(*order).values, np.float64)
    return values if by else values[None]


def _check_values(values: Array, subject: str) -> None:
    if np.isinf(values).any():
        raise ValueError(f"{subject} has infinite values: make them NaN if they are missing.")
    empty = np.isnan(values).reshape(len(values), -1).all(1)
    if empty.all():
        raise ValueError(f"{subject} has no value: all {values.size} cells are missing.")
    if empty.any():
        raise ValueError(f"{subject} has no value in slice {int(empty.argmax())}: drop slices that are all missing.")


def _variances(noise_std: Any, data: Any, order: Sequence[str], by: str | None) -> Array:
    """Known errors as variances in the shape of the values."""
    if hasattr(noise_std, "dims"):
        noise_std = noise_std.broadcast_like(data).transpose(*data.dims)
        if noise_std.shape != data.shape:
            raise ValueError("noise_std must have the coordinates of the data.")
        noise_std = noise_std.values
    errors = np.asarray(noise_std, np.float64)
    if errors.ndim and errors.shape != data.shape:
        raise ValueError(
            f"noise_std must be one number or have the shape of the data, {data.shape}; got {errors.shape}."
        )
    errors = np.broadcast_to(errors, data.shape)
    if hasattr(data, "dims"):
        errors = np.transpose(errors, [list(data.dims).index(dim) for dim in order])
        errors = errors if by else errors[None]
    return checked_errors(errors)


def checked_errors(errors: Array) -> Array:
    """Squares of standard errors, which must not be negative; those of missing cells may be NaN."""
    if (errors < 0).any() or np.isinf(errors).any():
        raise ValueError("noise_std must be finite standard errors, none negative.")
    return np.square(errors)


def _covariate_columns(covariates: Mapping[str, Any], frame: GridFrame, data: Any) -> Array:
    """Covariates at all cells, [cells, c]."""
    columns = []
    like = data.isel({frame.by: 0}, drop=True) if frame.by else data
    for name, entry in covariates.items():
        extra = [str(dim) for dim in entry.dims if dim not in like.dims]
        if extra:
            raise ValueError(f"the covariate {name!r} has the dimensions {', '.join(extra)}, which the field has not.")
        if entry.dtype.kind not in "fiub":
            raise TypeError(f"the covariate {name!r} has type {entry.dtype}; it must be numbers.")
        values = np.asarray(entry.broadcast_like(like).transpose(*frame.axes).values, np.float64).ravel()
        if not np.isfinite(values).all():
            raise ValueError(
                f"the covariate {name!r} is missing in {int((~np.isfinite(values)).sum())} cells: fill them."
            )
        columns.append(values)
    return np.stack(columns, 1) if columns else np.empty((int(np.prod(frame.shape)), 0))


def _on_lattice(data: RegionData, raw: Sequence[Array]) -> RegionData:
    """The cells on an evenly spaced lattice; as scattered points if the spacing is irregular."""
    frame = data.frame
    assert frame is not None
    lattices = []
    for j, (values, c) in enumerate(zip(raw, data.plane.coordinates, strict=True)):
        points = np.repeat(data.corners[:1], len(values), 0)
        points[:, j] = values
        lattices.append(Lattice.of(data.plane(points)[:, j], c.name))
    axes = [data.plane(_column(data.corners, j, values))[:, j] for j, values in enumerate(raw)]
    uneven = [c.name for c, lattice in zip(data.plane.coordinates, lattices, strict=True) if lattice is None]
    if uneven:
        note = f"{', '.join(uneven)} unevenly spaced: the cells are scattered points, and predictions use the nearest ones."
        X = np.stack([part.ravel() for part in np.meshgrid(*axes, indexing="ij")], 1)
        flat = None if data.noise is None else data.noise.reshape(len(data.noise), -1)
        return replace(
            data, X=X, values=data.values.reshape(len(data.values), -1), noise=flat, notes=(*data.notes, note)
        )
    fits = [lattice for lattice in lattices if lattice is not None]
    frame = replace(frame, sizes=tuple(f.size for f in fits), index=tuple(f.index for f in fits))
    added = int(np.prod(frame.sizes)) - int(np.prod(frame.shape))
    notes = (f"the coordinates skip places of their lattice: {added:,} cells are added as missing.",) if added else ()
    lines = [float(a.min()) + f.step * np.arange(f.size) for a, f in zip(axes, fits, strict=True)]
    X = np.stack([part.ravel() for part in np.meshgrid(*lines, indexing="ij")], 1)
    covariates = np.zeros((len(X), data.covariates.shape[1]))
    for j, column in enumerate(data.covariates.T):
        covariates[:, j] = frame.on_lattice(column.reshape(1, *frame.shape), 0.0)[0]
    return replace(
        data, X=X, values=frame.on_lattice(data.values), covariates=covariates, frame=frame, shape=frame.sizes,
        noise=None if data.noise is None else frame.on_lattice(data.noise), notes=(*data.notes, *notes),
        steps=tuple(f.step for f in fits),
    )  # fmt: skip


def _column(corners: Array, j: int, values: Array) -> Array:
    """Points with one coordinate replaced."""
    points = np.repeat(corners[:1], len(values), 0)
    points[:, j] = values
    return points


def _read_array(values: Array, noise_std: Any, by: str | None) -> RegionData:
    """A NumPy grid: coordinates count cells."""
    if by is not None:
        raise ValueError("by= names a dimension; arrays have no names: use xarray.DataArray(values, dims=...).")
    if values.ndim > 3:
        raise ValueError("a grid has one to three axes: use an xarray.DataArray and by= for further ones.")
    _check_values(values[None], "the field")
    axes = tuple(f"axis {j}" for j in range(values.ndim))
    raw = [np.arange(float(n)) for n in values.shape]
    corners = _outline(raw)
    plane = Plane.of([Coordinate(name, "number", "cells") for name in axes], corners)
    index = tuple(np.arange(n) for n in values.shape)
    frame = GridFrame(axes, axes, {}, values.shape, index, None, {}, arrays=True)
    noise = (
        None if noise_std is None else checked_errors(np.broadcast_to(np.asarray(noise_std, float), values.shape))[None]
    )
    empty = np.empty((values.size, 0))
    region = RegionData(
        plane, corners, empty, values[None], noise, empty, (), None, None, frame, None, None, None
    )  # fmt: skip
    return _on_lattice(region, raw)


# Points ---------------------------------------------------------------------------------------------------------------


def _read_points(data: Any, y: Any, noise_std: Any, mode: str) -> RegionData:
    found, points, extra, names = point_columns(data, mode)
    values = np.asarray(y, np.float64)
    if values.shape != (len(points),):
        raise ValueError(f"y must have one value for each of the {len(points)} points; got shape {values.shape}.")
    if not np.isfinite(values).all():
        raise ValueError(f"y has {int((~np.isfinite(values)).sum())} values that are not finite: drop these points.")
    plane = Plane.of(found, points)
    noise = None
    if noise_std is not None:
        errors = np.asarray(noise_std, np.float64)
        if errors.ndim and errors.shape != values.shape:
            raise ValueError(f"noise_std must be one number or {len(points)} numbers; got shape {errors.shape}.")
        noise = checked_errors(np.broadcast_to(errors, values.shape))[None]
    region = RegionData(
        plane, points, plane(points), values[None], noise, extra, names, None, None, None, None,
        None if getattr(y, "name", None) is None else str(y.name), None,
    )  # fmt: skip
    return region if len(names) else _points_on_lattice(region)


def _points_on_lattice(data: RegionData) -> RegionData:
    """The same as a grid, if the points lie on one, fill enough of it, and no two share a cell."""
    lattices = []
    for column, c in zip(data.X.T, data.plane.coordinates, strict=True):
        levels, inverse = np.unique(column, return_inverse=True)
        lattice = Lattice.of(levels, c.name, distinct=False)
        if lattice is None:
            return data
        lattices.append(replace(lattice, index=lattice.index[inverse]))
    sizes = tuple(lattice.size for lattice in lattices)
    n = len(data.X)
    cells = np.ravel_multi_index([lattice.index for lattice in lattices], sizes)
    if np.prod([float(size) for size in sizes]) * FILLED > n or len(np.unique(cells)) < n:
        return data
    lines = [float(x.min()) + f.step * np.arange(f.size) for x, f in zip(data.X.T, lattices, strict=True)]
    X = np.stack([part.ravel() for part in np.meshgrid(*lines, indexing="ij")], 1)

    def spread(values: Array) -> Array:
        out = np.full((1, len(X)), np.nan)
        out[:, cells] = values
        return out

    return replace(
        data, X=X, values=spread(data.values), noise=None if data.noise is None else spread(data.noise),
        covariates=np.empty((len(X), 0)), shape=sizes, steps=tuple(f.step for f in lattices), cells=cells,
        notes=(f"the points lie on a grid of {' x '.join(map(str, sizes))} cells.",),
    )  # fmt: skip


def point_columns(data: Any, mode: str) -> tuple[list[Coordinate], Array, Array, tuple[str, ...]]:
    """Coordinates of points: what they are, their numbers [n, d], covariates [n, c] and their names."""
    geographic = {"auto": None, "plane": False, "geographic": True}[mode]
    if not hasattr(data, "columns"):
        array = np.asarray(data, np.float64)
        if array.ndim == 1:
            array = array[:, None]
        if array.ndim != 2 or not array.size:
            raise ValueError(f"points are [n, axes], such as longitude and latitude; got shape {array.shape}.")
        if mode == "geographic":
            found = [Coordinate("longitude", "longitude", "degrees"), Coordinate("latitude", "latitude", "degrees")]
            found += [Coordinate(f"axis {j}", "number") for j in range(2, array.shape[1])]
        else:
            found = [Coordinate(f"axis {j}", "number") for j in range(array.shape[1])]
        return (
            found,
            np.stack([c.numbers(x) for c, x in zip(found, array.T, strict=True)], 1),
            np.empty((len(array), 0)),
            (),
        )
    lower = {str(column).lower(): column for column in data.columns}
    pair = next((pair for pair in _PAIRS if set(pair) <= lower.keys()), None)
    if pair is None:
        raise ValueError(
            f"the data frame has no coordinates among its columns {', '.join(map(str, data.columns))}: name them lon and lat, x "
            "and y, or easting and northing."
        )
    columns = [lower[name] for name in pair] + [lower[name] for name in ("z", "depth", "time") if name in lower]
    arrays = [np.asarray(data[column]) for column in columns]
    found = [Coordinate.of(str(c), a.dtype, {}, geographic) for c, a in zip(columns, arrays, strict=True)]
    points = np.stack([c.numbers(a) for c, a in zip(found, arrays, strict=True)], 1)
    names = tuple(str(column) for column in data.columns if column not in columns)
    try:
        extra = (
            np.stack([np.asarray(data[name], np.float64) for name in names], 1) if names else np.empty((len(points), 0))
        )
    except (TypeError, ValueError):
        raise TypeError(f"the covariates {', '.join(names)} must be numbers: drop the other columns.") from None
    if not np.isfinite(extra).all():
        raise ValueError(f"the covariates {', '.join(names)} have missing values: drop these points.")
    return found, points, extra, names


# Predictions ----------------------------------------------------------------------------------------------------------


def read_target(where: Any, plane: Plane, names: Sequence[str], mode: str) -> PlaneTarget:
    """The places of a prediction: a DataArray or Dataset, a tuple of axes, a data frame or an array of points."""
    own = [c.name for c in plane.coordinates]
    if isinstance(where, tuple):
        if len(where) != len(own):
            raise ValueError(f"give {len(own)} axes: {', '.join(own)}; got {len(where)}.")
        raw = {name: np.atleast_1d(np.asarray(values)) for name, values in zip(own, where, strict=True)}
        return _mesh(raw, plane, {}, np.empty((0, 0)))
    if hasattr(where, "dims") and hasattr(where, "coords"):
        missing = [name for name in own if name not in where.coords]
        if missing:
            raise ValueError(
                f"the grid to predict has no coordinate {', '.join(missing)}; the field has {', '.join(own)}."
            )
        raw = {name: np.atleast_1d(where[name].values) for name in own}
        target = _mesh(raw, plane, {name: kept_attrs(where[name].attrs) for name in own}, np.empty((0, 0)))
        if not names:
            return target
        absent = [name for name in names if name not in getattr(where, "data_vars", ())]
        if absent:
            raise ValueError(f"a prediction needs the covariates {', '.join(absent)}: give a Dataset that has them.")
        assert target.frame is not None
        like = where[list(names)].to_array().isel(variable=0, drop=True)
        return replace(target, covariates=_covariate_columns({n: where[n] for n in names}, target.frame, like))
    _, points, extra, given = point_columns(where, mode)
    if points.shape[1] != len(own):
        raise ValueError(f"points are [n, {len(own)}]: {', '.join(own)}; got {points.shape[1]} columns.")
    absent = [name for name in names if name not in given]
    if absent:
        raise ValueError(f"a prediction needs the covariates {', '.join(absent)}: give a data frame that has them.")
    order = [given.index(name) for name in names]
    numbers = [c.numbers(column) for c, column in zip(plane.coordinates, points.T, strict=True)]
    return PlaneTarget(np.stack(numbers, 1), extra[:, order], None)


def _mesh(raw: Mapping[str, Array], plane: Plane, attrs: dict[str, Any], covariates: Array) -> PlaneTarget:
    numbers = [c.numbers(raw[c.name]) for c in plane.coordinates]
    points = np.stack([part.ravel() for part in np.meshgrid(*numbers, indexing="ij")], 1)
    shape = tuple(len(values) for values in numbers)
    names = tuple(c.name for c in plane.coordinates)
    frame = GridFrame(names, names, dict(raw), shape, tuple(np.arange(n) for n in shape), None, attrs)
    return PlaneTarget(points, covariates if covariates.size else np.empty((len(points), 0)), frame)


def outline(data: Any, y: Any, by: str | None, mode: str) -> tuple[list[Coordinate], Array] | None:
    """What the coordinates of data are, and points that have all of them; None for arrays, which have no names."""
    if hasattr(data, "data_vars"):
        if not isinstance(y, str) or y not in data.data_vars:
            return None
        data, y = data[y], None
    if hasattr(data, "dims"):
        axes = [str(dim) for dim in data.dims if dim != by and data.sizes[dim] > 1]
        raw, found, _ = _axes_of(data, axes, mode)
        return (found, _outline([raw[dim] for dim in axes])) if axes else None
    if y is None:
        return None
    found, points, _, _ = point_columns(data, mode)
    return found, points
