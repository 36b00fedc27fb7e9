"""The mean function of a field: a constant, a linear function of the place, or a given field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.interpolate import RegularGridInterpolator
from torch import Tensor

from harmonicgp.globe.grids import read_grid
from harmonicgp.tables.columns import Array

_PARTS = ("rows", "columns", "values")  # of a field, in a file


@dataclass(frozen=True)
class MeanFunction:
    """A function of the place that is subtracted from the values before they are modelled.

    Examples:
        >>> mean = MeanFunction("constant", np.array([2.0, 0.0, 0.0, 0.0]))
        >>> mean(np.array([0.0, 45.0]), np.array([10.0, 20.0]))
        array([2., 2.])
    """

    kind: str  #: "constant", "linear" or "field"
    coefficients: Array  #: [4] of 1 and the three coordinates of the unit sphere
    field: tuple[Array, Array, Array] | None = None  #: latitudes, longitudes, values

    def __post_init__(self) -> None:
        if self.coefficients.shape != (4,) or (self.kind == "field") != (self.field is not None):
            raise ValueError(f"a mean function of kind {self.kind!r} does not have these coefficients.")

    @classmethod
    def of(cls, mean: Any, latitudes: Array, longitudes: Array, values: Array) -> MeanFunction:
        """From the argument of the estimator and data [slices, ...] at latitudes and longitudes [...], NaN where missing."""
        if isinstance(mean, str) and mean == "constant":
            return cls("constant", np.array([float(np.nanmean(values)), 0.0, 0.0, 0.0]))
        if isinstance(mean, str) and mean == "linear":
            counts = np.isfinite(values).sum(0)  # slices with a value at each place
            average, root = np.nansum(values, axis=0) / np.maximum(counts, 1), np.sqrt(counts)
            basis = linear_basis(latitudes, longitudes) * root[..., None]
            coefficients, *_ = np.linalg.lstsq(basis.reshape(-1, 4), (average * root).ravel(), rcond=None)
            return cls("linear", coefficients)
        if isinstance(mean, str) or mean is None:
            raise ValueError(f'mean must be "constant", "linear" or a DataArray with a field; got {mean!r}.')
        grid = read_grid(mean)
        if len(grid.values) != 1 or not np.isfinite(grid.values).all():
            raise ValueError("the field of mean= must be one map without missing cells.")
        return cls("field", np.zeros(4), (grid.axes.latitudes, grid.axes.longitudes, grid.values[0]))

    def __call__(self, latitudes: Array, longitudes: Array) -> Array:
        """The values at latitudes and longitudes, which are broadcast against each other."""
        latitudes, longitudes = np.broadcast_arrays(latitudes, longitudes)
        if self.field is None:
            return np.asarray(linear_basis(latitudes, longitudes) @ self.coefficients)
        return _interpolate(*self.field, latitudes, longitudes)

    def tensors(self) -> dict[str, Tensor]:
        """The tensors for a file. The kind goes into its header."""
        tensors = {"mean.coefficients": torch.from_numpy(self.coefficients)}
        for name, values in zip(_PARTS, self.field or (), strict=False):
            tensors[f"mean.{name}"] = torch.from_numpy(np.ascontiguousarray(values))
        return tensors

    @classmethod
    def from_tensors(cls, kind: str, tensors: Mapping[str, Tensor]) -> MeanFunction:
        """From a file."""
        field = None
        if "mean.values" in tensors:
            rows, columns, values = (tensors[f"mean.{name}"].numpy() for name in _PARTS)
            field = rows, columns, values
        return cls(kind, tensors["mean.coefficients"].numpy(), field)


def linear_basis(latitudes: Array, longitudes: Array) -> Array:
    """The constant 1 and the three coordinates of places on the unit sphere, [..., 4]."""
    p, q = np.broadcast_arrays(np.deg2rad(latitudes), np.deg2rad(longitudes))
    return np.stack((np.ones_like(p), np.cos(p) * np.cos(q), np.cos(p) * np.sin(q), np.sin(p)), -1)


def _interpolate(rows: Array, columns: Array, values: Array, latitudes: Array, longitudes: Array) -> Array:
    """Bilinear interpolation, across the date line if the columns cover the circle. Outside: the value of the nearest cell."""
    start = columns.min()
    order = np.argsort((columns - start) % 360)
    places = ((columns - start) % 360)[order]
    table = values[:, order]
    if len(places) > 1 and 360 - places[-1] <= 1.5 * np.diff(places).max():  # the whole circle
        places, table = np.append(places, 360.0), np.concatenate((table, table[:, :1]), 1)
    x = (longitudes - start) % 360
    x = np.where(x > places[-1], np.where(x - places[-1] < 360 - x, places[-1], 0.0), x)
    at = np.clip(latitudes, rows[0], rows[-1]), x
    return np.asarray(RegularGridInterpolator((rows, places), table)(at))
