"""What a search tries: from the kinds of columns, from the data, and from the user."""

from __future__ import annotations

import numpy as np

from harmonicgp.actions import Permutation, Rotation
from harmonicgp.symmetry.candidates import candidates, generated, guessed
from harmonicgp.tables.inputs import Columns
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
