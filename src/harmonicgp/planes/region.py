"""A fitted field with its coordinates and units: between what users see and the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from harmonicgp.planes.coordinates import Plane
from harmonicgp.planes.fitted import AnyField, ExactField, field_from
from harmonicgp.planes.frames import GridFrame
from harmonicgp.planes.places import FieldModel, Places, data_from, data_tensors
from harmonicgp.planes.reading import PlaneTarget, read_target
from harmonicgp.planes.trend import Trend
from harmonicgp.tables.columns import Array


@dataclass(frozen=True)
class FittedPlane:
    """A fitted field on a plane. It predicts in the units of the data, without noise."""

    field: AnyField
    plane: Plane
    trend: Trend
    scale: float  #: of the values, in units of the data
    names: tuple[str, ...]  #: of the covariates
    frame: GridFrame | None  #: of the fitted grid; None for points
    cells: Array | None  #: for points on a lattice: their cells
    mode: str  #: how coordinates are understood
    template: GridFrame | None = None  #: of a grid whose cells are scattered points

    def __post_init__(self) -> None:
        if not (0 < self.scale < float("inf")):
            raise ValueError("the scale of a field is not positive.")

    def moments(self, where: Any) -> tuple[Array, Array, GridFrame | None]:
        """Mean and variance, [P, places], and the frame of the places."""
        at, frame, cells = self._target(where)
        mean, variance = (part.numpy() for part in self.field.moments(at))
        if cells is not None:
            mean, variance = mean[:, cells], variance[:, cells]
        return self.scale * mean, self.scale**2 * variance, frame

    def samples(self, where: Any, n: int, seed: int) -> tuple[Array, GridFrame | None]:
        """Draws from the posterior, [n, P, places], and the frame of the places."""
        at, frame, cells = self._target(where)
        draws = self.scale * self.field.samples(at, n, seed).numpy()
        return (draws if cells is None else draws[..., cells]), frame

    def _target(self, where: Any) -> tuple[Places | None, GridFrame | None, Array | None]:
        """The places (None: the fitted ones), their frame, and the cells to take of the fitted ones."""
        own = self.frame
        if where is None and self.template is None:
            return None, own, self.cells
        if where is None:
            assert self.template is not None
            axes = tuple(self.template.values[c.name] for c in self.plane.coordinates)
            target = read_target(axes, self.plane, self.names, self.mode)
        else:
            target = read_target(where, self.plane, self.names, self.mode)
        if own is not None and not self.names and _same_axes(own, target.frame):
            return None, own, None
        X = self.plane(target.points)
        return Places(torch.from_numpy(X), self.trend.basis(X, target.covariates)), self._frame(target, where), None

    def _frame(self, target: PlaneTarget, where: Any) -> GridFrame | None:
        """The frame of a prediction, with the slices of the fit, and dimensions in the order of `where` or of the fit."""
        if target.frame is None:
            return None
        fitted = self.frame or self.template
        by = None if fitted is None else fitted.by
        labels = None if fitted is None or by is None else fitted.values.get(by)
        dims = tuple(str(dim) for dim in getattr(where, "dims", ())) if hasattr(where, "dims") else ()
        if not dims and fitted is not None:
            dims = fitted.dims
        return target.frame.with_slices(by, labels, dims if by is None or by in dims else (by, *dims))

    def lengthscales(self) -> dict[str, float] | None:
        """By the name of the coordinate; None for kernels without one for every axis."""
        base = getattr(self.field.model.kernel, "base_kernel", None)
        values = getattr(base, "lengthscale", None)
        if values is None or values.numel() != len(self.plane.coordinates):
            return None
        return {c.name: float(v) for c, v in zip(self.plane.coordinates, values.flatten(), strict=True)}

    def state(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Header and tensors for a file."""
        places = self.field.data.places
        model, tensors = self.field.model.state()
        tensors = tensors | data_tensors(self.field.data) | {f"field.{k}": v for k, v in self.field.state().items()}
        header: dict[str, Any] = {
            "model": model, "plane": self.plane.state(), "trend": self.trend.state(), "scale": self.scale,
            "names": list(self.names), "mode": self.mode, "kind": self.field.kind,
            "shape": None if places.shape is None else list(places.shape),
            "steps": None if places.steps is None else list(places.steps), "frames": {},
        }  # fmt: skip
        if self.cells is not None:
            tensors["cells"] = torch.from_numpy(self.cells)
        for name in ("frame", "template"):
            if getattr(self, name) is not None:
                header["frames"][name], parts = getattr(self, name).state()
                tensors |= {f"{name}.{key}": value for key, value in parts.items()}
        return header, tensors

    @classmethod
    def from_state(cls, header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> FittedPlane:
        """From a file."""
        model = FieldModel.from_state(header["model"], tensors)
        data = data_from(tensors, header["shape"], header["steps"])
        parts = {key.removeprefix("field."): value for key, value in tensors.items() if key.startswith("field.")}
        frames = {
            name: GridFrame.from_state(
                each, {k.removeprefix(f"{name}."): v for k, v in tensors.items() if k.startswith(f"{name}.")}
            )
            for name, each in header["frames"].items()
        }
        plane, trend = Plane.from_state(header["plane"]), Trend.from_state(header["trend"])
        field = field_from(str(header["kind"]), data, model, parts)
        columns = 1 + sum(scale > 0 for scale in trend.scale)
        if data.places.H.shape[1] != columns or data.places.X.shape[1] != len(plane.coordinates):
            raise ValueError("the places of a field do not fit its mean function.")
        cells = tensors["cells"].numpy() if "cells" in tensors else None
        names = tuple(str(name) for name in header["names"])
        return cls(
            field, plane, trend, float(header["scale"]), names, frames.get("frame"), cells, str(header["mode"]),
            frames.get("template"),
        )  # fmt: skip

    @property
    def is_exact(self) -> bool:
        """Whether error bars are exact."""
        return isinstance(self.field, ExactField)


def _same_axes(own: GridFrame, other: GridFrame | None) -> bool:
    """Whether two grids have the same coordinates."""
    if other is None or own.axes != other.axes or own.shape != other.shape:
        return False
    return all(dim in own.values and np.array_equal(own.values[dim], other.values[dim]) for dim in own.axes)
