"""Grids on which predictions are made, and the labelled form of the results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from harmonicgp._extras import require
from harmonicgp.globe.grids import GridAxes, GridData, Template, axes_of, to_dataarray
from harmonicgp.tables.columns import Array


@dataclass(frozen=True)
class Place:
    """A grid on which predictions are made. It makes DataArrays of results [slices, rows, columns]."""

    axes: GridAxes
    template: Template  #: of the results; its other dimensions are those of the slices
    single: tuple[str, ...] = ()  #: dimensions of length one that the results do not have

    @property
    def cells(self) -> tuple[Array, Array]:
        """Latitudes [rows, 1] and longitudes [1, columns]."""
        return self.axes.latitudes[:, None], self.axes.longitudes[None, :]

    def labelled(
        self, values: Array, name: str | None, units: str | None, words: str, first: tuple[str, Array] | None = None
    ) -> Any:
        """Results as a DataArray; `first` names one more axis before the slices, with its coordinates."""
        template = self.template if first is None else self.template.with_first(*first)
        flat = values.reshape(-1, *values.shape[-2:])
        return to_dataarray(flat, template, name, units, words).squeeze(self.single)


@dataclass(frozen=True)
class MapPlace(Place):
    """A grid for maps, and which of the fitted slices are asked for."""

    slices: list[int] | None = None  #: None for all


@dataclass(frozen=True)
class Source:
    """The coordinates of the maps that were fitted, for predictions that look like them."""

    names: tuple[str, str]  #: of latitude and longitude
    dims: tuple[str, ...]  #: the order of these two
    latitudes: Array  #: in the order of the data
    longitudes: Array
    slices: Array  #: coordinates of the slices
    by: str | None  #: the dimension of the slices

    def __post_init__(self) -> None:
        if set(self.dims) != set(self.names):
            raise ValueError(f"a map of {', '.join(self.names)} has no dimensions {', '.join(self.dims)}.")

    @classmethod
    def of(cls, grid: GridData, data: Any, by: str | None) -> Source:
        """From a DataArray and what was read from it."""
        template = grid.template
        assert template is not None
        names = template.latitude, template.longitude
        slices = np.arange(len(grid.values))
        if by is not None and by in data.coords:
            slices = np.asarray(data[by].values)
        dims = tuple(dim for dim in template.dims if dim in names)
        latitudes, longitudes = grid.axes.latitudes[template.rows], grid.axes.longitudes[template.columns]
        return cls(names, dims, latitudes, longitudes, slices, by)

    def place(self, where: Any) -> MapPlace:
        """The grid that a prediction is asked for; None is the fitted grid. `where` may choose among the slices."""
        axes, template = axes_of(self._frame() if where is None else where)
        by, chosen, single = self.by, None, False
        if by is not None and hasattr(where, "dims") and (by in where.dims or by in where.coords):
            chosen, single = self._find_slices(by, where)
        labels = self.slices if chosen is None else self.slices[chosen]
        return MapPlace(axes, template.with_slices(by, labels), (by,) if by is not None and single else (), chosen)

    def _find_slices(self, by: str, where: Any) -> tuple[list[int], bool]:
        """The slices that a DataArray or Dataset asks for, by their coordinates, and whether it is a single one."""
        if by not in where.coords:
            if where.sizes[by] != len(self.slices):
                raise ValueError(
                    f"{by} has no coordinates: give all {len(self.slices)} slices that were fitted, or name them."
                )
            return list(range(len(self.slices))), False
        wanted = np.atleast_1d(where[by].values)
        same_kind = wanted.dtype.kind == self.slices.dtype.kind
        keys = (wanted.astype(self.slices.dtype) if same_kind else wanted).tolist()
        positions = {value: k for k, value in enumerate(self.slices.tolist())}
        for key, value in zip(keys, wanted, strict=True):
            if key not in positions:
                raise ValueError(
                    f"no slice was fitted for {by} = {value}: predictions are for the {len(positions)} slices from "
                    f"{self.slices[0]} to {self.slices[-1]}. Fit without by= to make {by} an input."
                )
        return [positions[key] for key in keys], by not in where.dims

    def _frame(self) -> Any:
        """A DataArray of zeros on the coordinates of one map."""
        xr = require("xarray", "geo", "fields on a grid")
        latitude, longitude = self.names
        coords = {latitude: (latitude, self.latitudes), longitude: (longitude, self.longitudes)}
        frame = xr.DataArray(np.zeros(tuple(len(coords[dim][1]) for dim in self.dims)), coords, self.dims)
        frame[latitude].attrs["units"], frame[longitude].attrs["units"] = "degrees_north", "degrees_east"
        return frame

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
