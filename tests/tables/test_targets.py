"""Targets to model targets and back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harmonicgp.tables.targets import Target, constant_notes

TRANSFORMS = [None, "log", "quantile"]


def targets(n=60, P=2, seed=0):
    return np.random.default_rng(seed).lognormal(3, 0.8, size=(n, P)) * [1.0, 1e-3][:P]


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("P", [1, 2])
def test_standardised_and_back(transform, P):
    y = targets(P=P)
    target = Target.fit(y, transform=transform)
    z = target.forward(y)
    assert z.shape == (P, 60)
    np.testing.assert_allclose(z.mean(1), 0, atol=1e-12)
    np.testing.assert_allclose(z.std(1), 1, rtol=1e-12)
    np.testing.assert_allclose(target.inverse(z).T, y, rtol=1e-10)
    np.testing.assert_allclose(target.inverse(z[:, :, None])[..., 0].T, y, rtol=1e-10)  # any shape after the first axis
    assert (np.diff(target.forward(np.sort(y, 0)), axis=1) > 0).all()


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_counts_are_repeats(transform):
    y, counts = targets(), np.arange(60.0) % 3 + 1
    one = Target.fit(y, counts, transform)
    other = Target.fit(np.repeat(y, counts.astype(int), 0), None, transform)
    np.testing.assert_allclose(one.forward(y), other.forward(y), atol=1e-10)


@pytest.mark.parametrize("transform", TRANSFORMS)
@given(seed=st.integers(0, 100))
def test_the_slope_is_that_of_finite_differences(transform, seed):
    target = Target.fit(targets(), transform=transform)
    y = np.random.default_rng(seed).uniform(0.5, 2, size=(5, 2)) * targets().mean(0)
    h = 1e-6 * y
    slope = (target.forward(y + h) - target.forward(y - h)) / (2 * h.T)
    away = np.ones_like(slope, dtype=bool)
    if transform == "quantile":
        away = np.stack([np.abs(y[:, p, None] - w.values).min(1) > 2 * h[:, p] for p, w in enumerate(target.warps)])
    np.testing.assert_allclose(np.exp(target.log_slope(y))[away], slope[away], rtol=1e-5)


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_a_constant_target(transform):
    target = Target.fit(np.full((5, 1), 7.0), transform=transform)
    np.testing.assert_allclose(target.forward(np.full((5, 1), 7.0)), 0, atol=1e-12)
    np.testing.assert_allclose(target.inverse(np.zeros((1, 3))), 7)


def test_what_a_target_cannot_be():
    target = Target.fit(targets(P=1), transform="log")
    assert np.isnan(target.forward(np.array([[-1.0]]))).all()
    with pytest.raises(ValueError, match=r'"log" needs positive targets; the smallest price is -2\. Shift'):
        Target.fit(np.array([[1.0], [-1.0], [-2.0]]), None, "log", ["price"])
    with pytest.raises(ValueError, match="the smallest y1 is 0"):
        Target.fit(np.array([[1.0, 1.0], [1.0, 0.0]]), None, "log")
    with pytest.raises(ValueError, match="target_transform must be"):
        Target.fit(targets(), None, "sqrt")
    with pytest.raises(ValueError, match="column price reaches 1e\\+200"):
        Target.fit(np.array([[1.0], [1e200]]), None, None, ["price"])


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_state(transform):
    y = targets()
    target = Target.fit(y, transform=transform)
    again = Target.from_state(*target.state())
    np.testing.assert_array_equal(again.forward(y), target.forward(y))
    np.testing.assert_array_equal(again.log_slope(y), target.log_slope(y))
    assert again.transform == transform


def test_targets_that_do_not_vary_have_a_note():
    g = np.random.default_rng(0)
    y = np.stack((np.full(9, 3.0), 1e6 + 1e-6 * g.normal(size=9), g.normal(size=9)), 1)
    constant, nearly = constant_notes(y, ["a", "b", "c"])
    assert constant == "a does not vary: predictions are its only value."
    assert nearly.startswith("b varies by less than a billionth of its size")


def test_targets_of_extreme_logarithms_stay_finite_and_positive():
    target = Target.fit(np.array([[1e-150], [1e150]]), transform="log")
    y = target.inverse(np.array([[-1e3, 1e3]]))
    assert (y > 0).all()
    assert np.isfinite(y).all()
