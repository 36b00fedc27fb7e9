"""Noise and output scale of the best held-out density, against dense Gaussian processes."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from harmonicgp.features import SparseFeatures
from harmonicgp.inference.refinement import heldout_score, refine
from tests.inference.common import data, exact_posterior, make_kernel, statistics


def dense_score(s2, scale, X, y, x, targets):
    """The mean log-density of targets under the exact Gaussian process with k times scale."""
    mean, variance = exact_posterior(make_kernel(scale=1.3 * scale), X, y, s2, x)
    return norm.logpdf(targets.numpy(), mean, np.sqrt(variance + s2)).mean()


@pytest.fixture
def split():
    """Features at every row, statistics of the first rows, and the others with their features."""
    X, y = data(60, 1)
    features = SparseFeatures(make_kernel(), X[:40]).requires_grad_(False)
    return (X[:40], y[:40], X[40:], y[40:]), statistics(features, X[:40], y[:40]), features(X[40:])


@pytest.mark.parametrize(("s2", "scale"), [(0.1, 1.0), (0.5, 1.0), (0.3, 4.0)])
def test_the_score_is_that_of_a_dense_gaussian_process(split, s2, scale):
    rows, sums, held = split
    assert heldout_score(sums, held, rows[3][None], s2, scale) == pytest.approx(dense_score(s2, scale, *rows), abs=1e-5)


def test_what_is_found_is_as_good_as_the_best_of_a_grid(split):
    rows, sums, held = split
    found = refine(sums, held, rows[3][None], s2=5.0)
    grid = max(dense_score(s2, scale, *rows) for s2 in np.geomspace(0.01, 10, 13) for scale in np.geomspace(0.1, 10, 9))
    assert found.before == pytest.approx(dense_score(5.0, 1.0, *rows), abs=1e-5)
    assert found.after == pytest.approx(dense_score(found.s2, found.scale, *rows), abs=1e-5)
    assert found.after > found.before
    assert found.after > grid - 0.02


def test_limits_of_one_value_keep_a_scalar(split):
    rows, sums, held = split
    found = refine(sums, held, rows[3][None], s2=0.7, noise_limits=(0.7, 0.7), scale_limits=(1.0, 1.0))
    assert (found.s2, found.scale) == pytest.approx((0.7, 1.0))
    assert found.after == found.before
