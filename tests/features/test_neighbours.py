"""Rows given their neighbours, against dense Gaussian conditionals."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from harmonicgp.backend.linalg import NotPositiveDefiniteError
from harmonicgp.features import SparseFeatures
from harmonicgp.features.nearest import Neighbours, earlier
from harmonicgp.features.neighbours import ObservedRows, condition, residual_covariances
from tests.inference.common import data, make_kernel


def model(n=12, m=4, seed=0):
    X, y = data(n, 3, seed)
    kernel = make_kernel()
    return SparseFeatures(kernel, X[:m] + 0.1), kernel, ObservedRows(X, y[None], torch.full((n,), 0.3).double())


@pytest.mark.parametrize("k", [1, 3, 11, 40])
def test_weights_are_those_of_the_dense_residual(k):
    features, kernel, observed = model()
    with torch.no_grad():
        evaluation = features.whiten().dense(observed.X)
        C = (kernel(observed.X).to_dense() - evaluation.flat().mT @ evaluation.flat()).numpy()
        table = earlier(observed.X, k)
        given = condition(features.whiten(), observed.X, observed, table)
    A, y = evaluation.flat().numpy(), observed.y[0].numpy()
    for i in range(len(y)):
        N = table.rows[i][table.present[i]].numpy()
        w = np.linalg.solve(C[np.ix_(N, N)] + 0.3 * np.eye(len(N)), C[N, i]) if len(N) else np.zeros(0)
        assert np.allclose(given.evaluation.flat()[:, i].numpy(), A[:, i] - A[:, N] @ w, atol=1e-9)
        assert float(given.evaluation.residual.variance[i]) == pytest.approx(C[i, i] - C[i, N] @ w, abs=1e-9)
        assert float(given.offset[0, i]) == pytest.approx(float(w @ y[N]), abs=1e-9)


def test_held_features_change_nothing():
    features, _, observed = model()
    whitened, table = features.whiten(), earlier(observed.X, 4)
    with torch.no_grad():
        plain = condition(whitened, observed.X, observed, table)
        held = condition(whitened, observed.X, observed.with_features(whitened), table)
    assert torch.allclose(plain.evaluation.flat(), held.evaluation.flat(), atol=1e-12)
    assert torch.allclose(plain.offset, held.offset, atol=1e-12)


def test_no_neighbours_leave_the_features_as_they_are():
    features, _, observed = model()
    none = Neighbours(torch.zeros(12, 0, dtype=torch.long), torch.zeros(12, 0, dtype=torch.bool))
    with torch.no_grad():
        given, plain = condition(features.whiten(), observed.X, observed, none), features.whiten().dense(observed.X)
    assert torch.equal(given.evaluation.flat(), plain.flat())
    assert float(given.offset.abs().max()) == 0


def test_gradients_reach_kernel_noise_and_inducing_inputs():
    X, y = data(7, 2)
    table = earlier(X, 3)

    def value(Z, lengthscale, scale, noise):
        kernel = make_kernel()
        del kernel.raw_outputscale, kernel.base_kernel.raw_lengthscale
        kernel.raw_outputscale, kernel.base_kernel.raw_lengthscale = scale, lengthscale
        features = SparseFeatures(kernel, X[:3])
        del features.Z
        features.Z = Z
        given = condition(features.whiten(), X, ObservedRows(X, y[None], noise), table)
        return (
            given.evaluation.flat().square().sum()
            + given.offset.sin().sum()
            + given.evaluation.residual.variance.log().sum()
        )

    inputs = [X[:3] + 0.2, torch.tensor([[0.3]]), torch.tensor(0.4), torch.linspace(0.1, 0.5, 7)]
    inputs = [t.double().requires_grad_() for t in inputs]
    assert torch.autograd.gradcheck(value, inputs, atol=1e-6)


def test_equal_rows_without_noise_are_solved():
    X = torch.zeros(3, 1, dtype=torch.float64)
    view = SparseFeatures(make_kernel(), X[:1]).view
    near, present = X[None].expand(2, 3, 1), torch.ones(2, 3, dtype=torch.bool)
    with torch.no_grad():
        weights = residual_covariances(view, X[:2], near, present).weights(torch.zeros(2, 3).double())
    assert torch.isfinite(weights.values).all()
    assert float(weights.variance.abs().max()) < 1e-6


def test_what_has_no_factor_is_refused_in_words():
    X = torch.zeros(3, 1, dtype=torch.float64)
    view = SparseFeatures(make_kernel(), X[:1]).view
    near, present = X[None].expand(2, 3, 1), torch.ones(2, 3, dtype=torch.bool)
    with pytest.raises(NotPositiveDefiniteError, match="larger noise"):
        residual_covariances(view, X[:2], near, present).weights(torch.full((2, 3), -5.0).double())


@pytest.mark.parametrize("change", ["shape", "nan", "negative"])
def test_rows_of_a_false_file_are_refused(change):
    X, y = data(5, 2)
    noise = torch.ones(5).double()
    if change == "nan":
        y = y * float("nan")
    observed = ObservedRows(X[:4] if change == "shape" else X, y[None], -noise if change == "negative" else noise)
    with pytest.raises(ValueError, match="training rows"):
        observed.check(2)
