"""Arc-cosine kernels against their definition, their network and bad arguments."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from harmonicgp.kernels import ArcCosineKernel
from tests import reference as ref


@given(st.integers(0, 2), st.floats(0.1, 5), st.floats(0.01, 3), st.integers(0, 10**6))
def test_arccosine_equals_its_definition(order, lengthscale, bias, seed):
    rng = np.random.default_rng(seed)
    X, Y = rng.normal(size=(4, 3)), rng.normal(size=(5, 3))
    kernel = ArcCosineKernel(order=order).double()
    kernel.lengthscale, kernel.bias_variance = lengthscale, bias
    k = ref.arc_cosine(order, lengthscale, bias)
    ours = kernel(torch.from_numpy(X), torch.from_numpy(Y)).to_dense().detach()
    np.testing.assert_allclose(ours, k(X, Y), rtol=1e-9)
    # the diagonal takes the cosine 1 up to rounding: an angle of 1e-8
    np.testing.assert_allclose(kernel(torch.from_numpy(X), diag=True).detach(), np.diag(k(X, X)), rtol=1e-7)
    assert np.linalg.eigvalsh(kernel(torch.from_numpy(X)).to_dense().detach()).min() > -1e-7


def test_arccosine_equals_the_infinite_network():
    """Order 1 is E[relu(w.x) relu(w.x')] * 2 over Gaussian weights."""
    x, w = torch.randn(2, 3), torch.randn(3, 400_000)
    kernel = ArcCosineKernel(order=1).double()
    kernel.lengthscale, kernel.bias_variance = 1.0, 1e-6
    hidden = torch.relu(x @ w)
    assert_close(kernel(x).to_dense(), 2 * hidden @ hidden.T / w.shape[1], rtol=0.02, atol=0.02)


def test_arccosine_ard_and_batches():
    kernel = ArcCosineKernel(order=1, ard_num_dims=3, batch_shape=torch.Size([2])).double()
    x = torch.randn(2, 4, 3)
    K = kernel(x).to_dense()
    assert K.shape == (2, 4, 4)
    assert kernel(x, diag=True).shape == (2, 4)
    with pytest.raises(ValueError, match="orders 0, 1 and 2"):
        ArcCosineKernel(order=3)
    with pytest.raises(ValueError, match="at least 0"):
        ArcCosineKernel(order=-1)
