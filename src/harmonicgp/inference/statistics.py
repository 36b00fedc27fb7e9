"""Sums over rows: all that the closed form needs of the data.

With w_n the precision of row n in units of 1/s2 (one, or s2/(s2 + v_n) for a known noise variance v_n), c_n the number of
equal rows that it represents (zero for a missing cell of a grid) and W = diag(c w), the sums are

    A W A',   A W y,   y'W y,   and the residual variances r_n.

`Statistics` holds the sums over a table, computed in chunks. `EvaluationStatistics` computes them from one evaluation, such as
the waves of a whole grid. It never stores all Gram matrices at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from harmonicgp.backend.linalg import NotPositiveDefiniteError, cholesky, inverse_factor, symmetric_product
from harmonicgp.features.base import Whitened
from harmonicgp.features.evaluation import (
    DenseEvaluation,
    Evaluation,
    GramWork,
    Roots,
    Shapes,
    diagonal_blocks,
    split_coefficients,
)
from harmonicgp.features.waves import narrowed
from harmonicgp.inference.covariances import RootPosterior
from harmonicgp.inference.posterior import Posterior

#: Above this many features the dense F x F matrix is not computed (0.8 GB in float64).
MAX_DENSE = 10_000
#: Above this many products (N F^2) they are computed in the dtype of the data, for speed.
MAX_EXACT = 1e12


def chunks(n: int, size: int) -> Iterator[slice]:
    """Slices of at most `size` rows."""
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


def factorise(Lambda: Tensor, ratio: float) -> Tensor:
    """The Cholesky factors of precisions I + ratio A W A'."""
    L, info = cholesky(Lambda) if Lambda.dim() > 2 else torch.linalg.cholesky_ex(Lambda)
    if bool((info != 0).any()) or not torch.isfinite(L).all():
        raise NotPositiveDefiniteError(
            f"I + A A'/s2 has no Cholesky factor at the noise variance {1 / ratio:.1e} (relative to the output scale): the "
            "noise is below the rounding of the features. Use float64, or a larger noise."
        )
    return L


# Tables ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Statistics:
    """The sums over a table. `a + b` are the statistics of both sets of rows together.

    Examples:
        >>> from gpytorch.kernels import RBFKernel
        >>> from harmonicgp.features import SparseFeatures
        >>> X, features = torch.rand(10, 1), SparseFeatures(RBFKernel(), torch.rand(4, 1))
        >>> old, new = (gather_statistics(features.whiten(), features.shapes, x, x.sin().mT) for x in X.split((7, 3)))
        >>> (old + new).n_rows, (old + new).S.shape
        (10, torch.Size([4, 4]))
    """

    shapes: Shapes
    S: Tensor | None  #: sum_n w_n a_n a_n', [F, F]; None above `MAX_DENSE`
    blocks: tuple[Tensor, ...]  #: its diagonal blocks, a stack each, [blocks, f, f]
    b: Tensor  #: sum_n w_n a_n y_n, [P, F]
    yy: Tensor  #: sum_n w_n y_n^2, [P]
    residual: Tensor  #: r(x_n), [N]
    weights: Tensor | None = None  #: w_n = s2/(s2 + v_n); None if all are one
    rounding: float = 0.0  #: relative error of S: zero if products were computed in float64
    counts: Tensor | None = None  #: c_n, how many equal rows each represents; None if all are one

    @property
    def n_rows(self) -> float:
        """N, repeats counted."""
        return len(self.residual) if self.counts is None else float(self.counts.sum())

    def __add__(self, other: Statistics) -> Statistics:
        """The statistics of both sets of rows: every sum over rows of a table ends here."""
        weights = None if self.weights is None or other.weights is None else torch.cat((self.weights, other.weights))
        return Statistics(
            self.shapes,
            None if self.S is None or other.S is None else self.S + other.S,
            tuple(x + y for x, y in zip(self.blocks, other.blocks, strict=True)),
            self.b + other.b,
            self.yy + other.yy,
            torch.cat((self.residual, other.residual)),
            weights,
            max(self.rounding, other.rounding),
            None if self.counts is None or other.counts is None else torch.cat((self.counts, other.counts)),
        )

    def scaled(self, c: float) -> Statistics:
        """The statistics if every row represented c times as many rows."""
        S = None if self.S is None else c * self.S
        counts = torch.full_like(self.residual, c) if self.counts is None else c * self.counts
        blocks = tuple(c * block for block in self.blocks)
        return replace(self, S=S, blocks=blocks, b=c * self.b, yy=c * self.yy, counts=counts)

    def factor(self, ratio: float) -> Posterior:
        """The block posterior for targets zero: precisions I + ratio times the diagonal blocks."""
        precisions = [ratio * block for block in self.blocks]
        for Lambda in precisions:
            Lambda.diagonal(dim1=-2, dim2=-1).add_(1.0)
        means = split_coefficients(torch.zeros_like(self.b), self.shapes)
        factors = [factorise(Lambda, ratio) for Lambda in precisions]
        return Posterior("block", tuple(means), tuple(L[None] for L in precisions), tuple(C[None] for C in factors))


class RowPiece(NamedTuple):
    """Some rows of a table: features, targets, weights and counts."""

    evaluation: DenseEvaluation
    y: Tensor  #: [P, n]
    weights: Tensor | None = None  #: w_n, [n]; None if all are one
    counts: Tensor | None = None  #: c_n, [n]; None if all are one


@torch.no_grad()
def gather_statistics(
    whitened: Whitened,
    shapes: Shapes,
    X: Tensor,
    y: Tensor,
    weights: Tensor | None = None,
    chunk_size: int = 4096,
    dense: bool | None = None,
    counts: Tensor | None = None,
) -> Statistics:
    """The sums over the data X [N, d], y [P, N], in one pass of chunks.

    `counts` [N] are the numbers of equal rows that each row represents. `dense` says whether to compute the F x F matrix; None
    computes it if it fits into memory.

    Examples:
        >>> import gpytorch
        >>> from harmonicgp.features import SparseFeatures
        >>> X = torch.linspace(0, 1, 10)[:, None]
        >>> features = SparseFeatures(gpytorch.kernels.RBFKernel(), X[::3])
        >>> statistics = gather_statistics(features.whiten(), features.shapes, X, X.sin().mT)
        >>> statistics.b.shape, statistics.n_rows
        (torch.Size([1, 4]), 10)
    """

    def pieces() -> Iterator[RowPiece]:
        for rows in chunks(len(X), chunk_size):
            w, c = (None if t is None else t[rows] for t in (weights, counts))
            yield RowPiece(whitened.dense(X[rows]), y[:, rows], w, c)

    return sum_statistics(pieces(), shapes, len(y), len(X), dense)


@torch.no_grad()
def sum_statistics(
    pieces: Iterable[RowPiece],
    shapes: Shapes,
    n_outputs: int,
    N: int,
    dense: bool | None = None,
    exact: bool | None = None,
) -> Statistics:
    """The sums over pieces with about N rows in total.

    Products are computed in float64, so that I + A A'/s2 is positive definite for any noise. With `exact=False`, the default
    above `MAX_EXACT` products, they are computed in the dtype of the data and summed in float64.
    """
    F = sum(blocks * f for blocks, f in shapes)
    dense = F <= MAX_DENSE if dense is None else dense
    exact = N * F * F <= MAX_EXACT if exact is None else exact
    S, block_sums, b, yy, rounding = None, [], None, None, 0.0
    rows: list[tuple[Tensor, Tensor | None, Tensor | None]] = []
    for evaluation, y, weights, counts in pieces:
        if b is None or yy is None:
            zeros = partial(torch.zeros, dtype=torch.float64, device=y.device)
            S, b, yy = zeros(F, F) if dense else None, zeros(n_outputs, F), zeros(n_outputs)
            block_sums = [] if dense else [zeros(blocks, f, f) for blocks, f in shapes]
        dtype = torch.float64 if exact else evaluation.dtype
        rounding = 0.0 if dtype == torch.float64 else 10 * float(torch.finfo(dtype).eps)
        w = _row_weights(weights, counts, dtype)
        root = None if w is None else w.sqrt()
        stacks = tuple(a.to(dtype) for a in evaluation.stacks)
        weighted = stacks if root is None else tuple(a * root for a in stacks)
        A = torch.cat([a.flatten(0, 1) for a in weighted])
        if S is not None:
            S += symmetric_product(A)
        for total, a in zip(block_sums, weighted, strict=False):
            total += symmetric_product(a)
        target = y.to(dtype)
        b += ((target if root is None else target * root) @ A.mT).double()
        yy += (y.double().square() * (1.0 if w is None else w.double())).sum(-1)
        rows.append((evaluation.residual.variance, weights, counts))
    assert b is not None
    assert yy is not None
    blocks = tuple(block_sums) if S is None else diagonal_blocks(S, shapes)
    r, precision, repeats = (None if t[0] is None else torch.cat(t).double() for t in zip(*rows, strict=True))
    assert r is not None
    return Statistics(tuple(shapes), S, blocks, b, yy, r, precision, rounding, repeats)


def _row_weights(weights: Tensor | None, counts: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """w_n c_n; None if all are one."""
    if weights is not None and counts is not None:
        return (weights.double() * counts.double()).to(dtype)
    factor = counts if weights is None else weights
    return None if factor is None else factor.to(dtype)


def streaming_matvec(
    whitened: Whitened,
    X: Tensor,
    weights: Tensor | None = None,
    chunk_size: int = 4096,
    cache_bytes: float = 1e9,
    counts: Tensor | None = None,
) -> Callable[[Tensor], Tensor]:
    """The function v -> A W A' v, each call a pass over the data.

    The features of as many chunks as fit in `cache_bytes` are stored; the others are computed in every pass.
    """
    stored: dict[int, DenseEvaluation] = {}
    room = cache_bytes
    w = _row_weights(weights, counts, torch.float64)

    @torch.no_grad()
    def matvec(v: Tensor) -> Tensor:
        nonlocal room
        total = torch.zeros_like(v)
        for rows in chunks(len(X), chunk_size):
            evaluation = stored.get(rows.start)
            if evaluation is None:
                evaluation = whitened.dense(X[rows])
                size = sum(a.numel() * a.element_size() for a in evaluation.stacks)
                if size <= room:
                    stored[rows.start], room = evaluation, room - size
            values = evaluation.project(v)
            weighted = values if w is None else values * w[rows].to(values.dtype)
            total += evaluation.accumulate(weighted).to(v.dtype)
        return total

    return matvec


# One evaluation -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EvaluationStatistics:
    """The sums over all rows of one evaluation. Nothing of size F x F, or [blocks, f, f] in float64, is stored.

    Examples:
        >>> from gpytorch.kernels import RBFKernel
        >>> from harmonicgp.features import SparseFeatures
        >>> X = torch.rand(10, 1)
        >>> statistics = EvaluationStatistics.of(SparseFeatures(RBFKernel(), X[:4])(X), X.sin().mT)
        >>> statistics.b.shape, statistics.n_rows, statistics.S
        (torch.Size([1, 4]), 10, None)
    """

    evaluation: Evaluation
    b: Tensor  #: sum_n w_n c_n a_n y_n, [P, F]
    yy: Tensor  #: sum_n w_n c_n y_n^2, [P]
    residual: Tensor  #: r(x_n), its shape broadcasts to [*cells]
    weights: Tensor | None  #: w_n [*cells]; None if all are one
    counts: Tensor | None  #: c_n [*cells]; None if all are one

    @property
    def S(self) -> Tensor | None:
        """None: the dense matrix is not computed."""
        return None

    @classmethod
    @torch.no_grad()
    def of(
        cls, evaluation: Evaluation, y: Tensor, weights: Tensor | None = None, counts: Tensor | None = None
    ) -> EvaluationStatistics:
        """For targets y [P, *cells], weights and counts [*cells]."""
        w = _row_weights(weights, counts, torch.float64)
        weighted = y.double() if w is None else y.double() * w
        yy = (weighted * y.double()).flatten(1).sum(1)
        residual = evaluation.residual.variance.double()
        return cls(evaluation, evaluation.accumulate(weighted), yy, residual, weights, counts)

    @property
    def shapes(self) -> Shapes:
        """Those of the features."""
        return self.evaluation.shapes

    @property
    def n_rows(self) -> float:
        """N, repeats counted."""
        return math.prod(self.evaluation.cells) if self.counts is None else float(self.counts.sum(dtype=torch.float64))

    def row_weights(self, dtype: torch.dtype) -> Tensor | None:
        """c_n w_n [*cells]; None if all are one."""
        return _row_weights(self.weights, self.counts, dtype)

    def matvec(self, v: Tensor) -> Tensor:
        """A W A' v."""
        values = self.evaluation.project(v)
        w = self.row_weights(values.dtype)
        return self.evaluation.accumulate(values if w is None else values * w).to(v.dtype)

    @torch.no_grad()
    def noise(self, n: int, generator: torch.Generator) -> Tensor:
        """Random vectors A W^{1/2} e with white e, [n, F]."""
        dtype, cells = self.evaluation.dtype, self.evaluation.cells
        white = torch.randn(n, *cells, dtype=dtype, generator=generator, device="cpu").to(self.b.device)
        w = self.row_weights(dtype)
        return self.evaluation.accumulate(white if w is None else white * w.sqrt())

    def factor(self, ratio: float) -> RootPosterior:
        """The block posterior for targets zero. Only a few Gram matrices exist at a time."""
        w = self.row_weights(torch.float64)
        w = torch.ones(self.evaluation.cells, dtype=torch.float64, device=self.b.device) if w is None else w
        roots = block_roots(partial(self.evaluation.grams, w), self.shapes, ratio, self.evaluation.dtype, w.device)
        return RootPosterior(tuple(split_coefficients(torch.zeros_like(self.b), self.shapes)), roots)


@torch.no_grad()
def block_roots(
    grams: Callable[[GramWork], None], shapes: Shapes, ratio: float, dtype: torch.dtype, device: torch.device
) -> Roots:
    """Roots of the covariances (I + ratio G_b)^{-1}; `grams` calls its argument with all Gram matrices G_b."""
    roots = tuple(torch.zeros(1, blocks, f, f, dtype=dtype, device=device) for blocks, f in shapes)

    def work(stack: int, b: slice, gram: Tensor) -> None:
        Lambda = gram.mul_(ratio)
        Lambda.diagonal(dim1=-2, dim2=-1).add_(1.0)
        roots[stack][0, b] = narrowed(inverse_factor(factorise(Lambda, ratio)), dtype)

    grams(work)
    return Roots(roots)


#: The data as the closed form sees them.
NormalEquations: TypeAlias = Statistics | EvaluationStatistics
