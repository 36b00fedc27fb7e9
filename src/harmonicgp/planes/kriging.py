"""Universal kriging: exact Gaussian processes whose mean function has coefficients with a flat prior, integrated out.

With A = K + D of the observed rows, values y and basis functions H [N, q],

    beta = (H'A^{-1}H)^{-1} H'A^{-1}y,   alpha = A^{-1}(y - H beta),   mean(x) = k(x, X) alpha + h(x) beta

A system solves with A: `DenseSystem` by a Cholesky factor, `GridSystem` by conjugate gradients, whose products are Fourier
transforms of a torus and whose preconditioners are those of `planes.preconditioning`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import gpytorch
import torch
from torch import Tensor

from harmonicgp.backend.linalg import NotPositiveDefiniteError, conjugate_gradients
from harmonicgp.features.planar import Torus
from harmonicgp.kernels.functions import kernel_matrix

#: Iterations of conjugate gradients at most.
ITERATIONS = 200


def covariance(kernel: gpytorch.kernels.Kernel, x1: Tensor, x2: Tensor) -> Tensor:
    """k(x1, x2) of a stationary kernel from exact differences, [n1, n2].

    GPyTorch expands |x - x'|^2, which leaves 1e-8 at equal points, too much for kernels with a kink there.
    """
    differences = (x1[:, None] - x2[None]).flatten(0, 1)
    return kernel_matrix(kernel, torch.zeros_like(x1[:1]), differences)[0].view(len(x1), len(x2))


class System(Protocol):
    """The observed rows with their covariance A = K + D."""

    def solve(self, b: Tensor, tolerance: float) -> Tensor:
        """A^{-1} b for b [P, N]; the residual is at most `tolerance` times b."""


@dataclass(frozen=True)
class DenseSystem:
    """A few rows, with the Cholesky factor L of A in float64."""

    kernel: gpytorch.kernels.Kernel
    X: Tensor  #: [N, d]
    L: Tensor

    @classmethod
    @torch.no_grad()
    def of(cls, kernel: gpytorch.kernels.Kernel, X: Tensor, noise: Tensor) -> DenseSystem:
        """Factorise K + diag(noise)."""
        K = covariance(kernel, X, X)
        L, info = torch.linalg.cholesky_ex(K + torch.diag(noise))
        if int(info):
            raise NotPositiveDefiniteError(
                "the covariance of the data has no Cholesky factor: the noise is too small for this kernel. Give a larger "
                "noise_std, or a rougher kernel such as matern32."
            )
        return cls(kernel, X, L)

    def solve(self, b: Tensor, tolerance: float = 0.0) -> Tensor:
        """A^{-1} b, exact."""
        return torch.cholesky_solve(b.mT, self.L).mT

    @torch.no_grad()
    def cross(self, at: Tensor) -> Tensor:
        """k(x, X) of points [n, d], [n, N]."""
        return covariance(self.kernel, at, self.X)


@dataclass(frozen=True)
class GridSystem:
    """Some cells of a grid."""

    torus: Torus
    cells: Tensor  #: numbers of the observed cells, [N]
    noise: Tensor  #: [N]
    near_inverse: Callable[[Tensor], Tensor]  #: the preconditioner

    def spread(self, values: Tensor) -> Tensor:
        """K v on all cells of the grid for values [P, N] of the observed ones, [P, grid]."""
        field = values.new_zeros(len(values), math.prod(self.torus.shape))
        field[:, self.cells] = values
        return self.torus.covariance(field.view(-1, *self.torus.shape)).flatten(1)

    def product(self, values: Tensor) -> Tensor:
        """A v."""
        return self.spread(values)[:, self.cells] + self.noise.to(values.dtype) * values

    def residual(self, solution: Tensor, b: Tensor) -> float:
        """|b - A x| / |b|, the largest."""
        return float(((b - self.product(solution)).norm(dim=-1) / b.norm(dim=-1).clamp_min(1e-300)).max())

    def solve(self, b: Tensor, tolerance: float) -> Tensor:
        """A^{-1} b by conjugate gradients, or as near as they come in `ITERATIONS`."""
        solution, iterations = conjugate_gradients(
            self.product, b, self.near_inverse, tolerance=tolerance, max_iterations=ITERATIONS
        )
        if (
            iterations >= ITERATIONS
        ):  # the residual bounds the error of the mean at the cells: below the noise it does no harm
            error = self.residual(solution, b)
            if error > float((self.noise.mean() * b.shape[1]).sqrt() / b.norm(dim=-1).min().clamp_min(1e-300)):
                raise NotPositiveDefiniteError(
                    f"conjugate gradients stopped after {ITERATIONS} iterations with a residual of {error:.1e}: the kernel is "
                    "very smooth for this noise. Use a rougher kernel such as matern32, or a larger noise."
                )
        return solution


@dataclass(frozen=True)
class Kriging:
    """A system with basis functions of the mean."""

    system: System
    H: Tensor  #: [N, q]
    G: Tensor  #: H'A^{-1}, [q, N]
    L: Tensor  #: the Cholesky factor of H'A^{-1}H, [q, q]
    tolerance: float

    @classmethod
    def of(cls, system: System, H: Tensor, tolerance: float = 1e-6) -> Kriging:
        """Solve for the basis functions."""
        G = system.solve(H.mT.contiguous(), tolerance)
        precision = G @ H
        L, info = torch.linalg.cholesky_ex(0.5 * (precision + precision.mT))
        if int(info) or bool((L.diagonal() ** 2 < 1e-12 * precision.diagonal()).any()):
            raise ValueError(
                'the functions of the mean are not independent on the observed data: use mean="constant", or drop covariates '
                "that are constant or repeat others."
            )
        return cls(system, H, G, L, tolerance)

    def solve(self, y: Tensor, tolerance: float | None = None) -> tuple[Tensor, Tensor]:
        """alpha [P, N] and beta [P, q] for values y [P, N]."""
        a = self.system.solve(y, self.tolerance if tolerance is None else tolerance)
        beta = torch.cholesky_solve(self.G.to(y.dtype) @ y.mT, self.L.to(y.dtype)).mT
        return a - beta @ self.G.to(y.dtype), beta

    def trend_variance(self, R: Tensor) -> Tensor:
        """The variance that the coefficients add at n points, for R = h - H'A^{-1}k [n, q]."""
        return torch.linalg.solve_triangular(self.L, R.mT, upper=False).square().sum(0)


@torch.no_grad()
def exact_moments(kriging: Kriging, y: Tensor, at: Tensor, H: Tensor) -> tuple[Tensor, Tensor]:
    """Mean [P, n] and variance [n] of f at points [n, d] with basis H [n, q], by a dense system."""
    system = kriging.system
    assert isinstance(system, DenseSystem)
    alpha, beta = kriging.solve(y)
    means, variances = [], []
    size = max(1, (1 << 24) // len(system.X))
    for x, h in zip(at.split(size), H.split(size), strict=True):
        k = system.cross(x)
        prior = covariance(system.kernel, x[:1], x[:1])[0, 0]
        V = torch.linalg.solve_triangular(system.L, k.mT, upper=False)
        extra = kriging.trend_variance(h - k @ kriging.G.mT)
        means.append(alpha @ k.mT + beta @ h.mT)
        variances.append((prior - V.square().sum(0)).clamp_min(0.0) + extra)
    return torch.cat(means, -1), torch.cat(variances)


@torch.no_grad()
def exact_covariance(kriging: Kriging, at: Tensor, H: Tensor) -> Tensor:
    """The covariance of f at points [n, d] with basis H [n, q], [n, n], by a dense system."""
    system = kriging.system
    assert isinstance(system, DenseSystem)
    k = system.cross(at)
    V = torch.linalg.solve_triangular(system.L, k.mT, upper=False)
    R = torch.linalg.solve_triangular(kriging.L, (H - k @ kriging.G.mT).mT, upper=False)
    return covariance(system.kernel, at, at) - V.mT @ V + R.mT @ R


@torch.no_grad()
def log_evidence(kriging: Kriging, y: Tensor) -> Tensor:
    """log p(y) [P] of a dense system, coefficients of the mean integrated out under a flat prior of density one."""
    system = kriging.system
    assert isinstance(system, DenseSystem)
    alpha, _ = kriging.solve(y)
    N, q = kriging.H.shape
    logdet = 2 * system.L.diagonal().log().sum() + 2 * kriging.L.diagonal().log().sum()
    return -0.5 * ((y * alpha).sum(-1) + logdet + (N - q) * math.log(2 * math.pi))
