"""Helpers of the tests of this room."""

from __future__ import annotations

import gpytorch
import numpy as np
import torch

from harmonicgp.features import LongitudeFeatures
from harmonicgp.globe.fields import Field
from harmonicgp.inference.closed_form import closed_form
from harmonicgp.inference.statistics import EvaluationStatistics
from harmonicgp.kernels.globe import GlobeKernel


def nystrom(kernel, U, x):
    """k(x, U) k(U, U)^{-1} k(U, x), dense in numpy."""
    K, k = kernel(U).to_dense().detach().numpy(), kernel(U, x).to_dense().detach().numpy()
    return k.T @ np.linalg.lstsq(K, k, rcond=1e-12)[0]


BASES = {
    "rbf": gpytorch.kernels.RBFKernel,
    "matern32": lambda: gpytorch.kernels.MaternKernel(nu=1.5),
    "matern52": lambda: gpytorch.kernels.MaternKernel(nu=2.5),
}


def kernel(name="rbf", lengthscale=0.4, scale=1.7):
    globe = gpytorch.kernels.ScaleKernel(GlobeKernel(BASES[name]())).double()
    globe.base_kernel.base_kernel.lengthscale = lengthscale
    globe.outputscale = scale
    return globe


def grid(step=10.0, hole=True, seed=0, fields=1, first=-175.0, noise=False):
    """A field with a hole, on a grid of cell centres."""
    generator = torch.Generator().manual_seed(seed)
    latitudes = torch.arange(-90 + step / 2, 90, step, dtype=torch.float64)
    longitudes = first + torch.arange(0, 360, step, dtype=torch.float64)
    values = torch.randn(fields, len(latitudes), len(longitudes), dtype=torch.float64, generator=generator)
    values += torch.sin(latitudes / 30)[:, None] + torch.cos(3 * longitudes / 57.3)
    present = torch.rand(len(latitudes), len(longitudes), generator=generator) < (0.8 if hole else 2.0)
    if hole:
        present[4:8, 10:17] = False
        present[2] = False
    known = 0.3 * torch.rand(present.shape, dtype=torch.float64, generator=generator) if noise else None
    return Field(latitudes, longitudes, values, present, known)


def cells(field):
    """Points [N, 2], values [P, N] and noise of the cells that are present."""
    lat, lon = torch.meshgrid(field.latitudes, field.longitudes, indexing="ij")
    X = torch.stack((lon, lat), -1)[field.present]
    return X, field.values[:, field.present], None if field.noise is None else field.noise[field.present]


def features_of(k, m=6, t_max=18, order=36, meridian=-175.0, north=75.0):
    return LongitudeFeatures(k, torch.linspace(-north, north, m, dtype=torch.float64), t_max, order, meridian)


def sums(features, field, s2):
    """The statistics of a field through its waves."""
    weights = None if field.noise is None else s2 / (s2 + field.noise)
    with torch.no_grad():
        evaluation = features(field.grid)
    return EvaluationStatistics.of(evaluation, field.targets, weights, field.present.double())


def fit_field(features, field, s2, bound="tight", tolerance=1e-6):
    return closed_form(sums(features, field, s2), s2, "block", bound, tolerance=tolerance)
