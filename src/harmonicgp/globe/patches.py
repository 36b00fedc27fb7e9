"""Hyper-parameters of a field from the exact marginal likelihood of a few patches of it.

Where rows are observed unevenly (a region, an ocean with land in it), frequencies of the longitude depend on each other. The
bound of independent frequencies is then loose, the more so the larger the variance of the field, and gives too small a variance.
The marginal likelihood of some hundred places is exact whatever is missing. Patches of neighbours determine the noise and short
waves, and places from everywhere the long waves; their likelihoods are summed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from harmonicgp.features.base import PointKernel
from harmonicgp.globe.fields import Field, Points
from harmonicgp.globe.learning import GlobeModel, Learned, Objective, maximise, sample_fields, slopes
from harmonicgp.kernels.globe import unit_vectors
from harmonicgp.training.exact import gaussian_log_density
from harmonicgp.training.minimiser import Array

#: Places up to which one patch holds all; else so many patches of neighbours, of so many places, and places from everywhere.
ALL, NEAR, NEIGHBOURS, ANYWHERE = 1200, 4, 400, 600


def patches(X: Tensor, values: Tensor, noise: Tensor | None, seed: int = 0) -> list[Points]:
    """Some of the places X [n, 2], longitude and latitude in degrees, with values [slices, n]."""
    n, generator = len(X), torch.Generator().manual_seed(seed)
    order = torch.randperm(n, generator=generator, device="cpu").to(X.device)
    if n <= ALL:
        chosen = [torch.arange(n, device=X.device)]
    else:
        places = unit_vectors(X.double())
        chosen = [(places @ places[i]).topk(NEIGHBOURS).indices for i in order[:NEAR]] + [order[:ANYWHERE]]
    return [
        Points(X[rows].double(), values[:, rows].double(), None if noise is None else noise[rows].double())
        for rows in chosen
    ]


def field_patches(fields: Sequence[Field], seed: int = 0) -> list[Points]:
    """Patches of some of the fields."""
    parts = []
    for field in sample_fields(fields):
        row, column = field.present.nonzero(as_tuple=True)
        X = torch.stack((field.longitudes[column], field.latitudes[row]), -1)
        noise = None if field.noise is None else field.noise[row, column]
        parts += patches(X, field.values[:, row, column], noise, seed)
    return parts


def learn_patches(
    model: GlobeModel,
    parts: Sequence[Points],
    fixed: tuple[bool, bool, bool] = (False, False, False),
    max_evaluations: int = 40,
    progress: Callable[[float], object] | None = None,
) -> Learned:
    """Lengthscale, scale and noise, those not `fixed`, at the largest marginal likelihood of the patches."""
    cells = float(sum(part.values.numel() for part in parts))
    evidence = Objective(log_likelihood, parts, cells, cells)
    return maximise(model, evidence, 0.3 * _spacing(parts), fixed, max_evaluations, progress)


def _spacing(parts: Sequence[Points]) -> float:
    """The median distance of a place to its nearest neighbour, in Earth radii."""
    nearest = []
    for part in parts:
        places = unit_vectors(part.X)
        apart = torch.cdist(places, places, compute_mode="donot_use_mm_for_euclid_dist")
        apart.fill_diagonal_(3.0)
        nearest.append(float(apart.amin(-1).median()))
    return max(1e-4, min(nearest))


def log_likelihood(part: Points, model: GlobeModel) -> tuple[float, Array]:
    """The log marginal likelihood of a patch, over its slices, and its slopes by the three logarithms."""
    kernel, observation = model.globe_kernel(), model.observation()
    with torch.enable_grad():
        K = PointKernel(kernel).zx(part.X, part.X)
        noise = observation.noise(part.noise) + 1e-10 * model.scale
        value = gaussian_log_density(K, part.values, noise, gradient=True)
    return value, slopes(kernel, observation)
