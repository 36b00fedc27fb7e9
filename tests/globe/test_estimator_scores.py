"""Scores of a field, against scipy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from harmonicgp.globe.estimator import field_scores


def test_scores_weigh_by_area():
    mean, y = np.zeros(2), np.array([1.0, 0.0])
    found = field_scores(mean, np.ones(2), y, np.array([1.0, 3.0]))
    assert found["rmse"] == pytest.approx(np.sqrt(0.5))
    assert found["rmse_by_area"] == pytest.approx(0.5)


@given(n=st.integers(1, 30), seed=st.integers(0, 99))
def test_scores_are_those_of_scipy(n, seed):
    rng = np.random.default_rng(seed)
    mean, y, variance, weights = rng.normal(size=n), rng.normal(size=n), rng.gamma(2.0, size=n), rng.gamma(1.0, size=n)
    found = field_scores(mean, variance, y, weights)
    normal = stats.norm(mean, np.sqrt(variance))
    low, high = normal.interval(0.95)
    for suffix, average in (("", np.mean), ("_by_area", lambda values: np.average(values, weights=weights))):
        assert found[f"rmse{suffix}"] == pytest.approx(np.sqrt(average((y - mean) ** 2)))
        assert found[f"nll{suffix}"] == pytest.approx(average(-normal.logpdf(y)))
        assert found[f"coverage{suffix}"] == pytest.approx(average((low <= y) & (y <= high)))


def test_nothing_to_score_is_an_error():
    with pytest.raises(ValueError, match="nothing to score"):
        field_scores(*4 * [np.empty(0)])
