"""Posteriors stored by their covariances: roots of independent blocks, parameters trained by Adam, deviations of a joint one."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from harmonicgp.backend.linalg import inverse_factor
from harmonicgp.features.evaluation import Evaluation, Roots, Shapes, join_coefficients, split_coefficients
from harmonicgp.inference.posterior import Family, Posterior, arranged

#: Numbers that a step may store at a time.
_NUMBERS = 1 << 24


@dataclass(frozen=True)
class RootPosterior:
    """q(v) = prod_b N(mu_b, R_b'R_b), with triangular roots.

    It needs less memory than `Posterior`, and a product where `Posterior` needs a solve.

    Examples:
        >>> import torch
        >>> q = RootPosterior((torch.zeros(1, 2, 3),), Roots((torch.eye(3).expand(1, 2, 3, 3),)))
        >>> abs(float(q.kl())) < 1e-5
        True
    """

    means: tuple[Tensor, ...]  #: [P, blocks, f]
    roots: Roots

    def with_means(self, mu: Tensor) -> RootPosterior:
        """The same covariances with means mu [P, F]."""
        shapes = [(means.shape[1], means.shape[2]) for means in self.means]
        return RootPosterior(tuple(split_coefficients(mu, shapes)), self.roots)

    def logdet(self) -> Tensor:
        """log|Lambda| of the precisions, summed over blocks."""
        diagonals = (R.diagonal(dim1=-2, dim2=-1) for R in self.roots.stacks)
        return torch.stack([-2 * diagonal.double().abs().log().sum() for diagonal in diagonals]).sum()

    def solve(self, v: Tensor) -> Tensor:
        """Lambda^{-1} v = R'R v, [n, F] -> [n, F], for outputs that share their covariances."""
        parts = []
        for u, R in zip(v.split([R[0, ..., 0].numel() for R in self.roots.stacks], -1), self.roots.stacks, strict=True):
            columns = u.to(R.dtype).unflatten(-1, R.shape[1:3]).permute(1, 2, 0)  # [blocks, f, n]
            parts.append((R[0].mT @ (R[0] @ columns)).permute(2, 0, 1).flatten(1).to(v.dtype))
        return torch.cat(parts, -1)

    @property
    def n_outputs(self) -> int:
        """P."""
        return len(self.means[0])

    def mean_vector(self) -> Tensor:
        """All means in one axis, [P, F]."""
        return join_coefficients(self.means)

    def moments(self, evaluation: Evaluation) -> tuple[Tensor, Tensor]:
        """A'mu and |R a|^2, both [P, *cells]; differentiable in the features."""
        mean, variance = evaluation.moments(self.means, self.roots)
        return mean, variance.expand_as(mean)

    def kl(self) -> Tensor:
        """KL(q || N(0, I))."""
        total = self.means[0].new_zeros(())
        for mu, R in zip(self.means, self.roots.stacks, strict=True):
            P = mu.shape[0] // R.shape[0]  # outputs that share a covariance
            logdet = 2 * R.diagonal(dim1=-2, dim2=-1).abs().log().sum()
            total = total + 0.5 * (mu.square().sum() + P * (R.square().sum() - R[..., 0].numel() - logdet))
        return total

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Samples of v, [n, P, F]."""
        draws = []
        for mu, R in zip(self.means, self.roots.stacks, strict=True):
            white = torch.randn(n, *mu.shape, dtype=torch.float64, generator=generator, device="cpu").to(R)
            shift = torch.einsum("pbfg,npbf->npbg", R.expand(len(mu), *R.shape[1:]), white)
            draws.append((mu + shift.to(mu.dtype)).flatten(2))
        return torch.cat(draws, -1)


class AdamPosterior(torch.nn.Module):
    """q(v) = prod_b N(mu_b, L_b L_b') with means and lower-triangular roots as parameters; starts at the prior.

    Examples:
        >>> import torch
        >>> q = AdamPosterior([(2, 3)], "block", 1, torch.float64)
        >>> abs(float(q.kl().detach())) < 1e-12, len(list(q.parameters()))
        (True, 2)
    """

    def __init__(
        self,
        shapes: Shapes,
        family: Family,
        n_outputs: int,
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__()
        prior = Posterior.prior(shapes, family, n_outputs, device=device)
        self.family = family
        self.means = torch.nn.ParameterList([mu.to(dtype) for mu in prior.means])
        self.triangles = torch.nn.ParameterList([C.to(dtype) for C in prior.factors])

    @property
    def n_outputs(self) -> int:
        """P."""
        return len(self.means[0])

    def value(self) -> RootPosterior:
        """The posterior at the current parameters; gradients reach them."""
        return RootPosterior(tuple(self.means), Roots(tuple(L.tril().mT for L in self.triangles)))

    def mean_vector(self) -> Tensor:
        """All means in one axis, [P, F]."""
        return self.value().mean_vector()

    def moments(self, evaluation: Evaluation) -> tuple[Tensor, Tensor]:
        """A'mu and |L'a|^2, both [P, *cells]."""
        return self.value().moments(arranged(evaluation, self.family))

    def kl(self) -> Tensor:
        """KL(q || N(0, I))."""
        return self.value().kl()

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Samples of v, [n, P, F]."""
        return self.value().sample(n, generator)

    @torch.no_grad()
    def posterior(self) -> Posterior:
        """The same q, stored by precisions."""
        inverses = [inverse_factor(L.tril().double()) for L in self.triangles]
        means = [mu.detach().double() for mu in self.means]
        return Posterior.from_precisions(self.family, means, [inverse.mT @ inverse for inverse in inverses])


@dataclass(frozen=True)
class DeviationPosterior:
    """A joint posterior stored as deviations d_s from its mean; its covariance is 1/S sum_s d_s d_s'.

    With as many deviations as features it can be exact. Fewer random deviations give an estimate.

    Examples:
        >>> import torch
        >>> q = DeviationPosterior(torch.zeros(1, 3), torch.eye(3))
        >>> q.n_outputs, q.sample(4).shape
        (1, torch.Size([4, 1, 3]))
    """

    means: Tensor  #: [P, F]
    deviations: Tensor  #: [S, F]

    @property
    def n_outputs(self) -> int:
        """P."""
        return len(self.means)

    def mean_vector(self) -> Tensor:
        """[P, F]."""
        return self.means

    def moments(self, evaluation: Evaluation) -> tuple[Tensor, Tensor]:
        """A'mu and 1/S sum_s (a'd_s)^2, both [P, *cells]; without a gradient."""
        mean = evaluation.project(self.means)
        variance = torch.zeros_like(mean[0])
        for deviations in self.deviations.split(max(1, _NUMBERS // math.prod(evaluation.cells))):
            variance += evaluation.project(deviations).square().sum(0)
        return mean, (variance / len(self.deviations)).expand_as(mean)

    def kl(self) -> Tensor:
        """Raises: the deviations do not determine it."""
        raise ValueError(
            "a posterior stored as deviations has no KL divergence: use the posterior it was computed from."
        )

    def sample(self, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Samples of v, [n, P, F]: white combinations of the deviations."""
        S, P = len(self.deviations), len(self.means)
        mixing = torch.randn(n * P, S, dtype=torch.float64, generator=generator, device="cpu").to(self.means.device)
        shift = (mixing / math.sqrt(S)) @ self.deviations.double()
        return self.means + shift.unflatten(0, (n, P))
