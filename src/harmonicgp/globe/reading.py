"""The data of `HarmonicGPGlobe.fit`, read into one of three values: maps on a grid, scattered points, or a table of cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from harmonicgp.globe.cells import CellTable, split_dataset
from harmonicgp.globe.fields import Points
from harmonicgp.globe.grids import GridData, axes_of, grid_from_points, read_grid
from harmonicgp.tables.columns import Array
from harmonicgp.tables.inputs import moments

_LARGEST = 1e150  # numbers up to here can be squared
_SAME_PLACE = 1e-5  # degrees up to which coordinates of the data and of known errors count as equal


def read(data: Any, y: Any, noise_std: Any, by: str | None) -> GridData | Points | CellTable:
    """Read a DataArray, a Dataset with the name y of its target, or points [n, 2] with values y, and their known errors."""
    covariates: dict[str, Any] = {}
    if hasattr(data, "data_vars"):
        (data, covariates), y = split_dataset(data, y), None
    if y is not None:
        return _read_points(data, y, noise_std, by)
    has_inputs = bool(covariates) or _has_inputs(data, by)
    noise = None if noise_std is None else known_variances(noise_std, data)
    return CellTable.of(data, covariates, noise) if has_inputs else replace(read_grid(data), noise=noise)


def _read_points(data: Any, y: Any, noise_std: Any, by: str | None) -> GridData | Points:
    X = check_points(data)
    y = check_values(y, len(X))
    if by is not None:
        raise ValueError("by= takes slices of a DataArray; points have none.")
    noise = None if noise_std is None else known_variances(noise_std, y)
    grid = grid_from_points(X[:, 0], X[:, 1], y, noise)
    if grid is not None:
        return grid
    variances = None if noise is None else torch.from_numpy(noise)
    return Points(torch.from_numpy(X.copy()), torch.from_numpy(y.copy())[None], variances)


def _has_inputs(data: Any, by: str | None) -> bool:
    """Whether a DataArray has dimensions besides those of a map and that of its slices."""
    if not hasattr(data, "dims"):
        return False
    _, template = axes_of(data)
    if by is not None and by not in template.extra:
        raise ValueError(f"the data have no dimension {by!r} to take slices of.")
    extra = {dim for dim, size in zip(template.extra, template.extra_shape, strict=True) if size > 1}
    return bool(extra - {by})


def known_variances(noise_std: Any, data: Any) -> Array:
    """Standard errors as variances, in the order in which the data are read, [slices, rows, columns].

    `noise_std` is a number, an array in the shape of the data, or, for a DataArray, another DataArray, which is matched by its
    coordinates.
    """
    if hasattr(noise_std, "dims"):
        if not hasattr(data, "dims"):
            raise ValueError("noise_std of points must be a number, or an array with one number for each point.")
        values = _at_places_of(noise_std, data)
    else:
        values = np.asarray(noise_std, np.float64)
        if values.ndim and values.shape != data.shape:
            raise ValueError(
                f"noise_std must be one number or have the shape of the data, {data.shape}; got shape {values.shape}."
            )
        values = np.array(np.broadcast_to(values, data.shape))
    missing = np.isnan(values)
    if (values[~missing] < 0).any() or (values[~missing] > _LARGEST).any():
        raise ValueError("noise_std must be finite standard errors, none negative.")
    if not hasattr(data, "dims"):
        if missing.any():
            raise ValueError("noise_std must be a number for every point.")
        return values**2
    if missing.all():
        raise ValueError("noise_std is missing everywhere.")
    return read_grid(data.copy(data=values)).values ** 2


def _at_places_of(field: Any, data: Any) -> Array:
    """The values of a DataArray at the coordinates of the data, in the shape of the data."""
    extra = [str(dim) for dim in field.dims if dim not in data.dims]
    if extra:
        raise ValueError(f"noise_std has the dimensions {', '.join(extra)}, which the data have not.")
    _, template = axes_of(data)
    for dim in field.dims:
        if dim not in field.coords or dim not in data.coords:
            if field.sizes[dim] != data.sizes[dim]:
                raise ValueError(f"noise_std has {field.sizes[dim]} indices along {dim}, the data {data.sizes[dim]}.")
            continue
        targets, coordinates = data[dim].values, field[dim].values
        if dim in (template.latitude, template.longitude):
            distance = np.abs(targets[:, None].astype(np.float64) - coordinates.astype(np.float64))
            distance = np.minimum(distance % 360, -distance % 360) if dim == template.longitude else distance
            nearest, matches = distance.argmin(1), distance.min(1) < _SAME_PLACE
        else:
            order = np.argsort(coordinates, kind="stable")
            nearest = order[np.searchsorted(coordinates[order], targets).clip(0, len(coordinates) - 1)]
            matches = coordinates[nearest] == targets
        if not matches.all():
            raise ValueError(f"noise_std has no value at {dim} = {targets[~matches][0]} of the data.")
        field = field.isel({dim: nearest})
    plain = field.drop_vars(list(field.coords)).astype(float)
    return np.array(plain.broadcast_like(data.drop_vars(list(data.coords))).transpose(*data.dims).values)


def standard_deviation(values: Array) -> float:
    """The standard deviation of the values that are not NaN, 1 for a constant; raises for numbers that cannot be squared."""
    present = values[np.isfinite(values)]
    largest = float(np.abs(present).max()) if len(present) else 0.0
    if largest > _LARGEST:
        raise ValueError(f"the values reach {largest:.3g}: divide them by a constant.")
    if 0 < largest < 1 / _LARGEST:
        raise ValueError(f"the values vary by {largest:.3g} at most: multiply them by a constant.")
    return moments(present, None)[1] if largest else 1.0


def check_values(y: Any, n: int) -> Array:
    """The values of n points as an array [n]; raises a ValueError for anything else."""
    values = np.asarray(y, np.float64)
    if values.shape != (n,) or not np.isfinite(values).all():
        raise ValueError(
            f"y must be {n} finite numbers, one for each point; got shape {values.shape}: drop points without a value."
        )
    return values


def check_points(X: Any, names: Sequence[str] = ("longitude", "latitude")) -> Array:
    """Points as an array [n, inputs], longitude and latitude in degrees first; raises a ValueError for anything else.

    In a data frame the columns of longitude and latitude are found by their names.
    """
    if hasattr(X, "columns") and len(names) == 2:
        columns = {str(c).lower()[:3]: c for c in X.columns}
        if {"lon", "lat"} <= columns.keys():
            X = X[[columns["lon"], columns["lat"]]]
    points = np.asarray(X, np.float64)
    if points.ndim != 2 or points.shape[1] != len(names) or not len(points):
        hint = "" if len(names) > 2 else " For points with further columns use HarmonicGPRegressor."
        raise ValueError(f"points are [n, {len(names)}]: {', '.join(names)}; got shape {points.shape}.{hint}")
    if not np.isfinite(points).all():
        raise ValueError("points must be finite longitudes and latitudes: drop the others.")
    if np.abs(points[:, 1]).max() > 90 + 1e-9:
        worst = points[np.abs(points[:, 1]).argmax(), 1]
        raise ValueError(f"a latitude is {worst:g}: the columns are longitude, latitude.")
    return points


def are_points(where: Any) -> bool:
    """Whether an argument of a prediction is points [n, inputs], and not a grid."""
    return not isinstance(where, tuple) and not hasattr(where, "dims") and where is not None and np.ndim(where) == 2
