"""Planar waves: the covariance of a grid on a torus, and the evaluation interface, against dense kernels in numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel

from harmonicgp.features.evaluation import Roots
from harmonicgp.features.planar import PlanarEvaluation, Torus
from tests.reference import matern, rbf


def points(shape, steps):
    mesh = np.meshgrid(*(step * np.arange(n) for n, step in zip(shape, steps, strict=True)), indexing="ij")
    return np.stack([part.ravel() for part in mesh], 1)


def anisotropic(nu, lengthscales):
    kernel = (RBFKernel if nu is None else MaternKernel)(
        ard_num_dims=len(lengthscales), **({} if nu is None else {"nu": nu})
    ).double()
    kernel.lengthscale = torch.tensor(lengthscales, dtype=torch.float64)
    return kernel


CASES = [
    ((23,), (0.3,), 0.5, (2.0,)),
    ((9, 7), (1.0, 2.0), 1.5, (4.0, 3.0)),
    ((8, 6), (1e4, 2e3), 0.5, (3e4, 9e3)),
    ((7, 1), (1.0, 1.0), 2.5, (3.0, 1.0)),
    ((5, 4, 6), (1.0, 0.5, 1e-3), 1.5, (2.0, 2.0, 3e-3)),
    ((12, 9), (1.0, 1.0), None, (3.0, 2.0)),
    ((40, 30), (1.0, 1.0), 0.5, (0.2, 0.3)),
]


@pytest.mark.parametrize(("shape", "steps", "nu", "lengthscales"), CASES)
def test_products_and_features_are_those_of_the_kernel(shape, steps, nu, lengthscales):
    torus = Torus.of(anisotropic(nu, lengthscales), shape, steps)
    X = points(shape, steps) / np.array(lengthscales)
    K = (rbf(1.0) if nu is None else matern(nu, 1.0))(X, X)
    v = np.random.default_rng(0).normal(size=(2, *shape))
    product = torus.covariance(torch.from_numpy(v)).numpy().reshape(2, -1)
    np.testing.assert_allclose(product, v.reshape(2, -1) @ K, atol=1e-9 * len(X))
    assert torus.clipped < 1e-8
    if torus.cells <= 4000:
        A = PlanarEvaluation(torus).dense().flat()
        np.testing.assert_allclose((A.mT @ A).numpy(), K, atol=1e-7)


def test_a_short_kernel_needs_a_small_torus():
    kernel = anisotropic(0.5, (0.5, 0.5))
    assert Torus.of(kernel, (100, 100), (1.0, 1.0)).cells < 1.5 * 100**2


def test_a_spectrum_that_stays_negative_is_clipped_and_the_share_is_stated(monkeypatch):
    monkeypatch.setattr("harmonicgp.features.planar.LARGEST", 0)
    kernel = anisotropic(None, (400.0, 300.0))
    torus = Torus.of(kernel, (600, 600), (1.0, 1.0))
    assert 0 < torus.clipped < 0.05
    draws = torus.sample(1, torch.Generator().manual_seed(0), torch.float32)
    assert bool(torch.isfinite(draws).all())


def test_samples_have_the_covariance_of_the_kernel():
    shape, steps = (4, 3), (1.0, 2.0)
    draws = Torus.of(anisotropic(1.5, (2.0, 3.0)), shape, steps).sample(40_000, torch.Generator().manual_seed(0))
    X = points(shape, steps) / np.array([2.0, 3.0])
    covariance = np.cov(draws.flatten(1).numpy().T)
    np.testing.assert_allclose(covariance, matern(1.5, 1.0)(X, X), atol=4 * np.sqrt(2 / 40_000))


def test_the_evaluation_agrees_with_its_dense_form():
    waves = PlanarEvaluation(Torus.of(anisotropic(1.5, (2.0, 3.0)), (5, 4), (1.0, 1.0)))
    dense, n = waves.dense(), waves.torus.cells
    g = torch.Generator().manual_seed(1)
    u, y = (torch.randn(3, size, generator=g, dtype=torch.float64) for size in (n, 20))
    torch.testing.assert_close(waves.project(u).flatten(1), dense.project(u))
    torch.testing.assert_close(waves.accumulate(y.view(3, 5, 4)), dense.accumulate(y))
    torch.testing.assert_close(waves.parts(u, [2, 5]).flatten(2), dense.parts(u, [2, 5]))
    found, expected, weights = [], [], torch.rand(20, generator=g, dtype=torch.float64)
    waves.grams(weights.view(5, 4), lambda _, b, G: found.append(G))
    dense.grams(weights, lambda _, b, G: expected.append(G))
    torch.testing.assert_close(torch.cat(found), torch.cat(expected))
    roots = torch.rand(2, n, 1, 1, generator=g, dtype=torch.float64)
    for inverted in (False, True):
        pair = [e.moments([u[:2].view(2, n, 1)], Roots((roots,), inverted)) for e in (waves, dense)]
        for a, b in zip(*pair, strict=True):
            torch.testing.assert_close(a.flatten(1), b.flatten(1))
    assert waves.detach().shapes == dense.shapes
    assert waves.dtype == torch.float64
