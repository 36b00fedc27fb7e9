"""Coordinates order points as the kernel does: the nearer, the larger the covariance."""

from __future__ import annotations

import gpytorch.kernels as gk
import numpy as np
import pytest
import torch

from harmonicgp.kernels.globe import GlobeKernel
from harmonicgp.kernels.metric import metric_coordinates


def ard():
    kernel = gk.ScaleKernel(gk.MaternKernel(nu=1.5, ard_num_dims=2))
    kernel.base_kernel.lengthscale = torch.tensor([0.5, 3.0])
    return kernel


def periodic():
    kernel = gk.PeriodicKernel(active_dims=[1])
    kernel.period_length, kernel.lengthscale = 1.7, 0.8
    return kernel


def some_columns():
    return gk.ScaleKernel(gk.RBFKernel(active_dims=[1]))


def globe():
    return gk.ScaleKernel(GlobeKernel(gk.RBFKernel()))


@pytest.mark.parametrize("make", [ard, periodic, some_columns, globe])
def test_near_in_coordinates_is_near_for_the_kernel(make):
    kernel = make().double()
    x = torch.randn(60, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 2
    with torch.no_grad():
        covariance = kernel(x[:1], x).to_dense()[0].numpy()
    points = metric_coordinates(kernel, x).double()
    distance = (points - points[0]).norm(dim=-1).numpy()
    order = np.argsort(distance)
    assert (np.diff(covariance[order]) <= 1e-5).all()


def test_sums_and_products_stand_side_by_side():
    kernel = gk.RBFKernel(active_dims=[0]) * gk.RBFKernel(active_dims=[1]) + gk.ConstantKernel()
    assert metric_coordinates(kernel, torch.randn(4, 2)).shape[0] == 4


def test_a_kernel_of_your_own_says_what_is_near():
    class Folded(gk.RBFKernel):
        def metric_coordinates(self, x):
            return x.abs()

    assert metric_coordinates(Folded(), torch.tensor([[-2.0]])).tolist() == [[2.0]]


def test_a_kernel_of_your_own_gets_the_columns_that_its_forward_gets():
    class Folded(gk.RBFKernel):
        def metric_coordinates(self, x):
            assert x.dtype == torch.float64
            return x.abs()

    kernel = gk.ScaleKernel(Folded(active_dims=[1])) * gk.RBFKernel(active_dims=[0])
    x = torch.tensor([[3.0, -2.0]])
    assert metric_coordinates(kernel, x).shape == (1, 2)
    assert metric_coordinates(kernel, x)[0, 0] == 2.0


@pytest.mark.parametrize(
    ("points", "error", "words"),
    [
        (lambda x: x.numpy(), TypeError, "got ndarray"),
        (lambda x: None, TypeError, "got NoneType"),
        (lambda x: x + 0j, TypeError, "got torch.complex128"),
        (lambda x: x[:, 0], ValueError, r"for 3 rows got shape \(3,\)"),
        (lambda x: x[1:], ValueError, r"for 3 rows got shape \(2, 2\)"),
        (lambda x: x.log(), ValueError, "row 1 has a value that is NaN or infinite"),
    ],
)
def test_wrong_coordinates_of_your_own_are_refused(points, error, words):
    class Odd(gk.RBFKernel):
        def metric_coordinates(self, x):
            return points(x)

    with pytest.raises(error, match=rf"Odd.metric_coordinates\(x\) must return a real tensor \[n, D\].*{words}"):
        metric_coordinates(Odd(), torch.tensor([[1.0, 2.0], [0.5, -1.0], [3.0, 3.0]]))
