"""The residual given its neighbours: a row is again a row of features, with its own noise.

Given v, the residual e = f - a'v is a Gaussian process with kernel c(x, x') = k(x, x') - sum_b a_b(x)'a_b(x'). The rows have
an order, and N are the k nearest rows before row i (for a new point: of all rows). With C = c + diag(noise):

    w = C_NN^{-1} c_Ni     a~ = a_i - A_N w     y~ = y_i - w'y_N     d = c_ii - c_iN w + noise_i

    p(y_i | y_N, v) = N(y~; a~'v, d)

This is Vecchia's approximation of the residual. With all earlier rows it is exact, whatever the features.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace

import gpytorch
import torch
from torch import Tensor

from harmonicgp.backend.linalg import NotPositiveDefiniteError
from harmonicgp.features.base import KernelView, Whitened
from harmonicgp.features.evaluation import DenseEvaluation, Shapes
from harmonicgp.features.nearest import NearestIndex, Neighbours, tiles
from harmonicgp.features.residual import IndependentResidual
from harmonicgp.kernels.metric import metric_coordinates

#: Numbers of features gathered at a time: a buffer of this size stays in the cache, and its memory is reused.
GATHERED = 1 << 22
#: Numbers of covariances that are factorised at a time.
FACTORED = 1 << 20
#: The most numbers of features that are stored for all rows (1 GB in float32).
HELD = 1 << 28
#: For at least one new point per this many observed rows, all observed rows are evaluated once.
MANY = 8


@dataclass(frozen=True)
class ObservedRows:
    """Rows with their targets, in the order in which each is given those before it."""

    X: Tensor  #: [N, d]
    y: Tensor  #: [P, N], less the mean function
    noise: Tensor  #: the noise variance of each row, [N]
    features: Tensor | None = None  #: their features [N, F], if they are stored for reuse

    def __len__(self) -> int:
        return len(self.X)

    def part(self, rows: Tensor | slice) -> ObservedRows:
        """Some of the rows."""
        features = None if self.features is None else self.features[rows]
        return ObservedRows(self.X[rows], self.y[:, rows], self.noise[rows], features)

    def check(self, d: int) -> None:
        """Raise a `ValueError` unless shapes fit together for rows of d columns, all finite, with noise that is not negative."""
        N = len(self.X)
        fits = self.X.shape == (N, d) and self.y.dim() == 2 and self.y.shape[1] == N and self.noise.shape == (N,)
        if not (fits and N and all(bool(torch.isfinite(t).all()) for t in (self.X, self.y, self.noise))):
            raise ValueError("training rows whose shapes or values do not fit the model")
        if bool((self.noise < 0).any()):
            raise ValueError("training rows with negative noise variances")

    @torch.no_grad()
    def with_features(self, whitened: Whitened) -> ObservedRows:
        """The same rows with their features stored, if these fit into memory."""
        F = sum(blocks * f for blocks, f in whitened.dense(self.X[:1]).shapes)
        if len(self) * F > HELD:
            return self
        return replace(self, features=torch.cat([whitened.dense(part).flat().mT for part in self.X.split(4096)]))


@dataclass(frozen=True)
class Weights:
    """The weights of the neighbours in the residual at n points."""

    values: Tensor  #: w, [n, k] in float64; zero where there is no neighbour
    variance: Tensor  #: of the residual given its neighbours, c_ii - c_iN w, [n] in float64


@dataclass(frozen=True)
class ResidualCovariances:
    """Covariances of the residual at n points and their neighbours, in float64."""

    among: Tensor  #: c_NN, [n, k, k]
    cross: Tensor  #: c_Ni, [n, k]; zero where there is no neighbour
    prior: Tensor  #: c_ii, [n]
    present: Tensor  #: [n, k]
    rounding: Tensor  #: the smallest jitter on the diagonal, [n]

    def weights(self, noise: Tensor) -> Weights:
        """The weights for noise variances [n, k] of the neighbours."""
        n, k = self.cross.shape
        size = n if self.among.requires_grad or noise.requires_grad else max(1, FACTORED // max(k, 1) ** 2)
        parts = [self._weights(slice(i, i + size), noise[i : i + size]) for i in range(0, max(n, 1), max(size, 1))]
        return Weights(torch.cat([part.values for part in parts]), torch.cat([part.variance for part in parts]))

    def _weights(self, rows: slice, noise: Tensor) -> Weights:
        present, cross = self.present[rows], self.cross[rows]
        C = self.among[rows].clone()
        C.diagonal(dim1=-2, dim2=-1).add_(torch.where(present, noise.double(), 1.0))
        L = factor(C, self.rounding[rows])
        u = torch.linalg.solve_triangular(L, cross[..., None], upper=False)
        w = torch.linalg.solve_triangular(L.mT, u, upper=True)[..., 0]
        return Weights(w, (self.prior[rows] - u[..., 0].square().sum(-1)).clamp_min(0.0))

    @classmethod
    def joined(cls, parts: Sequence[ResidualCovariances]) -> ResidualCovariances:
        """The covariances of all points, from those of parts."""
        return cls(*(torch.cat([getattr(part, f.name) for part in parts]) for f in fields(cls)))


@dataclass(frozen=True)
class Conditioned:
    """Points given their neighbours."""

    evaluation: DenseEvaluation  #: a~, and the variance of the residual given the neighbours
    neighbours: Neighbours
    weights: Tensor  #: w, [n, k] in float64
    offset: Tensor  #: w'y_N, [P, n]
    covariances: ResidualCovariances | None = None  #: give w at any noise variance; stored on request

    def mix(self, values: Tensor) -> Tensor:
        """w'values_N of values [P, N] at the observed rows: [P, n]."""
        return torch.einsum("nk,pnk->pn", self.weights.to(values.dtype), values[:, self.neighbours.rows])


def condition(
    whitened: Whitened, x: Tensor, observed: ObservedRows, neighbours: Neighbours, keep: bool = False
) -> Conditioned:
    """Points x [n, d] given their neighbours among the observed rows; differentiable in features, kernel and noise.

    With `keep` the result also has the covariances of the residual.
    """
    if neighbours.k == 0:
        none = x.new_zeros(len(x), 0).double()
        return Conditioned(whitened.dense(x), neighbours, none, observed.y.new_zeros(len(observed.y), len(x)))
    near, place = torch.unique(neighbours.rows, return_inverse=True)
    others = observed.part(near)
    if others.features is None:
        evaluation = whitened.dense(torch.cat((x, others.X)))
        A, shapes = evaluation.flat().mT.contiguous(), evaluation.shapes  # [n + others, F]
        a, near_a = A[: len(x)], A[len(x) :]
    else:
        evaluation = whitened.dense(x)
        a, near_a, shapes = evaluation.flat().mT, others.features, evaluation.shapes
    parts, covariances = [], []
    # The backward pass of every piece fills a buffer for all rows: with gradients the batch is one piece.
    size = len(x) if near_a.requires_grad else max(1, GATHERED // (neighbours.k * max(a.shape[1], neighbours.k)))
    for rows in torch.arange(len(x), device=x.device).split(size):
        index = place[rows]
        gathered = near_a.index_select(0, index.flatten()).unflatten(0, index.shape)  # [n, k, F]
        features, present = (a[rows], gathered), neighbours.present[rows]
        c = residual_covariances(whitened.view, x[rows], others.X[index], present, features)
        weights = c.weights(others.noise[index])
        w = weights.values.to(a.dtype)
        mixed = a[rows] - torch.bmm(w[:, None], gathered)[:, 0]
        parts.append((mixed, weights.variance.to(a.dtype), weights.values, (w * others.y[:, index]).sum(-1).mT))
        covariances += [c] if keep else []
    mixed, variance, values, offset = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
    together = ResidualCovariances.joined(covariances) if keep else None
    return Conditioned(stacked(mixed, variance, shapes), neighbours, values, offset.mT, together)


def residual_covariances(
    view: KernelView, x: Tensor, near: Tensor, present: Tensor, features: tuple[Tensor, Tensor] | None = None
) -> ResidualCovariances:
    """Covariances of the residual at points x [n, d] and their neighbours `near` [n, k, d].

    `features` are a(x) [n, F] and those of the neighbours [n, k, F]. Without features the residual is f itself.
    """
    wide, alone = near.double(), x.double()[:, None]
    K, cross, prior = view.zx(wide, wide), view.zx(alone, wide)[:, 0], view.zx(alone, alone)[:, 0, 0]
    rounding = 10 * torch.finfo(x.dtype).eps * prior.detach().abs()
    if features is not None:
        a, A = features
        K = K - torch.bmm(A, A.mT)
        cross = cross - torch.bmm(A, a[..., None])[..., 0]
        prior = prior - a.double().square().sum(-1)
    both = present[:, :, None] & present[:, None, :]
    return ResidualCovariances(torch.where(both, K, 0.0), torch.where(present, cross, 0.0), prior, present, rounding)


def factor(C: Tensor, jitter: Tensor) -> Tensor:
    """The Cholesky factors of C [n, k, k] with jitter [n] on the diagonal, which is raised where the factorisation fails."""
    for _ in range(9):
        raised = C.clone()
        raised.diagonal(dim1=-2, dim2=-1).add_(jitter[:, None])
        L, info = torch.linalg.cholesky_ex(raised)
        failed = info != 0
        if not bool(failed.any()):
            return L
        jitter = torch.where(failed, 10 * jitter, jitter)
    raise NotPositiveDefiniteError(
        "the covariance of the residual at neighbouring rows has no Cholesky factor: use float64, or a larger noise."
    )


def stacked(A: Tensor, variance: Tensor, shapes: Shapes) -> DenseEvaluation:
    """Features [n, F] as an evaluation with stacks [blocks, f, n]."""
    stacks, start = [], 0
    for blocks, f in shapes:
        stacks.append(A[:, start : start + blocks * f].mT.unflatten(0, (blocks, f)))
        start += blocks * f
    return DenseEvaluation(tuple(stacks), IndependentResidual(variance))


@dataclass(frozen=True)
class Neighbourhood:
    """The observed rows, for the prediction of new points: each point is conditioned on the k nearest rows."""

    observed: ObservedRows
    k: int
    kernel: gpytorch.kernels.Kernel
    index: NearestIndex

    @classmethod
    def of(cls, kernel: gpytorch.kernels.Kernel, observed: ObservedRows, k: int) -> Neighbourhood:
        """Distances are in the metric of the kernel, at its current lengthscales."""
        return cls(observed, k, kernel, NearestIndex(metric_coordinates(kernel, observed.X)))

    def pieces(self, whitened: Whitened, x: Tensor, size: int) -> Iterator[tuple[Tensor, Conditioned]]:
        """Points x [n, d] conditioned on their neighbours, in pieces of near points, each with the row numbers of its points."""
        points = metric_coordinates(self.kernel, x)
        table, observed = self.index.nearest(points, self.k), self.observed
        if MANY * len(x) > len(observed):
            observed = observed.with_features(whitened)
        for rows in tiles(points, size):
            yield rows, condition(whitened, x[rows], observed, table.part(rows))
