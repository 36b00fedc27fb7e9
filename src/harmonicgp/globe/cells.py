"""Fields with further dimensions or covariates: their cells as rows of a table, a globe kernel times one of the rest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from harmonicgp._extras import require
from harmonicgp.globe.grids import GridAxes, GridData, Template, axes_of, read_grid
from harmonicgp.tables.inputs import Array

#: Times are counted in days from here.
EPOCH = np.datetime64("2000-01-01", "us")


class Place(NamedTuple):
    """Where a field is asked for."""

    axes: GridAxes
    template: Template
    rows: Array | None = None  #: all inputs of every cell, where there are more than longitude and latitude
    lone: tuple[str, ...] = ()  #: dimensions with a single place, which the result need not have
    slices: list[int] | None = None  #: which of those that were fitted, None for all


@dataclass(frozen=True)
class CellInputs:
    """The inputs of a cell: longitude and latitude, the other dimensions, and covariates, in this order."""

    dims: tuple[str, ...]
    covariates: tuple[str, ...]
    kinds: tuple[
        str, ...
    ] = ()  #: of each dimension: "times", "spans of time", "numbers" or "places without coordinates"

    @property
    def names(self) -> list[str]:
        """Of all columns."""
        return ["longitude", "latitude", *self.dims, *self.covariates]

    def rows(self, axes: GridAxes, template: Template, given: Mapping[str, Array]) -> Array:
        """A row for every cell of a grid, slices first and longitudes last: [cells, columns]."""
        shape = (*template.extra_shape, len(axes.latitudes), len(axes.longitudes))
        columns = [
            np.broadcast_to(axes.longitudes, shape),
            np.broadcast_to(axes.latitudes[:, None], shape),
        ]
        for dim, kind in zip(self.dims, self.kinds, strict=True):
            k = template.extra.index(dim)
            if kind_of_places(template, dim) != kind:
                raise ValueError(
                    f"the model was fitted to {kind} along {dim!r}; these are {kind_of_places(template, dim)}."
                )
            places = as_numbers(template.coords[dim].values, dim) if dim in template.coords else np.arange(shape[k])
            columns.append(np.broadcast_to(places.reshape(-1, *[1] * (len(shape) - k - 1)), shape))
        columns += [given[name].reshape(shape) for name in self.covariates]
        return np.stack([np.ravel(column) for column in columns], 1).astype(np.float64)

    def place(self, where: Any, like: Any = None) -> Place:
        """The grid that `predict` is asked for, with its cells as rows; with the dimensions of the DataArray `like`."""
        xr = require("xarray", "geo", "fields on a grid")
        if not isinstance(where, xr.DataArray | xr.Dataset):
            raise ValueError(
                f"the model has the inputs {', '.join(self.names)}: say where as a DataArray or a Dataset with all of them, "
                f"or as points [n, {len(self.names)}]."
            )
        given = {str(name): where[name] for name in self.covariates if name in where} if self.covariates else {}
        missing = [name for name in self.covariates if name not in given]
        if missing:
            raise ValueError(f"predictions need a Dataset with the covariates {', '.join(missing)}, as in fit.")
        frame = _frame(xr, where if like is None else like, self.dims)
        values = {name: _like(name, field, frame) for name, field in given.items()}
        axes, template = axes_of(frame)
        lone = tuple(dim for dim in self.dims if dim not in (where if like is None else like).dims)
        return Place(axes, template, self.rows(axes, template, values), lone)


@dataclass(frozen=True)
class CellTable:
    """A target on a grid with further inputs, read."""

    inputs: CellInputs
    grid: GridData
    rows: Array  #: [cells, columns]
    frame: Any  #: the coordinates, as a DataArray of nothing

    @classmethod
    def of(cls, target: Any, covariates: Mapping[str, Any]) -> CellTable:
        """From a DataArray and others on its dimensions, or on some of them."""
        for name, field in covariates.items():
            if not set(field.dims) <= set(target.dims):
                strange = ", ".join(str(dim) for dim in field.dims if dim not in target.dims)
                raise ValueError(f"the covariate {name!r} has the dimensions {strange}, which {target.name!r} has not.")
        grid = read_grid(target)
        template = grid.template
        assert template is not None
        kinds = tuple(kind_of_places(template, dim) for dim in template.extra)
        inputs = CellInputs(tuple(template.extra), tuple(covariates), kinds)
        given = {name: _like(name, field, target) for name, field in covariates.items()}
        rows = inputs.rows(grid.axes, template, given)
        frame = require("xarray", "geo", "fields on a grid").zeros_like(target, dtype=bool).drop_attrs()
        return cls(inputs, grid, rows, frame)


def split_dataset(data: Any, target: Any) -> tuple[Any, dict[str, Any]]:
    """The variable of a Dataset that is to be explained, and all others of numbers."""
    names = [str(name) for name in data.data_vars]
    odd = [name for name in data.data_vars if not isinstance(name, str)]
    if odd:
        raise ValueError(f"variables of a Dataset must have names of text; rename {odd}.")
    if target is None and len(names) == 1:
        target = names[0]
    if not isinstance(target, str) or target not in names:
        raise ValueError(
            f"say which variable of the Dataset is to be explained: fit(data, NAME) with one of {', '.join(names)}; all others "
            f"become covariates. Got {target!r}."
        )
    others = {str(name): field for name, field in data.data_vars.items() if name != target}
    strange = [name for name, field in others.items() if field.dtype.kind not in "fiub"]
    if strange:
        raise ValueError(f"covariates must be numbers; drop {', '.join(strange)} from the Dataset, or encode them.")
    return data[target], others


def kind_of_places(template: Template, dim: str) -> str:
    """What runs along a dimension."""
    if dim not in template.coords:
        return "places without coordinates"
    return {"M": "times", "m": "spans of time"}.get(template.coords[dim].dtype.kind, "numbers")


def as_numbers(values: Array, name: str) -> Array:
    """Coordinates as numbers; times in days from the year 2000."""
    kind = values.dtype.kind
    if kind in "mM":
        if np.isnat(values).any():
            raise ValueError(f"the dimension {name!r} has missing times: drop those slices.")
        counted = values.astype("timedelta64[us]") if kind == "m" else values.astype("datetime64[us]") - EPOCH
        return np.asarray(counted / np.timedelta64(1, "D"), np.float64)
    if kind not in "fiub" or not np.isfinite(values.astype(np.float64)).all():
        raise ValueError(
            f"the dimension {name!r} has no numbers or times along it: use by={name!r}, or give it numbers."
        )
    return values.astype(np.float64)


def _like(name: str, field: Any, frame: Any) -> Array:
    """A covariate on every cell of the frame, [slices, rows, columns]; NaN where it is missing."""
    if field.dtype.kind not in "fiub":
        raise ValueError(f"the covariate {name!r} has values of type {field.dtype}: it must be numbers.")
    strange = [str(dim) for dim in field.dims if dim not in frame.dims]
    if strange:
        raise ValueError(f"the covariate {name!r} has the dimensions {', '.join(strange)}, which the field has not.")
    whole = field.astype(float).broadcast_like(frame).transpose(*frame.dims)
    if whole.shape != frame.shape:
        raise ValueError(
            f"the covariate {name!r} has other coordinates than the field: bring it to the same grid first."
        )
    if not np.isfinite(whole.values).any():
        return np.full(frame.shape, np.nan)
    return np.asarray(read_grid(whole.where(np.isfinite(whole))).values)


def _frame(xr: Any, where: Any, dims: tuple[str, ...]) -> Any:
    """A DataArray of nothing with all dimensions; those that `where` has as a single place are put back."""
    lone = [dim for dim in dims if dim not in where.dims and dim in where.coords]
    for dim in lone:
        if where.coords[dim].ndim:
            raise ValueError(
                f"{dim} must be a dimension or a single place; it runs along {', '.join(where.coords[dim].dims)}."
            )
    lacking = [dim for dim in dims if dim not in where.dims and dim not in lone]
    if lacking:
        raise ValueError(f"predictions need places along {', '.join(lacking)}, as in fit.")
    if isinstance(where, xr.Dataset):
        _, template = axes_of(where)
        order = [dim for dim in where.dims if dim in (*dims, template.latitude, template.longitude)]
        coords = {name: where.coords[name] for name in where.coords if set(where.coords[name].dims) <= set(order)}
        where = xr.DataArray(np.zeros([where.sizes[dim] for dim in order], bool), coords, order)
    else:
        where = xr.zeros_like(where, dtype=bool)
    strange = set(where.dims) - set(dims) - {axes_of(where)[1].latitude, axes_of(where)[1].longitude}
    if strange:
        raise ValueError(f"the model knows nothing of {', '.join(map(str, strange))}: choose one place along it first.")
    return where.expand_dims(lone) if lone else where


def frame_state(frame: Any) -> tuple[dict[str, Any] | None, dict[str, Tensor]]:
    """The coordinates of a DataArray of nothing for a file, and their places."""
    if frame is None:
        return None, {}
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


def frame_from_state(header: Mapping[str, Any] | None, tensors: Mapping[str, Tensor]) -> Any:
    """What `frame_state` took apart; None without xarray, where it is of no use."""
    if header is None or find_spec("xarray") is None:
        return None
    xr = require("xarray", "geo", "fields on a grid")
    coords = {}
    for dim, dtype in header["dtypes"].items():
        if np.dtype(dtype).kind not in "fiubmM":
            raise TypeError(f"coordinates of type {dtype}")
        coords[str(dim)] = (str(dim), tensors[dim].numpy().astype(dtype))
    dims = {str(dim): int(size) for dim, size in header["dims"]}
    frame = xr.DataArray(np.zeros(tuple(dims.values()), bool), coords, tuple(dims))
    for name, units in zip(header["names"], ("degrees_north", "degrees_east"), strict=True):
        frame[name].attrs["units"] = units
    return frame
