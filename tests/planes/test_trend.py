"""Bases of mean functions."""

from __future__ import annotations

import numpy as np
import pytest

from harmonicgp.planes.trend import Trend


def test_columns_are_standardised_and_constant_ones_left_out():
    X = np.column_stack((np.arange(5.0) * 1e6, np.full(5, 3.0)))
    trend = Trend.of("linear", X, np.arange(5.0)[:, None] ** 2)
    H = trend.basis(X, np.arange(5.0)[:, None] ** 2).numpy()
    assert H.shape == (5, 3)
    np.testing.assert_allclose(H[:, 1:].mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(H[:, 1:].std(0), 1)
    assert Trend.of("constant", X, np.zeros((5, 0))).basis(X, np.zeros((5, 0))).shape == (5, 1)
    assert Trend.from_state(trend.state()) == trend


def test_wrong_kinds():
    with pytest.raises(ValueError, match="constant"):
        Trend.of("cubic", np.zeros((2, 1)), np.zeros((2, 0)))
    with pytest.raises(ValueError, match="not finite"):
        Trend.from_state({"kind": "linear", "centre": [float("nan")], "scale": [1.0]})
