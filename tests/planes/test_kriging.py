"""Systems and universal kriging: solutions, errors that say what to do."""

from __future__ import annotations

import gpytorch
import numpy as np
import pytest
import torch

from harmonicgp.backend.linalg import NotPositiveDefiniteError
from harmonicgp.features.planar import Torus
from harmonicgp.planes import kriging
from harmonicgp.planes.conditioning import precision_root
from harmonicgp.planes.kriging import DenseSystem, GridSystem, Kriging
from harmonicgp.planes.preconditioning import SparseInverse


def systems(noise=0.05, nu=0.5):
    kernel = gpytorch.kernels.MaternKernel(nu=nu, ard_num_dims=2).double().requires_grad_(False)
    kernel.lengthscale = torch.tensor([5.0, 3.0]).double()
    present = torch.rand(12, 10, generator=torch.Generator().manual_seed(0)) > 0.3
    X, rows = present.nonzero().double(), present.flatten().nonzero()[:, 0]
    errors = torch.full((len(X),), noise).double()
    grid = GridSystem(
        Torus.of(kernel, (12, 10), (1.0, 1.0)), rows, errors, SparseInverse(precision_root(kernel, X, errors, 8, 0))
    )
    return DenseSystem.of(kernel, X, errors), grid


def test_both_systems_have_the_same_solution():
    dense, grid = systems()
    b = torch.randn(3, len(dense.X), generator=torch.Generator().manual_seed(1)).double()
    torch.testing.assert_close(grid.solve(b, 1e-12), dense.solve(b), atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(grid.product(dense.solve(b)), b)
    single = grid.solve(b.float(), 1e-3).double()
    assert float((grid.product(single) - b).norm() / b.norm()) < 2e-3


def test_alpha_is_orthogonal_to_the_basis():
    dense, _ = systems()
    H = torch.cat((torch.ones(len(dense.X), 1).double(), dense.X), 1)
    alpha, beta = Kriging.of(dense, H).solve(torch.randn(2, len(H)).double())
    assert beta.shape == (2, 3)
    np.testing.assert_allclose((alpha @ H).numpy(), 0, atol=1e-9)


def test_a_basis_that_repeats_itself_is_refused():
    dense, _ = systems()
    with pytest.raises(ValueError, match="not independent"):
        Kriging.of(dense, torch.ones(len(dense.X), 2).double())


def test_a_system_that_does_not_converge_says_what_to_do(monkeypatch):
    monkeypatch.setattr(kriging, "ITERATIONS", 2)
    _, grid = systems(1e-6, 2.5)
    with pytest.raises(NotPositiveDefiniteError, match="rougher kernel"):
        grid.solve(torch.randn(1, len(grid.cells)).double(), 1e-8)


def test_equal_rows_without_noise_say_what_to_do():
    kernel = gpytorch.kernels.RBFKernel().double().requires_grad_(False)
    with pytest.raises(NotPositiveDefiniteError, match="larger noise_std"):
        DenseSystem.of(kernel, torch.zeros(3, 1).double(), torch.zeros(3).double())
