"""The search for a symmetry: evidence, candidates from the data, words and pictures."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from experiments.suggest import make, right
from harmonicgp.actions import ImageFlip, Longitude, Negation, Permutation, Rotation, Translation
from harmonicgp.diagnostics import suggest_symmetry
from harmonicgp.estimators.candidates import generated, guessed
from harmonicgp.estimators.evidence import invariance_test
from harmonicgp.estimators.inputs import Columns


def cloud(kind, n=1000, seed=0):
    """Inputs that an action maps to themselves, and the action."""
    rng = np.random.default_rng(seed)
    if kind == "negation":
        return rng.gamma(2.0, size=(n, 3)) * rng.choice([-1, 1], (n, 1)), Negation()
    if kind == "rotation":
        angle, radius = 2 * np.pi * (rng.integers(5, size=n) + 0.2 * rng.random(n)) / 5, 1 + rng.random(n)
        return np.column_stack((radius * np.cos(angle), radius * np.sin(angle), rng.gamma(1.0, size=n))), Rotation(
            (0, 1), 5
        )
    if kind == "permutation":
        return rng.gamma(2.0, size=(n, 1)) + rng.gamma(2.0, size=(n, 3)), Permutation([1, 2, 0])
    if kind == "translation":
        return np.column_stack((rng.integers(24, size=n), rng.gamma(1.0, size=n))), Translation(0, 24.0, 8)
    if kind == "longitude":
        return np.column_stack((rng.uniform(-180, 180, n), rng.uniform(20, 60, n))), Longitude(12)
    images = rng.gamma(1.0, size=(n, 4, 4))
    images[:, 0] *= 3
    flip = rng.random(n) < 0.5
    return np.where(flip[:, None, None], images[:, ::-1], images).reshape(n, 16), ImageFlip((4, 4), (0,))


KINDS = ("negation", "rotation", "permutation", "translation", "longitude", "flip")


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
    assert invariance_test(action, torch.from_numpy(X), permutations=99).p_value >= 0.01


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
    hours = np.column_stack((np.arange(240) % 24, np.arange(240) % 12 + 1, np.arange(240) * 0.1, np.arange(240) % 5))
    columns = Columns.find(hours, None, {}, list("abcd"))
    assert {(c.declared.axis, c.declared.period) for c in guessed(columns, hours, None)} == {(0, 24.0), (1, 12.0)}
    named = Columns.find(hours, None, {0: ("periodic", 24.0)}, list("abcd"))
    assert all(c.declared.period == 12.0 for c in guessed(named, hours, None))


@pytest.mark.parametrize("kind", [pytest.param("rotation", marks=pytest.mark.slow), "none"])
def test_the_symmetry_is_named(kind, tmp_path):
    known = make(kind, 1000, 0)
    choice = suggest_symmetry(known.X, known.y, progress=False, **known.arguments)
    assert right(choice.suggested, known.truth), str(choice)
    assert choice.ranked[0]["name"] == choice.suggested or choice.suggested is None
    words = " ".join(choice.sentences)
    assert "moved inputs leave the data" in words
    assert "nats a row" in words
    choice.plot(tmp_path / "symmetries.png")
    assert (tmp_path / "symmetries.png").stat().st_size > 10_000


@pytest.mark.slow
def test_nine_of_ten_are_right():
    kinds = ("negation", "rotation", "exchange", "periodic", "flip", "shift", "none")
    tables = [make(kind, 2500, seed) for seed in (2, 3) for kind in kinds]
    answers = [suggest_symmetry(t.X, t.y, progress=False, **t.arguments).suggested for t in tables]
    good = [right(answer, table.truth) for answer, table in zip(answers, tables, strict=True)]
    assert sum(good) >= 0.9 * len(good), list(zip(answers, [t.truth for t in tables], strict=True))


def test_only_the_actions_that_are_given():
    X, action = cloud("rotation", 400)
    choice = suggest_symmetry(X, np.sin(X[:, 0]) + X[:, 1], [action, Negation([0])], progress=False)
    assert {row["name"] for row in choice.table} == {"one block, columns", "Rotation((0, 1), 5)", "Negation([[0]])"}
    assert choice.suggested == "Rotation((0, 1), 5)"
    with pytest.raises(TypeError, match="actions"):
        suggest_symmetry(X, X[:, 0], ["negation"])


def test_classes_have_symmetries_too():
    X, action = cloud("negation", 400)
    choice = suggest_symmetry(X, X.sum(1) > 0, [action, Negation([0])], classify=True, progress=False)
    assert choice.suggested == "Negation()"
