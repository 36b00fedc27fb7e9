"""What a user passes to `fit`, read into one of three values: maps on a grid, scattered points, or a table of cells."""

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
_SAME_PLACE = 1e-5  # degrees between coordinates of the data and of known errors that are the same


def read(data: Any, y: Any, noise_std: Any, by: str | None) -> GridData | Points | CellTable:
    """Read a DataArray, a Dataset with the name y of its target, or points [n, 2] with values y, and their known errors."""
    covariates: dict[str, Any] = {}
    if hasattr(data, "data_vars"):
        (data, covariates), y = split_dataset(data, y), None
    if y is not None:
        return _read_points(data, y, noise_std, by)
    further = covariates or _has_inputs(data, by)
    values = CellTable.of(data, covariates) if further else read_grid(data)
    return values if noise_std is None else replace(values, noise=known_variances(noise_std, data))


def _read_points(data: Any, y: Any, noise_std: Any, by: str | None) -> GridData | Points:
    X = check_points(data)
    y = check_values(y, len(X))
    if by is not None:
        raise ValueError("by= takes slices of a DataArray; points have none.")
    errors = None if noise_std is None else known_variances(noise_std, y)
    grid = grid_from_points(X[:, 0], X[:, 1], y, errors)
    if grid is not None:
        return grid
    noise = None if errors is None else torch.from_numpy(errors)
    return Points(torch.from_numpy(X.copy()), torch.from_numpy(y.copy())[None], noise)


def _has_inputs(data: Any, by: str | None) -> bool:
    """Whether a DataArray varies along dimensions other than those of a map and that of its slices."""
    if not hasattr(data, "dims"):
        return False
    _, template = axes_of(data)
    if by is not None and by not in template.extra:
        raise ValueError(f"the data have no dimension {by!r} to take slices of.")
    extra = {dim for dim, size in zip(template.extra, template.extra_shape, strict=True) if size > 1}
    return bool(extra - {by})


def known_variances(noise_std: Any, data: Any) -> Array:
    """Standard errors as variances, in the rows, columns and slices in which the data are read.

    `noise_std` is one number, an array in the shape of the data, or, for a DataArray, another DataArray whose places are matched
    by their coordinates.
    """
    if hasattr(noise_std, "dims"):
        if not hasattr(data, "dims"):
            raise ValueError("noise_std of points is a number, or an array with one for each.")
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
    """The values of a DataArray at the coordinates of another, in its shape."""
    unknown = [str(dim) for dim in field.dims if dim not in data.dims]
    if unknown:
        raise ValueError(f"noise_std has the dimensions {', '.join(unknown)}, which the data have not.")
    _, template = axes_of(data)
    for dim in field.dims:
        if dim not in field.coords or dim not in data.coords:
            if field.sizes[dim] != data.sizes[dim]:
                raise ValueError(f"noise_std has {field.sizes[dim]} places along {dim}, the data {data.sizes[dim]}.")
            continue
        targets, places = data[dim].values, field[dim].values
        if dim in (template.latitude, template.longitude):
            distance = np.abs(targets[:, None].astype(np.float64) - places.astype(np.float64))
            distance = np.minimum(distance % 360, -distance % 360) if dim == template.longitude else distance
            nearest, matches = distance.argmin(1), distance.min(1) < _SAME_PLACE
        else:
            order = np.argsort(places, kind="stable")
            nearest = order[np.searchsorted(places[order], targets).clip(0, len(places) - 1)]
            matches = places[nearest] == targets
        if not matches.all():
            raise ValueError(f"noise_std has no place for {dim} = {targets[~matches][0]} of the data.")
        field = field.isel({dim: nearest})
    plain = field.drop_vars(list(field.coords)).astype(float)
    return np.array(plain.broadcast_like(data.drop_vars(list(data.coords))).transpose(*data.dims).values)


def standard_deviation(values: Array) -> float:
    """The standard deviation of the values that are there, 1 for a constant; raises for numbers that cannot be squared."""
    present = values[np.isfinite(values)]
    largest = float(np.abs(present).max()) if len(present) else 0.0
    if largest > _LARGEST:
        raise ValueError(f"the values reach {largest:.3g}: divide them by a constant.")
    if 0 < largest < 1 / _LARGEST:
        raise ValueError(f"the values vary by {largest:.3g} at most: multiply them by a constant.")
    return moments(present, None)[1] if largest else 1.0


def check_values(y: Any, n: int) -> Array:
    """The values of n points, or a clear error."""
    values = np.asarray(y, np.float64)
    if values.shape != (n,) or not np.isfinite(values).all():
        raise ValueError(
            f"y must be {n} finite numbers, one a point; got shape {values.shape}: drop points without one."
        )
    return values


def check_points(X: Any, names: Sequence[str] = ("longitude", "latitude")) -> Array:
    """Points [n, inputs], longitude and latitude in degrees first, or a clear error.

    Two columns of a data frame are taken by their names where these say longitude and latitude.
    """
    if hasattr(X, "columns") and len(names) == 2:
        columns = {str(c).lower()[:3]: c for c in X.columns}
        if {"lon", "lat"} <= columns.keys():
            X = X[[columns["lon"], columns["lat"]]]
    points = np.asarray(X, np.float64)
    if points.ndim != 2 or points.shape[1] != len(names) or not len(points):
        more = "" if len(names) > 2 else " For points with further columns use HarmonicGPRegressor."
        raise ValueError(f"points are [n, {len(names)}]: {', '.join(names)}; got shape {points.shape}.{more}")
    if not np.isfinite(points).all():
        raise ValueError("points must be finite longitudes and latitudes: drop the others.")
    if np.abs(points[:, 1]).max() > 90 + 1e-9:
        worst = points[np.abs(points[:, 1]).argmax(), 1]
        raise ValueError(f"a latitude is {worst:g}: the columns are longitude, latitude.")
    return points


def are_points(where: Any) -> bool:
    """Whether these are points [n, inputs], and not a grid."""
    return not isinstance(where, tuple) and not hasattr(where, "dims") and where is not None and np.ndim(where) == 2
