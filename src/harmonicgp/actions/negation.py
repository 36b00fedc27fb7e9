"""Negation of coordinates or of principal directions, in one or several ways."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from harmonicgp._validation import check_points, coordinates, whole_number
from harmonicgp.actions.base import Action, register_action
from harmonicgp.actions.linear import LinearParts, negated_parts
from harmonicgp.groups import Cyclic


def strided(d: int, ways: int) -> tuple[tuple[int, ...], ...]:
    """The paper's division of d directions into J subsets j, J + j, 2J + j, ...

    If the directions are sorted by variance, every subset has some with large variance.

    Examples:
        >>> strided(5, 2)
        ((0, 2, 4), (1, 3))
    """
    d, ways = whole_number(d, "the number of directions", 1), whole_number(ways, "the number of ways", 1)
    if ways > d:
        raise ValueError(f"{ways} ways of negation need at least {ways} directions; there are {d}.")
    return tuple(tuple(range(j, d, ways)) for j in range(ways))


class Negation(Action):
    """Negates subsets of the coordinates, one way for each subset.

    `Negation()` negates all coordinates together, `Negation([0, 2])` only two. `Negation([[0], [2, 3]])` has two ways.
    `Negation.strided(d, J)` divides d coordinates into J subsets as the paper does.

    Examples:
        >>> import torch
        >>> Negation([[0], [1]]).orbit(torch.tensor([[1.0, 2.0]]))[:, 0]
        tensor([[ 1.,  2.],
                [ 1., -2.],
                [-1.,  2.],
                [-1., -2.]])
    """

    negates_columns = True

    def __init__(self, subsets: Sequence[int] | Sequence[Sequence[int]] | None = None) -> None:
        if subsets is None:
            self.subsets: tuple[tuple[int, ...], ...] | None = None
            self.group = Cyclic(2)
            return
        if isinstance(subsets, str) or not hasattr(subsets, "__iter__"):
            raise TypeError(f"subsets must be a list of coordinates, or a list of such lists; got {subsets!r}.")
        items: list[Any] = subsets.tolist() if hasattr(subsets, "tolist") else list(subsets)
        lists = [item for item in items if hasattr(item, "__iter__")]
        if lists and len(lists) != len(items):
            raise TypeError(f"subsets mixes coordinates and lists of coordinates: {subsets!r}.")
        self.subsets = tuple(coordinates(subset, "a subset of Negation") for subset in lists or [items])
        members = [i for subset in self.subsets for i in subset]
        for i in members:
            if members.count(i) > 1:
                raise ValueError(f"the subsets of Negation overlap in coordinate {i}: each may be in one subset only.")
        self.group = Cyclic(2) ** len(self.subsets)
        self.min_dim = max(members) + 1

    @classmethod
    def strided(cls, d: int, ways: int) -> Negation:
        """J-way negation of d coordinates; subset j is j, J + j, 2J + j, ..."""
        return cls(strided(d, ways))

    def move(self, x: Tensor, s: Tensor) -> Tensor:
        """The points with the new signs of their coordinates."""
        return x * _signs(self._subsets(x.shape[-1]), x, s)

    def _subsets(self, d: int) -> tuple[tuple[int, ...], ...]:
        return self.subsets or (tuple(range(d)),)

    def mixed_columns(self, d: int) -> list[list[int]]:
        """No groups: a negation mixes no columns."""
        return []

    def renumbered(self, columns: Sequence[int], width: int) -> Action:
        """The same negation, of the columns with the new numbers."""
        return Negation([[columns[i] for i in subset] for subset in self._subsets(len(columns))])

    def linear_parts(self, d: int) -> LinearParts | None:
        """One part for each way, and one for the columns that are not negated."""
        return negated_parts(self.group, self._subsets(d), d)

    def __repr__(self) -> str:
        return f"Negation({'' if self.subsets is None else [list(subset) for subset in self.subsets]})"


class PrincipalNegation(Action):
    """Negation along the principal directions of the data, about their mean, in J ways.

    The directions, sorted by variance, are divided into J subsets as in the paper (`strided`). `fit` computes them and returns a
    new action; the original one stays unchanged. A kernel must be isotropic to be invariant under it.

    Examples:
        >>> import torch
        >>> x = torch.tensor([[0.0, 0.0], [1.0, 1.1], [2.0, 2.0], [3.0, 2.9]])
        >>> action = PrincipalNegation(2).fit(x)
        >>> action.orbit(x).shape
        torch.Size([4, 4, 2])
    """

    def __init__(self, ways: int = 1) -> None:
        self.ways = whole_number(ways, "the number of ways", 1)
        if self.ways > 62:
            raise ValueError(f"{self.ways} ways of negation make 2^{self.ways} blocks: use fewer; three make eight.")
        self.group = Cyclic(2) ** self.ways
        self.min_dim = self.ways
        self.mean: Tensor | None = None
        self.directions: Tensor | None = None

    @classmethod
    def along(cls, ways: int, mean: Tensor | None = None, directions: Tensor | None = None) -> PrincipalNegation:
        """The action with a mean [d] and orthonormal directions in the columns of [d, d]; without both it is not fitted."""
        action = cls(ways)
        if mean is None and directions is None:
            return action
        if mean is None or directions is None or mean.dim() != 1 or directions.shape != (len(mean), len(mean)):
            raise ValueError("the shapes of mean and directions do not match.")
        action.check_dim(len(mean), "the mean")
        identity = torch.eye(len(mean), dtype=directions.dtype, device=directions.device)
        if float((directions @ directions.mT - identity).abs().max()) > 1e-6:
            raise ValueError("the directions are not orthogonal.")
        action.mean, action.directions, action.dim = mean, directions, len(mean)
        return action

    def fit(self, x: Tensor) -> PrincipalNegation:
        """A copy of this action with the mean and the principal directions of the rows of x [n, d]."""
        check_points(x)
        self.check_dim(x.shape[-1])
        rows = x.detach().reshape(-1, x.shape[-1]).double()
        mean = rows.mean(0)
        scale = (rows - mean).abs().max().clamp_min(torch.finfo(torch.float64).tiny)  # avoids overflow of the squares
        covariance = sum(((c - mean) / scale).mT @ ((c - mean) / scale) for c in rows.split(1 << 16))
        _, V = torch.linalg.eigh(covariance)  # ascending
        Vh = V.mT.flip(0)
        # The sign of a direction is arbitrary: the largest entry is made positive, so that reruns agree.
        largest = Vh.gather(1, Vh.abs().argmax(1, keepdim=True))
        return PrincipalNegation.along(self.ways, mean, (Vh * largest.sign()).mT.contiguous())

    def move(self, x: Tensor, s: Tensor) -> Tensor:
        """The points with the new signs of their principal coordinates."""
        mean, V = self._fitted(x)
        c = (x - mean) @ V  # principal coordinates
        return (c * _signs(strided(V.shape[0], self.ways), c, s)) @ V.mT + mean

    def _fitted(self, x: Tensor) -> tuple[Tensor, Tensor]:
        if self.mean is None or self.directions is None:
            raise ValueError(f"{self!r} has no directions yet: use action = {self!r}.fit(X) with the training inputs.")
        return self.mean.to(x), self.directions.to(x)

    def linear_parts(self, d: int) -> LinearParts | None:
        """One part for each way, about the mean."""
        if self.directions is None:
            return super().linear_parts(d)
        return negated_parts(self.group, strided(d, self.ways), d, self.directions, self.mean)

    def __repr__(self) -> str:
        return f"PrincipalNegation({self.ways})"


def _signs(subsets: tuple[tuple[int, ...], ...], x: Tensor, s: Tensor) -> Tensor:
    """+1 or -1 for each coordinate, [..., d]."""
    places = torch.tensor([(j, i) for j, subset in enumerate(subsets) for i in subset], device=x.device)
    membership = x.new_zeros(len(subsets), x.shape[-1])  # one if a coordinate belongs to a subset
    membership[places[:, 0], places[:, 1]] = 1.0
    return 1.0 - 2.0 * (s.to(x.dtype) @ membership)


register_action("Negation", Negation, subsets=list[list[int]] | None)
register_action(
    "PrincipalNegation",
    PrincipalNegation,
    make=PrincipalNegation.along,
    ways=int,
    mean=Tensor | None,
    directions=Tensor | None,
)
