"""Paths of the prior have the covariance of the kernel."""

from __future__ import annotations

import gpytorch.kernels as gk
import pytest
import torch
from torch.testing import assert_close

from harmonicgp.inference.sampling import PriorPath
from harmonicgp.kernels import ArcCosineKernel, GlobeKernel


@pytest.mark.parametrize(
    "kernel",
    [
        gk.RBFKernel(ard_num_dims=2),
        gk.MaternKernel(nu=0.5),
        gk.MaternKernel(nu=1.5),
        gk.MaternKernel(nu=2.5),
        gk.RQKernel(),
        gk.LinearKernel(),
        ArcCosineKernel(order=0),
        ArcCosineKernel(order=1),
        gk.ScaleKernel(gk.RBFKernel(active_dims=[1])) + gk.MaternKernel(nu=1.5),
        gk.RBFKernel(active_dims=[0]) * gk.MaternKernel(nu=2.5, active_dims=[1]),
        gk.ScaleKernel(gk.RBFKernel(), active_dims=[0]),
        gk.ScaleKernel(gk.LinearKernel()),
        gk.LinearKernel() + gk.RBFKernel(),
        gk.RBFKernel() * gk.LinearKernel(),
        GlobeKernel(gk.MaternKernel(nu=1.5)),
    ],
    ids=lambda k: type(k).__name__,
)
def test_prior_paths_have_the_kernels_covariance(kernel):
    kernel = kernel.double().requires_grad_(False)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(5, 2)
    path = PriorPath.draw(kernel, 2, 1, generator, 16384)
    phi = path.feature_map(x)
    assert_close(phi @ phi.mT, kernel(x).to_dense(), rtol=0.06, atol=0.06)


def test_kernels_without_paths_say_so():
    with pytest.raises(ValueError, match="covariance"):
        PriorPath.draw(gk.CosineKernel(), 2, 1, torch.Generator())
