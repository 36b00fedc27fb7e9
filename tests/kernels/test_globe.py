"""The kernel of the chord between places, against its definition."""

from __future__ import annotations

import gpytorch.kernels as gk
import numpy as np
import pytest
import torch
from torch.testing import assert_close

from harmonicgp.actions import Longitude, Negation
from harmonicgp.kernels import GlobeKernel, harmonic_gram
from tests import reference as ref


def test_the_globe_kernel_equals_its_definition():
    rng = np.random.default_rng(0)
    X = np.stack([rng.uniform(-180, 360, 6), rng.uniform(-90, 90, 6)], 1)
    for base, k in [(gk.RBFKernel(), ref.rbf(0.3)), (gk.MaternKernel(nu=1.5), ref.matern(1.5, 0.3))]:
        kernel = GlobeKernel(base).double()
        base.lengthscale = 0.3
        np.testing.assert_allclose(kernel(torch.from_numpy(X)).to_dense().detach(), ref.globe(k)(X, X), atol=1e-7)
        np.testing.assert_allclose(kernel(torch.from_numpy(X), diag=True).detach(), 1.0, atol=1e-7)


def test_the_globe_kernel_with_further_columns():
    kernel = GlobeKernel(gk.RBFKernel(), active_dims=[0, 1]) * gk.MaternKernel(nu=1.5, active_dims=[2])
    x = torch.tensor([[10.0, 20.0, 0.5], [30.0, -40.0, 1.5], [-170.0, 80.0, -0.3]])
    K = harmonic_gram(kernel.double(), Longitude(5) * Negation([2]), x, x)
    assert_close(K.sum(0).real, kernel(x).to_dense())


def test_bad_globe_kernels():
    with pytest.raises(ValueError, match="isotropic"):
        GlobeKernel(gk.RBFKernel(ard_num_dims=3))
    with pytest.raises(TypeError, match="GPyTorch kernel"):
        GlobeKernel("rbf")
    with pytest.raises(ValueError, match="active_dims"):
        GlobeKernel(gk.RBFKernel())(torch.zeros(2, 3)).to_dense()
    with pytest.raises(ValueError, match="swapped"):
        GlobeKernel(gk.RBFKernel())(torch.tensor([[0.0, 100.0]])).to_dense()
