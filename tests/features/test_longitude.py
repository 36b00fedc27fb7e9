"""Features with one inducing point a latitude, against dense references."""

from __future__ import annotations

import math

import gpytorch
import pytest
import torch
from torch.testing import assert_close

from harmonicgp.features import GlobeGrid, LongitudeFeatures
from harmonicgp.features.evaluation import Roots
from tests.features.common import BASES, cells, features_of, fit_field, grid, kernel


@pytest.mark.parametrize("name", BASES)
@pytest.mark.parametrize("order", [36, 9])
def test_all_frequencies_explain_what_the_whole_orbit_does(name, order):
    k = kernel(name, 0.12)  # short, and away from the poles: a dense factor needs no jitter
    features = features_of(k, t_max=order // 2, order=order, north=40.0)
    X = cells(grid())[0]
    X = torch.cat((X, X + torch.tensor([3.3, 1.7])))  # on the lattice, and off it
    with torch.no_grad():
        evaluation = features(X).dense()
    (a,), residual = evaluation.stacks, evaluation.residual.variance
    turns = torch.arange(order, dtype=torch.float64) * (360 / order)
    orbit = torch.cat([features.Z.detach() + torch.tensor([turn, 0.0]) for turn in turns.tolist()])
    Kzz, Kzx = k(orbit).to_dense().detach(), k(orbit, X).to_dense().detach()
    A = torch.linalg.solve_triangular(torch.linalg.cholesky(Kzz), Kzx, upper=False)
    assert_close(torch.einsum("bfn,bfk->nk", a, a), A.mT @ A, rtol=0, atol=2e-8)
    assert_close(residual, (1.7 - A.square().sum(0)).clamp_min(0), rtol=0, atol=2e-8)


def test_the_circle_group_has_the_phases_of_any_longitude():
    k = kernel("rbf", 0.12)
    features = features_of(k, 6, 20, None, 12.3, 40.0)
    fine = features_of(k, 6, 20, 400, 12.3, 40.0)
    X = torch.rand(50, 2, dtype=torch.float64) * torch.tensor([700.0, 170.0]) - torch.tensor([350.0, 85.0])
    with torch.no_grad():
        one, other = features(X).dense(), fine(X).dense()
    (a,), (b,), r, s = one.stacks, other.stacks, one.residual.variance, other.residual.variance
    assert_close(a, b, rtol=0, atol=1e-9)
    assert_close(r, s, rtol=0, atol=1e-9)


def test_what_the_features_refuse():
    with pytest.raises(ValueError, match="circle group"):
        LongitudeFeatures(kernel("matern32"), torch.zeros(1), 3)
    with pytest.raises(ValueError, match="frequencies 0 to 4"):
        LongitudeFeatures(kernel(), torch.zeros(1), 5, 8)
    with pytest.raises(ValueError, match="latitude of 95"):
        LongitudeFeatures(kernel(), torch.tensor([95.0]), 3)
    with pytest.raises(ValueError, match="finite"):
        LongitudeFeatures(kernel(), torch.tensor([math.nan]), 3)
    with pytest.raises(TypeError, match="GlobeKernel"):
        LongitudeFeatures(gpytorch.kernels.RBFKernel(), torch.zeros(1), 3)
    features = features_of(kernel(), t_max=3)
    field = grid(first=-174.0)
    with pytest.raises(ValueError, match="lattice"):
        fit_field(features, field, 0.1)
    mixed = GlobeGrid(field.latitudes, torch.cat((field.longitudes[:3], field.longitudes[:3] - 1.0)))
    with pytest.raises(ValueError, match="off the lattice"):
        features(mixed)


@pytest.mark.parametrize("points", [False, True])
def test_features_of_grids_and_points_have_gradients(points):
    """Of the residual and of moments, by finite differences of the raw parameters."""
    field, mu = grid(20.0, first=-170.0), torch.randn(1, 9, 5)

    def value(raw_lengthscale, raw_scale):
        k = kernel()
        k.base_kernel.base_kernel.raw_lengthscale.data.fill_(float(raw_lengthscale))
        k.raw_outputscale.data.fill_(float(raw_scale))
        features = features_of(k, 5, 4, 18, -170.0)
        evaluation = features(cells(field)[0] if points else field.grid)
        roots = Roots((torch.eye(5).repeat(1, 9, 1, 1) + 0.1 * torch.ones(5, 5).tril(),))
        mean, variance = evaluation.moments((mu,), roots)
        w = torch.linspace(0.5, 1.5, mean.numel()).reshape(mean.shape)
        total = (w * mean).sum() + (w * variance).sum() + (w * evaluation.residual.variance).sum()
        total.backward()
        return (
            float(total.detach()),
            float(k.base_kernel.base_kernel.raw_lengthscale.grad),
            float(k.raw_outputscale.grad),
        )

    raw, h = (-0.3, 0.6), 1e-5
    _, by_lengthscale, by_scale = value(*raw)
    up, down = (value(raw[0] + sign * h, raw[1])[0] for sign in (1, -1))
    assert by_lengthscale == pytest.approx((up - down) / (2 * h), rel=1e-5)
    up, down = (value(raw[0], raw[1] + sign * h)[0] for sign in (1, -1))
    assert by_scale == pytest.approx((up - down) / (2 * h), rel=1e-5)
