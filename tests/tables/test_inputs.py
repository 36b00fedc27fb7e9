"""Columns to model inputs: what is dropped, warped, scaled and turned, and back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from harmonicgp.tables.inputs import KNOTS, Columns, Inputs, Warp, check_size, is_constant, moments

NAMES = [f"c{j}" for j in range(8)]


def columns(X, counts=None, kinds=None, **more):
    return Columns.find(X, counts, kinds or {}, NAMES, **more)


# --- moments --------------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.floats(-1e6, 1e6).map(lambda v: round(v, 3)), min_size=1, max_size=30),
    st.sampled_from([1e-140, 1e-3, 1.0, 1e9, 1e140]),
)
def test_moments_at_every_scale_and_with_repeats(values, unit):
    x = np.array(values) * unit
    counts = np.arange(1.0, len(x) + 1) % 3 + 1
    mean, std = moments(x, counts)
    many = np.repeat(np.array(values), counts.astype(int))
    size = np.abs(many).max() or 1.0
    assert mean / unit == pytest.approx(many.mean(), abs=1e-9 * size)
    expected = many.std()
    if expected > 1e-11 * size:
        assert std / unit == pytest.approx(expected, rel=1e-4)
    elif expected < 1e-13 * size:
        assert std == 1.0


@pytest.mark.parametrize("value", [0.0, 3.3, 1e12, -1e-20])
def test_constant(value):
    x = np.full(7, value)
    assert is_constant(x, moments(x, None))
    y = x * (1 + 1e-6 * np.arange(7)) + (value == 0) * np.arange(7)
    assert not is_constant(y, moments(y, None))


def test_a_column_of_standard_deviation_one_is_not_constant():
    x = np.array([-1.0, 1.0])
    assert moments(x, None) == (0.0, 1.0)
    assert not is_constant(x, moments(x, None))


def test_check_size_names_the_column():
    X = np.ones((4, 3))
    check_size(X, NAMES)
    X[2, 1] = -1e200
    with pytest.raises(ValueError, match="column c1 reaches 1e\\+200: divide"):
        check_size(X, NAMES)


# --- warps ----------------------------------------------------------------------------------------------------------------


@given(
    st.lists(st.floats(-1e3, 1e3).map(lambda v: round(v, 3)), min_size=1, max_size=400),
    st.lists(st.floats(-3e3, 3e3), min_size=1, max_size=20),
)
def test_a_warp_is_rising_and_its_inverse_inverts(values, at):
    warp = Warp.fit(np.array(values))
    assert len(warp.values) <= KNOTS
    assert (np.diff(warp.values) > 0).all()
    assert (np.diff(warp.scores) > 0).all()
    at = np.sort(np.array(at))
    z = warp(at)
    assert (np.diff(z) >= -1e-14).all()
    np.testing.assert_allclose(warp.inverse(z), at, atol=1e-8 * 3e3)
    np.testing.assert_allclose(warp(warp.inverse(np.linspace(-4, 4, 9))), np.linspace(-4, 4, 9), atol=1e-7)


@given(st.integers(2, 300), st.integers(0, 5))
def test_the_slope_of_a_warp_is_that_of_finite_differences(n, seed):
    rng = np.random.default_rng(seed)
    warp = Warp.fit(rng.exponential(size=n))
    low, high = warp.values[[0, -1]]
    x = rng.uniform(low - 1, high + 1, size=50)
    h = 1e-7
    x = x[np.abs(x[:, None] - warp.values).min(1) > 10 * h]
    np.testing.assert_allclose(np.exp(warp.log_slope(x)), (warp(x + h) - warp(x - h)) / (2 * h), rtol=1e-5)


def test_a_warp_makes_normal():
    x = np.random.default_rng(0).lognormal(sigma=2, size=20_000)
    z = Warp.fit(x)(x)
    for level in (0.01, 0.1, 0.5, 0.9, 0.99):
        assert np.quantile(z, level) == pytest.approx(norm.ppf(level), abs=0.06)


def test_a_warp_counts_repeats():
    rng = np.random.default_rng(0)
    x, counts = rng.exponential(size=500), rng.integers(1, 4, size=500).astype(float)
    one, other = Warp.fit(x, counts), Warp.fit(np.repeat(x, counts.astype(int)))
    np.testing.assert_array_equal(one.values, other.values)
    np.testing.assert_allclose(one.scores, other.scores, atol=1e-12)


# --- which columns --------------------------------------------------------------------------------------------------------


def test_constant_and_duplicate_columns_are_dropped_with_a_note():
    x = np.random.default_rng(0).normal(size=(50, 2))
    X = np.column_stack([x[:, 0], np.full(50, 4.0), x[:, 1], 5 - 3 * x[:, 0], x[:, 1] + 1e-3 * x[:, 0]])
    found = columns(X)
    assert found.used == (0, 2, 4)
    assert found.notes == ("constant columns are not used: c1.", "column c3 repeats c0 and is not used.")


@pytest.mark.parametrize("outlier", [1e3, 1e9, -1e140])
@pytest.mark.parametrize("digits", [None, 0])
def test_an_outlier_does_not_make_columns_equal(outlier, digits):
    x = np.random.default_rng(0).normal(size=(300, 2))
    X = x if digits is None else x.round(digits)
    X[-1] = outlier
    assert columns(X).used == (0, 1)
    copies = np.column_stack([X, 32 + 1.8 * X[:, 0], np.float32(-3 * X[:, 1] / abs(outlier))])
    assert columns(copies).repeats == (2, 3)


def test_rare_indicators_that_repeat_are_dropped():
    rare = np.arange(400) % 100 == 0
    assert columns(np.column_stack([rare, ~rare, np.roll(rare, 1)]).astype(float)).repeats == (1,)


def test_one_constant_is_left_to_stand_on():
    assert columns(np.ones((5, 3))).used == (0,)
    assert columns(np.ones((5, 3)), kinds={2: ("periodic", 24.0)}).used == (2,)


def test_columns_of_a_kind_come_first_longitude_before_latitude():
    X = np.random.default_rng(0).normal(size=(50, 5))
    found = columns(X, kinds={3: "latitude", 1: "longitude", 0: ("periodic", 7.0)})
    assert found.used == (1, 3, 0, 2, 4)
    assert found.raw == {0, 1, 3}


def test_skewed_columns_are_found_on_either_side_and_categories_are_not():
    x = np.random.default_rng(0).normal(size=(400, 2))
    rare = (np.arange(400) % 40 == 0).astype(float)
    assert columns(np.column_stack([x[:, 0], np.exp(x[:, 1]), -np.exp(x[:, 0]), rare])).skewed == (1, 2)


# --- inputs ---------------------------------------------------------------------------------------------------------------


def rows(n=80, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3)) @ rng.normal(size=(3, 3))
    return np.column_stack([x[:, 0], np.exp(2 * x[:, 1]), 1e6 + x[:, 2], rng.uniform(0, 24, n), np.full(n, 2.0)])


@pytest.mark.parametrize("principal", [False, True])
@pytest.mark.parametrize("warp", [False, True])
def test_transform_and_back(principal, warp):
    X = rows()
    found = columns(X, kinds={3: ("periodic", 24.0)})
    inputs = Inputs.fit(X, None, found, warp, principal)
    assert inputs.kinds == {0: ("periodic", 24.0)}
    assert inputs.plain == [1, 2, 3]
    Z = inputs.transform(X)
    np.testing.assert_array_equal(Z[:, 0], X[:, 3])  # hours stay hours
    np.testing.assert_allclose(Z[:, 1:].mean(0), 0, atol=1e-9)
    back = inputs.inverse(Z, 5)
    np.testing.assert_allclose(back[:, :4], X[:, :4], rtol=1e-12, atol=1e-12 * np.ptp(X[:, :4], 0).max())
    assert np.isnan(back[:, 4]).all()  # not used


def test_principal_axes_are_the_eigenvectors_of_the_correlations():
    X = rows()[:, [0, 2]]
    inputs = Inputs.fit(X, None, columns(X), principal=True)
    Z = inputs.transform(X)
    eigenvalues = np.sort(np.linalg.eigvalsh(np.corrcoef(X.T)))[::-1]
    np.testing.assert_allclose(np.cov(Z.T, bias=True), np.diag(eigenvalues), atol=1e-9)
    np.testing.assert_allclose(inputs.axes.T @ inputs.axes, np.eye(2), atol=1e-12)
    flipped = Inputs.fit(X[::-1], None, columns(X), principal=True)
    np.testing.assert_allclose(flipped.axes, inputs.axes, atol=1e-9)


def test_counts_are_repeats():
    X = rows(30)[:, :3]
    counts = np.arange(30.0) % 3 + 1
    many = np.repeat(X, counts.astype(int), 0)
    one = Inputs.fit(X, counts, columns(X, counts), True, True)
    other = Inputs.fit(many, None, columns(many), True, True)
    np.testing.assert_allclose(one.transform(X), other.transform(X), atol=1e-8)


def test_images_have_one_scale():
    X = np.random.default_rng(0).normal(size=(20, 6)) * np.arange(6)
    inputs = Inputs.fit(X, None, columns(X, image=(2, 3)))
    Z = inputs.transform(X)
    assert inputs.d == 6
    assert Z.mean() == pytest.approx(0, abs=1e-12)
    assert Z.std() == pytest.approx(1)
    np.testing.assert_allclose(Z, (X - X.mean()) / X.std())


def test_state():
    X = rows()
    inputs = Inputs.fit(X, None, columns(X, kinds={3: ("periodic", 24.0)}), True, True)
    again = Inputs.from_state(*inputs.state())
    np.testing.assert_array_equal(again.transform(X), inputs.transform(X))
    assert again.kinds == inputs.kinds
    assert len(inputs.warps) == 1
