"""The minimiser keeps the best point, turns back from failures and ends when it is told to."""

from __future__ import annotations

import math

import numpy as np
import pytest

from harmonicgp.backend.linalg import NotPositiveDefiniteError
from harmonicgp.training.minimiser import StopMinimisingError, minimise

LIMITS = np.array([[-5.0, 5.0]] * 2)
CURVATURE = np.array([[3.0, 1.0], [1.0, 2.0]])


def quadratic(x):
    d = x - np.array([1.0, -0.5])
    return float(0.5 * d @ CURVATURE @ d), CURVATURE @ d


def test_a_quadratic_is_solved_and_its_curvature_found():
    found = minimise(quadratic, np.zeros(2), LIMITS, 50)
    np.testing.assert_allclose(found.x, [1.0, -0.5], atol=1e-3)
    assert found.value == pytest.approx(0.0, abs=1e-6)
    assert found.inverse.shape == (2, 2)


def test_limits_hold():
    found = minimise(quadratic, np.zeros(2), np.array([[-0.2, 0.2], [-5.0, 5.0]]), 50)
    assert found.x[0] == pytest.approx(0.2)


@pytest.mark.parametrize("failure", [math.inf, math.nan, NotPositiveDefiniteError("no factor")])
def test_failures_send_the_search_back(failure):
    def function(x):
        if x[0] > 0.9:
            if isinstance(failure, Exception):
                raise failure
            return failure, np.zeros(2)
        return quadratic(x)

    found = minimise(function, np.zeros(2), LIMITS, 60)
    assert found.value < quadratic(np.zeros(2))[0]
    assert found.x[0] <= 0.9


def test_the_point_of_a_stop_counts():
    seen = []

    def function(x):
        value, slope = quadratic(x)
        seen.append(value)
        if len(seen) == 3:
            raise StopMinimisingError(value)
        return value, slope

    found = minimise(function, np.zeros(2), LIMITS, 50)
    assert len(seen) == 3
    assert found.value == min(seen)
