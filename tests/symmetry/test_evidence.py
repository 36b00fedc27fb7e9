"""The test of inputs against their images: its level, what it sees, and what counts as a place."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from harmonicgp.actions import Negation, Permutation, Rotation
from harmonicgp.symmetry.evidence import (
    _compare,
    _places,
    angles_test,
    by_counts,
    enough_places,
    invariance_test,
    moved_columns,
    one_a_place,
)
from tests.symmetry.common import KINDS, cloud, standardised, stations


@pytest.mark.parametrize("kind", KINDS)
def test_symmetric_inputs_pass_and_others_do_not(kind):
    values = []
    for seed in range(8):
        X, action = cloud(kind, seed=seed)
        values.append(invariance_test(action, torch.from_numpy(X), seed=seed).p_value)
    assert sum(p < 0.05 for p in values) <= 2  # chance: 0.4 of 8
    X, action = cloud(kind)
    if kind in ("translation", "longitude"):
        X[:, 0] = X[:, 0] * 0.4  # a part of the circle
    else:
        X = X + 1.5 * X.std(0) * np.linspace(1, 2, X.shape[1])
    evidence = invariance_test(action, torch.from_numpy(X))
    assert evidence.p_value < 0.01
    assert evidence.distance > 0.05


def test_the_test_is_repeatable_and_takes_few_rows():
    X, action = cloud("negation")
    first, second = (invariance_test(action, torch.from_numpy(X), seed=3) for _ in range(2))
    assert first == second
    assert invariance_test(action, torch.from_numpy(X[:3])).p_value == 1.0
    assert invariance_test(action, torch.from_numpy(X), draws=99).p_value >= 0.01


def test_the_p_value_is_that_of_chance():
    values = []
    for seed in range(100):
        X = torch.randn(200, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        values.append(invariance_test(Negation(), X, draws=99, seed=seed).p_value)
    assert 1 <= sum(p <= 0.1 for p in values) <= 22  # ten expected at most; beyond these once in 20,000
    assert np.mean(values) > 0.35


@pytest.mark.parametrize("n", [400, 2500])
@pytest.mark.parametrize("d", [2, 6])
def test_a_square_has_four_corners(n, d):
    X = torch.from_numpy(np.random.default_rng(1).uniform(-1, 1, (n, d)))
    assert invariance_test(Rotation((0, 1), 12), X).p_value < 0.001
    assert invariance_test(Rotation((0, 1), 4), X).p_value > 0.05
    disc = X[X[:, :2].square().sum(1) < 1]
    assert invariance_test(Rotation((0, 1), 12), disc).p_value > 0.05


@pytest.mark.parametrize("kind", KINDS)
def test_moving_both_rows_changes_no_distance(kind):
    X, action = cloud(kind, 40)
    orbit = action.orbit(torch.from_numpy(X))
    places = _places(action, orbit, (orbit - orbit[:1]).abs().amax((0, 1)) > 0)
    squares = torch.cdist(places, places).square()
    assert torch.allclose(squares, squares[:1].expand_as(squares), atol=1e-9)


def test_one_column_of_many_is_seen():
    rng = np.random.default_rng(0)
    X = torch.from_numpy(rng.normal(size=(1000, 12)))
    assert invariance_test(Negation(), X).p_value > 0.05
    X[:, 3] = torch.from_numpy(rng.gamma(1.0, size=1000) - 1)
    assert invariance_test(Negation(), X).p_value < 0.01
    assert invariance_test(Negation([[0, 3], [1]]), X).p_value < 0.01
    assert invariance_test(Negation([0, 1]), X).p_value > 0.05
    assert invariance_test(Permutation([*range(1, 12), 0]), X).p_value < 0.01


def test_a_product_is_judged_as_its_group():
    rng = np.random.default_rng(0)
    X = torch.from_numpy(np.column_stack((rng.gamma(1.0, size=800), 1000 * rng.normal(size=800))))
    assert invariance_test(Negation([0]) * Negation([1]), X).p_value < 0.01
    angle = torch.from_numpy(2 * np.pi * (rng.integers(4, size=800) + 0.2 * rng.random(800)) / 4)
    plane = torch.stack((angle.cos(), angle.sin()), 1)
    both = Rotation((0, 1), 4) * Rotation((2, 3), 4)
    assert invariance_test(both, torch.cat((plane, 1000 * plane[torch.randperm(800)]), 1)).p_value > 0.05
    skew = torch.from_numpy(rng.gamma(1.0, size=(800, 2)))
    assert invariance_test(both, torch.cat((skew - 1, 1000 * plane), 1)).p_value < 0.01


def test_the_error_of_the_centre_is_no_asymmetry():
    refused = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        x = rng.choice([-1, 1], 400) + 0.01 * rng.normal(size=400)
        X = torch.from_numpy((x - x.mean()) / x.std())[:, None]
        refused += invariance_test(Negation(), X, draws=199, seed=seed, centred=True).p_value < 0.01
    assert refused <= 2
    skewed = torch.from_numpy(np.random.default_rng(0).gamma(2.0, size=(400, 1)))
    assert invariance_test(Negation(), skewed - skewed.mean(0), centred=True).p_value < 0.01


def test_what_the_tests_of_inputs_refuse():
    X = torch.randn(400, 2, dtype=torch.float64)
    assert angles_test(X, [1]) == [1.0]
    for call, words in (
        (lambda: angles_test(X, [0]), "order"),
        (lambda: angles_test(torch.zeros(400, 3), [2]), "plane"),
        (lambda: invariance_test(Rotation((0, 5), 3), X), "at least 6"),
        (lambda: invariance_test(Permutation([1, 0]), torch.zeros(9, 3)), "2 coordinates"),
        (lambda: invariance_test(Negation(), X, draws=0), "draws"),
        (lambda: invariance_test(Negation(), X.reshape(2, 200, 2)), "rows"),
        (lambda: angles_test(X * torch.nan, [2]), "finite|nan|NaN"),
    ):
        with pytest.raises(ValueError, match=words):
            call()
    with pytest.raises(TypeError, match="action"):
        invariance_test("x", X)


@pytest.mark.parametrize("kind", ["normal", "heavy", "lumps"])
def test_the_centre_of_a_negation_is_no_asymmetry(kind):
    refused = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X = {
            "normal": lambda rng: rng.normal(size=(400, 12)),
            "heavy": lambda rng: rng.standard_t(2, size=(400, 2)),
            "lumps": lambda rng: rng.choice([-1, 1], size=(400, 1)) + 0.01 * rng.normal(size=(400, 1)),
        }[kind](rng)
        X = torch.from_numpy((X - X.mean(0)) / X.std(0))
        refused += invariance_test(Negation(), X, 400, seed=seed, centred=True).p_value < 0.01
    assert refused <= 1  # of twelve, at a level of 1 %: two or more are one chance in 160


def test_many_skewed_columns_are_seen():
    X = np.random.default_rng(1).exponential(size=(1000, 200))
    X = torch.from_numpy((X - X.mean(0)) / X.std(0))
    assert invariance_test(Negation(), X, 500, centred=True).p_value < 0.01


@pytest.mark.parametrize("size", [1e-300, 1e-160, 1e155, 1e300])
def test_values_that_would_overflow_are_refused(size):
    X = torch.randn(100, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).exp() * size
    with pytest.raises(ValueError, match="scale its columns"):
        invariance_test(Rotation((0, 1), 4), X)


@pytest.mark.parametrize("action", [Negation([[0, 1]]), Negation([[0], [1]]), Rotation((0, 1), 6)], ids=repr)
def test_stations_are_not_refused_for_where_they_happen_to_stand(action):
    refused = 0
    for seed in range(20):
        X = standardised(stations(np.random.default_rng(seed)))
        refused += invariance_test(action, X, 300, 199, seed, centred=True).p_value < 0.01
    assert refused <= 1


def test_places_that_are_not_symmetric_are_refused():
    rng = np.random.default_rng(0)
    X = standardised(np.repeat(rng.exponential(size=(300, 2)), 5, 0))
    assert invariance_test(Negation(), X, centred=True).p_value < 0.01


def test_what_is_a_place():
    rng = np.random.default_rng(0)
    X = torch.from_numpy(stations(rng))
    where = torch.tensor([True, True, False, False])
    once = one_a_place(X, where)
    assert len(once) == 60
    assert len(torch.unique(once[:, :2], dim=0)) == 60
    assert one_a_place(X) is X  # all columns together hardly ever recur
    for values in (
        rng.poisson(2.0, size=(2000, 1)),  # counts
        rng.integers(24, size=(2000, 2)),  # hours
        0.1 * rng.integers(40, size=(2000, 1)),  # on a lattice
        np.where(rng.random((2000, 1)) < 0.5, 3.0, rng.normal(size=(2000, 1))),  # one value is common
        np.sort(rng.lognormal(size=40))[rng.choice(40, 2000, p=np.arange(40, 0, -1) ** 2 / 22140)][:, None],  # prices
        rng.normal(size=(500, 3)),
        np.ones((50, 1)),
        np.empty((0, 2)),
    ):
        rows = torch.from_numpy(np.asarray(values, dtype=float))
        assert one_a_place(rows) is rows


def test_twenty_to_a_hundred_places_do_not_tell():
    rng = np.random.default_rng(0)
    for places, enough in ((15, True), (60, False), (150, True)):
        X = torch.from_numpy(np.repeat(rng.exponential(size=(places, 2)), 12, 0))
        assert enough_places(Negation(), X) is enough  # fifteen are levels


def test_which_columns_move_does_not_hang_on_the_first_rows():
    rng = np.random.default_rng(0)
    X = np.column_stack((np.repeat(rng.normal(size=150), 8), rng.exponential(size=1200) - 1))
    X[:8, 1] = 0.0
    first = invariance_test(Negation(), torch.from_numpy(X), 300).p_value
    assert first < 0.01
    assert invariance_test(Negation(), torch.from_numpy(X[rng.permutation(1200)]), 300).p_value < 0.01


# References ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "action", [Negation(), Negation([[0], [1]]), Rotation((0, 1), 3), Rotation((0, 1), 4)], ids=repr
)
def test_the_discrepancy_is_the_mean_over_pairs_of_moved_rows(action):
    """Less that over all their images: once for the rows, and once for each draw of elements, pair by pair."""
    rng = np.random.default_rng(0)
    X = torch.from_numpy(rng.exponential(size=(9, 2)))
    orbit = action.images(X)
    order, n, draws = action.group.order, len(X), 19
    elements = torch.from_numpy(rng.integers(order, size=(draws, n)))
    squares = torch.cdist(X, X).square()
    median = float(squares[squares > 0].median())

    def mean_kernel(one, other):
        d = (one - other).square().sum(-1) / median
        return float(sum((-0.5 * d / width**2).exp() for width in (2.0, 1.0, 0.5, 0.25)) / 4)

    everywhere = [[np.mean([mean_kernel(X[i], image[j]) for image in orbit]) for j in range(n)] for i in range(n)]

    def discrepancy(chosen):
        rows = orbit[chosen, torch.arange(n)]
        return np.mean([[mean_kernel(rows[i], rows[j]) for j in range(n)] for i in range(n)]) - np.mean(everywhere)

    first = discrepancy(torch.zeros(n, dtype=torch.long))
    others = np.array([discrepancy(chosen) for chosen in elements])
    found = _compare(action.group, orbit, elements)
    assert found.distance == pytest.approx(np.sqrt(max(first - others.mean(), 0.0)), rel=1e-9)
    assert found.p_value == (1 + (others >= first - 1e-12).sum()) / (1 + draws)


def test_counted_rows_are_those_before_they_were_merged():
    counts = np.array([2.0, 1.0, 3.0])
    np.testing.assert_array_equal(by_counts(3, counts, 10, 0), [0, 0, 1, 2, 2, 2])
    np.testing.assert_array_equal(by_counts(3, None, 10, 0), [0, 1, 2])
    some = by_counts(1000, None, 10, 0)
    assert len(set(some)) == 10
    drawn = by_counts(3, 1e6 * counts, 60_000, 0)
    np.testing.assert_allclose(np.bincount(drawn) / 10_000, counts, atol=0.1)
    assert len(by_counts(3, 1.5 * counts, 100, 0)) == 9  # no whole numbers: as many draws


def test_which_columns_move():
    X = torch.randn(100, 4, dtype=torch.float64)
    for action, moved in (
        (Negation([[1], [3]]), [1, 3]),
        (Rotation((0, 2), 5), [0, 2]),
        (Permutation([1, 0, 2, 3]), [0, 1]),
        (Negation(), [0, 1, 2, 3]),
    ):
        assert moved_columns(action, X).nonzero()[:, 0].tolist() == moved
    X[:, 1] = 0.0  # nothing to negate
    assert moved_columns(Negation([[1], [3]]), X).nonzero()[:, 0].tolist() == [3]


def test_angles_tell_the_orders_of_a_polygon():
    """A hexagon has two-, three- and six-fold symmetry and no other; where and how large it is does not matter."""
    rng = np.random.default_rng(0)
    angle = 2 * np.pi * (rng.integers(6, size=3000) + 0.3 * rng.random(3000)) / 6
    radius = 1 + rng.random(3000)
    X = torch.from_numpy(np.column_stack((radius * np.cos(angle), radius * np.sin(angle))))
    orders = [2, 3, 4, 5, 6, 8, 12]
    values = angles_test(X, orders)
    assert [order for order, p in zip(orders, values, strict=True) if p > 0.05] == [2, 3, 6]
    assert angles_test(1000 * X + 5, orders) == pytest.approx(values, rel=1e-6, abs=1e-12)
    assert angles_test(X[:299], orders) == [1.0] * 7  # too few to tell
