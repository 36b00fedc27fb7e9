"""Kernels as plain functions: dense, of one shape, and without the operators of GPyTorch."""

from __future__ import annotations

import gpytorch.kernels as gk
import numpy as np
import pytest
import torch

from harmonicgp.kernels.functions import check_kernel, kernel_diagonal, kernel_matrix


def rbf(x1, x2):
    return torch.exp(-0.5 * (x1[..., :, None, :] - x2[..., None, :, :]).square().sum(-1))


def test_sums_products_and_scalings_of_columns_are_what_numpy_says():
    a, b = gk.RBFKernel(active_dims=[0]), gk.LinearKernel(active_dims=[1, 2])
    a.lengthscale, b.variance = 0.7, 1.9
    kernel = gk.ScaleKernel(a + b) * gk.ScaleKernel(gk.RBFKernel(active_dims=[2]))
    kernel.kernels[0].outputscale, kernel.kernels[1].outputscale = 2.5, 0.3
    kernel.kernels[1].base_kernel.lengthscale = 1.0
    x1, x2 = torch.randn(4, 3), torch.randn(5, 3)
    u, v = x1.numpy(), x2.numpy()
    first = np.exp(-0.5 * (u[:, None, 0] - v[:, 0]) ** 2 / 0.7**2) + 1.9 * u[:, 1:] @ v[:, 1:].T
    second = np.exp(-0.5 * (u[:, None, 2] - v[:, 2]) ** 2)
    K = kernel_matrix(kernel, x1, x2).detach()
    np.testing.assert_allclose(K, 2.5 * first * 0.3 * second, atol=1e-12)
    np.testing.assert_allclose(kernel_diagonal(kernel, x1, x2[:4]).detach(), K.diagonal(), atol=1e-12)


def test_a_function_serves_as_a_kernel_with_leading_axes():
    kernel = gk.RBFKernel()
    kernel.lengthscale = 1.0
    x1, x2 = torch.randn(2, 1, 4, 3), torch.randn(3, 4, 3)
    expected = kernel_matrix(kernel, x1, x2).detach()
    assert expected.shape == (2, 3, 4, 4)
    torch.testing.assert_close(kernel_matrix(rbf, x1, x2), expected)
    torch.testing.assert_close(kernel_diagonal(rbf, x1, x2), expected.diagonal(dim1=-2, dim2=-1))


def test_what_is_no_kernel_is_refused():
    x = torch.randn(4, 3)
    for bad in (3, gk.RBFKernel, "rbf"):
        with pytest.raises(TypeError, match="a GPyTorch kernel or a function"):
            check_kernel(bad)
    with pytest.raises(ValueError, match="batch of kernels"):
        check_kernel(gk.RBFKernel(batch_shape=torch.Size([2])))
    with pytest.raises(ValueError, match="one number for each pair"):
        kernel_matrix(lambda a, b: rbf(a, b)[..., :1], x, x)
    with pytest.raises(TypeError, match="floating-point or complex"):
        kernel_matrix(lambda a, b: rbf(a, b).long(), x, x)
