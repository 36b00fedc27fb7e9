"""Suggestions from a table and a target: what is suggested, of which columns, and what is refused."""

from __future__ import annotations

import gpytorch
import numpy as np
import pytest
import torch

from experiments.suggest import make, right
from harmonicgp import HarmonicGPRegressor
from harmonicgp.actions import ImageFlip, Negation, Permutation, PrincipalNegation, Rotation, Translation
from harmonicgp.diagnostics import suggest_symmetry
from tests.symmetry.common import cloud, lumps


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["rotation", "none"])
def test_the_symmetry_is_named(kind, tmp_path):
    known = make(kind, 1000, 0)
    choice = suggest_symmetry(known.X, known.y, progress=False, **known.arguments)
    assert right(choice.suggested, known.truth), str(choice)
    assert choice.ranked[0]["name"] == choice.suggested or choice.suggested is None
    words = " ".join(choice.sentences)
    assert "moved inputs differ from the data" in words
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


@pytest.mark.usefixtures("brief")
def test_only_the_actions_that_are_given():
    X, action = cloud("rotation", 400)
    choice = suggest_symmetry(X, np.sin(X[:, 0]) + X[:, 1], [action, Negation([0])], progress=False)
    assert {row["name"] for row in choice.table} == {"one block, columns", "Rotation((0, 1), 5)", "Negation([[0]])"}
    assert choice.suggested == "Rotation((0, 1), 5)"
    assert choice.suggested_action == action or repr(choice.suggested_action) == repr(action)
    with pytest.raises(TypeError, match="actions"):
        suggest_symmetry(X, X[:, 0], ["negation"])
    with pytest.raises(TypeError, match=r"list of actions, such as \[Negation\(\)\]"):
        suggest_symmetry(X, X[:, 0], Negation())
    with pytest.raises(ValueError, match="empty"):
        suggest_symmetry(X, X[:, 0], [])
    with pytest.raises(ValueError, match="at least 6"):
        suggest_symmetry(X, X[:, 0], [Rotation((0, 5), 4)])


@pytest.mark.usefixtures("brief")
def test_a_shift_that_is_offered_makes_its_column_periodic():
    rng = np.random.default_rng(0)
    X = np.column_stack((np.full(300, 2.0), rng.uniform(0, 24, 300)))  # the constant column keeps its number
    y = np.sin(X[:, 1] * np.pi / 12)
    choice = suggest_symmetry(X, y, [Translation(axis=1, period=24.0, order=6)], progress=False)
    assert choice.suggested == "Translation(axis=1, period=24.0, order=6)", str(choice)
    assert "columns={1: ('periodic', 24.0)}" in choice.advice


@pytest.mark.usefixtures("brief")
def test_classes_have_symmetries_too():
    X, action = cloud("negation", 400)
    choice = suggest_symmetry(X, X.sum(1) > 0, [action, Negation([0])], classify=True, progress=False)
    assert choice.suggested == "Negation()"


@pytest.mark.usefixtures("brief")
def test_numbers_of_columns_are_those_of_the_table():
    u, v, rng = lumps()
    hour = rng.uniform(0, 24, len(u))
    X = np.column_stack((np.ones(len(u)), u, hour, v))
    kinds = {2: ("periodic", 24.0)}
    found = suggest_symmetry(X, u * v, columns=kinds, progress=False)
    assert "Rotation((1, 3), 5)" in found.tried  # the search has the hour first, and no constant
    assert found.label("Rotation((1, 3), 5)") == "Rotation((1, 3), 5) of column 1, column 3"
    action = found.suggested_action
    assert repr(action) == found.suggested
    gp = HarmonicGPRegressor(symmetry=action, columns=kinds, max_steps=2, progress=False).fit(X, u * v)
    assert np.isfinite(gp.predict(X[:5])).all()


@pytest.mark.usefixtures("brief")
def test_a_permutation_is_as_wide_as_the_table():
    rng = np.random.default_rng(0)
    X = np.column_stack((rng.gamma(2.0, size=(400, 2)) + rng.gamma(1.0, size=(400, 1)), np.ones(400)))
    found = suggest_symmetry(X, X[:, 0] * X[:, 1], progress=False)
    assert "Permutation([1, 0, 2])" in found.tried, str(found)
    HarmonicGPRegressor(symmetry=Permutation([1, 0, 2]), max_steps=2, progress=False).fit(X, X[:, 0] * X[:, 1])


@pytest.mark.usefixtures("brief")
def test_equal_rows_count():
    rng = np.random.default_rng(0)
    hour = np.minimum(rng.poisson(3, 1500), 23).astype(float)
    hour[:24] = np.arange(24)
    found = suggest_symmetry(hour[:, None], rng.integers(0, 2, 1500), classify=True, progress=False)
    assert found.suggested is None, str(found)


@pytest.mark.usefixtures("brief")
def test_pixels_have_one_scale():
    rng = np.random.default_rng(0)
    images = (rng.gamma(2, size=(200, 4, 4)) * np.linspace(0.1, 3, 4)).reshape(200, 16)
    flip = ImageFlip((4, 4), (1,))
    found = suggest_symmetry(images, images[:, 3], [flip], columns=("image", (4, 4)), progress=False)
    assert found.suggested is None


@pytest.mark.usefixtures("brief")
@pytest.mark.parametrize("X", [np.ones((60, 2)), np.arange(8.0).reshape(4, 2), np.repeat(np.eye(2), 30, 0)])
def test_nothing_is_said_of_few_rows(X):
    found = suggest_symmetry(X, np.arange(len(X)), progress=False)
    assert found.suggested is None
    assert found.suggested_action is None
    assert all("too few" in sentence for sentence in found.sentences)


@pytest.mark.usefixtures("brief")
def test_offers_that_make_no_sense():
    X, _ = cloud("rotation", 100)
    for action, words in (
        (Rotation((0, 1), 1), "moves nothing"),
        (PrincipalNegation(1).fit(torch.from_numpy(X)), "before it is fitted"),
        (Translation(axis=2, period=24.0, order=6), "declared"),
    ):
        with pytest.raises(ValueError, match=words):
            suggest_symmetry(X, X[:, 0], [action], columns={2: ("periodic", 12.0)}, progress=False)
    found = suggest_symmetry(X, X[:, 0], [PrincipalNegation(1)], progress=False)
    assert "negation in 1 way, principal axes" in found.tried
    with pytest.raises(TypeError, match="takes no symmetry"):
        suggest_symmetry(X, X[:, 0], symmetry=None)
    with pytest.raises(TypeError, match="kernels by name"):
        suggest_symmetry(X, X[:, 0], kernel=gpytorch.kernels.RBFKernel())
    assert suggest_symmetry(X, X[:, 0], time_budget=1e-6, progress=False).advice.startswith("Nothing was compared")


@pytest.mark.usefixtures("brief")
def test_images_of_one_row_of_pixels():
    X = np.random.default_rng(0).gamma(1.0, size=(100, 4))
    found = suggest_symmetry(X, X[:, 0], columns=("image", (1, 4)), progress=False)
    assert any("ImageFlip" in name for name in found.tried)


@pytest.mark.usefixtures("brief")
def test_few_rows_have_no_need_of_a_symmetry(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    found = suggest_symmetry(X, np.sin(3 * X[:, 0]), [Negation()], progress=False)
    assert found.instead == "an exact model"
    assert "runs no search" in found.taken
    assert found.suggested == "Negation()"
    assert "which needs no symmetry" in found.advice or "does not pay" in found.advice
    assert "symmetry=" not in found.advice
    figure = found.plot(tmp_path / "few.png")
    labels = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert any(label.endswith("*") for label in labels)
    assert not any(label.endswith("+") for label in labels)
    assert "is an exact model" in figure._suptitle.get_text()
    y = (X[:, 0] > 0).astype(int)
    assert suggest_symmetry(X, y, [Negation()], classify=True, progress=False).instead == "one block"


@pytest.mark.usefixtures("brief")
def test_images_keep_one_scale_for_all_pixels():
    rng = np.random.default_rng(0)
    X = np.full((200, 16), 1e-6) * rng.normal(size=(200, 16))
    X[:, 5] += rng.random(200)
    gp = HarmonicGPRegressor(
        symmetry=ImageFlip((4, 4)), columns=("image", (4, 4)), max_steps=3, n_inducing=8, progress=False
    )
    gp.fit(X, X[:, 5])
    assert np.ptp(gp.model_.inputs.scale) == 0


@pytest.mark.usefixtures("brief")
def test_an_action_that_fails_is_listed():
    class Broken(Negation):
        def move(self, x, element):
            raise RuntimeError("it broke")

        def images(self, x):
            raise RuntimeError("it broke")

    X, action = cloud("rotation", 300)
    found = suggest_symmetry(X, X[:, 0], [Broken(), action], progress=False)
    assert any("could not be fitted. it broke" in sentence for sentence in found.sentences)
    alone = suggest_symmetry(X, X[:, 0], [Broken()], progress=False)
    assert alone.advice == "Nothing was compared: it broke."
    assert (
        suggest_symmetry(X, X[:, 0], [action], time_budget=1e-6, progress=False).advice
        == "Nothing was compared: time was up."
    )


def test_words_for_what_cannot_be():
    X, _ = cloud("rotation", 100)
    with pytest.raises(TypeError, match="HarmonicGPRegressor, which has no sample_weight"):
        suggest_symmetry(X, X[:, 0], sample_weight=np.ones(100))
    for size in (8, (2, 2, 1), "ab"):
        with pytest.raises(TypeError, match="two whole numbers"):
            suggest_symmetry(X, X[:, 0], columns=("image", size))


@pytest.mark.usefixtures("brief")
def test_skewed_columns_are_warped_beside_a_rotation_too():
    u, v, rng = lumps(2200)
    X = np.column_stack((u, rng.lognormal(size=len(u)), v))
    found = suggest_symmetry(X, u * v + np.log(X[:, 1]), progress=False)
    turns = {row["warp"] for row in found.table if row["name"] == "Rotation((0, 2), 5)"}
    assert turns == {False, True}, str(found)
    assert not any("#" in row["name"] for row in found.table)


def test_forty_places_suggest_nothing():
    X = np.repeat(np.random.default_rng(0).exponential(size=(40, 1)), 30, 0)
    found = suggest_symmetry(X, np.sin(X[:, 0]), [Negation()], progress=False, max_steps=5)
    assert found.suggested is None
    assert "too few different" in found.sentences[0]
