"""Gaussian noise: the optimal posterior, and the bound at it, in closed form from statistics of the data.

    Lambda = I + A W A'/s2 (its diagonal blocks for the block family),   (I + A W A'/s2) mu = A W y/s2 over all blocks

The mean is joint in both families: independence restricts the covariance only. The collapsed bound is

    -1/2 y'(Q + s2 W^{-1})^{-1} y - N/2 log(2 pi s2) + 1/2 sum log w - 1/2 logdet Lambda - sum of the residual's costs

with the sum of the blocks' log-determinants for the block family, which is never larger than the joint bound.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from harmonicgp.backend.linalg import conjugate_gradients
from harmonicgp.features.evaluation import Evaluation
from harmonicgp.features.residual import IndependentResidual
from harmonicgp.inference.covariances import DeviationPosterior, RootPosterior
from harmonicgp.inference.posterior import Family, Posterior, check_family
from harmonicgp.inference.statistics import (
    EvaluationStatistics,
    FactoredBlocks,
    NormalEquations,
    Statistics,
    block_solver,
    factorise,
)
from harmonicgp.likelihoods.observation import Bound

#: Features up to which the deviations of a joint posterior are exact.
MAX_EXACT_DEVIATIONS = 2048


@dataclass(frozen=True)
class ClosedForm:
    """The optimal posterior at a noise variance and an output scale, and the bound there."""

    posterior: Any  #: a `Posterior` from the statistics of a table, a `RootPosterior` from those of an evaluation
    bound: float  #: the collapsed bound, whole data
    iterations: int = 0  #: of conjugate gradients, where the dense matrix is not formed


@torch.no_grad()
def closed_form(
    statistics: NormalEquations,
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
    by conjugate gradients with the blocks as preconditioner. Then the family must be "block"; for joint variances see
    `StreamedPosterior` and `joint_deviations`.
    """
    if bound not in ("elbo", "tight"):
        raise ValueError(f'the closed form has the bounds "elbo" and "tight"; got {bound!r}.')
    check_family(family)
    if not (0 < s2 < math.inf and 0 < scale < math.inf):
        raise ValueError(f"noise variance and scale must be positive numbers; got s2 = {s2}, scale = {scale}.")
    ratio, rhs = scale / s2, math.sqrt(scale) * statistics.b / s2
    blocks, iterations = statistics.factor(ratio), 0
    if statistics.S is not None:
        H = ratio * statistics.S
        H.diagonal().add_(1.0)
        C = factorise(H, ratio)
        mu = torch.cholesky_solve(rhs.mT, C).mT
        explained = (rhs * mu).sum(-1)
    else:
        mu, iterations = _solve(statistics, blocks, rhs, ratio, matvec, family, tolerance, max_iterations)
        product = _matvec(statistics, matvec)
        # 2 b'mu - mu'H mu: below its value at the solution for every mu
        explained = 2 * (rhs * mu).sum(-1) - (mu * (mu + ratio * product(mu))).sum(-1)
    if family == "joint":
        posterior: Posterior | RootPosterior = Posterior("joint", (mu[:, None],), (H[None, None],), (C[None, None],))
        logdet = 2 * C.diagonal().log().sum()
    else:
        posterior, logdet = blocks.posterior(mu), blocks.logdet
    quadratic = float((statistics.yy / s2 - explained).sum())
    rows = _row_terms(statistics, s2, scale, bound) + float(logdet)
    return ClosedForm(posterior, -0.5 * (quadratic + len(mu) * rows), iterations)


def _matvec(statistics: NormalEquations, given: Callable[[Tensor], Tensor] | None) -> Callable[[Tensor], Tensor]:
    if given is not None:
        return given
    if isinstance(statistics, EvaluationStatistics):
        return statistics.matvec
    raise ValueError(
        f"the statistics hold no dense matrix over all {statistics.b.shape[-1]} features: the closed form then needs a "
        'streaming matvec, and family="block" (StreamedPosterior makes the joint variances of it).'
    )


def _solve(
    statistics: NormalEquations,
    blocks: FactoredBlocks,
    rhs: Tensor,
    ratio: float,
    matvec: Callable[[Tensor], Tensor] | None,
    family: Family,
    tolerance: float,
    max_iterations: int,
) -> tuple[Tensor, int]:
    """(I + ratio A W A')^{-1} rhs by conjugate gradients, and the iterations."""
    product = _matvec(statistics, matvec if family == "block" else None)
    if family != "block":
        raise ValueError('without the dense matrix the family must be "block": see joint_deviations.')
    return conjugate_gradients(
        lambda v: v + ratio * product(v), rhs, blocks.solve, blocks.solve(rhs), tolerance, max_iterations
    )


def _row_terms(statistics: NormalEquations, s2: float, scale: float, bound: Bound) -> float:
    """The terms of -2 times the bound that every row brings: its noise and its residual."""
    w, c = statistics.weights, statistics.counts
    noise = torch.tensor(s2, dtype=torch.float64, device=statistics.b.device)
    noise = noise if w is None else noise / w.double()
    cost = 2 * IndependentResidual(scale * statistics.residual).cost(noise, bound == "tight")
    missing = (
        (cost.expand_as(c) * c).sum()
        if c is not None
        else cost.expand_as(statistics.residual if w is None else w).sum()
    )
    total = float(missing) + statistics.n_rows * math.log(2 * math.pi * s2)
    if w is not None:
        total -= float((w.log() if c is None else w.log() * c).sum(dtype=torch.float64))
    return total


# The joint posterior's covariance -------------------------------------------------------------------------------------


@torch.no_grad()
def joint_deviations(
    statistics: Statistics | EvaluationStatistics,
    s2: float,
    mu: Tensor,
    n: int = 64,
    seed: int = 0,
    tolerance: float = 1e-4,
) -> DeviationPosterior:
    """The joint posterior about the means mu [P, F] by deviations.

    Independent blocks cannot say that a hole of a map is less certain than the rest of its row; the joint posterior can. It
    is exact up to `MAX_EXACT_DEVIATIONS` features, by as many deviations. Beyond, n draws: each is a draw of the prior, less
    what data drawn from it tell of it.
    """
    F, device = statistics.b.shape[-1], statistics.b.device
    generator = torch.Generator().manual_seed(seed)
    if statistics.S is not None or F <= MAX_EXACT_DEVIATIONS:
        H = statistics.S if statistics.S is not None else _columns(statistics, F)
        C = torch.linalg.cholesky(torch.eye(F, dtype=torch.float64, device=device) + H / s2)
        if F <= MAX_EXACT_DEVIATIONS:
            white = math.sqrt(F) * torch.eye(F, dtype=torch.float64, device=device)
        else:
            white = torch.randn(F, n, dtype=torch.float64, generator=generator, device="cpu").to(device)
        return DeviationPosterior(mu, torch.linalg.solve_triangular(C.mT, white, upper=True).mT.contiguous())
    assert isinstance(statistics, EvaluationStatistics)
    blocks, draws = statistics.factor(1 / s2), []
    size = max(1, min(n, (1 << 26) // math.prod(statistics.evaluation.cells)))
    for part in torch.arange(n, device="cpu").split(size):
        v = torch.randn(len(part), F, dtype=torch.float64, generator=generator, device="cpu").to(device)
        told = (statistics.matvec(v) / s2) + statistics.noise(len(part), generator) / math.sqrt(s2)
        mean, _ = _solve(statistics, blocks, told, 1 / s2, None, "block", tolerance, 200)
        draws.append(v - mean)
    return DeviationPosterior(mu, torch.cat(draws))


def _columns(statistics: Statistics | EvaluationStatistics, F: int) -> Tensor:
    """A W A', column by column."""
    eye = torch.eye(F, dtype=torch.float64, device=statistics.b.device)
    product = _matvec(statistics, None)
    H = torch.cat([product(part) for part in eye.split(64)])
    return 0.5 * (H + H.mT)


@dataclass(frozen=True)
class StreamedPosterior:
    """The joint Gaussian posterior without its dense matrix: variances by conjugate gradients.

    The blocks' factors precondition; means are joint as always. For a batch of n points the variance solves n systems at
    once, each iteration one pass over the training data. `kl` is that of the block posterior with the same mean, an upper
    bound on the joint one's contribution to the negative bound; `moments` are the joint posterior's.
    """

    blocks: Posterior  #: the block posterior, which has the same means
    system: Callable[[Tensor], Tensor]  #: v -> (I + A W A'/s2) v, [n, F]
    tolerance: float = 1e-5
    max_iterations: int = 1000

    @classmethod
    def of(cls, posterior: Posterior, matvec: Callable[[Tensor], Tensor], s2: float) -> StreamedPosterior:
        """From the block closed form and the data's matvec."""
        return cls(posterior, lambda v: v + matvec(v) / s2)

    @property
    def family(self) -> Family:
        """Joint."""
        return "joint"

    @property
    def n_outputs(self) -> int:
        """P."""
        return self.blocks.n_outputs

    def settled(self) -> StreamedPosterior:
        """Itself: no file holds it."""
        return self

    def working_in(self, dtype: torch.dtype) -> StreamedPosterior:
        """Itself: it solves in float64."""
        return self

    def mean_vector(self) -> Tensor:
        """All means in one axis, [P, F]."""
        return self.blocks.mean_vector()

    def kl(self) -> Tensor:
        """That of the block posterior, an upper bound."""
        return self.blocks.kl()

    def moments(self, evaluation: Evaluation) -> tuple[Tensor, Tensor]:
        """The mean, and a'(I + A W A'/s2)^{-1} a, both [P, n]."""
        A = evaluation.dense().flat().mT  # [n, F]
        wide = A.double()
        variance = (wide * self._solve(wide)).sum(-1).clamp_min(0.0)
        mean = self.mean_vector() @ wide.mT
        return mean.to(A.dtype), variance.expand_as(mean).to(A.dtype)

    def _solve(self, A: Tensor) -> Tensor:
        shapes = [(mu.shape[1], mu.shape[2]) for mu in self.blocks.means]
        solve = block_solver([C[0] for C in self.blocks.factors], shapes)
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

    def components(self, evaluation: Evaluation) -> tuple[Tensor, Tensor]:
        """Not without the dense matrix."""
        raise ValueError(
            'components of a joint posterior need its dense matrix: fit with family="block", or fewer features.'
        )

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Not without the dense matrix."""
        raise ValueError(
            'samples of a joint posterior need its dense matrix: fit with family="block", or fewer features.'
        )
