"""What a search tries: from the kinds of columns, from the data, and from the user."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from harmonicgp.actions import ImageFlip, ImageShift, Longitude, Permutation, PrincipalNegation, Rotation, Translation
from harmonicgp.symmetry.candidates import MOST_EXCHANGED, Candidate, candidates, exchanges, generated, guessed, offered
from harmonicgp.tables.inputs import Columns, Inputs
from tests.symmetry.common import cloud, stations


def test_candidates_come_from_the_data():
    X, _ = cloud("rotation", 3000)
    columns = Columns.find(X, None, {}, ["a", "b", "c"])
    found = [candidate.declared for candidate in generated(columns, X, None, None, 0)]
    assert any(isinstance(a, Rotation) and a.plane == (0, 1) and a.order == 5 for a in found)
    X, _ = cloud("permutation", 3000)
    columns = Columns.find(X, None, {}, ["a", "b", "c"])
    found = [candidate.declared for candidate in generated(columns, X, None, None, 0)]
    assert any(isinstance(a, Permutation) and a.group.order == 3 for a in found)
    skewed = np.random.default_rng(0).gamma([0.5, 2.0, 9.0], size=(3000, 3))
    assert not list(generated(Columns.find(skewed, None, {}, list("abc")), skewed, None, None, 0))
    hours = np.column_stack((np.arange(240) % 24, np.arange(240) % 12 + 1, np.arange(240) * 0.3, np.arange(240) % 5))
    columns = Columns.find(hours, None, {}, list("abcd"))
    assert {c.periods[0] for c in guessed(columns, hours, None)} == {(0, 24.0), (1, 12.0)}
    rng = np.random.default_rng(0)
    angles = np.column_stack((rng.uniform(-180, 180, 999), rng.uniform(0, 2 * np.pi, 999), rng.uniform(0, 200, 999)))
    columns = Columns.find(angles, None, {}, list("abc"))
    assert {c.periods[0] for c in guessed(columns, angles, None)} == {
        (0, 360.0),
        (1, 2 * np.pi),
    }
    named = Columns.find(hours, None, {0: ("periodic", 24.0)}, list("abcd"))
    assert all(c.periods[0][1] == 12.0 for c in guessed(named, hours, None))


def test_weeks_have_seven_days():
    days = np.random.default_rng(0).integers(7, size=(500, 1)).astype(float)
    tried = [c.declared for c in guessed(Columns.find(days, None, {}, ["day"]), days, None)]
    assert tried[0] is None  # one block that knows the period
    assert [shift.order for shift in tried[1:]] == [7]
    named = Columns.find(days, None, {0: ("periodic", 7.0)}, ["day"])
    assert {c.declared.order for c in candidates(named, None, None) if c.declared is not None} == {7}


def test_sixty_stations_do_not_tell_a_square_from_a_disc():
    for places, some in ((60, False), (600, True)):
        X = stations(np.random.default_rng(1), places, 4)[:, :2]
        found = list(generated(Columns.find(X, None, {}, ["u", "v"]), X, None, None, 0))
        assert any(isinstance(c.declared, Rotation) for c in found) is some


def shapes(found):
    return [(c.axes, c.ways, c.warp) if c.declared is None else repr(c.declared) for c in found]


def test_negations_of_columns_and_of_principal_axes():
    X = np.random.default_rng(0).normal(size=(200, 4))
    columns = Columns.find(X, None, {}, list("abcd"))
    expected = [(axes, ways, False) for axes in ("raw", "principal") for ways in range(4)]
    assert shapes(candidates(columns, None, None)) == expected
    assert shapes(candidates(columns, True, None)) == expected  # no column is skewed
    two = Columns.find(X[:, :2], None, {}, list("ab"))
    assert shapes(candidates(two, None, None)) == [(axes, n, False) for axes in ("raw", "principal") for n in range(3)]
    one = Columns.find(X[:, :1], None, {}, ["a"])
    assert shapes(candidates(one, None, None)) == [("raw", 0, False), ("raw", 1, False)]  # no other axes
    assert {c.posterior for c in candidates(columns, None, "joint")} == {"joint"}


def test_skewed_columns_are_tried_with_and_without_a_warp():
    X = np.random.default_rng(0).lognormal(size=(300, 1))
    columns = Columns.find(X, None, {}, ["a"])
    for warp, expected in ((None, [False, False, True, True]), (True, [True, True]), (False, [False, False])):
        assert [c.warp for c in candidates(columns, warp, None)] == expected


def test_kinds_of_columns_have_shifts_by_the_models_numbers():
    rng = np.random.default_rng(0)
    X = np.column_stack(
        (rng.normal(size=99), rng.uniform(0, 24, 99), rng.uniform(-90, 90, 99), rng.uniform(0, 360, 99))
    )
    columns = Columns.find(X, None, {1: ("periodic", 24.0), 2: "latitude", 3: "longitude"}, list("abcd"))
    assert columns.used == (3, 2, 1, 0)
    found = [repr(c.declared) for c in candidates(columns, None, None) if c.declared is not None]
    wanted = [Longitude(12, axis=0), Longitude(24, axis=0), Translation(2, 24.0, 6), Translation(2, 24.0, 12)]
    assert found == list(map(repr, wanted))


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((28, 28), [ImageFlip((28, 28), (0, 1)), ImageShift((28, 28), 4)]),
        ((6, 4), [ImageFlip((6, 4), (0, 1)), ImageShift((6, 4), 2)]),
        ((1, 3), [ImageFlip((1, 3), (1,))]),
        ((64, 64), [ImageFlip((64, 64), (0, 1))]),  # 256 or 1,024 shifts are too many
        ((1, 1), []),
    ],
    ids=str,
)
def test_images_are_flipped_and_shifted(size, expected):
    X = np.random.default_rng(0).random((5, size[0] * size[1]))
    columns = Columns.find(X, None, {}, [f"p{j}" for j in range(X.shape[1])], size)
    first, *found = candidates(columns, None, None)
    assert (first.blocks, first.declared) == (1, None)
    assert [repr(c.declared) for c in found] == list(map(repr, expected))
    assert not list(generated(columns, X, None, None, 0))


def test_candidates_move_plain_columns_alone():
    """And have as many blocks as their group has frequencies, one of each conjugate pair."""
    rng = np.random.default_rng(0)
    X = np.column_stack((rng.normal(size=(50, 3)), rng.uniform(0, 7, 50), rng.normal(size=50)))
    columns = Columns.find(X, None, {3: ("periodic", 7.0)}, list("abcde"))
    inputs = Inputs.fit(X, None, columns)
    rows = torch.from_numpy(inputs.transform(X))
    for candidate in candidates(columns, None, None):
        action = candidate.action(inputs)
        if action is None:
            assert candidate.blocks == 1
            continue
        assert candidate.blocks == action.group.n_blocks("complex")
        moved = ((action.orbit(rows) - rows).abs().amax((0, 1)) > 0).tolist()
        hour = columns.used.index(3)
        assert moved == [(j == hour) is (candidate.declared is not None) for j in range(5)], candidate.name


def test_names_of_candidates():
    assert Candidate().name == "one block, columns"
    assert Candidate("principal", 1).name == "negation in 1 way, principal axes"
    assert Candidate("raw", 3).name == "negation in 3 ways, columns"
    assert Candidate(declared=Rotation((0, 1), 4)).name == "Rotation((0, 1), 4)"
    assert Candidate(declared=Rotation((0, 1), 4), shown="turn").name == "turn"
    assert Candidate(shown="a") == Candidate(shown="b")  # names tell nothing apart


@pytest.mark.parametrize(
    ("values", "period"),
    [
        (np.arange(1, 8), 7.0),
        (np.arange(24), 24.0),
        (np.arange(1, 367), 365.25),
        (np.arange(2, 14), None),  # twelve numbers, but no months
        (np.arange(13), None),
        (np.array([0, 23]), None),  # two of 24 hours
        (np.linspace(0, 24, 500), 24.0),
        (np.linspace(-np.pi, np.pi, 500), 2 * np.pi),
        (np.linspace(-180, 180, 500) + 0.1, None),  # beyond the end
        (np.linspace(3, 21, 500), None),
        (np.concatenate([np.linspace(0, 5, 300), np.linspace(20, 24, 300)]), None),  # not all around
    ],
)
def test_periods_are_guessed_from_usual_ranges(values, period):
    X = np.tile(values, 3)[:, None].astype(float)
    found = list(guessed(Columns.find(X, None, {}, ["a"]), X, None))
    assert {c.periods for c in found} == ({((0, period),)} if period else set())
    if period:
        assert found[0].declared is None  # the kernel's gain is not the symmetry's
        assert all(c.declared.periods == {0: period} for c in found[1:])
        assert found[0].columns(Columns((0,))).kinds == {0: ("periodic", period)}


def test_columns_that_are_alike_go_round_in_one_cycle():
    rng = np.random.default_rng(0)
    rows = torch.from_numpy(np.column_stack((rng.gamma(1.0, size=(800, 2)), rng.normal(size=(800, 3)))))
    rows = rows[:, [0, 2, 1, 3, 4]]
    pair, triple = Permutation([2, 1, 0, 3, 4]), Permutation([0, 3, 2, 4, 1])
    assert list(map(repr, exchanges(rows, [0, 1, 2, 3, 4], 0))) == [repr(pair), repr(triple)]
    assert list(map(repr, exchanges(rows, [0, 1, 2], 0))) == [repr(pair)]  # the others stay
    values = rng.normal(size=500)
    many = torch.from_numpy(np.column_stack([rng.permutation(values) for _ in range(15)]))  # all alike
    assert [swap.group.order for swap in exchanges(many, list(range(15)), 0)] == [MOST_EXCHANGED, 3]


def test_offers_keep_what_the_user_said():
    columns = Columns((0, 1), {1: ("periodic", 24.0)})
    names = ["a", "b"]
    turn = offered(Rotation((0, 1), 3), columns, names, True, "joint")
    assert (turn.declared.order, turn.warp, turn.posterior, turn.periods) == (3, True, "joint", ())
    assert offered(Translation(1, 24.0, 6), columns, names, False, "block").periods == ()  # declared already
    assert offered(Translation(0, 12.0, 6), columns, names, False, "block").periods == ((0, 12.0),)
    ways = offered(PrincipalNegation(2), columns, names, False, "block")
    assert (ways.axes, ways.ways, ways.declared) == ("principal", 2, None)
    with pytest.raises(ValueError, match=r"period of 12, but b is declared \('periodic', 24.0\)"):
        offered(Translation(1, 12.0, 6), columns, names, False, "block")
