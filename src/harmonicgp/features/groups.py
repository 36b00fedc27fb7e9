"""Vecchia's approximation of the residual by groups of near rows.

Each group is conditioned on the nearest rows of earlier groups, and each of its rows on the group's rows before it. A group
evaluates the features of K near rows for its s rows; rows conditioned one by one would each need k rows of features.

C is the covariance of the residual, noise included, at the K near rows and the s rows of a group; L is its Cholesky factor. The
last s rows of L^{-1} A and L^{-1} y, times the diagonal of L, are the conditioned features and targets:

    p(y_i | y_near, y_before, v) = N(y~_i; a~_i'v, d_i)        d_i = L_ii^2

With all earlier rows as near rows this is exact.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from harmonicgp.features.base import KernelView, Whitened
from harmonicgp.features.evaluation import DenseEvaluation
from harmonicgp.features.nearest import Neighbours, nearest_below, tiles
from harmonicgp.features.neighbours import ObservedRows, factor, stacked

#: Features gathered at a time, in numbers: a buffer of this size is used again.
GATHERED = 1 << 24
#: Rows of a group, and rows of earlier groups that are near it.
GROUP_SIZE, NEAR_ROWS = 128, 32


@dataclass(frozen=True)
class RowGroups:
    """Groups of near rows in an order, each with rows of earlier groups that are near it.

    Where a group has fewer rows or near rows than others, numbers are absent and stand for nothing.
    """

    rows: Neighbours  #: the rows of every group, [groups, s]
    near: Neighbours  #: rows of earlier groups, [groups, K]

    def __len__(self) -> int:
        return len(self.rows.rows)

    @classmethod
    def of(
        cls,
        points: Tensor,
        start: int = 0,
        size: int = GROUP_SIZE,
        k: int = NEAR_ROWS,
        seed: int = 0,
        most: int | None = None,
    ) -> RowGroups:
        """Groups of at most `size` points [N, D], in random order; the points before number `start` come first.

        Near a group are the `k` earlier rows nearest to its centre. With `most`, whole groups are left out until about so many
        rows remain in groups; the rows left out come first too.

        Examples:
            >>> import torch
            >>> groups = RowGroups.of(torch.arange(6.0)[:, None], size=3, k=1)
            >>> groups.rows.rows
            tensor([[0, 1, 2],
                    [3, 4, 5]])
        """
        parts = [part.sort().values + start for part in tiles(points[start:], size)]
        order = torch.randperm(len(parts), generator=torch.Generator().manual_seed(seed), device="cpu").tolist()
        wanted = len(parts) if most is None else max(1, round(most * len(parts) / (len(points) - start)))
        chosen = sorted(order[-wanted:])  # stored as they lie, so that groups near each other stand together
        earlier = torch.cat([torch.arange(start, device=points.device), *(parts[i] for i in order[:-wanted])])
        place = {part: j for j, part in enumerate(chosen)}
        turns = [place[i] for i in order[-wanted:]]

        width = max(len(parts[i]) for i in chosen)
        rows = torch.zeros(wanted, width, dtype=torch.long, device=points.device)
        present = torch.zeros_like(rows, dtype=torch.bool)
        for j, i in enumerate(chosen):
            rows[j, : len(parts[i])], present[j, : len(parts[i])] = parts[i], True
        sizes = present.sum(1)
        before = len(earlier) + torch.cat((sizes.new_zeros(1), sizes[turns].cumsum(0)[:-1]))
        sequence = torch.cat((earlier, rows[turns][present[turns]]))
        centres = torch.where(present[..., None], points[rows], 0.0).sum(1) / sizes[:, None]
        nearest = nearest_below(points[sequence], centres[turns], before, k, 16 + size)
        near = Neighbours(torch.zeros_like(nearest.rows), torch.zeros_like(nearest.present))
        near.rows[turns], near.present[turns] = sequence[nearest.rows], nearest.present
        return cls(Neighbours(rows, present), near)

    @classmethod
    def singles(cls, N: int, start: int = 0, device: torch.device | None = None) -> RowGroups:
        """Groups of one row each, from number `start` on, with no near rows: every residual is independent."""
        rows = torch.arange(start, N, device=device)[:, None]
        none = rows[:, :0]
        return cls(Neighbours(rows, torch.ones_like(rows, dtype=torch.bool)), Neighbours(none, none.bool()))

    def part(self, groups: Tensor | slice) -> RowGroups:
        """Some of the groups."""
        return RowGroups(self.rows.part(groups), self.near.part(groups))

    def split(self, features: int) -> Iterator[RowGroups]:
        """Pieces for which `GATHERED` numbers are gathered, groups near each other together."""
        each = (self.rows.k + self.near.k) * max(features, self.rows.k + self.near.k)
        size = max(1, GATHERED // each)
        for start in range(0, len(self), size):
            yield self.part(slice(start, start + size))

    @property
    def numbers(self) -> Tensor:
        """The numbers of the rows that stand in a group, group by group: [n]."""
        return self.rows.rows[self.rows.present]


@dataclass(frozen=True)
class GroupedRows:
    """Rows conditioned on earlier rows, in the order of `RowGroups.numbers`."""

    evaluation: DenseEvaluation | None  #: a~, and the residual variance that is left; None without features
    y: Tensor  #: y~, [P, n]
    d: Tensor  #: the variance of y~ given v, noise included, [n] in float64

    def detach(self) -> GroupedRows:
        """The same without a graph."""
        evaluation = None if self.evaluation is None else self.evaluation.detach()
        return GroupedRows(evaluation, self.y.detach(), self.d.detach())


def condition_groups(
    view: KernelView, whitened: Whitened | None, observed: ObservedRows, groups: RowGroups
) -> GroupedRows:
    """The rows of groups, conditioned on earlier rows; differentiable in features, kernel and noise.

    Without features (`whitened` is None) the residual is all of f.
    """
    index = torch.cat((groups.near.rows, groups.rows.rows), 1)
    present = torch.cat((groups.near.present, groups.rows.present), 1)
    numbers, place = torch.unique(index, return_inverse=True)
    observed, shapes, gathered = observed.part(numbers), None, None
    if whitened is not None:
        if observed.features is None:
            evaluation = whitened.dense(observed.X)
            A, shapes = evaluation.flat().mT, evaluation.shapes
        else:
            A, shapes = observed.features, whitened.dense(observed.X[:1]).shapes
        gathered = A.index_select(0, place.flatten()).unflatten(0, place.shape)  # [groups, K + s, F]
    C, least = _covariances(view, observed, place, present, gathered)
    near = groups.near.k
    W, diagonal = _whitening(factor(C, least), near)
    inside = present[:, near:]
    # Scaled by the diagonal of L, each row's own weight is one: a~_i = a_i - w'A and y~_i = y_i - w'y.
    W = (W * diagonal[..., None]).masked_fill(~present[:, None, :], 0.0)
    y = torch.einsum("gsk,pgk->pgs", W, observed.y.double()[:, place])[:, inside].to(observed.y.dtype)
    d = diagonal.square()[inside]
    if gathered is None or shapes is None:
        return GroupedRows(None, y, d)
    mixed = torch.bmm(W.to(gathered.dtype), gathered)[inside]
    noise = observed.noise[place[:, near:][inside]].double()
    return GroupedRows(stacked(mixed, (d - noise).clamp_min(0.0).to(mixed.dtype), shapes), y, d)


def _covariances(
    view: KernelView, observed: ObservedRows, place: Tensor, present: Tensor, features: Tensor | None
) -> tuple[Tensor, Tensor]:
    """C of each group in float64, noise included, and the smallest jitter for it."""
    X = observed.X.double()[place]
    K = view.zx(X, X)
    least = 10 * torch.finfo(observed.X.dtype).eps * K.detach().diagonal(dim1=-2, dim2=-1).mean(-1)
    if features is not None:
        K = K - torch.bmm(features, features.mT)
    both = present[:, :, None] & present[:, None, :]
    noise = torch.where(present, observed.noise.double()[place], 1.0)
    return torch.where(both, K, 0.0) + torch.diag_embed(noise), least


def _whitening(L: Tensor, near: int) -> tuple[Tensor, Tensor]:
    """The last rows of L^{-1}, [groups, s, K + s], and the diagonal of L there."""
    corner, side = L[:, near:, near:], L[:, near:, :near]
    eye = torch.eye(corner.shape[-1], dtype=L.dtype, device=L.device).expand_as(corner)
    inverse = torch.linalg.solve_triangular(corner, eye, upper=False)
    diagonal = corner.diagonal(dim1=-2, dim2=-1)
    if near == 0:
        return inverse, diagonal
    left = torch.linalg.solve_triangular(L[:, :near, :near], inverse @ side, upper=False, left=False)
    return torch.cat((-left, inverse), -1), diagonal
