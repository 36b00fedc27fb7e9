"""Kernel and noise of a field learned from nearest neighbours, and how much of such a field waves would miss.

The nearest-neighbour likelihood needs no features and takes seconds however fine the field is. So it is computed before the
choice between waves along the parallels and rows with neighbours (`globe.routes`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gpytorch
import torch

from harmonicgp.features import SparseFeatures
from harmonicgp.globe.fields import Points
from harmonicgp.globe.model import gaussian_observation, globe_kernel
from harmonicgp.inducing import median_distance
from harmonicgp.kernels.functions import kernel_matrix
from harmonicgp.kernels.globe import unit_vectors
from harmonicgp.training.neighbours import density_alone, gaussian, learn_alone
from harmonicgp.training.problem import Problem

#: The most points that are used, and how many of them are held out to compare kernels.
SAMPLE, HELD_OUT = 50_000, 2_000
#: Neighbours of a row, steps, and rows of a step; the best kernel gets MORE_STEPS of MORE_BATCH rows.
K, STEPS, BATCH = 15, 100, 256
MORE_STEPS, MORE_BATCH = 150, 512
#: Adam's learning rate for the three parameters.
RATE = 0.125
#: Points along a side of the lattice in `LocalModel.residual_share`.
SIDE = 8


@dataclass(frozen=True)
class LocalModel:
    """A kernel on the globe and a noise variance, in units of the values."""

    name: str  #: of the kernel
    kernel: gpytorch.kernels.ScaleKernel
    s2: float
    densities: dict[str, float]  #: of each kernel that was tried: the mean log density of a value given its neighbours

    @property
    def lengthscale(self) -> float:
        """In Earth radii."""
        return float(self.kernel.base_kernel.base_kernel.lengthscale.detach())

    def residual_share(self, height: float, width: float, latitude: float) -> float:
        """The residual variance of features with a resolution of `height` x `width` degrees, as a share of the noise.

        Computed for a point in the middle of a cell of a lattice with that step, given the field at the lattice points around.
        """
        steps = torch.arange(SIDE, dtype=torch.float64, device="cpu") - 0.5 * (SIDE - 1)
        rows, columns = torch.meshgrid(steps * height + latitude, steps * width, indexing="ij")
        lattice = torch.stack((columns.ravel(), rows.ravel().clamp(-90.0, 90.0)), 1)
        middle = lattice.new_tensor([[0.0, latitude]])
        with torch.no_grad():
            K, cross = (kernel_matrix(self.kernel, lattice, other) for other in (lattice, middle))
            prior = float(self.kernel.outputscale)
            jitter = 1e-9 * prior * torch.eye(len(K), dtype=K.dtype, device="cpu")
            half = torch.linalg.solve_triangular(torch.linalg.cholesky(K + jitter), cross, upper=False)
        return max(prior - float(half.square().sum()), 0.0) / self.s2


def local_model(points: Points, names: Sequence[str], seed: int) -> LocalModel:
    """The kernel among `names` that best predicts values from their neighbours, its parameters and the noise.

    `points` have one value each, without the mean function.
    """
    generator = torch.Generator().manual_seed(seed)
    sample = points.part(torch.randperm(len(points.X), generator=generator, device="cpu")[:SAMPLE])
    held_out = min(HELD_OUT, len(sample.X) // 4) if len(names) > 1 else 0
    problems = {name: _problem(sample, name, seed) for name in names}
    densities = {}
    for name, problem in problems.items() if held_out else ():
        learn_alone(problem.part(slice(0, problem.N - held_out)), K, STEPS, RATE, seed, BATCH)
        densities[name] = density_alone(problem, K, problem.N - held_out)
    best = max(names, key=lambda name: densities.get(name, 0.0))
    problem = problems[best]
    learn_alone(problem, K, MORE_STEPS, RATE, seed, MORE_BATCH)
    kernel: Any = problem.features.view
    kernel = kernel.kernel.requires_grad_(False)
    return LocalModel(best, kernel, float(gaussian(problem).noise().detach()), densities)


def _problem(points: Points, name: str, seed: int) -> Problem:
    """The values and a kernel to learn. The features are not used, but a `Problem` needs some."""
    variance = max(float(points.values.double().var(unbiased=False)), 1e-12)
    lengthscale = max(0.3 * float(median_distance(unit_vectors(points.X), seed=seed)), 1e-6)
    kernel = globe_kernel(name, lengthscale, variance)
    observation = gaussian_observation(0.1 * variance, 1e-6 * variance)
    features = SparseFeatures(kernel, points.X[:1], learn_inducing=False)
    return Problem(features, observation, points.X, points.values, None, points.noise, "tight")
