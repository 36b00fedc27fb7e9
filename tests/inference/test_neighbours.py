"""Predictions with neighbours, against the exact Gaussian process."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harmonicgp.features import OrthogonalFeatures, SparseFeatures
from harmonicgp.features.nearest import earlier
from harmonicgp.features.neighbours import Neighbourhood, ObservedRows, condition
from harmonicgp.inference.closed_form import StreamedPosterior, closed_form
from harmonicgp.inference.neighbours import NeighbourPredictor
from harmonicgp.inference.prediction import Predictor
from harmonicgp.inference.statistics import RowPiece, sum_statistics
from tests.inference.common import data, exact_posterior, feature_draws, make_kernel

S2 = 0.2


@torch.no_grad()
def predictor(features, X, y, k, streamed=False):
    """A predictor with the joint posterior from all rows given k neighbours; `streamed` without its dense matrix."""
    observed = ObservedRows(X, y[None] if y.dim() == 1 else y, torch.full((len(X),), S2).double())
    part = condition(features.whiten(), X, observed, earlier(X, k))
    d = part.evaluation.residual.variance + S2
    bare = type(part.evaluation)(part.evaluation.stacks, type(part.evaluation.residual)(torch.zeros_like(d)))
    piece = RowPiece(bare, observed.y - part.offset, S2 / d)
    sums = sum_statistics([piece], features.shapes, len(observed.y), len(X))
    posterior = closed_form(sums, S2, "block" if streamed else "joint", "elbo").posterior
    if streamed:
        posterior = StreamedPosterior.of(posterior, lambda v: v @ sums.S, S2)
    hood = Neighbourhood.of(features.view.kernel, observed, k)
    return NeighbourPredictor.of(Predictor.freeze(features, posterior), hood)


@given(drawn=feature_draws(), seed=st.integers(0, 99))
@settings(deadline=None)
def test_all_rows_as_neighbours_predict_as_the_exact_process(drawn, seed):
    features, kernel, d = drawn
    X, y = data(15, d, seed)
    x, _ = data(6, d, seed + 1)
    mean, variance = predictor(features, X, y, 15).marginals(x)
    exact = exact_posterior(kernel, X, y, S2, x)
    assert np.allclose(mean[0].numpy(), exact[0], atol=1e-8)
    assert np.allclose(variance[0].numpy(), exact[1], atol=1e-8)


def test_covariance_means_and_components_agree_with_the_marginals():
    X, y = data(80, 2)
    x, _ = data(9, 2, 5)
    model = predictor(SparseFeatures(make_kernel(), X[:6]), X, torch.stack((y, y.cos())), 7)
    mean, variance = model.marginals(x)
    assert torch.allclose(model.means(x), mean, atol=1e-10)
    joint_mean, covariance = model.covariance(x)
    assert torch.allclose(joint_mean, mean, atol=1e-8)
    assert torch.allclose(covariance.diagonal(dim1=-2, dim2=-1), variance, atol=1e-8)
    assert float(torch.linalg.eigvalsh(covariance).min()) > -1e-8
    parts, spread, left = model.components(x)
    assert parts.shape == spread.shape == (2, 2, 9)  # one block, and the neighbours
    assert torch.allclose(parts.sum(1), mean, atol=1e-8)
    assert float(left.min()) >= 0


def test_a_streamed_posterior_predicts_as_the_dense_one():
    X, y = data(60, 2)
    x, _ = data(9, 2, 5)
    features = OrthogonalFeatures(make_kernel(), X[:6], X[6:10])  # two blocks
    dense, streamed = (predictor(features, X, y, 7, streamed) for streamed in (False, True))
    assert torch.allclose(streamed.means(x), dense.means(x), atol=1e-8)
    for method in ("marginals", "covariance"):
        for a, b in zip(getattr(streamed, method)(x), getattr(dense, method)(x), strict=True):
            assert torch.allclose(a, b, atol=1e-6)


def test_covariance_of_all_neighbours_is_the_exact_one():
    X, y = data(20, 2)
    x, _ = data(5, 2, 3)
    kernel = make_kernel()
    _, covariance = predictor(SparseFeatures(kernel, X[:4]), X, y, 20).covariance(x)
    K, k, kk = (kernel(a, b).to_dense().detach().numpy() for a, b in ((X, X), (X, x), (x, x)))
    exact = kk - k.T @ np.linalg.solve(K + S2 * np.eye(20), k)
    assert np.allclose(covariance[0].numpy(), exact, atol=1e-8)


def test_paths_have_the_moments_of_the_posterior():
    X, y = data(60, 1)
    x = torch.linspace(-2, 2, 5)[:, None].double()
    model = predictor(SparseFeatures(make_kernel(), X[:4]), X, y, 10)
    draws = model.paths(4000, seed=1)(x)[:, 0]
    mean, variance = model.marginals(x)
    assert torch.allclose(draws.mean(0), mean[0], atol=0.05)
    assert torch.allclose(draws.var(0), variance[0], rtol=0.15, atol=0.01)
    again = model.paths(3, seed=1)
    assert torch.equal(again(x), again(x))


def test_pieces_do_not_change_the_answer(monkeypatch):
    X, y = data(100, 2)
    model = predictor(SparseFeatures(make_kernel(), X[:6]), X, y, 7)
    whole = model.marginals(X)
    monkeypatch.setattr("harmonicgp.inference.neighbours.PIECE", 8)
    for a, b in zip(model.marginals(X), whole, strict=True):
        assert torch.allclose(a, b, atol=1e-10)


def test_one_row_and_wrong_input():
    X, y = data(1, 2)
    model = predictor(SparseFeatures(make_kernel(), X), X, y, 5)
    mean, variance = model.marginals(X)
    assert float(mean[0, 0]) == pytest.approx(float(y[0]) * 1.3 / 1.5)
    assert float(variance[0, 0]) == pytest.approx(1.3 - 1.3**2 / 1.5)
    with pytest.raises(ValueError, match="columns"):
        model.marginals(torch.zeros(2, 3, dtype=torch.float64))
