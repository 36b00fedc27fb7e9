"""What the closed form needs of the data: sums over rows, which are all that ever sees them.

With w_n the precision of row n in units of 1/s2 (one, or s2/(s2 + v_n) for a known noise variance v_n) and c_n the number of
equal rows that it stands for (zero for a missing cell of a grid), W = diag(c w):

    A W A',   A W y,   y'W y,   and the residual variances r_n.

`Statistics` holds the sums over a table, gathered in chunks. `EvaluationStatistics` makes them of one evaluation, such as the
waves of a whole grid, whose Gram matrices are never held at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from harmonicgp.backend.linalg import NotPositiveDefiniteError, cholesky, symmetric_product
from harmonicgp.features.base import Whitened
from harmonicgp.features.evaluation import DenseEvaluation, Evaluation, GramWork, Roots, Shapes, split_coefficients
from harmonicgp.features.waves import narrowed
from harmonicgp.inference.covariances import RootPosterior
from harmonicgp.inference.posterior import Posterior

#: Above this many features the dense F x F matrix is not formed (0.8 GB in float64).
MAX_DENSE = 10_000
#: Above this many products (N F^2) they are taken in the dtype of the data, for speed.
MAX_EXACT = 1e12


def chunks(n: int, size: int) -> Iterator[slice]:
    """Slices of at most `size` rows."""
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


@dataclass(frozen=True)
class CholeskyBlocks:
    """Precisions and their factors, in float64."""

    precisions: list[Tensor]
    factors: list[Tensor]
    shapes: Shapes

    @property
    def logdet(self) -> Tensor:
        """From the diagonals of the factors."""
        return torch.stack([2 * C.diagonal(dim1=-2, dim2=-1).log().sum() for C in self.factors]).sum()

    def solve(self, v: Tensor) -> Tensor:
        """Lambda^{-1} v, [..., F] -> [..., F]."""
        return block_solver(self.factors, self.shapes)(v)

    def posterior(self, mu: Tensor) -> Posterior:
        """By precisions."""
        means = tuple(split_coefficients(mu, self.shapes))
        return Posterior("block", means, tuple(L[None] for L in self.precisions), tuple(C[None] for C in self.factors))


@dataclass(frozen=True)
class RootBlocks:
    """Inverses M of the Cholesky factors, Lambda^{-1} = M'M, in the precision of the features."""

    M: tuple[Tensor, ...]  #: [blocks, f, f]
    logdet: Tensor

    def solve(self, v: Tensor) -> Tensor:
        """M'M v."""
        parts = []
        for u, M in zip(split_coefficients(v, [(len(M), M.shape[-1]) for M in self.M]), self.M, strict=True):
            columns = u.to(M.dtype).permute(1, 2, 0)  # [blocks, f, P]
            parts.append((M.mT @ (M @ columns)).permute(2, 0, 1).flatten(1).to(v.dtype))
        return torch.cat(parts, -1)

    def posterior(self, mu: Tensor) -> RootPosterior:
        """By roots of covariances."""
        shapes = [(len(M), M.shape[-1]) for M in self.M]
        return RootPosterior(tuple(split_coefficients(mu, shapes)), Roots(tuple(M[None] for M in self.M)))


def factorise(Lambda: Tensor, ratio: float) -> Tensor:
    """The Cholesky factors of precisions I + ratio A W A'."""
    L, info = cholesky(Lambda) if Lambda.dim() > 2 else torch.linalg.cholesky_ex(Lambda)
    if bool((info != 0).any()) or not torch.isfinite(L).all():
        raise NotPositiveDefiniteError(
            f"I + A A'/s2 has no Cholesky factor at the noise variance {1 / ratio:.1e} (relative to the output scale): the "
            "noise is below the rounding of the features. Use float64, or a larger noise."
        )
    return L


def block_solver(factors: list[Tensor], shapes: Shapes) -> Callable[[Tensor], Tensor]:
    """The function v -> Lambda^{-1} v for block-diagonal Lambda, [..., F] to [..., F]."""

    def solve(v: Tensor) -> Tensor:
        parts = []
        for part, C, (blocks, f) in zip(v.split([n * f for n, f in shapes], -1), factors, shapes, strict=True):
            u = part.reshape(-1, blocks, f).permute(1, 2, 0)  # [blocks, f, systems]
            parts.append(torch.cholesky_solve(u, C).permute(2, 0, 1).reshape(*v.shape[:-1], blocks * f))
        return torch.cat(parts, -1)

    return solve


# Tables ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Statistics:
    """The sums over a table. They add up: the statistics of two sets of rows are those of both."""

    shapes: Shapes
    S: Tensor | None  #: sum_n w_n a_n a_n', [F, F]; None above `MAX_DENSE`
    blocks: tuple[Tensor, ...]  #: its diagonal blocks, a stack each, [blocks, f, f]
    b: Tensor  #: sum_n w_n a_n y_n, [P, F]
    yy: Tensor  #: sum_n w_n y_n^2, [P]
    residual: Tensor  #: r(x_n), [N]
    weights: Tensor | None = None  #: w_n = s2/(s2 + v_n), None for all one
    rounding: float = 0.0  #: relative error of S: zero where products were taken in float64
    counts: Tensor | None = None  #: c_n, how many equal rows each stands for; None for all one

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
        """As if every row stood for c times as many."""
        S = None if self.S is None else c * self.S
        counts = torch.full_like(self.residual, c) if self.counts is None else c * self.counts
        blocks = tuple(c * block for block in self.blocks)
        return replace(self, S=S, blocks=blocks, b=c * self.b, yy=c * self.yy, counts=counts)

    def factor(self, ratio: float) -> CholeskyBlocks:
        """I + ratio times the diagonal blocks."""
        precisions = [ratio * block for block in self.blocks]
        for Lambda in precisions:
            Lambda.diagonal(dim1=-2, dim2=-1).add_(1.0)
        return CholeskyBlocks(precisions, [factorise(Lambda, ratio) for Lambda in precisions], self.shapes)


def diagonal_blocks(S: Tensor, shapes: Shapes) -> tuple[Tensor, ...]:
    """The diagonal blocks of [F, F], by stacks [blocks, f, f]."""
    result, start = [], 0
    for blocks, f in shapes:
        places = [slice(start + i * f, start + (i + 1) * f) for i in range(blocks)]
        result.append(torch.stack([S[i, i] for i in places]))
        start += blocks * f
    return tuple(result)


class RowPiece(NamedTuple):
    """Some rows as the closed form sees them."""

    evaluation: DenseEvaluation
    y: Tensor  #: [P, n]
    weights: Tensor | None = None  #: w_n, [n]; None for all one
    counts: Tensor | None = None  #: c_n, [n]; None for all one


@torch.no_grad()
def gather_statistics(
    whitened: Whitened,
    shapes: Shapes,
    X: Tensor,
    y: Tensor,
    weights: Tensor | None = None,
    chunk_size: int = 4096,
    progress: Callable[[int], object] | None = None,
    dense: bool | None = None,
    counts: Tensor | None = None,
) -> Statistics:
    """One pass over the data X [N, d], y [P, N], in chunks; `counts` [N] says how many equal rows each stands for."""

    def pieces() -> Iterator[RowPiece]:
        for rows in chunks(len(X), chunk_size):
            some = [None if t is None else t[rows] for t in (weights, counts)]
            yield RowPiece(whitened.dense(X[rows]), y[:, rows], some[0], some[1])
            if progress is not None:
                progress(rows.stop - rows.start)

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
    """The sums over pieces of about N rows in all.

    Products are taken in float64, so that I + A A'/s2 is positive definite however small the noise; beyond `MAX_EXACT` of
    them, or without `exact`, in the data's dtype, with sums in float64.
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
        wide = torch.float64 if exact else evaluation.dtype
        rounding = 0.0 if wide == torch.float64 else 10 * float(torch.finfo(wide).eps)
        w = _product(weights, counts, wide)
        root = None if w is None else w.sqrt()
        stacks = tuple(a.to(wide) for a in evaluation.stacks)
        weighted = stacks if root is None else tuple(a * root for a in stacks)
        A = torch.cat([a.flatten(0, 1) for a in weighted])
        if S is not None:
            S += symmetric_product(A)
        for total, a in zip(block_sums, weighted, strict=False):
            total += symmetric_product(a)
        target = y.to(wide)
        b += ((target if root is None else target * root) @ A.mT).double()
        yy += (y.double().square() * (1.0 if w is None else w.double())).sum(-1)
        rows.append((evaluation.residual.variance, weights, counts))
    assert b is not None
    assert yy is not None
    blocks = tuple(block_sums) if S is None else diagonal_blocks(S, shapes)
    r, precision, repeats = (None if t[0] is None else torch.cat(t).double() for t in zip(*rows, strict=True))
    assert r is not None
    return Statistics(tuple(shapes), S, blocks, b, yy, r, precision, rounding, repeats)


def _product(weights: Tensor | None, counts: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """w_n c_n, None for all one."""
    if weights is None or counts is None:
        given = counts if weights is None else weights
        return None if given is None else given.to(dtype)
    return (weights.double() * counts.double()).to(dtype)


def streaming_matvec(
    whitened: Whitened,
    X: Tensor,
    weights: Tensor | None = None,
    chunk_size: int = 4096,
    cache_bytes: float = 1e9,
    counts: Tensor | None = None,
) -> Callable[[Tensor], Tensor]:
    """The function v -> A W A' v by passes over the data; features are kept while they fit in `cache_bytes`, else made anew."""
    kept: dict[int, Evaluation] = {}
    room = cache_bytes

    @torch.no_grad()
    def matvec(v: Tensor) -> Tensor:
        nonlocal room
        total = torch.zeros_like(v)
        for rows in chunks(len(X), chunk_size):
            evaluation = kept.get(rows.start)
            if evaluation is None:
                evaluation = whitened.dense(X[rows])
                size = sum(a.numel() * a.element_size() for a in evaluation.stacks)
                if size <= room:
                    kept[rows.start], room = evaluation, room - size
            values = evaluation.project(v)
            some = [None if t is None else t[rows] for t in (weights, counts)]
            w = _product(some[0], some[1], values.dtype)
            total += evaluation.accumulate(values if w is None else values * w).to(v.dtype)
        return total

    return matvec


# One evaluation -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EvaluationStatistics:
    """The sums over all rows of one evaluation; nothing of size F x F or [blocks, f, f] in float64 is held."""

    evaluation: Evaluation
    b: Tensor
    yy: Tensor
    residual: Tensor
    weights: Tensor | None
    counts: Tensor | None

    @property
    def S(self) -> Tensor | None:
        """Not formed."""
        return None

    @classmethod
    @torch.no_grad()
    def of(
        cls, evaluation: Evaluation, y: Tensor, weights: Tensor | None = None, counts: Tensor | None = None
    ) -> EvaluationStatistics:
        """For targets y [P, *cells], weights and counts [*cells]."""
        bare = cls(evaluation, y, y, evaluation.residual.variance.double(), weights, counts)
        w = bare.row_weights(torch.float64)
        weighted = y.double() if w is None else y.double() * w
        yy = (weighted * y.double()).flatten(1).sum(1)
        return cls(evaluation, evaluation.accumulate(weighted), yy, bare.residual, weights, counts)

    @property
    def shapes(self) -> Shapes:
        """Those of the features."""
        return self.evaluation.shapes

    @property
    def n_rows(self) -> float:
        """N, repeats counted."""
        return math.prod(self.evaluation.cells) if self.counts is None else float(self.counts.sum(dtype=torch.float64))

    def row_weights(self, dtype: torch.dtype) -> Tensor | None:
        """c_n w_n [*cells], None for all one."""
        return _product(self.weights, self.counts, dtype)

    def matvec(self, v: Tensor) -> Tensor:
        """A W A' v."""
        values = self.evaluation.project(v)
        w = self.row_weights(values.dtype)
        return self.evaluation.accumulate(values if w is None else values * w).to(v.dtype)

    @torch.no_grad()
    def noise(self, n: int, generator: torch.Generator) -> Tensor:
        """N draws of A W^{1/2} e with white e, [n, F]."""
        dtype, cells = self.evaluation.dtype, self.evaluation.cells
        white = torch.randn(n, *cells, dtype=dtype, generator=generator, device="cpu").to(self.b.device)
        w = self.row_weights(dtype)
        return self.evaluation.accumulate(white if w is None else white * w.sqrt())

    def factor(self, ratio: float) -> RootBlocks:
        """Block by block: a Gram matrix lives until its factor is found."""
        w = self.row_weights(torch.float64)
        ones = torch.ones(self.evaluation.cells, dtype=torch.float64, device=self.b.device) if w is None else w
        return root_blocks(partial(self.evaluation.grams, ones), self.shapes, ratio, self.evaluation.dtype, ones.device)


@torch.no_grad()
def root_blocks(
    grams: Callable[[GramWork], None], shapes: Shapes, ratio: float, dtype: torch.dtype, device: torch.device
) -> RootBlocks:
    """The blocks I + ratio G_b, factorised, from a function that calls its argument with all Gram matrices G_b."""
    M = tuple(torch.zeros(blocks, f, f, dtype=dtype, device=device) for blocks, f in shapes)
    logdets = [torch.zeros(blocks, dtype=torch.float64, device=device) for blocks, _ in shapes]

    def work(stack: int, b: slice, gram: Tensor) -> None:
        Lambda = gram.mul_(ratio)
        Lambda.diagonal(dim1=-2, dim2=-1).add_(1.0)
        C = factorise(Lambda, ratio)
        logdets[stack][b] = 2 * C.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        eye = torch.eye(C.shape[-1], dtype=C.dtype, device=C.device).expand_as(C)
        M[stack][b] = narrowed(torch.linalg.solve_triangular(C, eye, upper=False), dtype)

    grams(work)
    return RootBlocks(M, torch.cat(logdets).sum())


#: The data as the closed form sees them, and the factorised precisions of their blocks.
NormalEquations: TypeAlias = Statistics | EvaluationStatistics
FactoredBlocks: TypeAlias = CholeskyBlocks | RootBlocks
