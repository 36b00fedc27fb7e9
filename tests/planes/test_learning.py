"""The nearest-neighbour likelihood: equal to the exact one with all rows, its slopes, and recovery of known parameters."""

from __future__ import annotations

import gpytorch
import numpy as np
import pytest
import torch

from harmonicgp.features.planar import Torus
from harmonicgp.kernels.profiles import log_scale, named_kernel
from harmonicgp.planes import learning
from harmonicgp.planes.learning import Given, RegionRows, learn
from tests.planes.reference import covariance


def scaled(name, lengthscales, variance):
    base = named_kernel(name, ard_num_dims=len(lengthscales), lengthscale_constraint=log_scale())
    kernel = gpytorch.kernels.ScaleKernel(base, outputscale_constraint=log_scale()).double()
    kernel.outputscale, base.lengthscale = (torch.tensor(v, dtype=torch.float64) for v in (variance, lengthscales))
    return kernel


def field(name="matern32", shape=(60, 50), lengthscales=(6.0, 9.0), noise=0.05, seed=0, scale=1.0):
    torus = Torus.of(scaled(name, lengthscales, 1.0).requires_grad_(False), shape, (1.0, 1.0))
    g = torch.Generator().manual_seed(seed)
    y = torus.sample(1, g)[0] + noise**0.5 * torch.randn(*shape, generator=g).double()
    present = torch.rand(*shape, generator=g) > 0.3
    X = present.nonzero().double()
    return RegionRows(X, scale * y[present], torch.zeros(len(X)).double(), torch.ones(len(X), 1).double())


def test_with_all_earlier_rows_the_cost_is_the_exact_density_and_slopes_are_right():
    rows = field(shape=(7, 6))
    n, kernel = len(rows.y), scaled("matern32", (3.0, 2.0), 1.5)
    stencils = learning._Stencils.of([rows], 2 * n, n, lambda X: X.float(), 0)
    found = stencils.cost(kernel, 0.2)
    X, y = rows.X.numpy(), rows.y.numpy()
    A = covariance(1.5, (3.0, 2.0), 1.5)(X, X) + 0.2 * np.eye(n)
    B = np.linalg.inv(A)
    r = y - (B.sum(0) @ y) / B.sum()
    expected = 0.5 * (r @ B @ r + np.linalg.slogdet(A)[1] + n * np.log(2 * np.pi)) / n
    assert found.value == pytest.approx(expected, abs=1e-8)
    parameters = list(kernel.parameters())
    slopes = torch.cat([g.flatten() for g in found.gradient(parameters)])
    flat, h = torch.nn.utils.parameters_to_vector(parameters).detach(), 1e-5
    for i in range(len(flat)):
        values = []
        for sign in (1, -1):
            moved = flat.clone()
            moved[i] += sign * h
            torch.nn.utils.vector_to_parameters(moved, parameters)
            values.append(stencils.cost(kernel, 0.2).value)
        assert float(slopes[i]) == pytest.approx((values[0] - values[1]) / (2 * h), abs=1e-7)
    torch.nn.utils.vector_to_parameters(flat, parameters)
    by_noise = (stencils.cost(kernel, 0.2 + h).value - stencils.cost(kernel, 0.2 - h).value) / (2 * h)
    assert float(found.noise_gradient()) == pytest.approx(by_noise, abs=1e-7)


@pytest.mark.parametrize("scale", [1.0, 1e-4])
def test_known_parameters_are_recovered(scale):
    found = learn([field(seed=s, scale=scale) for s in range(2)], "matern32", Given(), 0)
    lengthscale = found.kernel.base_kernel.lengthscale[0].numpy()
    np.testing.assert_allclose(lengthscale, [6, 9], rtol=0.35)
    assert found.s2 == pytest.approx(0.05 * scale**2, rel=0.2)
    assert found.variance == pytest.approx(scale**2, rel=0.6)
    assert found.densities == {}


@pytest.mark.parametrize("name", ["matern12", "matern52"])
def test_the_smoothness_is_found(name):
    found = learn([field(name, noise=0.01)], "auto", Given(), 0)
    assert found.name == name
    assert set(found.densities) == set(learning.KERNELS)


def test_given_parameters_stay():
    given = Given(torch.tensor([5.0, 5.0]).double(), 2.0, 0.1)
    calls = []
    found = learn([field()], "rbf", given, 0, calls.append)
    np.testing.assert_allclose(found.kernel.base_kernel.lengthscale[0].numpy(), 5.0)
    assert (found.variance, found.s2, calls) == (pytest.approx(2.0), pytest.approx(0.1), [])


def test_a_kernel_of_your_own():
    kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RQKernel(ard_num_dims=2))
    found = learn([field(shape=(30, 20))], kernel, Given(), 0)
    assert found.name == "ScaleKernel"
    assert not any(p.requires_grad for p in found.kernel.parameters())
    assert all(p.requires_grad for p in kernel.parameters())


@pytest.mark.parametrize("n", [1, 2])
def test_hardly_any_values(n):
    rows = field().part(torch.arange(n))
    found = learn([rows], "auto", Given(), 0)
    assert np.isfinite(found.s2)
    assert np.isfinite(found.variance)
