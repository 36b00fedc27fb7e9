"""Sums over rows: a scaled kernel and streamed rows give what a new pass gives."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from harmonicgp.actions import Negation
from harmonicgp.features import HarmonicFeatures
from harmonicgp.inference.closed_form import StreamedPosterior, closed_form
from harmonicgp.inference.prediction import Predictor
from harmonicgp.inference.statistics import gather_statistics, streaming_matvec
from tests.inference.common import ACTIONS, FAMILIES, data, make_kernel, statistics


def test_scaling_the_kernel_without_a_pass():
    kernel, (X, y), s2 = make_kernel(), data(30, 2), 0.1
    features = HarmonicFeatures(kernel, ACTIONS[2], torch.randn(4, 2))
    for family in FAMILIES:
        scaled = closed_form(statistics(features, X, y), s2, family, "tight", scale=2.5)
        kernel.outputscale = 1.3 * 2.5
        direct = closed_form(statistics(features, X, y), s2, family, "tight")
        kernel.outputscale = 1.3
        assert scaled.bound == pytest.approx(direct.bound, rel=1e-9)
        assert_close(scaled.posterior.mean_vector(), direct.posterior.mean_vector(), rtol=0, atol=1e-8)


def test_streaming_without_the_dense_matrix():
    kernel, (X, y), s2 = make_kernel(), data(60, 2), 0.1
    features = HarmonicFeatures(kernel, ACTIONS[2], torch.randn(4, 2))
    whitened, x = features.whiten(), torch.randn(7, 2)
    dense = statistics(features, X, y, chunk_size=17)
    sparse = statistics(features, X, y, chunk_size=17, dense=False)
    assert sparse.S is None
    for cache in (0.0, 1e9):
        matvec = streaming_matvec(whitened, X, chunk_size=17, cache_bytes=cache)
        streamed = closed_form(sparse, s2, "block", "tight", matvec=matvec, tolerance=1e-12)
        direct = closed_form(dense, s2, "block", "tight")
        assert streamed.bound == pytest.approx(direct.bound, rel=1e-9)
        assert streamed.iterations > 0
        assert_close(streamed.posterior.mean_vector(), direct.posterior.mean_vector(), rtol=0, atol=1e-8)
        # the joint posterior's variances without its matrix
        joint = closed_form(dense, s2, "joint", "tight").posterior
        iterative = StreamedPosterior.of(streamed.posterior, matvec, s2)
        evaluation = whitened(x)
        for a, b in zip(iterative.moments(evaluation), joint.moments(evaluation), strict=True):
            assert_close(a, b, rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match="streaming matvec"):
        closed_form(sparse, s2, "joint")


def test_streaming_bounds_stay_below_and_joint_covariances_agree():
    X, y = data(300, 2)
    features = HarmonicFeatures(make_kernel(), Negation([[0], [1]]), (X[:12] + 0.5).abs()).requires_grad_(False)
    whitened = features.whiten()
    dense, sparse = (gather_statistics(whitened, features.shapes, X, y[None], dense=d) for d in (True, False))
    matvec = streaming_matvec(whitened, X)
    exact = closed_form(dense, 1e-4, "block").bound
    for iterations in (1, 3, 10, 1000):
        cut = closed_form(sparse, 1e-4, "block", matvec=matvec, max_iterations=iterations).bound
        assert cut <= exact + 1e-4
    form = closed_form(sparse, 0.1, "block", matvec=matvec)
    streamed = Predictor.freeze(features, StreamedPosterior.of(form.posterior, matvec, 0.1))
    joint = Predictor.freeze(features, closed_form(dense, 0.1, "joint").posterior)
    for a, b in zip(streamed.covariance(X[:6]), joint.covariance(X[:6]), strict=True):
        assert_close(a, b, rtol=0, atol=1e-4)
    with pytest.raises(ValueError, match="dense matrix"):
        streamed.components(X[:3])
    with pytest.raises(ValueError, match="dense matrix"):
        streamed.paths(1)
    hard = StreamedPosterior(form.posterior, lambda v: v + matvec(v) / 1e-8, 1e-12, 2)
    with pytest.warns(UserWarning, match="did not reach"):
        hard.moments(whitened(X[:3]))


def test_rows_that_stand_for_several_times_as_many():
    features, (X, y) = HarmonicFeatures(make_kernel(), ACTIONS[2], torch.randn(4, 2)), data(9, 2)
    y = torch.stack((y, 2 * y)) if y.dim() == 1 else y
    some = gather_statistics(features.whiten(), features.shapes, X, y)
    thrice = gather_statistics(features.whiten(), features.shapes, X, y, counts=torch.full((9,), 3.0))
    scaled = some.scaled(3.0)
    for a, b in ((scaled.S, thrice.S), (scaled.b, thrice.b), (scaled.yy, thrice.yy), (scaled.counts, thrice.counts)):
        assert_close(a, b)
