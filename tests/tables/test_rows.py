"""A weight of two is two rows, and the order of a table does not matter."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harmonicgp.actions import Negation
from harmonicgp.backend.hashes import hashes
from harmonicgp.tables.rows import merge
from tests.estimators.common import assert_same, classifier, labels, outputs, regressor, table


@given(st.integers(0, 1000), st.booleans(), st.booleans())
def test_merging_keeps_every_row_and_its_weight(seed, noisy, weighted):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 40))
    X, y = rng.integers(0, 3, size=(n, 2)) - 1.0, rng.integers(0, 2, size=(n, 2)) * 1.0
    noise = rng.integers(0, 2, size=n) * 1.0 if noisy else None
    weight = rng.integers(0, 4, size=n) * 1.0 if weighted else None
    rows = merge(X, y, noise, weight)
    expected: dict[tuple[float, ...], float] = {}
    for i in range(n):
        key = (*X[i], *y[i], *([noise[i]] if noisy else []))
        w = 1.0 if weight is None else weight[i]
        if w > 0:
            expected[key] = expected.get(key, 0.0) + w
    counts = np.ones(len(rows.X)) if rows.counts is None else rows.counts
    parts = [rows.X, rows.y] + ([rows.noise[:, None]] if rows.noise is not None else [])
    found = {tuple(row): c for row, c in zip(np.concatenate(parts, 1).tolist(), counts, strict=True)}
    assert found == expected
    assert len(found) == len(rows.X)
    order = rng.permutation(n)
    again = merge(
        X[order], y[order], None if noise is None else noise[order], None if weight is None else weight[order]
    )
    np.testing.assert_array_equal(again.X, rows.X)
    np.testing.assert_array_equal(again.y, rows.y)
    assert (again.counts is None) == (rows.counts is None)
    if rows.counts is not None:
        np.testing.assert_array_equal(again.counts, rows.counts)


def test_sums_of_weights_do_not_depend_on_their_order():
    weight = np.random.default_rng(0).random(50)
    X, y = np.zeros((50, 1)), np.zeros((50, 1))
    assert merge(X, y, None, weight).counts[0] == merge(X, y, None, weight[::-1]).counts[0]


def test_hashes():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(1000, 3))
    assert len(np.unique(hashes(rows))) == 1000
    assert len(np.unique(hashes(rows[:, [1, 0, 2]]))) == 1000
    assert not np.intersect1d(hashes(rows), hashes(rows[:, ::-1])).size
    np.testing.assert_array_equal(hashes(np.array([[0.0, 1.0]])), hashes(np.array([[-0.0, 1.0]])))
    grid = np.array(np.meshgrid(*[np.arange(20.0)] * 3)).reshape(3, -1).T
    assert len(np.unique(hashes(grid))) == 8000


def repeats(X, y, seed=0):
    """Weights, and the rows that they stand for in another order."""
    rng = np.random.default_rng(seed)
    weight = rng.integers(0, 4, size=len(X))
    rows = rng.permutation(np.repeat(np.arange(len(X)), weight))
    return weight, rows


SMALL = [
    {},
    {"symmetry": Negation([[0], [1]]), "n_inducing": 12},
    {"likelihood": "student_t", "n_inducing": 15},
    {"target_transform": "quantile", "warp": "quantile"},
    {"columns": {2: ("periodic", 300.0)}},
    {"bound": "elbo", "kernel": "rbf"},
]


@pytest.mark.parametrize("arguments", SMALL, ids=str)
def test_weights_are_repeats_on_small_tables(arguments):
    X, y = table(50)
    weight, rows = repeats(X, y)
    one = regressor(**arguments).fit(X, y, sample_weight=weight)
    other = regressor(**arguments).fit(X[rows], y[rows])
    assert_same(outputs(one, X, y), outputs(other, X, y))
    assert one.elbo_ == other.elbo_
    unweighted = regressor(**arguments).fit(X, y)
    assert not np.array_equal(unweighted.predict(X), one.predict(X))


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"likelihood": "student_t"},
        {"calibration": "conformal"},
        {"symmetry": Negation([[0]]), "posterior": "joint"},
    ],
    ids=str,
)
def test_weights_are_repeats_on_large_tables(arguments):
    X, y = table(3000)
    weight, rows = repeats(X, y)
    assert (weight > 0).sum() > 2000  # batches, rows held out, float32
    settings = {"symmetry": None, "n_inducing": 20, "batch_size": 256} | arguments
    one = regressor(**settings).fit(X, y, sample_weight=weight)
    other = regressor(**settings).fit(X[rows], y[rows])
    assert_same(outputs(one, X[:50], y[:50]), outputs(other, X[:50], y[:50]))
    assert one.validation_ == other.validation_


def test_weights_are_repeats_with_known_noise_and_several_targets():
    X, y = table(50)
    weight, rows = repeats(X, y)
    noise = np.where(np.arange(50) % 2, 1.0, 3.0)
    one = regressor().fit(X, y, sample_weight=weight, noise_std=noise)
    other = regressor().fit(X[rows], y[rows], noise_std=noise[rows])
    assert_same(outputs(one, X, y), outputs(other, X, y))
    X, Y = table(50, P=2)
    assert_same(
        outputs(regressor().fit(X, Y, sample_weight=weight), X, Y), outputs(regressor().fit(X[rows], Y[rows]), X, Y)
    )


@pytest.mark.parametrize(("classes", "n"), [(2, 60), (3, 60), (2, 2600)])
def test_weights_are_repeats_for_classes(classes, n):
    X, _ = table(n)
    y = labels(X, classes)
    weight, rows = repeats(X, y)
    settings = {"n_inducing": 15, "symmetry": None, "batch_size": 256}
    one = classifier(**settings).fit(X, y, sample_weight=weight)
    other = classifier(**settings).fit(X[rows], y[rows])
    assert_same(outputs(one, X[:50]), outputs(other, X[:50]))


def test_partial_fit_weights_are_repeats():
    X, y = table(60)
    weight, rows = repeats(X[30:], y[30:])
    one = regressor().fit(X[:30], y[:30]).partial_fit(X[30:], y[30:], sample_weight=weight)
    other = regressor().fit(X[:30], y[:30]).partial_fit(X[30:][rows], y[30:][rows])
    assert_same(outputs(one, X), outputs(other, X))


def test_weights_are_repeats_where_values_are_missing():
    pd = pytest.importorskip("pandas")
    X, y = table(50)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    frame.loc[::5, "b"] = np.nan
    weight, rows = repeats(X, y)
    one = regressor(missing="impute").fit(frame, y, sample_weight=weight)
    other = regressor(missing="impute").fit(frame.iloc[rows], y[rows])
    assert_same(outputs(one, frame), outputs(other, frame))


@pytest.mark.parametrize("n", [60, 2600])
def test_the_order_of_rows_does_not_matter(n):
    X, y = table(n)
    order = np.random.default_rng(1).permutation(n)
    settings = {"batch_size": 256, "n_inducing": 20, "symmetry": None}
    one, other = regressor(**settings).fit(X, y), regressor(**settings).fit(X[order], y[order])
    assert_same(outputs(one, X[:50], y[:50]), outputs(other, X[:50], y[:50]))


def test_fractional_weights_mean_something():
    """Half a row pulls half as much: between none and one."""
    X, y = np.array([[0.0], [1.0], [2.0]]), np.array([0.0, 5.0, 0.0])
    said = []
    for w in (0.01, 0.5, 1.0, 20.0):
        gp = regressor(max_steps=0).fit(X, y, sample_weight=[1, w, 1])
        said.append(gp.predict([[1.0]])[0])
    assert said == sorted(said)
    assert said[-1] > 4


def test_bad_weights():
    X, y = table(20)
    with pytest.raises(ValueError, match=r"non-zero|weight zero"):
        regressor().fit(X, y, sample_weight=np.zeros(20))
    with pytest.raises(ValueError, match=r"[Nn]egative"):
        regressor().fit(X, y, sample_weight=-np.ones(20))
    with pytest.raises(ValueError, match="NaN"):
        regressor().fit(X, y, sample_weight=np.full(20, np.nan))
    with pytest.raises(ValueError, match="shape"):
        regressor().fit(X, y, sample_weight=np.ones(19))
