"""The grids of predictions, and DataArrays of the results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from harmonicgp._extras import require
from harmonicgp.globe.grids import GridAxes, GridData, Template, axes_of, to_dataarray
from harmonicgp.tables.columns import Array


@dataclass(frozen=True)
class Place:
    """A grid on which predictions are made."""

    axes: GridAxes
    template: Template  #: of the results; its other dimensions are those of the slices
    single: tuple[str, ...] = ()  #: dimensions of length one that are dropped from the results
    slices: list[int] | None = None  #: for maps: the numbers of the requested slices; None for all
    rows: Any = None  #: for fields with further inputs: the inputs of all cells, [cells, inputs], longitudes last

    @property
    def shape(self) -> tuple[int, int, int]:
        """The shape of results: any number of slices (-1), rows, columns."""
        return -1, len(self.axes.latitudes), len(self.axes.longitudes)

    def labelled(
        self, values: Array, name: str | None, units: str | None, long_name: str, first: tuple[str, Array] | None = None
    ) -> Any:
        """Results [slices, rows, columns] as a DataArray; `first` is the name of a further first axis, and its coordinates."""
        frame = self.template.frame if first is None else self.template.frame.expand_dims(dict([first]))
        return to_dataarray(values, replace(self.template, frame=frame), name, units, long_name).squeeze(self.single)


def frame_of(sizes: Mapping[str, int], coords: Mapping[str, Array], names: Sequence[str]) -> Any:
    """A DataArray without values on coordinates in degrees; `names` are those of latitude and longitude."""
    xr = require("xarray", "geo", "fields on a grid")
    variables = {dim: (dim, values) for dim, values in coords.items()}
    frame = xr.DataArray(np.zeros(tuple(sizes.values()), bool), variables, tuple(sizes))
    for name, units in zip(names, ("degrees_north", "degrees_east"), strict=True):
        frame[name].attrs["units"] = units
    return frame


@dataclass(frozen=True)
class Source:
    """The coordinates of the fitted maps: a prediction on the fitted grid has the same ones."""

    names: tuple[str, str]  #: of latitude and longitude
    dims: tuple[str, ...]  #: the two names in the order of the dimensions
    latitudes: Array  #: in the order of the data
    longitudes: Array
    slices: Array  #: coordinates of the slices
    by: str | None  #: the dimension of the slices

    def __post_init__(self) -> None:
        if set(self.dims) != set(self.names):
            raise ValueError(f"a map of {', '.join(self.names)} has no dimensions {', '.join(self.dims)}.")

    @classmethod
    def of(cls, grid: GridData, by: str | None) -> Source:
        """From maps that were read from a DataArray."""
        template = grid.template
        assert template is not None
        names = template.latitude, template.longitude
        slices = np.asarray(template.frame[by].values) if by in template.frame.coords else np.arange(len(grid.values))
        dims = tuple(str(dim) for dim in template.frame.dims if dim in names)
        latitudes, longitudes = grid.axes.latitudes[template.rows], grid.axes.longitudes[template.columns]
        return cls(names, dims, latitudes, longitudes, slices, by)

    def place(self, where: Any) -> Place:
        """The grid of a prediction at `where`, which may select slices; None is the fitted grid."""
        axes, template = axes_of(self._frame() if where is None else where)
        by = self.by
        if by is None or not hasattr(where, "dims") or (by not in where.dims and by not in where.coords):
            return Place(axes, template.with_slices(by, self.slices))
        slices = self._find_slices(by, where)
        return Place(axes, template.with_slices(by, self.slices[slices]), () if by in where.dims else (by,), slices)

    def _find_slices(self, by: str, where: Any) -> list[int]:
        """The numbers of the slices whose coordinates a DataArray or Dataset has."""
        if by not in where.coords:
            if where.sizes[by] != len(self.slices):
                raise ValueError(
                    f"{by} has no coordinates: give all {len(self.slices)} slices that were fitted, or name them."
                )
            return list(range(len(self.slices)))
        coordinates = np.atleast_1d(where[by].values)
        matches = coordinates[:, None] == self.slices
        missing = ~matches.any(1)
        if missing.any():
            raise ValueError(
                f"no slice was fitted for {by} = {coordinates[missing][0]}: predictions are for the {len(self.slices)} slices "
                f"from {self.slices[0]} to {self.slices[-1]}. Fit without by= to make {by} an input."
            )
        return [int(number) for number in matches.argmax(1)]

    def _frame(self) -> Any:
        coords = dict(zip(self.names, (self.latitudes, self.longitudes), strict=True))
        return frame_of({dim: len(coords[dim]) for dim in self.dims}, coords, self.names)

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Header and tensors for a file."""
        dtype = self.slices.dtype
        numbers = self.slices.astype(np.int64) if dtype.kind in "mM" else self.slices
        header = {"names": list(self.names), "dims": list(self.dims), "dtype": dtype.str, "slices": numbers.tolist()}
        axes = {"source.latitudes": self.latitudes, "source.longitudes": self.longitudes}
        return header, {name: torch.from_numpy(np.ascontiguousarray(values)) for name, values in axes.items()}

    @classmethod
    def from_state(cls, header: Mapping[str, Any], tensors: Mapping[str, Tensor], by: str | None) -> Source:
        """From a file."""
        latitude, longitude = (str(name) for name in header["names"])
        slices = np.array(header["slices"])
        slices = slices.astype(np.int64).astype(header["dtype"]) if header["dtype"][1] in "mM" else slices
        dims = tuple(str(dim) for dim in header["dims"])
        latitudes, longitudes = (tensors[f"source.{name}"].numpy() for name in ("latitudes", "longitudes"))
        return cls((latitude, longitude), dims, latitudes, longitudes, slices, by)


def place_of(source: Source | None, where: Any) -> Place:
    """The grid of a prediction at `where`; None is the fitted grid, which a model fitted to points does not have."""
    if source is not None:
        return source.place(where)
    if where is None:
        raise ValueError("the model was fitted to points: say where, such as (longitudes, latitudes).")
    axes, template = axes_of(where)
    return Place(axes, template.with_slices(None, np.empty(0)))
