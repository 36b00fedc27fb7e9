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
