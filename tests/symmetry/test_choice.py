"""What a search found: ranks, advice and arguments."""

from __future__ import annotations

import numpy as np
import pytest

from harmonicgp import HarmonicGPRegressor
from harmonicgp.actions import Negation, Permutation, PrincipalNegation, Rotation, Translation
from harmonicgp.diagnostics import suggest_symmetry
from harmonicgp.symmetry.candidates import Candidate
from harmonicgp.symmetry.choice import ALPHA, MARGIN, SymmetryChoice, renumbered, with_names
from harmonicgp.tables.inputs import Columns
from tests.symmetry.common import cloud, row


def test_rounds_are_not_mixed():
    table = [
        row("one block", 1, 1, 1.0), row("lost", 2, 1, 0.5, 0.4), row("won", 2, 1, 1.2, 0.4), row("far", 8, 1, 1.19, 0.001),
        row("near", 4, 1, 1.197, 0.3), row("one block", 1, 2, 2.0), row("won", 2, 2, 1.98, 0.4),
        row("odd", 2, 1, None, failure="no"),
    ]  # fmt: skip
    choice = SymmetryChoice(None, None, table)
    assert [each["name"] for each in choice.ranked] == ["near", "won", "lost", "one block", "far"]
    by_name = {each["name"]: each for each in choice.ranked}
    assert by_name["lost"]["gain"] == pytest.approx(-0.5)
    assert by_name["won"]["gain"] == pytest.approx(-0.02)
    assert by_name["lost"]["plain_residual"] == 0.1  # of its own round
    assert by_name["won"]["plain_residual"] == 0.05
    assert choice.suggested == "near"  # ties with the best, and has more blocks
    assert "odd: could not be fitted. no" in choice.sentences
    assert "have this symmetry" in choice.advice
    assert "(round 2 of 2)" in next(sentence for sentence in choice.sentences if sentence.startswith("won"))


@pytest.mark.usefixtures("brief")
def test_repeats_stand_in_the_way():
    rng = np.random.default_rng(0)
    Z = rng.gamma(2, size=(350, 2)) * rng.choice([-1, 1], (350, 1))
    found = suggest_symmetry(np.column_stack((Z, 2 * Z[:, 0] + 1)), np.sin(Z[:, 0]) + Z[:, 1], progress=False)
    assert found.suggested is not None
    assert found.suggested_action is None
    assert "leave out column 2" in found.advice or "does not pay" in found.advice


@pytest.mark.usefixtures("brief")
def test_latitudes_stand_where_they_are_read():
    rng = np.random.default_rng(0)
    X = np.column_stack((rng.uniform(-60, 60, 300), rng.uniform(-180, 180, 300)))
    y = np.sin(np.radians(X[:, 0]))
    for order, there in (((0, 1), False), ((1, 0), True)):
        kinds = {order.index(0): "latitude", order.index(1): "longitude"}
        found = suggest_symmetry(X[:, order], y, columns=kinds, progress=False)
        assert found.suggested.startswith("Longitude(")
        assert (found.suggested_action is not None) is there
        assert there or "latitude right after the longitude" in found.advice or "does not pay" in found.advice


@pytest.mark.usefixtures("brief")
def test_gains_that_may_be_the_kernels_say_so():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    found = suggest_symmetry(X, X[:, 0] * X[:, 1], [Negation(), Rotation((0, 1), 4)], progress=False)
    for each in found.table:
        each["bound"] = float(each["blocks"])
    words = {sentence.partition(":")[0]: sentence for sentence in found.sentences}
    turned = next(sentence for name, sentence in words.items() if name.startswith("Rotation"))
    negated = next(sentence for name, sentence in words.items() if name.startswith("Negation"))
    assert "share a lengthscale" in turned
    assert "lengthscale" not in negated
    for each in found.table:
        each["bound"] = -float(each["blocks"])
    assert not any("lengthscale" in sentence for sentence in found.sentences)  # of a loss nothing is said


@pytest.mark.usefixtures("brief")
def test_advice_names_the_warp_of_its_bound():
    X, action = cloud("rotation", 400)
    found = suggest_symmetry(X, X[:, 0], [action], progress=False)
    found.instead = ""
    for each in found.table:
        each |= {"bound": float(each["blocks"])}
    assert "symmetry=Rotation((0, 1), 5))" in found.advice
    for each in found.table:
        each["warp"] = True
    assert "symmetry=Rotation((0, 1), 5), warp='quantile')" in found.advice
    assert found.arguments == {"symmetry": found.suggested_action, "warp": "quantile"}
    assert found.pays


@pytest.mark.usefixtures("brief")
def test_arguments_are_all_that_an_estimator_needs():
    rng = np.random.default_rng(0)
    X = np.column_stack((rng.uniform(0, 24, 400), rng.gamma(1.0, size=400), rng.uniform(0, 10, 400)))
    y = np.sin(X[:, 0] * np.pi / 12) + np.cos(X[:, 2] * np.pi / 5) + 0.1 * rng.normal(size=400)
    mine = {2: ("periodic", 10.0)}
    found = suggest_symmetry(X, y, [Translation(0, 24.0, 6)], columns=mine, progress=False)
    bounds = {"one block, columns": 0.0, "one block, column 0 of period 24": 0.3}
    for each in found.table:
        each["bound"] = bounds.get(each["name"], 0.5)
    both = {2: ("periodic", 10.0), 0: ("periodic", 24.0)}
    assert found.arguments == {"columns": both}  # so few rows need no symmetry
    assert "column 0 as periodic gains 0.300 nats a row by itself" in found.advice
    assert "needs no symmetry" in found.advice
    found.instead = ""
    assert found.arguments == {"symmetry": found.suggested_action, "columns": both}
    assert found.ranked[0]["gain"] == pytest.approx(0.2)  # against the kernel that has the period too
    gp = HarmonicGPRegressor(**found.arguments, max_steps=2, n_inducing=10, progress=False).fit(X, y)
    assert repr(gp.symmetry_.action) == "Translation(axis=0, period=24.0, order=6)"
    for bound, verdict in ((0.303, "makes no difference"), (0.2, "does not pay")):
        for each in found.table:
            each["bound"] = bounds.get(each["name"], bound)
        assert verdict in found.advice
        assert found.arguments == {"columns": both}  # the period still gains
    for each in found.table:
        each["bound"] = 0.0
    assert found.arguments == {"columns": mine}
    none = suggest_symmetry(X[:, 1:2], y, [Negation()], progress=False)
    assert (none.arguments, none.pays) == ({}, False)


@pytest.mark.usefixtures("brief")
def test_a_search_cut_short_says_so():
    rng = np.random.default_rng(0)
    X = rng.exponential(size=(400, 3)) ** [1.0, 2.0, 3.0]
    found = suggest_symmetry(X, X.sum(1), progress=False, time_budget=1e-3)
    assert found.cut
    found.table = [row("one block", 1, 1, 0.0), row("far", 2, 1, 0.5, 0.002)]
    assert found.advice == "No symmetry of the inputs was found in the time that there was."
    assert not suggest_symmetry(X, X.sum(1), [Negation()], progress=False).cut


def test_the_name_of_a_picture_says_what_kind_it_is():
    with pytest.raises(ValueError, match=r"a picture is a \.png"):
        SymmetryChoice(None, None, [row("one block", 1, 1, 1.0)]).plot("picture")


def tried(candidate, columns, names, name="found"):
    """A choice whose one symmetry is this candidate's."""
    table = [row("one block", 1, 1, 1.0), row(name, candidate.blocks, 1, 1.5, 0.4)]
    return SymmetryChoice(
        Candidate(), None, table, tried={name: candidate}, columns=columns, encoded_names=names, cut=False
    )


@pytest.mark.parametrize(
    ("candidate", "expected"),
    [
        (Candidate("raw", 2), Negation([[0, 4], [2]])),  # plain columns by the table's numbers, dealt in turn
        (Candidate("principal", 2), PrincipalNegation(2)),
        (Candidate(declared=Rotation((1, 2), 5)), Rotation((0, 2), 5)),
        (Candidate(declared=Translation(0, 24.0, 6)), Translation(3, 24.0, 6)),
    ],
    ids=["negation", "principal axes", "rotation", "shift"],
)
def test_what_is_suggested_is_on_the_columns_of_the_table(candidate, expected):
    columns = Columns((3, 0, 2, 4), {3: ("periodic", 24.0)})
    choice = tried(candidate, columns, list("abcde"))
    assert choice.suggested == "found"
    assert repr(choice.suggested_action) == repr(expected)
    assert choice.pays
    assert repr(choice.arguments) == repr({"symmetry": expected})


def test_arguments_name_columns_as_the_user_does():
    candidate = Candidate(declared=Translation(0, 24.0, 6), periods=((0, 24.0),))
    for names, key in ((["hour", "size"], "hour"), (["column 0", "column 1"], 0)):
        choice = tried(candidate, Columns((0, 1)), names)
        assert choice.arguments["columns"] == {key: ("periodic", 24.0)}
        assert f"columns={{{key!r}: ('periodic', 24.0)}}" in choice.advice


def test_a_suggestion_pays_beyond_a_tie():
    for gain, pays in ((MARGIN + 1e-6, True), (MARGIN - 1e-6, False), (-1.0, False)):
        table = [row("one block", 1, 1, 0.0), row("found", 2, 1, gain, 0.4)]
        assert SymmetryChoice(Candidate(), None, table).pays is pays
    assert not SymmetryChoice(Candidate(), None, [row("one block", 1, 1, 0.0), row("far", 2, 1, 1.0, ALPHA / 2)]).pays
    assert SymmetryChoice(Candidate(), None, [row("found", 2, 1, 0.1, 0.4)]).pays  # nothing to compare it with


def test_moved_columns_are_named():
    names = list("abcdefgh")
    assert with_names("turn", Rotation((1, 3), 4), names) == "turn of b, d"
    assert with_names("shift", Translation(0, 24.0, 6), names) == "shift of a"
    assert with_names("all", Negation(), names) == "all"  # eight are too many
    assert with_names("all", Negation(), names[:6]) == "all of a, b, c, d, e, f"
    assert with_names("wrong", Rotation((1, 30), 4), names) == "wrong"


def test_actions_are_renumbered_only_where_columns_are():
    action = Rotation((0, 1), 4)
    assert renumbered(action, [0, 1, 2], 3) is action
    assert repr(renumbered(action, [2, 0], 3)) == repr(Rotation((2, 0), 4))
    assert repr(renumbered(Permutation([1, 0]), [0, 1], 3)) == repr(Permutation([1, 0, 2]))  # one more column stays


def test_the_printed_table_has_every_trial():
    table = [
        row("one block", 1, 1, 1.0, chosen=True),
        row("found", 2, 1, None, 0.4, failure="no"),
        row("found", 2, 2, 1.25, 0.004, finish="joint"),
    ]
    title, head, *lines = str(SymmetryChoice(Candidate(), None, table, "as it was")).splitlines()
    assert title == "one block, columns: as it was"
    assert head.split() == ["candidate", "warp", "posterior", "round", "points", "bound/row", "inputs"]
    assert lines[0].split() == ["*", "one", "block", "no", "block", "1", "1", "x", "9", "1.0000"]
    assert lines[1].split() == ["found", "no", "block", "1", "2", "x", "9", "failed", "p=0.4"]
    assert lines[2].split() == ["found", "no", "block*", "2", "2", "x", "9", "1.2500", "p=0.004"]
    assert [line.strip()[:6] for line in lines[3:]] == ["(block", "(the b"]
