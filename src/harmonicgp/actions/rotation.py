"""Rotation of a coordinate plane."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from harmonicgp._validation import coordinates, whole_number
from harmonicgp.actions.base import Action, register_action, replaced
from harmonicgp.groups import Cyclic


class Rotation(Action):
    """Rotates the plane of two coordinates by a T-th of a full turn, from the first towards the second.

    Examples:
        >>> import torch
        >>> Rotation((0, 2), 4).apply(torch.tensor([[1.0, 5.0, 2.0]]), 1)
        tensor([[-2.,  5.,  1.]])
    """

    def __init__(self, plane: tuple[int, int], order: int) -> None:
        self.plane = coordinates(plane, "the plane of Rotation")
        if len(self.plane) != 2:
            raise ValueError(f"a plane has two coordinates; got {list(self.plane)}.")
        self.order = whole_number(order, "the order of Rotation", 1)
        self.group = Cyclic(self.order)
        self.min_dim = max(self.plane) + 1

    def move(self, x: Tensor, s: Tensor) -> Tensor:
        """The points with the plane rotated and the other coordinates unchanged."""
        c, i = (part.to(x) for part in roots_of_unity(self.order))
        c, i = c[s[..., 0]], i[s[..., 0]]
        p, q = self.plane
        a, b = x[..., p], x[..., q]
        return replaced(x, {p: c * a - i * b, q: i * a + c * b})

    def mixed_columns(self, d: int) -> list[list[int]]:
        """One group, the columns of the plane."""
        return [list(self.plane)]

    def renumbered(self, columns: Sequence[int], width: int) -> Action:
        """The rotation of the plane of the columns with the new numbers."""
        return Rotation((columns[self.plane[0]], columns[self.plane[1]]), self.order)

    def planes(self) -> list[tuple[tuple[int, int], int]]:
        """The plane and its order."""
        return [((self.plane[0], self.plane[1]), self.order)]

    def __repr__(self) -> str:
        return f"Rotation({self.plane}, {self.order})"


register_action("Rotation", Rotation, plane=list[int], order=int)


def roots_of_unity(T: int) -> tuple[Tensor, Tensor]:
    """The cosines and sines of 2 pi s / T for s = 0..T-1 in float64; quarter and half turns are exact."""
    s = torch.arange(T, dtype=torch.float64, device="cpu")
    quarter = (4 * s / T).round()
    angle = 2 * math.pi * (s - quarter * T / 4) / T  # within an eighth of a turn
    c, i = angle.cos(), angle.sin()
    k = quarter.long() % 4
    cos = torch.stack([c, -i, -c, i])
    sin = torch.stack([i, c, -i, -c])
    pick = torch.arange(T, device="cpu")
    return cos[k, pick] + 0.0, sin[k, pick] + 0.0  # + 0.0 turns -0.0 into 0.0
