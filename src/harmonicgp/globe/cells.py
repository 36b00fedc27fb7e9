"""Fields with further dimensions or covariates: each cell becomes a row of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor

from harmonicgp._extras import require
from harmonicgp.globe.grids import GridAxes, GridData, Template, axes_of, read_grid
from harmonicgp.globe.places import Place, frame_of
from harmonicgp.tables.columns import Array

#: Times are days since this date.
EPOCH = np.datetime64("2000-01-01", "us")


@dataclass(frozen=True)
class CellInputs:
    """The inputs of a cell: longitude and latitude, the other dimensions, and covariates, in this order."""

    dims: tuple[str, ...]
    covariates: tuple[str, ...]
    kinds: tuple[str, ...] = ()  #: of the coordinates along each dimension, see `coordinate_kind`

    @property
    def names(self) -> list[str]:
        """Names of all inputs."""
        return ["longitude", "latitude", *self.dims, *self.covariates]

    def rows(self, axes: GridAxes, template: Template, covariates: Mapping[str, Array]) -> Array:
        """The inputs of every cell of a grid, slices first and longitudes last: [cells, inputs]."""
        shape = (*template.extra_shape, len(axes.latitudes), len(axes.longitudes))
        columns = [axes.longitudes, axes.latitudes[:, None]]
        for dim, fitted_kind in zip(self.dims, self.kinds, strict=True):
            k, kind, coords = template.extra.index(dim), coordinate_kind(template, dim), template.frame.coords
            if kind != fitted_kind:
                raise ValueError(f"the model was fitted to {fitted_kind} along {dim!r}; these are {kind}.")
            numbers = as_numbers(coords[dim].values, dim) if dim in coords else np.arange(shape[k])
            columns.append(numbers.reshape(-1, *[1] * (len(shape) - k - 1)))
        columns += [covariates[name].reshape(shape) for name in self.covariates]
        return np.stack([np.broadcast_to(column, shape).ravel() for column in columns], 1).astype(np.float64)

    def place(self, where: Any, like: Any = None) -> Place:
        """The grid of a prediction: that of `where`, which has the covariates, or that of the DataArray `like`."""
        xr = require("xarray", "geo", "fields on a grid")
        if not isinstance(where, xr.DataArray | xr.Dataset):
            raise ValueError(
                f"the model has the inputs {', '.join(self.names)}: say where as a DataArray or a Dataset with all of them, "
                f"or as points [n, {len(self.names)}]."
            )
        missing = [name for name in self.covariates if name not in where]
        if missing:
            raise ValueError(f"predictions need a Dataset with the covariates {', '.join(missing)}, as in fit.")
        like = where if like is None else like
        frame = _frame(xr, like, self.dims)
        values = {name: _on_cells(name, where[name], frame) for name in self.covariates}
        axes, template = axes_of(frame)
        single = tuple(dim for dim in self.dims if dim not in like.dims)
        return Place(axes, template, single, rows=self.rows(axes, template, values))


@dataclass(frozen=True)
class CellTable:
    """A field with further inputs, as a table with one row for each cell."""

    inputs: CellInputs
    grid: GridData
    rows: Array  #: [cells, inputs]

    @classmethod
    def of(cls, target: Any, covariates: Mapping[str, Any], noise: Array | None = None) -> CellTable:
        """From a DataArray, covariates with all or some of its dimensions, and known noise variances [slices, rows, columns]."""
        values = {name: _on_cells(name, covariate, target) for name, covariate in covariates.items()}
        grid = replace(read_grid(target), noise=noise)
        template = grid.template
        assert template is not None
        kinds = tuple(coordinate_kind(template, dim) for dim in template.extra)
        inputs = CellInputs(tuple(template.extra), tuple(covariates), kinds)
        return cls(inputs, grid, inputs.rows(grid.axes, template, values))


def split_dataset(data: Any, target: Any) -> tuple[Any, dict[str, Any]]:
    """The target variable of a Dataset, and all others."""
    names = list(data.data_vars)
    unnamed = [name for name in names if not isinstance(name, str)]
    if unnamed:
        raise ValueError(f"variables of a Dataset must have names of text; rename {unnamed}.")
    if target is None and len(names) == 1:
        target = names[0]
    if not isinstance(target, str) or target not in names:
        raise ValueError(
            f"name the target variable of the Dataset: fit(data, NAME) with one of {', '.join(names)}. All others become "
            f"covariates. Got {target!r}."
        )
    return data[target], {name: data[name] for name in names if name != target}


def coordinate_kind(template: Template, dim: str) -> str:
    """The kind of the coordinates along a dimension, as files have it."""
    if dim not in template.frame.coords:
        return "places without coordinates"
    return {"M": "times", "m": "spans of time"}.get(template.frame[dim].dtype.kind, "numbers")


def as_numbers(values: Array, name: str) -> Array:
    """Coordinates as numbers; times in days since the start of 2000."""
    kind = values.dtype.kind
    if kind in "mM":
        if np.isnat(values).any():
            raise ValueError(f"the dimension {name!r} has missing times: drop those slices.")
        spans = values.astype("timedelta64[us]") if kind == "m" else values.astype("datetime64[us]") - EPOCH
        return np.asarray(spans / np.timedelta64(1, "D"), np.float64)
    if kind not in "fiub" or not np.isfinite(values.astype(np.float64)).all():
        raise ValueError(
            f"the dimension {name!r} has no numbers or times as coordinates: use by={name!r}, or assign numbers."
        )
    return values.astype(np.float64)


def _on_cells(name: str, covariate: Any, frame: Any) -> Array:
    """A covariate on every cell of a DataArray, [slices, rows, columns]; NaN where it is missing."""
    if covariate.dtype.kind not in "fiub":
        message = f"the covariate {name!r} has values of type {covariate.dtype}, not numbers"
        raise ValueError(f"{message}: encode it, or drop {name} from the Dataset.")
    extra = [str(dim) for dim in covariate.dims if dim not in frame.dims]
    if extra:
        raise ValueError(f"the covariate {name!r} has the dimensions {', '.join(extra)}, which the field has not.")
    whole = covariate.astype(float).broadcast_like(frame).transpose(*frame.dims)
    if whole.shape != frame.shape:
        raise ValueError(
            f"the covariate {name!r} has other coordinates than the field: interpolate it to the same grid first."
        )
    if not np.isfinite(whole.values).any():
        return np.full(frame.shape, np.nan)
    return np.asarray(read_grid(whole.where(np.isfinite(whole))).values)


def _frame(xr: Any, where: Any, dims: tuple[str, ...]) -> Any:
    """A DataArray of zeros with all dimensions; a dimension that is a scalar coordinate of `where` gets length one."""
    single = [dim for dim in dims if dim not in where.dims and dim in where.coords]
    for dim in single:
        if where.coords[dim].ndim:
            raise ValueError(
                f"{dim} must be a dimension or a single value; it runs along {', '.join(where.coords[dim].dims)}."
            )
    missing = [dim for dim in dims if dim not in where.dims and dim not in single]
    if missing:
        raise ValueError(f"predictions need coordinates along {', '.join(missing)}, as in fit.")
    _, template = axes_of(where)
    inputs = (*dims, template.latitude, template.longitude)
    extra = set(template.frame.dims) - set(inputs)  # the frame of a Dataset has longitude and latitude only
    if extra:
        raise ValueError(f"the model has no input {', '.join(map(str, extra))}: select one index along it first.")
    order = [dim for dim in where.dims if dim in inputs]
    coords = {name: coord for name, coord in where.coords.items() if set(coord.dims) <= set(order)}
    cells = np.zeros([where.sizes[dim] for dim in order], bool)
    return xr.DataArray(cells, coords, order, attrs=template.frame.attrs).expand_dims(single)


def frame_state(frame: Any) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The coordinates of a DataArray as header and tensors of a file."""
    _, template = axes_of(frame)
    header: dict[str, Any] = {
        "dims": [[str(dim), int(size)] for dim, size in frame.sizes.items()],
        "names": [template.latitude, template.longitude],
        "dtypes": {},
    }
    tensors = {}
    for dim in frame.dims:
        if dim in frame.coords:
            values = frame.coords[dim].values
            header["dtypes"][str(dim)] = values.dtype.str
            kind = np.float64 if values.dtype.kind == "f" else np.int64
            tensors[str(dim)] = torch.from_numpy(np.array(values.astype(kind)))
    return header, tensors


def frame_from_state(header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Any:
    """The inverse of `frame_state`, with zeros as values; None if xarray is not installed."""
    if find_spec("xarray") is None:
        return None
    for dtype in header["dtypes"].values():
        if np.dtype(dtype).kind not in "fiubmM":
            raise TypeError(f"coordinates of type {dtype}")
    coords = {str(dim): tensors[dim].numpy().astype(dtype) for dim, dtype in header["dtypes"].items()}
    return frame_of({str(dim): int(size) for dim, size in header["dims"]}, coords, header["names"])
