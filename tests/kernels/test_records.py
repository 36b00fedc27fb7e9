"""What the library knows of classes of kernels: random features that have the kernel's covariance."""

from __future__ import annotations

import gpytorch.kernels as gk
import pytest
import torch

from harmonicgp.kernels import ArcCosineKernel
from harmonicgp.kernels.functions import kernel_matrix
from harmonicgp.kernels.records import random_features, record_of


class Own(gk.RBFKernel):
    """A class of one's own, without a record."""


KERNELS = {
    "matern, ARD": lambda: gk.MaternKernel(nu=1.5, ard_num_dims=3),
    "periodic": lambda: gk.PeriodicKernel(active_dims=[1]),
    "scaled sum": lambda: gk.ScaleKernel(gk.RBFKernel(active_dims=[0]) + gk.LinearKernel(active_dims=[1])),
    "product": lambda: gk.RBFKernel(active_dims=[0]) * gk.RQKernel(active_dims=[2]),
    "arc-cosine": lambda: ArcCosineKernel(order=1),
}


@pytest.mark.parametrize("name", KERNELS)
def test_random_features_have_the_kernels_covariance(name):
    kernel, x = KERNELS[name]().double(), torch.randn(7, 3, generator=torch.Generator().manual_seed(1))
    phi = random_features(kernel, torch.Generator().manual_seed(0), 20_000)(x)
    K = kernel_matrix(kernel, x, x).detach()
    error = (phi @ phi.mT - K).abs().max() / K.abs().max()
    assert float(error) < 0.06
    assert float((phi - random_features(kernel, torch.Generator().manual_seed(0), 20_000)(x)).abs().max()) == 0


def test_a_subclass_has_no_record():
    assert record_of(gk.RBFKernel()).profile(gk.RBFKernel()) is not None
    assert record_of(Own()).profile(Own()) is None
    with pytest.raises(ValueError, match="not for Own"):
        random_features(Own(), torch.Generator(), 5)
