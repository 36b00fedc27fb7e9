"""Approximate inverses: waves against dense inverses, and smooth fields with little noise, where neighbours fail."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel

from harmonicgp.backend.linalg import conjugate_gradients
from harmonicgp.features.planar import Torus
from harmonicgp.planes import preconditioning
from harmonicgp.planes.fitted import GridField
from harmonicgp.planes.kriging import GridSystem
from harmonicgp.planes.places import FieldData, FieldModel, Places
from harmonicgp.planes.preconditioning import SparseInverse, WaveInverse, near_inverse
from tests.planes.reference import covariance, exact, points


def smooth(shape, lengthscales, noise, share=0.3, kernel=None):
    """A torus, rows, cells and noise that varies."""
    kernel = RBFKernel(ard_num_dims=len(shape)) if kernel is None else kernel
    kernel = kernel.double().requires_grad_(False)
    kernel.lengthscale = torch.tensor(lengthscales).double()
    generator = torch.Generator().manual_seed(0)
    present = torch.rand(shape, generator=generator) > share
    X, cells = present.nonzero().double(), present.flatten().nonzero()[:, 0]
    errors = noise * (1 + torch.rand(len(X), generator=generator)).double()
    return kernel, Torus.of(kernel, shape, (1.0,) * len(shape), 1e-12), X, cells, errors


@pytest.mark.parametrize(
    ("shape", "lengthscales"),
    [((40,), (3.0,)), ((12, 11), (2.0, 3.0)), ((1, 20), (1.0, 2.0)), ((5, 6, 4), (2.0, 1.5, 3.0))],
)
def test_waves_above_the_noise_are_nearly_the_inverse(shape, lengthscales):
    _, torus, X, cells, errors = smooth(shape, lengthscales, 0.01)
    waves = WaveInverse.of(torus, cells, errors)
    assert waves is not None
    A = covariance(None, lengthscales, 1.0)(X.numpy(), X.numpy()) + np.diag(errors.numpy())
    eye = torch.eye(len(X), dtype=torch.float64)
    found = waves(eye)
    torch.testing.assert_close(found, found.mT, atol=1e-9, rtol=1e-9)
    values = np.linalg.eigvals(found.numpy() @ A).real  # the waves left out are below the noise
    assert values.min() > 1 - 1e-8
    assert values.max() < 2 + 1e-8


def test_all_waves_are_the_inverse(monkeypatch):
    monkeypatch.setattr(preconditioning, "WAVES", 10**6)
    kernel, torus, X, cells, errors = smooth((9, 8), (2.0, 3.0), 1e-9)  # every wave but rounding is above the noise
    waves = WaveInverse.of(torus, cells, errors + 1e-3)
    few = WaveInverse.of(torus, cells, errors)
    assert waves is not None
    assert few is not None
    assert len(few.place) > len(waves.place)
    A = kernel(X).to_dense() + torch.diag(errors)
    b = A @ torch.randn(len(X), 2, generator=torch.Generator().manual_seed(1)).double()
    assert float((A @ few(b.mT).mT - b).norm() / b.norm()) < 1e-4


def test_a_smooth_field_with_little_noise_converges_where_neighbours_do_not():
    kernel, torus, X, cells, errors = smooth((50, 45), (8.0, 10.0), 1e-6)
    found = near_inverse(kernel, torus, X, cells, errors, 0)
    assert isinstance(found, WaveInverse)
    system = GridSystem(torus, cells, errors, found)
    b = torch.randn(2, len(X), generator=torch.Generator().manual_seed(1)).double()
    x, iterations = conjugate_gradients(system.product, b, found, tolerance=1e-8, max_iterations=100)
    assert iterations < 30
    assert system.residual(x, b) < 1e-6
    sparse = SparseInverse(preconditioning.precision_root(kernel, X, errors, 20, 0))
    x, _ = conjugate_gradients(system.product, b, sparse, tolerance=1e-8, max_iterations=100)
    assert system.residual(x, b) > 1e-3


def test_rough_fields_have_the_sparse_inverse(monkeypatch):
    monkeypatch.setattr(preconditioning, "WAVES", 50)
    kernel, torus, X, cells, errors = smooth((30, 20), (4.0, 4.0), 1e-3, kernel=MaternKernel(nu=0.5, ard_num_dims=2))
    assert isinstance(near_inverse(kernel, torus, X, cells, errors, 0), SparseInverse)
    monkeypatch.setattr(preconditioning, "WAVES", 4000)
    monkeypatch.setattr(preconditioning, "TABLE", 10)
    assert WaveInverse.of(torus, cells, errors + 1) is None


def test_predictions_of_a_smooth_field_with_little_noise_are_those_of_the_dense_process():
    shape, lengthscales, noise = (20, 18), (6.0, 7.0), 1e-5
    kernel, _, _, cells, _ = smooth(shape, lengthscales, noise)
    X, H = points(shape, (1.0, 1.0)), np.ones((360, 1))
    y = np.sin(X[:, 0] / 5) + np.cos(X[:, 1] / 6 + X[:, 0] / 9)
    present = np.isin(np.arange(360), cells.numpy())
    present.reshape(shape)[5:11, 6:12] = False  # a hole
    values = torch.from_numpy(np.where(present, y, np.nan))[None]
    data = FieldData(Places(torch.from_numpy(X), torch.from_numpy(H), shape, (1.0, 1.0)), values)
    k = covariance(None, lengthscales, 1.0)
    mean, cov, _ = exact(k, X[present], y[present], np.full(present.sum(), noise), H[present], X, H)
    found = GridField.of(data, FieldModel(kernel, noise), 64, 0)
    std = np.sqrt(np.diag(cov))
    assert np.abs(found.mean[0].numpy() - mean).max() < 0.02 * std.max()
    ratio = found.variance[0].sqrt().numpy() / std
    assert np.sqrt(np.mean((ratio - 1) ** 2)) < 0.15
    assert abs(np.median(ratio) - 1) < 0.05
    draws = found.samples(None, 8, 1)
    assert bool(torch.isfinite(draws).all())
