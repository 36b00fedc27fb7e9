"""Kernels of one number: values of scipy, slopes of finite differences, radii of the spectral density."""

from __future__ import annotations

import math

import gpytorch.kernels as gk
import numpy as np
import pytest
import torch
from scipy.special import gamma, kv

from harmonicgp.kernels import profiles
from harmonicgp.kernels.profiles import NAMED_PROFILES, log_scale, named_kernel, profile_value


def matern(nu, r):
    z = math.sqrt(2 * nu) * r
    return 2 ** (1 - nu) / gamma(nu) * z**nu * kv(nu, z)


def rational_quadratic(r):
    return (1 + r**2 / (2 * 1.7)) ** -1.7


VALUES = {
    "RBF": lambda r: np.exp(-0.5 * r**2),
    "MATERN12": lambda r: matern(0.5, r),
    "MATERN32": lambda r: matern(1.5, r),
    "MATERN52": lambda r: matern(2.5, r),
    "RATIONAL_QUADRATIC": rational_quadratic,
}


@pytest.mark.parametrize("name", VALUES)
def test_values_and_slopes(name):
    profile, r = getattr(profiles, name), np.linspace(0.05, 4, 50)
    t, alpha = torch.from_numpy(r**2).requires_grad_(), torch.tensor(1.7, requires_grad=True)
    f = profile_value(profile, t, alpha)
    np.testing.assert_allclose(f.detach(), VALUES[name](r), rtol=1e-10)
    assert torch.autograd.gradcheck(lambda t, a: profile_value(profile, t, a), (t, alpha))
    assert profile.stationary


@pytest.mark.parametrize("name", VALUES)
def test_slopes_at_distance_zero_are_finite(name):
    t = torch.zeros(3, requires_grad=True)
    f = profile_value(getattr(profiles, name), t, 1.7)
    f.sum().backward()
    assert torch.equal(f.detach(), torch.ones(3))
    assert torch.isfinite(t.grad).all()


@pytest.mark.parametrize("name", VALUES)
def test_radii_are_those_of_the_spectral_density(name):
    """k(r) = E cos(radius w r) for normal w, on one coordinate: E exp(-radius^2 r^2 / 2)."""
    kernel = {"RATIONAL_QUADRATIC": gk.RQKernel()}.get(name) or named_kernel(name.lower())
    if name == "RATIONAL_QUADRATIC":
        kernel.alpha = 1.7
    radii = getattr(profiles, name).radii(kernel, 100_000, torch.Generator().manual_seed(0)).numpy()
    for r in (0.3, 1.0, 2.0):
        assert np.exp(-0.5 * (radii * r) ** 2).mean() == pytest.approx(float(VALUES[name](np.array(r))), abs=0.005)


def test_kernels_by_name():
    x = torch.randn(6, 2)
    r = torch.cdist(x, x).numpy() + 1e-12
    for name, profile in NAMED_PROFILES.items():
        kernel = named_kernel(name, lengthscale_constraint=log_scale())
        kernel.lengthscale = 1.0
        assert float(kernel.raw_lengthscale.detach()) == 0.0  # its logarithm
        np.testing.assert_allclose(kernel(x).to_dense().detach(), VALUES[profile.name.upper()](r), atol=1e-7)
