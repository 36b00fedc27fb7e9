"""Translation of a periodic coordinate, and longitude on the globe."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from harmonicgp._validation import whole_number
from harmonicgp.actions.base import Action, register_action, replaced
from harmonicgp.actions.rotation import Rotation
from harmonicgp.groups import Cyclic


class Translation(Action):
    """Moves a periodic coordinate by a T-th of its period.

    Moved and folded coordinates lie in [start, start + period). The neutral element does not change them.

    Examples:
        >>> import torch
        >>> Translation(axis=0, period=24.0, order=12).apply(torch.tensor([[23.0]]), 1)
        tensor([[1.]])
    """

    def __init__(self, axis: int, period: float, order: int, start: float = 0.0) -> None:
        self.axis = whole_number(axis, "the axis of a translation", 0)
        self.period, self.start = float(period), float(start)
        if not (math.isfinite(self.period) and self.period > 0):
            raise ValueError(f"the period must be a positive number; got {period}.")
        if not math.isfinite(self.start):
            raise ValueError(f"the start of the period must be a finite number; got {start}.")
        self.order = whole_number(order, f"the order of {type(self).__name__}", 1)
        self.group = Cyclic(self.order)
        self.min_dim = self.axis + 1

    @property
    def periods(self) -> dict[int, float]:
        """The circular coordinate and its period."""
        return {self.axis: self.period}

    def move(self, x: Tensor, s: Tensor) -> Tensor:
        """The points with the coordinate shifted and the others unchanged."""
        shift = s[..., 0].to(x.dtype) * (self.period / self.order)
        a = x[..., self.axis]
        # The neutral element must not change x, not even by rounding or a whole period.
        return replaced(x, {self.axis: torch.where(shift == 0, a, self._reduce(a + shift))})

    def _reduce(self, a: Tensor) -> Tensor:
        """The coordinate in [start, start + period) of the same point on the circle."""
        reduced = torch.remainder(a - self.start, self.period) + self.start
        return torch.where(reduced >= self.start + self.period, reduced - self.period, reduced)  # rounded up to the end

    def tidy(self, x: Tensor) -> Tensor:
        """The points with the coordinate in [start, start + period); just below the end it becomes the start."""
        a, edge = self._reduce(x[..., self.axis]), self.start + self.period - self._edge
        return replaced(x, {self.axis: a.masked_fill(a >= edge, self.start)})

    @property
    def _edge(self) -> float:
        """The distance of the edge of the fundamental domain below `start`, where round numbers lie."""
        return min(1.3e-5 / self.order + 1.3e-6, 0.2 / self.order) * self.period

    def check(self, x: Tensor, name: str = "x") -> None:
        """Raise a ValueError also for values so large that their rounding is more than 1 % of a step."""
        super().check(x, name)
        self._check_rounding(x, 0.01 * self.period / self.order, name)

    def check_fold(self, x: Tensor) -> None:
        """Raise a ValueError for values so large that their rounding reaches the edge of the fundamental domain."""
        self._check_rounding(x, 0.5 * self._edge, "x")

    def _check_rounding(self, x: Tensor, limit: float, name: str) -> None:
        largest = float(x[..., self.axis].detach().abs().max()) + abs(self.start)
        if largest * torch.finfo(x.dtype).eps > limit:
            raise ValueError(
                f"coordinate {self.axis} of {name} reaches {largest:.3g}, where {x.dtype} cannot tell apart steps of "
                f"{self.period / self.order:.3g} safely: subtract a whole number of periods, or use float64."
            )

    def generic_point(self, d: int) -> Tensor:
        """A generic point; its cell on the circle is the first step of the period."""
        w = super().generic_point(d)
        # The cell of w is shifted against the first step by more than the rounding of float32.
        w[self.axis] = self.start + 0.5 * self.period / self.order - self._edge
        return w

    def mixed_columns(self, d: int) -> list[list[int]]:
        """No groups: a translation mixes no columns."""
        return []

    def renumbered(self, columns: Sequence[int], width: int) -> Action:
        """The translation of the column with the new number."""
        return Translation(columns[self.axis], self.period, self.order, self.start)

    def __repr__(self) -> str:
        start = f", start={self.start}" if self.start else ""
        return f"Translation(axis={self.axis}, period={self.period}, order={self.order}{start})"


class Longitude(Translation):
    """Rotates the globe eastwards by a T-th of 360 degrees. Inputs: longitude and latitude in degrees, then any others.

    Longitudes may have any convention; moved ones lie in [-180, 180). Use it with a `GlobeKernel`.

    Examples:
        >>> import torch
        >>> Longitude(4).apply(torch.tensor([[170.0, 45.0]]), 1)
        tensor([[-100.,   45.]])
    """

    def __init__(self, order: int, axis: int = 0) -> None:
        super().__init__(axis, 360.0, order, start=-180.0)
        self.min_dim = self.axis + 2

    def check(self, x: Tensor, name: str = "x") -> None:
        """Raise a ValueError unless x has longitudes and latitudes in degrees."""
        super().check(x, name)
        check_latitude(x[..., self.axis + 1], name)

    def tidy(self, x: Tensor) -> Tensor:
        """The points with longitudes in [-180, 180); at a pole, where every longitude is the same point, it is -180."""
        x = super().tidy(x)
        pole = x[..., self.axis + 1].abs() >= 90.0
        return replaced(x, {self.axis: x[..., self.axis].masked_fill(pole, self.start)})

    def renumbered(self, columns: Sequence[int], width: int) -> Action:
        """The rotation in the longitude column with the new number; the latitude must be the next column."""
        return Longitude(self.order, axis=columns[self.axis])

    def declared_kinds(self) -> dict[int, Any]:
        """The columns of longitude and latitude."""
        return {self.axis: "longitude", self.axis + 1: "latitude"}

    def on_unit_vectors(self) -> Action | None:
        """The rotation about the Earth's axis; None unless longitude and latitude are columns 0 and 1."""
        return Rotation((0, 1), self.order) if self.axis == 0 else None

    def __repr__(self) -> str:
        return f"Longitude({self.order}{f', axis={self.axis}' if self.axis else ''})"


register_action("Translation", Translation, axis=int, period=float, order=int, start=float)
register_action("Longitude", Longitude, order=int, axis=int)


def check_latitude(latitude: Tensor, name: str = "x") -> None:
    """Raise a ValueError for latitudes beyond the poles, for example if longitude and latitude are swapped."""
    worst = float(latitude.detach().abs().max()) if latitude.numel() else 0.0
    if not worst <= 90.0 + 1e-4:
        raise ValueError(
            f"{name} has a latitude of {worst:g} degrees; latitudes lie in [-90, 90]. "
            "The columns are longitude, latitude, in degrees: are they swapped, or in other units?"
        )
