"""The kernel Fourier transform: the continuous limit on the circle and on the globe's longitude."""

from __future__ import annotations

from itertools import pairwise

import gpytorch.kernels as gk
import numpy as np
import pytest
import torch
from scipy import integrate, special
from torch.testing import assert_close

from harmonicgp.actions import Longitude, Translation
from harmonicgp.kernels import GlobeKernel, circle_spectrum, harmonic_gram, longitude_spectrum, scaled_bessel
from tests import reference as ref


def globe_rbf(lengthscale: float) -> GlobeKernel:
    kernel = GlobeKernel(gk.RBFKernel().double())
    kernel.base_kernel.lengthscale = lengthscale
    return kernel


def test_coefficients_equal_quadrature():
    """c_n = 1/(2 pi) integral of k cos(n delta), with scipy's adaptive quadrature."""
    k = ref.globe(ref.rbf(0.7))
    latitudes = np.array([-60.0, 5.0, 33.0])
    c = longitude_spectrum(globe_rbf(0.7), torch.tensor(latitudes), torch.tensor(latitudes), 6).detach().numpy()
    for n in range(6):
        for i, p in enumerate(latitudes):
            for j, q in enumerate(latitudes):

                def integrand(lon, n=n, p=p, q=q):
                    return k(np.array([[0.0, p]]), np.array([[np.rad2deg(lon), q]]))[0, 0] * np.cos(n * lon)

                value, _ = integrate.quad(integrand, 0, np.pi)
                np.testing.assert_allclose(c[n, i, j], value / np.pi, atol=1e-9)


@pytest.mark.parametrize("kernel", ["rbf", "scaled rbf", "matern32", "matern52"])
def test_the_series_adds_up_to_the_kernel(kernel):
    base = {
        "rbf": gk.RBFKernel(),
        "scaled rbf": gk.ScaleKernel(gk.RBFKernel()),
        "matern32": gk.MaternKernel(nu=1.5),
        "matern52": gk.MaternKernel(nu=2.5),
    }[kernel].double()
    if kernel == "scaled rbf":
        base.outputscale = 3.0
    globe = GlobeKernel(base)
    x = torch.stack([360 * torch.rand(5) - 180, 180 * torch.rand(5) - 90], 1)
    n = 400
    c = longitude_spectrum(globe, x[:, 1], x[:, 1], n)
    delta = torch.deg2rad(x[:, None, 0] - x[None, :, 0])
    twice = torch.full((n,), 2.0)
    twice[0] = 1.0
    series = torch.einsum("nij,nij->ij", c, torch.cos(torch.arange(n)[:, None, None] * delta) * twice[:, None, None])
    assert_close(series, globe(x).to_dense(), rtol=0, atol=1e-9 if "rbf" in kernel else 2e-5)


def test_the_discrete_decomposition_tends_to_the_continuous_one():
    globe = globe_rbf(0.4)
    x = torch.stack([360 * torch.rand(4) - 180, 180 * torch.rand(4) - 90], 1)
    t = 3
    c = longitude_spectrum(globe, x[:, 1], x[:, 1], 200)
    delta = torch.deg2rad(x[:, None, 0] - x[None, :, 0])
    limit = c[t] * torch.exp(-1j * t * delta)
    gaps = []
    for T in (8, 12, 16, 24, 64):
        k_t = harmonic_gram(globe, Longitude(T), x, x, "full")[t]
        gaps.append(float((k_t - limit).detach().abs().max()))
        # and exactly: frequencies n, n + T, n - T, ... cannot be told apart on T points
        aliased = sum(
            c[abs(t + j * T)] * torch.exp(-1j * (t + j * T) * delta) for j in range(-5, 6) if abs(t + j * T) < 200
        )
        assert_close(k_t, aliased, rtol=0, atol=1e-9)
    assert all(later < earlier for earlier, later in pairwise(gaps[:4]))
    assert gaps[-1] < 1e-12


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


def test_tiny_lengthscales_do_not_overflow_and_stay_positive_semidefinite():
    latitudes = torch.linspace(-90, 90, 40)
    for lengthscale in (1e-4, 0.015, 0.3):
        c = longitude_spectrum(globe_rbf(lengthscale), latitudes, latitudes, 50).detach()
        assert bool(torch.isfinite(c).all())
        for c_n in c:
            assert float(torch.linalg.eigvalsh(c_n).min()) > -1e-12


def test_gradients_of_the_spectrum():
    latitudes = torch.tensor([-89.0, -40.0, 12.0, 70.0], requires_grad=True)
    globe = globe_rbf(0.5)
    raw = globe.base_kernel.raw_lengthscale

    def spectrum(p, raw_lengthscale):
        return torch.func.functional_call(
            _Spectrum(globe), {"globe.base_kernel.raw_lengthscale": raw_lengthscale}, (p, p)
        )

    assert torch.autograd.gradcheck(spectrum, (latitudes, raw))
    assert torch.autograd.gradcheck(
        lambda z: scaled_bessel(torch.arange(4)[:, None], z), torch.tensor([0.1, 0.5, 20.0], requires_grad=True)
    )


class _Spectrum(torch.nn.Module):
    def __init__(self, globe):
        super().__init__()
        self.globe = globe

    def forward(self, p, q):
        return longitude_spectrum(self.globe, p, q, 4)


def test_bad_input():
    with pytest.raises(ValueError, match="at least 1"):
        longitude_spectrum(globe_rbf(1.0), torch.zeros(1), torch.zeros(1), 0)
    with pytest.raises(ValueError, match="points must be at least"):
        circle_spectrum(gk.PeriodicKernel(), 1.0, 10, points=5)
    with pytest.raises(ValueError, match="does not repeat"):
        circle_spectrum(gk.RBFKernel(), 24.0, 3)
    with pytest.raises(ValueError, match="latitudes lie in"):
        longitude_spectrum(globe_rbf(1.0), torch.tensor([139.7]), torch.tensor([35.7]), 2)
    with pytest.raises(TypeError, match="GlobeKernel"):
        longitude_spectrum(gk.RBFKernel(), torch.zeros(1), torch.zeros(1), 2)
