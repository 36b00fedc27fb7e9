"""Labels of results: the dimensions, coordinates and attributes of a grid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from harmonicgp._extras import require
from harmonicgp.tables.columns import Array

#: Attributes of coordinates that results keep.
_KEPT = ("units", "standard_name", "long_name", "axis", "positive")


@dataclass(frozen=True)
class GridFrame:
    """A grid: coordinates of its axes, and where they lie on the lattice of the model."""

    dims: tuple[str, ...]  #: of results, in order; `by` among them
    axes: tuple[str, ...]  #: in the order of the lattice
    values: dict[str, Array]  #: coordinates by name, as they were given; without those that are only numbered
    sizes: tuple[int, ...]  #: of the lattice
    index: tuple[Array, ...]  #: the places of the coordinates on the lattice
    by: str | None
    attrs: dict[str, dict[str, str]]  #: of the coordinates
    arrays: bool = False  #: whether results are NumPy arrays

    def __post_init__(self) -> None:
        inside = all(int(i.min()) >= 0 and int(i.max()) < n for i, n in zip(self.index, self.sizes, strict=True))
        known = {*self.axes, *([self.by] if self.by else [])}
        if set(self.dims) != known or not inside:
            raise ValueError("the dimensions of a grid do not fit its axes.")

    @property
    def shape(self) -> tuple[int, ...]:
        """Of results, axis by axis."""
        return tuple(len(index) for index in self.index)

    def on_lattice(self, values: Array, fill: float = np.nan) -> Array:
        """Values [P, *shape] on the lattice, [P, cells]."""
        out = np.full((len(values), *self.sizes), fill)
        out[np.ix_(np.arange(len(values)), *self.index)] = values
        return out.reshape(len(values), -1)

    def select(self, values: Array) -> Array:
        """From values of the lattice [..., cells] to those of the grid, [..., *shape]."""
        whole = values.reshape(-1, *self.sizes)
        some = whole[np.ix_(np.arange(len(whole)), *self.index)]
        return some.reshape(*values.shape[:-1], *self.shape)

    def labelled(
        self, values: Array, name: str | None, attrs: Mapping[str, str], first: tuple[str, Array] | None = None
    ) -> Any:
        """Values [first, P, cells of the lattice] as a DataArray or an array."""
        grid = self.select(values)
        lead: tuple[str, ...]
        if self.by is None:
            grid, lead = grid.take(0, axis=-1 - len(self.axes)), ()
        else:
            lead = (self.by,)
        names = (*((first[0],) if first else ()), *lead, *self.axes)
        order = (*((first[0],) if first else ()), *self.dims)
        if self.arrays:
            return np.ascontiguousarray(np.transpose(grid, [names.index(dim) for dim in order]))
        xr = require("xarray", "geo", "fields on a grid")
        coords = {dim: (dim, values, self.attrs.get(dim, {})) for dim, values in self.values.items() if dim in order}
        if first:
            coords[first[0]] = (first[0], first[1], {})
        return xr.DataArray(grid, coords, names, name, dict(attrs)).transpose(*order)

    def with_slices(self, by: str | None, labels: Array | None, dims: tuple[str, ...]) -> GridFrame:
        """The same grid with the slices of another one."""
        values = self.values if by is None or labels is None else self.values | {by: labels}
        order = tuple(dim for dim in dims if dim == by or dim in self.axes) if set(self.axes) <= set(dims) else ()
        return replace(self, by=by, values=values, dims=order or (*((by,) if by else ()), *self.axes))

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Header and tensors for a file."""
        header: dict[str, Any] = {
            "dims": list(self.dims), "axes": list(self.axes), "by": self.by, "sizes": list(self.sizes),
            "attrs": self.attrs, "arrays": self.arrays, "dtypes": {}, "texts": {},
        }  # fmt: skip
        tensors = {f"index.{i}": torch.from_numpy(index.astype(np.int64)) for i, index in enumerate(self.index)}
        for dim, values in self.values.items():
            if values.dtype.kind in "fiu":
                tensors[f"coordinate.{dim}"] = torch.from_numpy(values.astype(values.dtype.newbyteorder("=")))
            elif values.dtype.kind == "M":
                tensors[f"coordinate.{dim}"] = torch.from_numpy(values.astype("M8[ns]").astype(np.int64))
                header["dtypes"][dim] = "M8[ns]"
            else:
                header["texts"][dim] = [str(value) for value in values]
        return header, tensors

    @classmethod
    def from_state(cls, header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> GridFrame:
        """From a file."""
        values = {}
        for dim in (*header["axes"], header["by"]):
            if f"coordinate.{dim}" in tensors:
                array = tensors[f"coordinate.{dim}"].numpy()
                values[str(dim)] = array.astype("M8[ns]") if header["dtypes"].get(dim) == "M8[ns]" else array
            elif dim in header["texts"]:
                values[str(dim)] = np.array([str(text) for text in header["texts"][dim]])
        names = tuple(str(dim) for dim in header["dims"]), tuple(str(dim) for dim in header["axes"])
        index = tuple(tensors[f"index.{i}"].numpy() for i in range(len(names[1])))
        attrs = {str(dim): {str(k): str(v) for k, v in each.items()} for dim, each in header["attrs"].items()}
        by = None if header["by"] is None else str(header["by"])
        return cls(*names, values, tuple(int(n) for n in header["sizes"]), index, by, attrs, bool(header["arrays"]))


def kept_attrs(attrs: Mapping[Any, Any]) -> dict[str, str]:
    """The attributes of a coordinate that results keep."""
    return {name: str(attrs[name]) for name in _KEPT if name in attrs}
