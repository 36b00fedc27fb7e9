"""What surrounds a model of a field: mean functions, the shape of the data, known errors, scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from harmonicgp._extras import require
from harmonicgp.globe.fields import Field
from harmonicgp.globe.grids import GridAxes, GridData, axes_of, read_grid
from harmonicgp.tables.inputs import Array, moments

#: Twice the highest frequency, at most, of longitudes that are not evenly spaced, unless given.
MAX_UNEVEN = 720
_LARGEST = 1e150  # whose square is still a number


@dataclass(frozen=True)
class MeanFunction:
    """What is taken off the values before they are modelled: a constant, a linear function of the place, or a given field."""

    kind: str
    coefficients: Array  #: [4] of 1 and the three coordinates of the unit sphere
    field: tuple[Array, Array, Array] | None = None  #: latitudes, longitudes, values

    @classmethod
    def of(cls, mean: Any, latitudes: Array, longitudes: Array, values: Array) -> MeanFunction:
        """From the argument of the estimator and the data [slices, ...] at places [...], NaN where missing."""
        if isinstance(mean, str) and mean == "constant":
            return cls("constant", np.array([float(np.nanmean(values)), 0.0, 0.0, 0.0]))
        if isinstance(mean, str) and mean == "linear":
            times = np.isfinite(values).sum(0)  # of the slices that have a place
            average, root = np.nansum(values, axis=0) / np.maximum(times, 1), np.sqrt(times)
            basis = linear_basis(latitudes, longitudes) * root[..., None]
            coefficients, *_ = np.linalg.lstsq(basis.reshape(-1, 4), (average * root).ravel(), rcond=None)
            return cls("linear", coefficients)
        if isinstance(mean, str) or mean is None:
            raise ValueError(f'mean must be "constant", "linear" or a DataArray with a field; got {mean!r}.')
        given = read_grid(mean)
        if len(given.values) != 1 or not np.isfinite(given.values).all():
            raise ValueError("the field of mean= must be one map without missing cells.")
        return cls("field", np.zeros(4), (given.axes.latitudes, given.axes.longitudes, given.values[0]))

    def __call__(self, latitudes: Array, longitudes: Array) -> Array:
        """At places, broadcast against each other."""
        latitudes, longitudes = np.broadcast_arrays(latitudes, longitudes)
        if self.field is None:
            return np.asarray(linear_basis(latitudes, longitudes) @ self.coefficients)
        return _interpolated(*self.field, latitudes, longitudes)


def linear_basis(latitudes: Array, longitudes: Array) -> Array:
    """One and the three coordinates of places on the unit sphere, [..., 4]."""
    p, q = np.broadcast_arrays(np.deg2rad(latitudes), np.deg2rad(longitudes))
    return np.stack((np.ones_like(p), np.cos(p) * np.cos(q), np.cos(p) * np.sin(q), np.sin(p)), -1)


def _interpolated(rows: Array, columns: Array, values: Array, latitudes: Array, longitudes: Array) -> Array:
    """Bilinear between cells, around the date line where the columns go round the globe; beyond the last cells, theirs."""
    start = columns.min()
    order = np.argsort((columns - start) % 360)
    places = ((columns - start) % 360)[order]
    table = values[:, order]
    gaps = np.diff(places)
    if len(places) > 1 and 360 - places[-1] <= 1.5 * gaps.max():  # whole circle
        places, table = np.append(places, 360.0), np.concatenate((table, table[:, :1]), 1)
    x = (longitudes - start) % 360
    i, u = _between(rows, latitudes)
    j, v = _between(places, np.where(x > places[-1], np.where(x - places[-1] < 360 - x, places[-1], 0.0), x))
    i2, j2 = np.minimum(i + 1, len(rows) - 1), np.minimum(j + 1, len(places) - 1)
    low = table[i, j] * (1 - v) + table[i, j2] * v
    return np.asarray(low * (1 - u) + (table[i2, j] * (1 - v) + table[i2, j2] * v) * u)


def _between(places: Array, at: Array) -> tuple[Array, Array]:
    i = np.clip(np.searchsorted(places, at, side="right") - 1, 0, max(0, len(places) - 2))
    if len(places) == 1:
        return i, np.zeros_like(at)
    return i, np.clip((at - places[i]) / (places[i + 1] - places[i]), 0.0, 1.0)


@dataclass(frozen=True)
class Source:
    """What the data looked like, so that predictions can look like them."""

    names: tuple[str, str]  #: of latitude and longitude
    dims: tuple[str, ...]  #: their order, without that of the slices
    latitudes: Array  #: as given
    longitudes: Array
    slices: Array  #: coordinates of the slices

    def find(self, by: str, where: Any) -> tuple[list[int], bool]:
        """The slices that a DataArray or Dataset asks for, by their coordinates, and whether it is a single one."""
        lone = by not in where.dims
        if by not in where.coords:
            if where.sizes[by] != len(self.slices):
                raise ValueError(
                    f"{by} has no coordinates: give all {len(self.slices)} slices that were fitted, or name them."
                )
            return list(range(len(self.slices))), False
        wanted = np.atleast_1d(where[by].values)
        known = {value: k for k, value in enumerate(self.slices.tolist())}
        places = (
            wanted.astype(self.slices.dtype).tolist()
            if wanted.dtype.kind == self.slices.dtype.kind
            else wanted.tolist()
        )
        for value, given in zip(places, wanted, strict=True):
            if value not in known:
                raise ValueError(
                    f"no slice was fitted for {by} = {given}: predictions are for the {len(known)} slices from "
                    f"{self.slices[0]} to {self.slices[-1]}. Fit without by= to make {by} an input."
                )
        return [known[value] for value in places], lone

    @classmethod
    def of(cls, grid: GridData, data: Any, by: str | None) -> Source:
        """From what was read."""
        template = grid.template
        assert template is not None
        names = template.latitude, template.longitude
        slices = np.arange(len(grid.values))
        if by is not None and by in data.coords:
            slices = np.asarray(data[by].values)
        dims = tuple(dim for dim in template.dims if dim in names)
        return cls(names, dims, grid.axes.latitudes[template.rows], grid.axes.longitudes[template.columns], slices)

    def frame(self) -> Any:
        """A field of nothing on those coordinates."""
        xr = require("xarray", "geo", "fields on a grid")
        latitude, longitude = self.names
        coords = {latitude: (latitude, self.latitudes), longitude: (longitude, self.longitudes)}
        frame = xr.DataArray(np.zeros(tuple(len(coords[dim][1]) for dim in self.dims)), coords, self.dims)
        frame[latitude].attrs["units"], frame[longitude].attrs["units"] = "degrees_north", "degrees_east"
        return frame

    def state(self) -> dict[str, Any]:
        """For a file; the coordinates are among its tensors."""
        kind = self.slices.dtype
        numbers = self.slices.astype(np.int64) if kind.kind in "mM" else self.slices
        return {"names": list(self.names), "dims": list(self.dims), "dtype": kind.str, "slices": numbers.tolist()}

    @classmethod
    def from_state(cls, state: dict[str, Any], tensors: dict[str, Tensor]) -> Source:
        """From a file."""
        latitude, longitude = (str(name) for name in state["names"])
        slices = np.array(state["slices"])
        slices = slices.astype(np.int64).astype(state["dtype"]) if state["dtype"][1] in "mM" else slices
        dims = tuple(str(dim) for dim in state["dims"])
        latitudes, longitudes = (tensors[f"source.{name}"].numpy() for name in ("latitudes", "longitudes"))
        return cls((latitude, longitude), dims, latitudes, longitudes, slices)


def extent_of(axes: GridAxes) -> tuple[float, float]:
    """The latitudes that the rows cover, half a step beyond the last; of one row, as wide as its cells."""
    lat = axes.latitudes
    half = 0.5 * float(np.diff(lat).max()) if len(lat) > 1 else 180 / (axes.order or MAX_UNEVEN)
    return max(-90.0, float(lat[0]) - half), min(90.0, float(lat[-1]) + half)


def known_variances(noise_std: Any, data: Any) -> Array:
    """Standard errors as variances, in the rows, columns and slices in which the data are read.

    One number; an array in the shape of the data; or, for a DataArray, another whose places are found by their coordinates.
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
    """A DataArray at the coordinates of another, in its shape."""
    strange = [str(dim) for dim in field.dims if dim not in data.dims]
    if strange:
        raise ValueError(f"noise_std has the dimensions {', '.join(strange)}, which the data have not.")
    _, template = axes_of(data)
    for dim in field.dims:
        if dim not in field.coords or dim not in data.coords:
            if field.sizes[dim] != data.sizes[dim]:
                raise ValueError(f"noise_std has {field.sizes[dim]} places along {dim}, the data {data.sizes[dim]}.")
            continue
        mine, theirs = data[dim].values, field[dim].values
        if dim in (template.latitude, template.longitude):
            apart = np.abs(mine[:, None].astype(np.float64) - theirs.astype(np.float64))
            apart = np.minimum(apart % 360, -apart % 360) if dim == template.longitude else apart
            place, found = apart.argmin(1), apart.min(1) < 1e-5
        else:
            order = np.argsort(theirs, kind="stable")
            place = order[np.searchsorted(theirs[order], mine).clip(0, len(theirs) - 1)]
            found = theirs[place] == mine
        if not found.all():
            raise ValueError(f"noise_std has no place for {dim} = {mine[~found][0]} of the data.")
        field = field.isel({dim: place})
    plain = field.drop_vars(list(field.coords)).astype(float)
    return np.array(plain.broadcast_like(data.drop_vars(list(data.coords))).transpose(*data.dims).values)


def spread(values: Array) -> float:
    """The standard deviation of what is there, one for a constant; whatever its units, but for numbers that cannot be squared."""
    present = values[np.isfinite(values)]
    largest = float(np.abs(present).max()) if len(present) else 0.0
    if largest > _LARGEST:
        raise ValueError(f"the values reach {largest:.3g}: divide them by a constant.")
    if 0 < largest < 1 / _LARGEST:
        raise ValueError(f"the values vary by {largest:.3g} at most: multiply them by a constant.")
    return moments(present, None)[1] if largest else 1.0


def checked_values(y: Any, n: int) -> Array:
    """Values of n points, or a clear error."""
    values = np.asarray(y, np.float64)
    if values.shape != (n,) or not np.isfinite(values).all():
        raise ValueError(
            f"y must be {n} finite numbers, one a point; got shape {values.shape}: drop points without one."
        )
    return values


def fields_of(axes: GridAxes, values: Array, errors: Array | None) -> list[tuple[list[int], Field]]:
    """Slices that have the same cells, and the same known errors, together."""
    present = np.isfinite(values)
    groups: dict[bytes, list[int]] = {}
    for i in range(len(values)):
        key = np.packbits(present[i]).tobytes() + (b"" if errors is None else errors[i].tobytes())
        groups.setdefault(key, []).append(i)
    latitudes, longitudes = (torch.from_numpy(np.ascontiguousarray(a)) for a in (axes.latitudes, axes.longitudes))
    found = []
    for slices in groups.values():
        own = present[slices[0]]
        if not own.any():
            raise ValueError(f"slice {slices[0]} has no value at all: drop it.")
        noise = None
        if errors is not None:
            known = errors[slices[0]]
            if np.isnan(known[own]).any():
                raise ValueError("noise_std is missing where the data have a value.")
            noise = torch.from_numpy(np.where(own, known, 0.0))
        kept = torch.from_numpy(np.where(own, values[slices], 0.0).astype(np.float32))
        found.append((slices, Field(latitudes, longitudes, kept, torch.from_numpy(own), noise)))
    return found


def checked_points(X: Any, names: Sequence[str] | None = None) -> Array:
    """Points [n, 2], longitude and latitude in degrees (and further inputs of those names), or a clear error.

    Columns of a data frame are taken by their names where these say longitude and latitude.
    """
    names = names or ("longitude", "latitude")
    if hasattr(X, "columns") and len(names) == 2:
        called = {str(c).lower()[:3]: c for c in X.columns}
        if {"lon", "lat"} <= called.keys():
            X = X[[called["lon"], called["lat"]]]
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
    """Whether these are points [n, 2], and no grid."""
    return not isinstance(where, tuple) and not hasattr(where, "dims") and where is not None and np.ndim(where) == 2


def field_scores(mean: Array, variance: Array, y: Array, weights: Array) -> dict[str, float]:
    """RMSE, NLL and coverage of 95 % intervals; `..._by_area` with cells weighted by `weights`."""
    if not y.size:
        raise ValueError("no cell has both a value and a prediction: there is nothing to score.")
    error = (y - mean) ** 2
    nll = 0.5 * (np.log(2 * np.pi * variance) + error / variance)
    inside = error <= 1.959963984540054**2 * variance
    weights = weights / weights.sum()
    return {
        "rmse": float(np.sqrt(error.mean())),
        "nll": float(nll.mean()),
        "coverage": float(inside.mean()),
        "rmse_by_area": float(np.sqrt((weights * error).sum())),
        "nll_by_area": float((weights * nll).sum()),
        "coverage_by_area": float((weights * inside).sum()),
    }
