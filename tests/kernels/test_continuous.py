"""The kernel Fourier transform: the continuous limit on the circle."""

from __future__ import annotations

import gpytorch.kernels as gk
import numpy as np
import pytest
import torch
from scipy import special
from torch.testing import assert_close

from harmonicgp.actions import Translation
from harmonicgp.kernels import circle_spectrum, harmonic_gram, scaled_bessel


def test_the_circle():
    """GPyTorch's periodic kernel is exp(-(1 - cos)/l): its coefficients are scaled Bessel functions of 1/l."""
    kernel = gk.PeriodicKernel().double()
    kernel.period_length, kernel.lengthscale = 24.0, 0.3
    c = circle_spectrum(kernel, 24.0, 10)
    assert_close(c, scaled_bessel(torch.arange(10), torch.tensor(1 / 0.3)), rtol=0, atol=1e-11)
    x = 24 * torch.rand(5, 1)
    k_t = harmonic_gram(kernel, Translation(0, 24.0, 101), x, x, "full")
    phase = 2 * np.pi * (x - x.mT) / 24
    for t in range(10):
        assert_close(k_t[t], c[t] * torch.exp(-1j * t * phase), rtol=0, atol=1e-11)


def test_bessel_against_scipy_and_without_overflow():
    n = torch.arange(0, 300, 7)[:, None]
    z = torch.logspace(-8, 5, 40)
    np.testing.assert_allclose(scaled_bessel(n, z).numpy(), special.ive(n.numpy(), z.numpy()), rtol=1e-12, atol=1e-300)
    for z in (1e5, 9.9e5, 1.1e6, 1e8, 1e12, 1e300):
        value = scaled_bessel(torch.tensor([0, 1, 10, 500]), torch.tensor(z))
        assert bool(torch.isfinite(value).all())
        assert bool((value > 0).all())
    # The change of formula at z = 1e6 is invisible.
    n = torch.tensor([0, 5, 100, 1000, 3000])
    below, above = scaled_bessel(n, torch.tensor(1e6)), scaled_bessel(n, torch.tensor(1e6 * (1 + 1e-9)))
    np.testing.assert_allclose(above, below, rtol=1e-8)
    with pytest.raises(ValueError, match="z >= 0"):
        scaled_bessel(torch.tensor([0]), torch.tensor([-1.0]))


def test_gradients_of_bessel_functions():
    assert torch.autograd.gradcheck(
        lambda z: scaled_bessel(torch.arange(4)[:, None], z), torch.tensor([0.1, 0.5, 20.0], requires_grad=True)
    )


def test_bad_input():
    with pytest.raises(ValueError, match="points must be at least"):
        circle_spectrum(gk.PeriodicKernel(), 1.0, 10, points=5)
    with pytest.raises(ValueError, match="does not repeat"):
        circle_spectrum(gk.RBFKernel(), 24.0, 3)
