"""Gaussian noise: the optimal posterior and its bound, in closed form from sums over the data.

    Lambda = I + A W A'/s2 (its diagonal blocks for the block family),   (I + A W A'/s2) mu = A W y/s2 over all blocks

The mean is joint in both families: independence restricts only the covariance. The collapsed bound is

    -1/2 y'(Q + s2 W^{-1})^{-1} y - N/2 log(2 pi s2) + 1/2 sum log w - 1/2 logdet Lambda - sum of the residual's costs

For the block family logdet Lambda is the sum over the blocks, and the bound is never larger than the joint one.
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
from harmonicgp.inference.statistics import EvaluationStatistics, NormalEquations, factorise
from harmonicgp.likelihoods.observation import Bound

#: Up to this many features the deviations of a joint posterior are exact.
MAX_EXACT_DEVIATIONS = 2048


@dataclass(frozen=True)
class ClosedForm:
    """The optimal posterior at a noise variance and an output scale, and the bound there.

    Examples:
        >>> from gpytorch.kernels import RBFKernel
        >>> from harmonicgp.features import SparseFeatures
        >>> from harmonicgp.inference import EvaluationStatistics
        >>> X = torch.linspace(0, 1, 10)[:, None]
        >>> form = closed_form(EvaluationStatistics.of(SparseFeatures(RBFKernel(), X[::3])(X), X.sin().mT), s2=0.1)
        >>> form.posterior.mean_vector().shape, form.bound < 0
        (torch.Size([1, 4]), True)
    """

    posterior: Any  #: a `Posterior` from the statistics of a table, a `RootPosterior` from those of an evaluation
    bound: float  #: the collapsed bound of all data
    iterations: int = 0  #: of conjugate gradients; zero with the dense matrix


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
    """The optimal posterior for Gaussian noise of variance s2, from sums over the data.

    Args:
        statistics: `Statistics` of a table, or `EvaluationStatistics` of a grid.
        s2: the noise variance.
        family: "block" or "joint". "joint" needs the dense matrix; without it see `StreamedPosterior` and `joint_deviations`.
        bound: "tight" or "elbo".
        scale: multiplies the kernel, so that s2 and the output scale can be refined without a pass over the data.
        matvec: v -> A W A' v, [P, F] to [P, F], for statistics of a table without the dense matrix. The mean then comes from
            conjugate gradients, preconditioned with the blocks.
        tolerance: of conjugate gradients.
        max_iterations: of conjugate gradients.

    Examples:
        >>> import gpytorch, torch
        >>> from harmonicgp.features import SparseFeatures
        >>> from harmonicgp.inference import gather_statistics
        >>> X = torch.linspace(0, 1, 10)[:, None]
        >>> features = SparseFeatures(gpytorch.kernels.RBFKernel(), X[::3])
        >>> form = closed_form(gather_statistics(features.whiten(), features.shapes, X, X.sin().mT), s2=0.1)
        >>> form.posterior.mean_vector().shape
        torch.Size([1, 4])
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
        system = _system(statistics, ratio, matvec)
        if family == "joint":
            raise ValueError(
                'without the dense matrix the family must be "block": for joint variances see StreamedPosterior and '
                "joint_deviations."
            )
        mu, iterations = conjugate_gradients(system, rhs, blocks.solve, blocks.solve(rhs), tolerance, max_iterations)
        # 2 b'mu - mu'H mu is largest at the solution, so an inexact mu still gives a lower bound
        explained = 2 * (rhs * mu).sum(-1) - (mu * system(mu)).sum(-1)
    if family == "joint":
        posterior: Posterior | RootPosterior = Posterior("joint", (mu[:, None],), (H[None, None],), (C[None, None],))
        logdet = 2 * C.diagonal().log().sum()
    else:
        posterior, logdet = blocks.with_means(mu), blocks.logdet()
    quadratic = float((statistics.yy / s2 - explained).sum())
    rows = _row_terms(statistics, s2, scale, bound) + float(logdet)
    return ClosedForm(posterior, -0.5 * (quadratic + len(mu) * rows), iterations)


def _system(
    statistics: NormalEquations, ratio: float, matvec: Callable[[Tensor], Tensor] | None = None
) -> Callable[[Tensor], Tensor]:
    """The function v -> (I + ratio A W A') v, [n, F] to [n, F]."""
    if matvec is None and isinstance(statistics, EvaluationStatistics):
        matvec = statistics.matvec
    if matvec is None:
        raise ValueError(
            f"the statistics have no dense matrix over all {statistics.b.shape[-1]} features: the closed form then needs a "
            'streaming matvec, and family="block" (StreamedPosterior computes joint variances with it).'
        )
    product = matvec
    return lambda v: v + ratio * product(v)


def _row_terms(statistics: NormalEquations, s2: float, scale: float, bound: Bound) -> float:
    """The terms of -2 times the bound that come from single rows: noise and residual."""
    w, c = statistics.weights, statistics.counts
    noise = torch.tensor(s2, dtype=torch.float64, device=statistics.b.device)
    noise = noise if w is None else noise / w.double()
    cost = 2 * IndependentResidual(scale * statistics.residual).cost(noise, bound == "tight")
    rows = next(t for t in (c, w, statistics.residual) if t is not None)
    costs = cost.expand_as(rows) if c is None else cost.expand_as(rows) * c
    total = float(costs.sum()) + statistics.n_rows * math.log(2 * math.pi * s2)
    if w is not None:
        total -= float((w.log() if c is None else w.log() * c).sum(dtype=torch.float64))
    return total


# The joint posterior's covariance -------------------------------------------------------------------------------------


@torch.no_grad()
def joint_deviations(
    statistics: NormalEquations,
    s2: float,
    mu: Tensor,
    n: int = 64,
    seed: int = 0,
    tolerance: float = 1e-4,
) -> DeviationPosterior:
    """The joint posterior with means mu [P, F], as deviations.

    With independent blocks a hole in a map is no less certain than the rest of its row; with the joint posterior it is. Up to
    `MAX_EXACT_DEVIATIONS` features the result is exact. Above, it has n random deviations: each is a sample of the prior minus
    the posterior mean given data sampled from it.

    Examples:
        >>> from gpytorch.kernels import RBFKernel
        >>> from harmonicgp.features import SparseFeatures
        >>> from harmonicgp.inference import EvaluationStatistics
        >>> X = torch.linspace(0, 1, 10)[:, None]
        >>> statistics = EvaluationStatistics.of(SparseFeatures(RBFKernel(), X[::3])(X), X.sin().mT)
        >>> mu = closed_form(statistics, s2=0.1).posterior.mean_vector()
        >>> joint_deviations(statistics, 0.1, mu).deviations.shape  # [S, F]
        torch.Size([4, 4])
    """
    F, device = statistics.b.shape[-1], statistics.b.device
    generator = torch.Generator().manual_seed(seed)
    if statistics.S is not None or F <= MAX_EXACT_DEVIATIONS:
        eye = torch.eye(F, dtype=torch.float64, device=device)
        if statistics.S is not None:
            H = eye + statistics.S / s2
        else:
            system = _system(statistics, 1 / s2)
            H = torch.cat([system(columns) for columns in eye.split(64)])
        C = torch.linalg.cholesky(0.5 * (H + H.mT))
        if F <= MAX_EXACT_DEVIATIONS:
            white = math.sqrt(F) * eye
        else:
            white = torch.randn(F, n, dtype=torch.float64, generator=generator, device="cpu").to(device)
        return DeviationPosterior(mu, torch.linalg.solve_triangular(C.mT, white, upper=True).mT.contiguous())
    assert isinstance(statistics, EvaluationStatistics)
    blocks, system, deviations = statistics.factor(1 / s2), _system(statistics, 1 / s2), []
    size = max(1, min(n, (1 << 26) // math.prod(statistics.evaluation.cells)))
    for part in torch.arange(n, device="cpu").split(size):
        v = torch.randn(len(part), F, dtype=torch.float64, generator=generator, device="cpu").to(device)
        rhs = (statistics.matvec(v) / s2) + statistics.noise(len(part), generator) / math.sqrt(s2)
        mean, _ = conjugate_gradients(system, rhs, blocks.solve, blocks.solve(rhs), tolerance, 200)
        deviations.append(v - mean)
    return DeviationPosterior(mu, torch.cat(deviations))


@dataclass(frozen=True)
class StreamedPosterior:
    """The joint Gaussian posterior without its dense matrix: variances come from conjugate gradients.

    The factors of the blocks are the preconditioner. The variances of n points are the solutions of n systems, solved
    together; each iteration is one pass over the training data. `kl` is that of the block posterior with the same mean, an
    upper bound on the joint posterior's part of the negative bound.

    Examples:
        >>> from gpytorch.kernels import RBFKernel
        >>> from harmonicgp.features import SparseFeatures
        >>> from harmonicgp.inference import gather_statistics
        >>> X, features = torch.linspace(0, 1, 10)[:, None], SparseFeatures(RBFKernel(), torch.rand(4, 1))
        >>> sums = gather_statistics(features.whiten(), features.shapes, X, X.sin().mT)
        >>> q = StreamedPosterior.of(closed_form(sums, s2=0.1).posterior, lambda v: v @ sums.S, s2=0.1)
        >>> mean, variance = q.moments(features(X))
        >>> mean.shape, variance.shape
        (torch.Size([1, 10]), torch.Size([1, 10]))
    """

    blocks: Posterior  #: the block posterior with the same means
    system: Callable[[Tensor], Tensor]  #: v -> (I + A W A'/s2) v, [n, F]
    tolerance: float = 1e-5
    max_iterations: int = 1000

    @classmethod
    def of(cls, posterior: Posterior, matvec: Callable[[Tensor], Tensor], s2: float) -> StreamedPosterior:
        """From the block posterior of the closed form and v -> A W A' v."""
        return cls(posterior, lambda v: v + matvec(v) / s2)

    @property
    def family(self) -> Family:
        """Always "joint"."""
        return "joint"

    @property
    def n_outputs(self) -> int:
        """P."""
        return self.blocks.n_outputs

    def settled(self) -> StreamedPosterior:
        """Itself: it is never saved."""
        return self

    def mean_vector(self) -> Tensor:
        """All means in one axis, [P, F]."""
        return self.blocks.mean_vector()

    def kl(self) -> Tensor:
        """KL of the block posterior, an upper bound."""
        return self.blocks.kl()

    def moments(self, evaluation: Evaluation) -> tuple[Tensor, Tensor]:
        """The mean, and a'(I + A W A'/s2)^{-1} a, both [P, n]."""
        A = evaluation.dense().flat().mT.double()  # [n, F]
        variance = (A * self._solve(A)).sum(-1).clamp_min(0.0)
        mean = self.mean_vector() @ A.mT
        return mean.to(evaluation.dtype), variance.expand_as(mean).to(evaluation.dtype)

    def _solve(self, A: Tensor) -> Tensor:
        """(I + A W A'/s2)^{-1} applied to rows [n, F]."""
        solution, iterations = conjugate_gradients(
            self.system, A, self.blocks.solve, None, self.tolerance, self.max_iterations
        )
        if iterations >= self.max_iterations:
            warnings.warn(
                f"conjugate gradients did not reach {self.tolerance:.0e} in {iterations} iterations: variances are too small.",
                stacklevel=2,
            )
        return solution

    def explained(self, A: Tensor) -> Tensor:
        """A'(I + A W A'/s2)^{-1} A for features A [F, n]: [1, n, n]."""
        return (self._solve(A.mT) @ A)[None]

    def components(self, evaluation: Evaluation) -> tuple[Tensor, Tensor]:
        """Raises: it needs the dense matrix."""
        raise ValueError(
            'components of a joint posterior need its dense matrix: fit with family="block", or fewer features.'
        )

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Raises: it needs the dense matrix."""
        raise ValueError(
            'samples of a joint posterior need its dense matrix: fit with family="block", or fewer features.'
        )
