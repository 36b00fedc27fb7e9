"""Kernel and noise of a field as near values tell them, and whether waves can carry such a field.

The nearest-neighbour likelihood needs no features: it costs seconds however fine the field is. So it comes before the choice
between the two ways to fit a field: waves along the parallels, or rows with neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gpytorch
import torch

from harmonicgp.features import SparseFeatures
from harmonicgp.globe.fields import Points
from harmonicgp.globe.model import globe_kernel
from harmonicgp.inducing import median_distance
from harmonicgp.kernels.functions import kernel_matrix
from harmonicgp.kernels.globe import unit_vectors
from harmonicgp.kernels.profiles import log_scale
from harmonicgp.likelihoods.observation import observe
from harmonicgp.training.neighbours import density_alone, gaussian, learn_alone
from harmonicgp.training.problem import Problem

#: Rows that are looked at, at most, and those of them that judge between kernels.
SEEN, JUDGES = 50_000, 2_000
#: Neighbours of a row, steps and rows of a step; the kernel that is chosen has more of both.
K, STEPS, BATCH = 15, 100, 256
MORE_STEPS, MORE_BATCH = 150, 512
#: Adam's rate: three numbers are learned.
RATE = 0.125
#: Places a side of the lattice that stands for features as fine.
SIDE = 8


@dataclass(frozen=True)
class LocalModel:
    """A kernel on the globe and a noise variance, in units of the values."""

    name: str  #: of the kernel
    kernel: gpytorch.kernels.ScaleKernel
    s2: float
    densities: dict[str, float]  #: by kernel that was tried: mean log-density of a value given its nearest

    @property
    def lengthscale(self) -> float:
        """In Earth radii."""
        return float(self.kernel.base_kernel.base_kernel.lengthscale.detach())

    def share_left(self, height: float, width: float, latitude: float) -> float:
        """The variance, as a share of the noise, that features leave which resolve `height` x `width` degrees.

        It is that of a value in the middle of a cell of such a lattice, given the field at the places of the lattice around it.
        """
        steps = torch.arange(SIDE, dtype=torch.float64, device="cpu") - 0.5 * (SIDE - 1)
        rows, columns = torch.meshgrid(steps * height + latitude, steps * width, indexing="ij")
        places = torch.stack((columns.ravel(), rows.ravel().clamp(-90.0, 90.0)), 1)
        middle = places.new_tensor([[0.0, latitude]])
        with torch.no_grad():
            K, cross = (kernel_matrix(self.kernel, places, other) for other in (places, middle))
            prior = float(self.kernel.outputscale)
            jitter = 1e-9 * prior * torch.eye(len(K), dtype=K.dtype, device="cpu")
            half = torch.linalg.solve_triangular(torch.linalg.cholesky(K + jitter), cross, upper=False)
        return max(prior - float(half.square().sum()), 0.0) / self.s2


def local_model(points: Points, names: Sequence[str], seed: int) -> LocalModel:
    """The kernel among `names` that says most of values given those near them, its parameters and the noise.

    `points` have one value each, less their mean function.
    """
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(points.X), generator=generator, device="cpu")[:SEEN]
    some = points.some(order)
    judges = min(JUDGES, len(some.X) // 4) if len(names) > 1 else 0
    problems = {name: _problem(some, name, seed) for name in names}
    densities = {}
    for name, problem in problems.items() if judges else ():
        learn_alone(problem.part(slice(0, problem.N - judges)), K, STEPS, RATE, seed, BATCH)
        densities[name] = density_alone(problem, K, problem.N - judges)
    best = max(names, key=lambda name: densities.get(name, 0.0))
    problem = problems[best]
    learn_alone(problem, K, MORE_STEPS, RATE, seed, MORE_BATCH)
    kernel: Any = problem.features.view
    kernel = kernel.kernel.requires_grad_(False)
    return LocalModel(best, kernel, float(gaussian(problem).noise().detach()), densities)


def _problem(points: Points, name: str, seed: int) -> Problem:
    """Values and a kernel to learn; the problem has features for form's sake."""
    variance = max(float(points.values.double().var(unbiased=False)), 1e-12)
    lengthscale = max(0.3 * float(median_distance(unit_vectors(points.X), seed=seed)), 1e-6)
    kernel = globe_kernel(name, lengthscale, variance)
    with torch.device("cpu"):
        likelihood = gpytorch.likelihoods.GaussianLikelihood(noise_constraint=log_scale(1e-6 * variance)).double()
    likelihood.noise = torch.tensor(0.1 * variance, dtype=torch.float64, device="cpu")
    features = SparseFeatures(kernel, points.X[:1], learn_inducing=False)
    return Problem(features, observe(likelihood), points.X, points.values, None, points.noise, "tight")
