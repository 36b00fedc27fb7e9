"""Sparse roots of the precision and local weights, exact with all rows as neighbours."""

from __future__ import annotations

import gpytorch
import numpy as np
import torch

from harmonicgp.planes.conditioning import local_weights, precision_root


def problem(n=60):
    g = torch.Generator().manual_seed(0)
    kernel = gpytorch.kernels.MaternKernel(nu=1.5, ard_num_dims=2).double().requires_grad_(False)
    return kernel, torch.randn(n, 2, generator=g).double(), 0.1 + torch.rand(n, generator=g).double()


def test_with_all_rows_the_root_is_that_of_the_inverse():
    kernel, X, noise = problem()
    A = kernel(X).to_dense() + torch.diag(noise)
    S = precision_root(kernel, X, noise, 59, 3, np.float64)
    np.testing.assert_allclose((S.T @ S).toarray(), A.inverse().numpy(), atol=1e-9)


def test_with_a_few_rows_it_preconditions():
    kernel, X, noise = problem(400)
    A = (kernel(X).to_dense() + torch.diag(noise)).numpy()
    S = precision_root(kernel, X, noise, 20, 3).toarray()
    values = np.linalg.eigvals(S @ A @ S.T).real
    assert values.max() / values.min() < 3 < np.linalg.cond(A)


def test_local_weights_with_all_rows_are_kriging():
    kernel, X, noise = problem()
    A = kernel(X).to_dense() + torch.diag(noise)
    at = torch.randn(7, 2, generator=torch.Generator().manual_seed(1)).double()
    k = kernel(at, X).to_dense()
    found = local_weights(kernel, X, noise, at, 60, np.float64)
    expected = torch.linalg.solve(A, k.mT).mT
    np.testing.assert_allclose(found.matrix.toarray(), expected.numpy(), atol=1e-9)
    np.testing.assert_allclose(found.variance, 1 - (expected * k).sum(-1).numpy(), atol=1e-9)


def test_one_row_has_no_neighbours():
    kernel, X, noise = problem()
    S = precision_root(kernel, X[:1], noise[:1], 5, 0, np.float64)
    np.testing.assert_allclose(S.toarray(), [[float((1 + noise[0]) ** -0.5)]])
