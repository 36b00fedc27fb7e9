"""Harmonic features are those of the whole orbit; truncation stays below; fixed points do no harm."""

from __future__ import annotations

import gpytorch.kernels as gk
import numpy as np
import pytest
import torch
from torch.testing import assert_close

from harmonicgp.actions import Longitude, Rotation, Translation
from harmonicgp.features import HarmonicFeatures
from harmonicgp.kernels import GlobeKernel
from tests.features.common import nystrom
from tests.inference.common import ACTIONS, make_kernel


@pytest.mark.parametrize("action", ACTIONS, ids=repr)
def test_shared_harmonic_features_are_the_nystrom_features_of_the_orbit(action):
    """Theorem 4.1's heart: sum_t a_t(x)^H a_t(x') = k(x, O) k(O, O)^{-1} k(O, x') for the whole orbit O of Z."""
    kernel, Z, x = make_kernel(), torch.randn(4, 3) + 0.5, torch.randn(7, 3)
    A = HarmonicFeatures(kernel, action, Z)(x).flat().detach().numpy()
    orbit = action.orbit(Z).flatten(0, 1)
    np.testing.assert_allclose(A.T @ A, nystrom(kernel, orbit, x), atol=1e-8)


def test_truncation_keeps_the_energy_and_stays_below():
    Z = torch.stack([360 * torch.rand(6) - 180, 120 * torch.rand(6) - 60], 1)
    kernel = GlobeKernel(gk.RBFKernel()).double()
    kernel.base_kernel.lengthscale = 0.8
    kernel.requires_grad_(False)
    full = HarmonicFeatures(kernel, Longitude(24), Z)
    energies = full.energies()
    assert_close(energies.sum(), torch.tensor(1.0), rtol=0, atol=1e-9)
    strong = energies.argsort(descending=True)[:8].tolist()
    few = HarmonicFeatures(kernel, Longitude(24), Z, frequencies=strong)
    x = torch.stack([360 * torch.rand(9) - 180, 120 * torch.rand(9) - 60], 1)
    lost = (few(x).residual.variance - full(x).residual.variance).detach()
    assert float(lost.min()) > -1e-9
    assert float(lost.max()) < 1e-3
    assert few.n_features < full.n_features


def test_fixed_points_give_features_that_vanish_not_rounding_blown_up():
    """At the origin k_t(z, .) = 0 for every t but 0; in float32 relative jitter once gave residuals of -13,000."""
    for dtype in (torch.float32, torch.float64):
        kernel = make_kernel().to(dtype).requires_grad_(False)
        Z = torch.zeros(1, 2, dtype=dtype)
        features = HarmonicFeatures(kernel, Rotation((0, 1), 4), Z, learn_inducing=False)
        evaluation = features(torch.randn(50, 2, dtype=dtype))
        stacks, residual = evaluation.stacks, evaluation.residual.variance
        assert all(bool(torch.isfinite(a).all()) for a in stacks)
        explained = torch.stack([a.square().sum((0, 1)) for a in stacks]).sum(0)
        assert float(explained.max()) <= 1.3 * (1 + 1e-4)
        assert float(residual.min()) >= 0


def test_a_learnable_period_is_refused():
    kernel = gk.ScaleKernel(gk.PeriodicKernel()).double()
    kernel.base_kernel.period_length = 24.0
    Z = 24 * torch.rand(5, 1)
    with pytest.raises(ValueError, match="requires_grad_"):
        HarmonicFeatures(kernel, Translation(0, 24.0, 4), Z)
    kernel.base_kernel.raw_period_length.requires_grad_(False)
    HarmonicFeatures(kernel, Translation(0, 24.0, 4), Z)
