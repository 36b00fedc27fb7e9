"""Harmonics of the longitude: coefficients, series, transforms and gradients, against quadrature and the definition."""

from __future__ import annotations

from itertools import pairwise

import gpytorch.kernels as gk
import numpy as np
import pytest
import torch
from scipy import integrate
from torch.testing import assert_close

from harmonicgp.actions import Longitude
from harmonicgp.kernels import GlobeKernel, harmonic_gram, longitude_spectrum, zonal
from harmonicgp.kernels.zonal import ZonalKernel, zonal_block, zonal_offset_spectrum, zonal_spectrum, zonal_tiles
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


def test_tiny_lengthscales_do_not_overflow_and_stay_positive_semidefinite():
    latitudes = torch.linspace(-90, 90, 40)
    for lengthscale in (1e-4, 0.015, 0.3):
        c = longitude_spectrum(globe_rbf(lengthscale), latitudes, latitudes, 50).detach()
        assert bool(torch.isfinite(c).all())
        for c_n in c:
            assert float(torch.linalg.eigvalsh(c_n).min()) > -1e-12


class _Spectrum(torch.nn.Module):
    def __init__(self, globe):
        super().__init__()
        self.globe = globe

    def forward(self, p, q):
        return longitude_spectrum(self.globe, p, q, 4)


def test_gradients_of_the_spectrum():
    latitudes = torch.tensor([-89.0, -40.0, 12.0, 70.0], requires_grad=True)
    globe = globe_rbf(0.5)
    raw = globe.base_kernel.raw_lengthscale

    def spectrum(p, raw_lengthscale):
        return torch.func.functional_call(
            _Spectrum(globe), {"globe.base_kernel.raw_lengthscale": raw_lengthscale}, (p, p)
        )

    assert torch.autograd.gradcheck(spectrum, (latitudes, raw))


def test_bad_input():
    with pytest.raises(ValueError, match="at least 1"):
        longitude_spectrum(globe_rbf(1.0), torch.zeros(1), torch.zeros(1), 0)
    with pytest.raises(ValueError, match="latitudes lie in"):
        longitude_spectrum(globe_rbf(1.0), torch.tensor([139.7]), torch.tensor([35.7]), 2)
    with pytest.raises(TypeError, match="GlobeKernel"):
        longitude_spectrum(gk.RBFKernel(), torch.zeros(1), torch.zeros(1), 2)


# One latitude after the other, for features ---------------------------------------------------------------------------

BASES = {"rbf": gk.RBFKernel, "matern32": lambda: gk.MaternKernel(nu=1.5), "rational quadratic": gk.RQKernel}


def scaled_globe(name, lengthscale=0.5):
    kernel = gk.ScaleKernel(GlobeKernel(BASES[name]()))
    kernel.outputscale, kernel.base_kernel.base_kernel.lengthscale = 1.7, lengthscale
    return kernel.requires_grad_(False)


def on_meridian(latitudes, longitude=0.0):
    return torch.stack((torch.full_like(latitudes, longitude), latitudes), -1)


@pytest.mark.parametrize("order", [9, 12])
@pytest.mark.parametrize("name", BASES)
def test_the_spectrum_of_a_lattice_is_the_harmonic_decomposition(name, order):
    kernel, p, q = scaled_globe(name), torch.linspace(-90, 90, 6), torch.tensor([-33.0, 0.0, 71.0])
    expected = harmonic_gram(kernel, Longitude(order), on_meridian(p), on_meridian(q), "full").real
    found = zonal_spectrum(ZonalKernel.of(kernel), p, q, order // 2, order)
    assert_close(found, expected[: order // 2 + 1], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", BASES)
def test_places_off_the_lattice_have_the_phase_of_their_offset(name):
    kernel, order = scaled_globe(name), 8
    p, q, offset = torch.tensor([-50.0, 10.0]), torch.tensor([-33.0, 0.0, 71.0]), torch.tensor([3.0, -20.0, 170.0])
    found = zonal_offset_spectrum(ZonalKernel.of(kernel), p, q, offset, order // 2, order)
    for j in range(3):
        place = torch.stack((offset[j], q[j]))[None]
        images = torch.stack([kernel(on_meridian(p), x).to_dense()[:, 0] for x in Longitude(order).orbit(place)])
        expected = torch.fft.fft(images.to(torch.complex128), dim=0)[: order // 2 + 1] / order
        assert_close(found[..., j], expected, rtol=1e-9, atol=1e-12)
    start = zonal_offset_spectrum(ZonalKernel.of(kernel), p, q, torch.zeros(3), order // 2, order)
    assert_close(start.real, zonal_spectrum(ZonalKernel.of(kernel), p, q, order // 2, order), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("lengthscale", [0.01, 0.1])
def test_latitudes_out_of_reach_are_left_out(lengthscale, monkeypatch):
    monkeypatch.setattr(zonal, "_TILE", 1 << 12)
    kernel = ZonalKernel.of(scaled_globe("rbf", lengthscale))
    p, q = torch.linspace(-90, 90, 361), torch.linspace(-80, 80, 33)
    pairs = torch.zeros(len(p), len(q))
    for rows, columns in zonal_tiles(kernel, p, q, 24):
        pairs[rows, columns] += 1
    assert bool((pairs <= 1).all())
    assert 0.0 < float(pairs.mean()) < 1.0
    whole = zonal_block(kernel, p, q, 12, 24)
    assert float(whole[:, pairs == 0].abs().max()) < 1e-15
    assert_close(zonal_spectrum(kernel, p, q, 12, 24), whole, rtol=0, atol=1e-15)


def test_what_has_no_harmonics_of_the_longitude_is_refused():
    assert ZonalKernel.of(scaled_globe("rbf")).is_smooth
    assert not ZonalKernel.of(scaled_globe("matern32")).is_smooth
    for kernel in (gk.RBFKernel(), GlobeKernel(gk.LinearKernel())):
        with pytest.raises(TypeError, match="harmonics of the longitude"):
            ZonalKernel.of(kernel)
