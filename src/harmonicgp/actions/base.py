"""What every action can do, from the one thing each must say: how its elements move points."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from harmonicgp._validation import check_points
from harmonicgp.groups import Element, Group

if TYPE_CHECKING:
    from harmonicgp.actions.product import Product

_CHUNK = 1 << 22  # numbers held at once while folding


class Action(ABC):
    """A finite abelian group moving points of R^d, each way by an isometry that commutes with the others.

    Some coordinates may be circles (`periods`); the rest are ordinary numbers. A subclass gives `group`, `_move`, and
    where they apply `periods`, `dim`, `min_dim`. A new action is checked with `harmonicgp.testing.assert_cyclic`.
    """

    #: The group that acts.
    group: Group
    #: The number of columns, where the action fixes it (images, matrices).
    dim: int | None = None
    #: The least number of columns the action can work on.
    min_dim: int = 1

    @property
    def periods(self) -> dict[int, float]:
        """The coordinates that are circles, and their periods."""
        return {}

    @property
    def is_literal(self) -> bool:
        """Whether `repr(action)` is Python that makes the action again."""
        return type(self).__repr__ is not object.__repr__

    @abstractmethod
    def _move(self, x: Tensor, s: Tensor) -> Tensor:
        """X [..., d] moved by the elements s, integers [..., J] within 0 <= s_j < T_j; leading axes broadcast."""

    # Moving points --------------------------------------------------------------------------------------------------

    def apply(self, x: Tensor, element: Element) -> Tensor:
        """The points s.x for one element s (an int for one way, J ints for J ways): [..., n, d] -> [..., n, d].

        Examples:
            >>> import torch
            >>> from harmonicgp.actions import Rotation
            >>> Rotation((0, 1), 4).apply(torch.tensor([[1.0, 0.0]]), 1)
            tensor([[0., 1.]])
        """
        self.check(x)
        s = torch.tensor(self.group.reduce(element), device=x.device)
        return self._finite(self._move(x, s))

    def orbit(self, x: Tensor) -> Tensor:
        """All images s.x in the order of `group.elements()`: [..., n, d] -> [|G|, ..., n, d]."""
        self.check(x)
        return self._finite(self._orbit(x))

    @staticmethod
    def _finite(x: Tensor) -> Tensor:
        if not torch.isfinite(x).all():
            raise ValueError("moved points are not finite: the inputs are too large for their dtype; scale them first.")
        return x

    def inverse(self, element: Element) -> tuple[int, ...]:
        """The element that undoes this one: moving by s and then by its inverse moves nothing."""
        return self.group.reduce([-s for s in self.group.reduce(element)])

    def _orbit(self, x: Tensor) -> Tensor:
        s = self.group._elements.to(x.device)
        return self._move(x, s.reshape(-1, *[1] * (x.dim() - 1), self.group.ways))

    # The fundamental domain -----------------------------------------------------------------------------------------

    def fold(self, x: Tensor) -> Tensor:
        """Each point moved to the one image of its orbit that lies in the fundamental domain, [..., n, d].

        The domain is a Dirichlet cell: the points at least as near to a fixed generic point as to any of its images.
        It is convex where no coordinate is a circle. For negations of single coordinates it is the positive orthant,
        for a translation of order T the first T-th of the period.
        """
        self.check(x)
        rows = x.reshape(-1, x.shape[-1])
        elements, step = self.group.elements().to(x.device), self._fold_step(x.shape[-1])
        folded = [self._tidy(self._move(part, elements[self._fold_index(part)])) for part in rows.split(step)]
        return torch.cat(folded).reshape(x.shape)

    def fold_index(self, x: Tensor) -> Tensor:
        """The place in `group.elements()` of the element that `fold` moves each point by, integers [..., n].

        Only images of the one generic point w are made, never those of x: |w - s.x| = |-s.w - x|.
        """
        self.check(x)
        rows = x.reshape(-1, x.shape[-1])
        places = [self._fold_index(part) for part in rows.split(self._fold_step(x.shape[-1]))]
        return torch.cat(places).reshape(x.shape[:-1])

    def _fold_step(self, d: int) -> int:
        """How many rows to fold at once."""
        return max(1, _CHUNK // max(self.group.order, d))

    def _check_fold(self, x: Tensor) -> None:  # noqa: B027 - most actions have nothing to check
        """Raise a clear error where rounding would choose the representative."""

    def _fold_index(self, x: Tensor) -> Tensor:
        self._check_fold(x)
        w = self._generic_point(x.shape[-1]).to(x.device)
        images = self._orbit(w[None])[:, 0]  # [|G|, d], float64
        # The mean of an orbit is a fixed point; measured from it every element is linear.
        center = torch.where(self._circles(x.shape[-1]).to(x.device), torch.zeros_like(w), images.mean(0))
        W = self._embed(images - center)[self.group.inverses()]
        nearness = self._embed(x.detach().double() - center) @ W.mT
        # Ties are between images that coincide up to rounding: take the first, so that rounding does not choose.
        scale = 1e-9 * nearness.abs().amax(-1, keepdim=True)
        return (nearness >= nearness.amax(-1, keepdim=True) - scale).to(torch.uint8).argmax(-1)

    def wrap(self, difference: Tensor) -> Tensor:
        """X - x' with circular coordinates reduced to half a period at most: zero means the same point."""
        difference = difference.clone()
        for axis, period in self.periods.items():
            turns = difference[..., axis] / period
            difference[..., axis] = (turns - turns.round()) * period
        return difference

    def _tidy(self, x: Tensor) -> Tensor:
        """One name for a point that has several (a pole of the globe), as the last step of `fold`."""
        return x

    def _embed(self, x: Tensor) -> Tensor:
        """Circles as (cos, sin), so that the action is by isometries that fix the origin."""
        columns = []
        for axis in range(x.shape[-1]):
            if axis in self.periods:
                angle = x[..., axis] * (2 * math.pi / self.periods[axis])
                columns += [angle.cos(), angle.sin()]
            else:
                columns.append(x[..., axis])
        return torch.stack(columns, -1) if self.periods else x

    def _circles(self, d: int) -> Tensor:
        return torch.tensor([axis in self.periods for axis in range(d)])

    def _generic_point(self, d: int) -> Tensor:
        """A point of positive coordinates in no special position, so that no boundary falls on tidy data.

        Pseudo-random, not a formula: whole-number data meet a whole-number relation between simple irrationals as a tie.
        """
        return 1.0 + torch.rand(d, generator=torch.Generator().manual_seed(20210718), dtype=torch.float64)

    # Products, checks -----------------------------------------------------------------------------------------------

    def __mul__(self, other: Action) -> Product:
        from harmonicgp.actions.product import Product

        return Product(self, other) if isinstance(other, Action) else NotImplemented

    def check(self, x: Tensor, name: str = "x") -> None:
        """Raise a clear error unless the action can move `x`."""
        self.check_dim(check_points(x, name).shape[-1], name)

    def check_dim(self, d: int, name: str = "x") -> None:
        """Raise a clear error unless the action can move points of d coordinates."""
        if self.dim is not None and d != self.dim:
            raise ValueError(
                f"{self!r} moves points of {self.dim} coordinates, one point a row; {name} has {d} columns "
                "(images come as flat rows: images.flatten(1))."
            )
        if d < self.min_dim:
            raise ValueError(f"{self!r} needs at least {self.min_dim} coordinates; {name} has {d}.")
