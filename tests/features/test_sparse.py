"""One set of inducing points: the features of SVGP, against scipy."""

from __future__ import annotations

import numpy as np
import scipy.linalg
import torch
from hypothesis import given
from hypothesis import strategies as st

from harmonicgp.features import SparseFeatures
from tests.features.common import nystrom
from tests.inference.common import make_kernel


@given(m=st.integers(1, 6), n=st.integers(1, 5), d=st.integers(1, 3), seed=st.integers(0, 99))
def test_features_are_the_triangular_solve_of_scipy(m, n, d, seed):
    generator = torch.Generator().manual_seed(seed)
    Z, x = (2 * torch.randn(rows, d, generator=generator) for rows in (m, n))
    kernel = make_kernel()
    evaluation = SparseFeatures(kernel, Z).requires_grad_(False)(x)
    K, k = kernel(Z).to_dense().detach().numpy(), kernel(Z, x).to_dense().detach().numpy()
    expected = scipy.linalg.solve_triangular(np.linalg.cholesky(K), k, lower=True)
    np.testing.assert_allclose(evaluation.flat().numpy(), expected, atol=1e-6)
    left = 1.3 - nystrom(kernel, Z, x).diagonal()
    np.testing.assert_allclose(evaluation.residual.variance.numpy(), left, atol=1e-7)


def test_nothing_is_left_at_the_inducing_points():
    Z = torch.randn(5, 2)
    features = SparseFeatures(make_kernel(), Z).requires_grad_(False)
    assert features.shapes == ((1, 5),)
    assert float(features(Z).residual.variance.max()) < 1e-8
    assert float(features(Z + 50).residual.variance.min()) > 1.3 - 1e-8
