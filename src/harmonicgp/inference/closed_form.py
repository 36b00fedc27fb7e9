"""Gaussian noise: the optimal posterior, and the bound at it, in closed form from statistics of the data.

    Lambda = I + A A'/s2 (its diagonal blocks for the block family),   (I + A A'/s2) mu = A y/s2 over all blocks

The mean is joint in both families: independence restricts the covariance only. The collapsed bound is

    -1/2 y'(Q + s2 I)^{-1} y - N/2 log(2 pi s2) - 1/2 logdet Lambda - sum r/(2 s2)

with the sum of the blocks' log-determinants for the block family, which is never larger than the joint bound. Known noise
variances v_n enter as weights w_n = s2/(s2 + v_n); a row that stands for c_n equal ones enters c_n times.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from harmonicgp.backend.linalg import NotPositiveDefiniteError, cholesky, conjugate_gradients, symmetric_product
from harmonicgp.features.base import Stacks, Whitened
from harmonicgp.inference.posterior import Family, Posterior, Shapes, flatten
from harmonicgp.likelihoods.observation import Bound

#: Above this many features the dense F x F matrix is not formed (0.8 GB in float64).
MAX_DENSE = 10_000
#: Above this many products (N F^2) they are taken in the dtype of the data, for speed.
MAX_EXACT = 1e12


def chunks(n: int, size: int) -> Iterator[slice]:
    """Slices of at most `size` rows."""
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


@dataclass(frozen=True)
class Statistics:
    """All that the closed form needs of the data: A W A', A W y and a few sums."""

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
        """The statistics of both sets of rows."""
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


def diagonal_blocks(S: Tensor, shapes: Shapes) -> tuple[Tensor, ...]:
    """The diagonal blocks of [F, F], by stacks [blocks, f, f]."""
    result, start = [], 0
    for blocks, f in shapes:
        places = [slice(start + i * f, start + (i + 1) * f) for i in range(blocks)]
        result.append(torch.stack([S[i, i] for i in places]))
        start += blocks * f
    return tuple(result)


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
    """One pass over the data X [N, d], y [P, N], in chunks; `counts` [N] says how many equal rows each stands for.

    Products are taken in float64, so that I + A A'/s2 is positive definite however small the noise; beyond `MAX_EXACT` of
    them in the data's dtype, with sums in float64.
    """
    F = sum(blocks * f for blocks, f in shapes)
    wide = torch.float64 if len(X) * F * F <= MAX_EXACT else X.dtype
    dense = F <= MAX_DENSE if dense is None else dense
    S = torch.zeros(F, F, dtype=torch.float64) if dense else None
    block_sums = [torch.zeros(blocks, f, f, dtype=torch.float64) for blocks, f in shapes]
    b, yy = torch.zeros(len(y), F, dtype=torch.float64), torch.zeros(len(y), dtype=torch.float64)
    residuals = []
    for rows in chunks(len(X), chunk_size):
        stacks, r = whitened(X[rows])
        stacks = tuple(a.to(wide) for a in stacks)
        w = _product(weights, counts, rows, wide)
        root = None if w is None else w.sqrt()
        weighted = stacks if root is None else tuple(a * root for a in stacks)
        A = flatten(weighted)
        if S is not None:
            S += symmetric_product(A)
        else:
            for total, a in zip(block_sums, weighted, strict=True):
                total += symmetric_product(a)
        target = y[:, rows].to(wide)
        b += ((target if root is None else target * root) @ A.mT).double()
        yy += (y[:, rows].double().square() * (1.0 if w is None else w.double())).sum(-1)
        residuals.append(r)
        if progress is not None:
            progress(len(r))
    if S is not None:
        block_sums = list(diagonal_blocks(S, shapes))
    kept = None if weights is None else weights.double()
    rounding = 0.0 if wide == torch.float64 else 10 * float(torch.finfo(wide).eps)
    r = torch.cat(residuals).double()
    repeats = None if counts is None else counts.double()
    return Statistics(tuple(shapes), S, tuple(block_sums), b, yy, r, kept, rounding, repeats)


def _product(weights: Tensor | None, counts: Tensor | None, rows: slice, dtype: torch.dtype) -> Tensor | None:
    """w_n c_n for some rows, None for all one."""
    if weights is None or counts is None:
        given = counts if weights is None else weights
        return None if given is None else given[rows].to(dtype)
    return (weights[rows].double() * counts[rows].double()).to(dtype)


@dataclass(frozen=True)
class ClosedForm:
    """The optimal posterior at a noise variance and an output scale, and the bound there."""

    posterior: Posterior
    bound: float  #: the collapsed bound, whole data
    iterations: int = 0  #: of conjugate gradients, where the dense matrix is not formed


def closed_form(
    statistics: Statistics,
    s2: float,
    family: Family = "block",
    bound: Bound = "tight",
    scale: float = 1.0,
    matvec: Callable[[Tensor], Tensor] | None = None,
    tolerance: float = 1e-6,
    max_iterations: int = 500,
) -> ClosedForm:
    """The optimum for Gaussian noise. `scale` multiplies the kernel, so that scalars can be refined without a pass.

    Without the dense matrix `matvec` gives v -> A W A' v ([P, F] to [P, F], one pass over the data), and the mean is solved
    by conjugate gradients with the blocks as preconditioner. Then the family must be "block"; for the joint posterior's
    variances see `StreamedPosterior`.
    """
    if bound not in ("elbo", "tight"):
        raise ValueError(f'the closed form has the bounds "elbo" and "tight"; got {bound!r}.')
    if family not in ("block", "joint"):
        raise ValueError(f'the posterior family must be "block" or "joint"; got {family!r}.')
    if not (0 < s2 < math.inf and 0 < scale < math.inf):
        raise ValueError(f"noise variance and scale must be positive numbers; got s2 = {s2}, scale = {scale}.")
    st, F = statistics, statistics.b.shape[-1]
    root = math.sqrt(scale)
    rhs = root * st.b / s2
    eyes = [torch.eye(f, dtype=torch.float64) for _, f in st.shapes]
    precisions = [eye + (scale / s2) * block for eye, block in zip(eyes, st.blocks, strict=True)]
    factors = [_factor(Lambda, s2) for Lambda in precisions]
    iterations = 0
    if st.S is not None:
        H = (scale / s2) * st.S
        H.diagonal().add_(1.0)
        C = _factor(H, s2)
        mu = torch.cholesky_solve(rhs.mT, C).mT
    elif matvec is None or family != "block":
        raise ValueError(
            f"the statistics hold no dense matrix over all {F} features: the closed form then needs a streaming matvec, and "
            'family="block" (StreamedPosterior makes the joint variances of it).'
        )
    else:
        mu, iterations = conjugate_gradients(
            lambda v: v + (scale / s2) * matvec(v),
            rhs,
            block_solver(factors, st.shapes),
            None,
            tolerance,
            max_iterations,
        )
    if family == "joint":
        posterior = Posterior("joint", (mu[:, None],), (H[None, None],), (C[None, None],))
        logdet = 2 * C.diagonal().log().sum()
    else:
        parts = mu.split([blocks * f for blocks, f in st.shapes], -1)
        means = tuple(part.unflatten(-1, shape) for part, shape in zip(parts, st.shapes, strict=True))
        posterior = Posterior("block", means, tuple(L[None] for L in precisions), tuple(L[None] for L in factors))
        logdet = torch.stack([2 * L.diagonal(dim1=-2, dim2=-1).log().sum() for L in factors]).sum()
    P = len(st.b)
    w = 1.0 if st.weights is None else st.weights
    ratio = scale * st.residual * w / s2
    missing = torch.log1p(ratio) if bound == "tight" else ratio
    missing = (missing if st.counts is None else missing * st.counts).sum()
    explained = (rhs * mu).sum(-1)
    if st.S is None and matvec is not None:  # 2 b'mu - mu'H mu: below its value at the solution for every mu
        explained = 2 * explained - (mu * (mu + (scale / s2) * matvec(mu))).sum(-1)
    quadratic = (st.yy / s2 - explained).sum()
    log_noise = st.n_rows * math.log(2 * math.pi * s2)
    if st.weights is not None:
        log_noise -= float((st.weights.log() if st.counts is None else st.weights.log() * st.counts).sum())
    value = -0.5 * (quadratic + P * (log_noise + logdet + missing))
    return ClosedForm(posterior, float(value), iterations)


def _factor(Lambda: Tensor, s2: float) -> Tensor:
    L, info = cholesky(Lambda) if Lambda.dim() > 2 else torch.linalg.cholesky_ex(Lambda)
    if bool((info != 0).any()) or not torch.isfinite(L).all():
        raise NotPositiveDefiniteError(
            f"I + A A'/s2 has no Cholesky factor at the noise variance {s2:.1e}: the noise is below the rounding of the "
            "features. Use float64, or a larger noise."
        )
    return L


def block_solver(factors: list[Tensor], shapes: Shapes) -> Callable[[Tensor], Tensor]:
    """V -> Lambda^{-1} v for block-diagonal Lambda, [..., F] to [..., F]."""

    def solve(v: Tensor) -> Tensor:
        parts = []
        for part, C, (blocks, f) in zip(v.split([n * f for n, f in shapes], -1), factors, shapes, strict=True):
            u = part.reshape(-1, blocks, f).permute(1, 2, 0)  # [blocks, f, systems]
            parts.append(torch.cholesky_solve(u, C).permute(2, 0, 1).reshape(*v.shape[:-1], blocks * f))
        return torch.cat(parts, -1)

    return solve


def streaming_matvec(
    whitened: Whitened,
    X: Tensor,
    weights: Tensor | None = None,
    chunk_size: int = 4096,
    cache_bytes: float = 1e9,
    counts: Tensor | None = None,
) -> Callable[[Tensor], Tensor]:
    """V -> A W A' v by passes over the data; features are kept while they fit in `cache_bytes`, else made anew."""
    kept: dict[int, Stacks] = {}
    room = cache_bytes

    @torch.no_grad()
    def matvec(v: Tensor) -> Tensor:
        nonlocal room
        total = torch.zeros_like(v)
        for rows in chunks(len(X), chunk_size):
            if rows.start in kept:
                stacks = kept[rows.start]
            else:
                stacks = whitened(X[rows]).stacks
                size = sum(a.numel() * a.element_size() for a in stacks)
                if size <= room:
                    kept[rows.start], room = stacks, room - size
            A = flatten(stacks)
            projected = v.to(A.dtype) @ A
            w = _product(weights, counts, rows, A.dtype)
            if w is not None:
                projected = projected * w
            total += (projected @ A.mT).to(v.dtype)
        return total

    return matvec


@dataclass(frozen=True)
class StreamedPosterior(Posterior):
    """The joint Gaussian posterior without its dense matrix: variances by conjugate gradients.

    The blocks' factors precondition; means are joint as always. For a batch of n points the variance solves n systems at
    once, each iteration one pass over the training data. `kl` is that of the block posterior with the same mean, an upper
    bound on the joint one's contribution to the negative bound; `moments` are the joint posterior's.
    """

    system: Callable[[Tensor], Tensor] | None = None  #: v -> (I + A W A'/s2) v, [n, F]
    tolerance: float = 1e-5
    max_iterations: int = 1000

    @classmethod
    def of(cls, posterior: Posterior, matvec: Callable[[Tensor], Tensor], s2: float) -> StreamedPosterior:
        """From the block closed form and the data's matvec."""
        return cls("block", posterior.means, posterior.precisions, posterior.factors, lambda v: v + matvec(v) / s2)

    def settled(self) -> StreamedPosterior:
        """As it is: no file holds it."""
        return self

    def moments(self, stacks: Stacks) -> tuple[Tensor, Tensor]:
        """The mean, and a'(I + A W A'/s2)^{-1} a, both [P, n]."""
        A = flatten(stacks).mT.double()  # [n, F]
        u = self._solve(A)
        mean = self.mean_vector() @ A.mT
        variance = (A * u).sum(-1).clamp_min(0.0)
        return mean.to(stacks[0].dtype), variance.expand_as(mean).to(stacks[0].dtype)

    def _solve(self, A: Tensor) -> Tensor:
        assert self.system is not None
        shapes = [(mu.shape[1], mu.shape[2]) for mu in self.means]
        solve = block_solver([C[0] for C in self.factors], shapes)
        u, iterations = conjugate_gradients(self.system, A, solve, None, self.tolerance, self.max_iterations)
        if iterations >= self.max_iterations:
            warnings.warn(
                f"conjugate gradients did not reach {self.tolerance:.0e} in {iterations} iterations: variances are too small.",
                stacklevel=2,
            )
        return u

    def explained(self, A: Tensor) -> Tensor:
        """A'(I + A W A'/s2)^{-1} A for features A [F, n]: [1, n, n]."""
        return (self._solve(A.mT) @ A)[None]

    def components(self, stacks: Stacks) -> tuple[tuple[Tensor, Tensor], ...]:
        """Not without the dense matrix."""
        raise ValueError(
            'components of a joint posterior need its dense matrix: fit with family="block", or fewer features.'
        )

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Not without the dense matrix."""
        raise ValueError(
            'samples of a joint posterior need its dense matrix: fit with family="block", or fewer features.'
        )
