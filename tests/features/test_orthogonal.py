"""Two sets of inducing points whiten their union."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from harmonicgp.features import OrthogonalFeatures, SparseFeatures
from harmonicgp.inference.closed_form import closed_form
from tests.features.common import nystrom
from tests.inference.common import data, exact_log_evidence, make_kernel, statistics


def test_solve_features_are_the_nystrom_features_of_the_union():
    kernel, Z, O, x = make_kernel(), torch.randn(4, 2), torch.randn(3, 2), torch.randn(6, 2)  # noqa: E741
    for second in (O, torch.randn(4, 2)):
        features = OrthogonalFeatures(kernel, Z, second)
        A = features(x).flat().detach().numpy()
        np.testing.assert_allclose(A.T @ A, nystrom(kernel, torch.cat((Z, second)), x), atol=1e-8)
        assert sum(n * f for n, f in features.shapes) == len(Z) + len(second)


def test_second_inducing_inputs_on_the_first_ones():
    """Rounding of coinciding points once put the bound 6 nats above the evidence."""
    for seed in (5, 168):
        X, y = data(30, 2, seed)
        for nu in (0.5, 1.5):
            kernel = make_kernel(nu)
            features = OrthogonalFeatures(kernel, X[:15], X[10:])
            bound = closed_form(statistics(features, X, y), 0.01, "joint", "tight").bound
            assert bound <= exact_log_evidence(kernel, X, y, 0.01) + 1e-5
            whole = closed_form(statistics(SparseFeatures(kernel, X), X, y), 0.01, "joint", "tight").bound
            assert bound == pytest.approx(whole, abs=1e-2)
