"""Several commuting actions at once."""

from __future__ import annotations

import torch
from torch import Tensor

from harmonicgp.actions.base import Action
from harmonicgp.groups import Group


class Product(Action):
    """The joint action of commuting actions: its group is the product of theirs.

    The factors are checked to commute, and no element but the neutral one may leave every point in its place.

    Examples:
        >>> from harmonicgp.actions import Negation, Translation
        >>> (Negation([0]) * Translation(axis=1, period=24.0, order=3)).group
        Cyclic(2) * Cyclic(3)
    """

    def __init__(self, *factors: Action) -> None:
        self.factors: tuple[Action, ...]
        flat: list[Action] = []
        for factor in factors:
            if not isinstance(factor, Action):
                raise TypeError(f"Product takes actions; got {factor!r}.")
            flat += factor.factors if isinstance(factor, Product) else [factor]
        if not flat:
            raise ValueError("Product needs at least one action.")
        self.factors = tuple(flat)
        self.group = Group(tuple(T for factor in flat for T in factor.group.orders))
        dims = {factor.dim for factor in flat if factor.dim is not None}
        if len(dims) > 1:
            raise ValueError(f"the actions move points of different dimension: {sorted(dims)}.")
        self.dim = dims.pop() if dims else None
        self.min_dim = max(factor.min_dim for factor in flat)
        if self.dim is not None and self.dim < self.min_dim:
            raise ValueError(f"one action moves points of {self.dim} coordinates, another needs {self.min_dim}.")
        periods: dict[int, float] = {}
        for factor in flat:
            for axis, period in factor.periods.items():
                if periods.setdefault(axis, period) != period:
                    raise ValueError(f"coordinate {axis} has two periods, {periods[axis]} and {period}.")
        self._periods = periods
        self._checked: set[int] = set()
        self._check_commuting()
        self._check_faithful(self.dim if self.dim is not None else self.min_dim + 1)

    @property
    def periods(self) -> dict[int, float]:
        """The circular coordinates of all factors."""
        return self._periods

    @property
    def is_literal(self) -> bool:
        """Whether all factors are."""
        return all(factor.is_literal for factor in self.factors)

    def check(self, x: Tensor, name: str = "x") -> None:
        """Raise a clear error unless every factor can move x."""
        super().check(x, name)
        for factor in self.factors:
            factor.check(x, name)

    def _check_fold(self, x: Tensor) -> None:
        for factor in self.factors:
            factor._check_fold(x)

    def _tidy(self, x: Tensor) -> Tensor:
        for factor in self.factors:
            x = factor._tidy(x)
        return x

    def _move(self, x: Tensor, s: Tensor) -> Tensor:
        start = 0
        for factor in self.factors:
            stop = start + factor.group.ways
            x = factor._move(x, s[..., start:stop])
            start = stop
        return x

    def _generic_point(self, d: int) -> Tensor:
        w = super()._generic_point(d)
        for factor in self.factors:
            for axis in factor.periods:
                w[axis] = factor._generic_point(d)[axis]
        return w

    def check_dim(self, d: int, name: str = "x") -> None:
        """Raise a clear error unless the factors can move d coordinates together without repeating each other."""
        super().check_dim(d, name)
        for factor in self.factors:
            factor.check_dim(d, name)
        if d not in self._checked:
            self._check_faithful(d)
            self._checked.add(d)

    def _trial_points(self, d: int) -> Tensor:
        return self._generic_point(d) * torch.tensor([[1.0], [-0.7], [0.4]], dtype=torch.float64)

    def _check_commuting(self) -> None:
        from harmonicgp.testing import assert_commuting

        # Two widths, since an action on "every coordinate" may commute at one and not at another.
        for d in [self.dim] if self.dim is not None else [self.min_dim, self.min_dim + 1]:
            x = self._trial_points(d)
            for i, first in enumerate(self.factors):
                for second in self.factors[i + 1 :]:
                    try:
                        assert_commuting(first, second, x)
                    except AssertionError as error:
                        raise ValueError(f"the actions of a product must commute: {error}") from None

    def _check_faithful(self, d: int) -> None:
        x = self._trial_points(d)[:1]
        still = self.wrap(self._orbit(x)[:, 0] - x).abs().amax(-1) < 1e-9 * (1 + x.abs().max())
        if int(still.sum()) > 1:
            element = tuple(self.group.elements()[still.nonzero()[1, 0]].tolist())
            raise ValueError(
                f"element {element} of {self!r} leaves every point of {d} coordinates in its place, so the factors repeat "
                "each other: drop a factor, or use one cyclic action of the joint order."
            )

    def __repr__(self) -> str:
        return " * ".join(map(repr, self.factors)) if len(self.factors) > 1 else f"Product({self.factors[0]!r})"
