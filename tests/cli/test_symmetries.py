"""Symmetries on the command line: what is read, what is refused, and from a suggestion to a fit."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harmonicgp import load_model
from harmonicgp.actions import (
    ImageFlip,
    ImageShift,
    Longitude,
    Negation,
    Permutation,
    PrincipalNegation,
    Rotation,
    Translation,
)
from harmonicgp.cli.failures import UsageError
from harmonicgp.cli.symmetries import LARGEST, as_options, parse_symmetry
from harmonicgp.symmetry import search
from tests.cli.common import complaint, run

ACTIONS = [
    Negation(), Negation([[0, 2], [1]]), PrincipalNegation(3), Rotation((2, 0), 5), Longitude(24), Longitude(12, axis=1),
    Translation(axis=1, period=0.1 + 0.2, order=7, start=-1e-9), Permutation([1, 2, 0, 3]), ImageFlip((4, 6), (1,)),
    ImageFlip((4, 6, 3)), ImageShift((4, 6), 2), ImageShift((4, 6), (2, 3)),
    Negation([[3]]) * Rotation((0, 1), 4) * Translation(axis=2, period=24.0, order=6),
]  # fmt: skip


@pytest.mark.parametrize("action", ACTIONS, ids=repr)
def test_an_action_is_read_as_it_prints(action):
    again = parse_symmetry(repr(action))
    assert type(again) is type(action)
    assert repr(again) == repr(action)
    assert again.group == action.group


def test_words():
    assert parse_symmetry("auto") == "auto"
    assert parse_symmetry(" None ") is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "takes auto, none or an action with numbers"),
        ("negation", "takes auto, none or an action with numbers"),
        ("Negation", "takes auto, none or an action with numbers"),
        ("Negaton([0])", "did you mean 'Negation'"),
        ("Orthogonal([[1]])", "takes auto, none or an action: ImageFlip"),
        ("__import__('os').system('true')", "takes auto, none or an action"),
        ("Negation(open('x'))", "takes auto, none or an action with numbers"),
        ("Negation(*[[0]])", "takes auto, none or an action with numbers"),
        ("Rotation(**{'plane': (0, 1), 'order': 4})", "takes auto, none or an action with numbers"),
        ("Rotation((0, 1))", "got other arguments"),
        ("Rotation((0, 1), 4, speed=2)", "got other arguments"),
        ("Rotation((0, 0), 4)", "--symmetry Rotation"),
        ("Rotation((0, 1), 2.5)", "--symmetry Rotation"),
        ("Rotation((0, 1), 10**9)", "takes auto, none or an action with numbers"),
        (f"Rotation((0, 1), {LARGEST + 1})", "has 4,097 elements"),
        ("PrincipalNegation(1000000000000)", "use fewer; three make eight"),
        ("PrincipalNegation(40)", "has 1,099,511,627,776 elements"),
        ("Translation(axis=0, period=1e999, order=6)", "the period must be a positive number"),
        ("Negation([[0]]) + Negation([[1]])", "takes auto, none or an action with numbers"),
        ("Negation([[0]]) * Negation([[0]])", "--symmetry Negation"),
        ("Negation([[0]]) * 3", "takes auto, none or an action with numbers"),
        ("Negation(" + "[" * 5000 + "]" * 5000 + ")", "takes auto, none or an action with numbers"),
        ("Negation(" + "0," * 20_000 + ")", "characters long"),
        ("Rotation((0, 1), 4096) * Rotation((2, 3), 4096)", "has 16,777,216 elements"),
        ("Rotation((0, 1), 100000) * Rotation((2, 3), 100000)", "has 10,000,000,000 elements"),
        (" * ".join(f"Negation([[{i}]])" for i in range(70)), "elements"),
        ("Negation([9999999999]) * Negation([0])", "acts on 10,000,000,000 columns"),
        ("Rotation((0, 1), 1)", "moves nothing"),
        ("Negation([True])", "takes auto, none or an action with numbers"),
        ("Negation(b'ab')", "takes auto, none or an action with numbers"),
        ("Permutation({1, 0})", "takes auto, none or an action with numbers"),
        ("Negation(subsets=[0], subsets=[1])", "takes auto, none or an action with numbers"),
        ("Longitude(12, axis=4) #2", "takes auto, none or an action with numbers"),
        ("Rotation((0, 1), 4)\x00", "takes auto, none or an action with numbers"),
    ],
)
def test_what_is_no_action_is_refused(text, words):
    with pytest.raises(UsageError) as caught:
        parse_symmetry(text)
    assert words in str(caught.value)


@given(st.text(max_size=40) | st.from_regex(r"(Negation|Rotation|Permutation|ImageFlip)\([\[\]\(\),0-9\- ]{0,20}\)"))
def test_no_text_does_anything_else(text):
    try:
        found = parse_symmetry(text)
    except UsageError:
        return
    assert found in ("auto", None) or found.group.order <= LARGEST


def test_options_are_quoted_and_nothing_is_half_said():
    said = as_options({"symmetry": Negation([[0]]), "columns": {"my hour": ("periodic", 24.0)}}, [])
    assert said == "--symmetry 'Negation([[0]])' --columns 'my hour=periodic:24'"
    assert as_options({"columns": {" hour": ("periodic", 7.0)}}, []) == ""
    assert as_options({"columns": {"a,b": ("periodic", 7.0)}}, []) == ""
    assert as_options({"symmetry": ImageFlip((2, 2)), "columns": ("image", (2, 2))}, []) == ""
    assert as_options({}, []) == ""


def five_fold(n: int = 2400) -> pd.DataFrame:
    """A plane of five-fold symmetry and an hour, rows enough for a fit to search."""
    rng = np.random.default_rng(1)
    angle, radius = 2 * np.pi * (rng.integers(5, size=n) + 0.2 * rng.random(n)) / 5, 1 + rng.random(n)
    table = pd.DataFrame({"u": radius * np.cos(angle), "v": radius * np.sin(angle), "size": rng.gamma(2.0, size=n)})
    table["y"] = np.cos(5 * angle) * radius + 0.3 * table["size"] + 0.05 * rng.normal(size=n)
    return table


def test_from_a_suggestion_to_a_fit(tmp_path, monkeypatch):
    monkeypatch.setattr(search, "ROUNDS", search.ROUNDS[:1])
    path, model = tmp_path / "a.csv", tmp_path / "a.hgp"
    five_fold().to_csv(path, index=False)
    text = " ".join(run("suggest", path, "-t", "y").stdout.split())
    assert "suggested Rotation((0, 1), 5) of u, v" in text
    if "does not pay" not in text and "makes no difference" not in text:
        assert "to use it harmonicgp fit ... --symmetry 'Rotation((0, 1), 5)'" in text
    fit = ["fit", path, "-t", "y", "-o", model, "--max-steps", "3", "--n-inducing", "20"]
    text = " ".join(run(*fit, "--symmetry", "Rotation((0, 1), 5)", "--warp", "quantile").stdout.split())
    assert "Rotation((0, 1), 5) of u, v: as asked; skewed columns transformed to normal" in text
    gp = load_model(model)
    assert repr(gp.symmetry_.action) == "Rotation((0, 1), 5)"
    assert gp.symmetry_.candidate.warp
    assert np.isfinite(gp.predict(five_fold(20)[["u", "v", "size"]])).all()
    run(*fit, "--symmetry", "none", "--warp", "none")
    gp = load_model(model)
    assert (gp.symmetry_.action, gp.symmetry_.candidate.warp) == (None, False)


def test_a_fit_says_what_stands_in_the_way(tmp_path):
    path, model = tmp_path / "a.csv", tmp_path / "a.hgp"
    five_fold(60).to_csv(path, index=False)
    fit = ["fit", path, "-t", "y", "-o", model, "--max-steps", "3"]
    assert "at least 8 coordinates" in complaint(*fit, "--symmetry", "Rotation((0, 7), 4)", code=1)
    assert "(on the command line --columns u=periodic:24)" in complaint(
        *fit, "--symmetry", "Translation(0, 24, 6)", code=1
    )
    assert "did you mean 'quantile'" in complaint(*fit, "--warp", "quantiles", code=2)
    assert not model.exists()
