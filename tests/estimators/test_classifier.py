"""The classifier by itself: probabilities against their definition, labels of every kind, and what is refused."""

from __future__ import annotations

import gpytorch
import numpy as np
import pytest
import torch
from scipy import special, stats

from harmonicgp.estimators.classifier import _scores
from harmonicgp.training.finish import Validation
from tests.estimators.common import assert_same, classifier, columns, frames, labels, outputs, table


@pytest.mark.parametrize("classes", [2, 3, 4])
def test_classes_of_text(classes):
    X, _ = table(120)
    y = labels(X, classes)
    gp = classifier(max_steps=60, n_inducing=30).fit(X, y)
    assert gp.classes_.tolist() == sorted(set(y))
    P = gp.predict_proba(X)
    assert P.shape == (120, classes)
    np.testing.assert_allclose(P.sum(1), 1, rtol=1e-12)
    assert (P >= 0).all()
    assert gp.score(X, y) > 0.85
    assert (gp.predict(X) == gp.classes_[P.argmax(1)]).all()
    place = np.searchsorted(gp.classes_, y)
    np.testing.assert_allclose(gp.log_density(X, y), np.log(P[np.arange(120), place]))
    assert gp.log_density(X[:1], ["unheard of"])[0] == -np.inf
    f, std = gp.predict_f(X, return_std=True)
    assert f.shape == std.shape == ((120,) if classes == 2 else (120, classes))
    parts = gp.predict_components(X)
    np.testing.assert_allclose(parts.mean.sum(0), f, rtol=1e-8, atol=1e-10)


def test_two_classes_go_through_the_normal_distribution_function():
    X, _ = table(60)
    gp = classifier(n_inducing=20).fit(X, labels(X))
    f, std = gp.predict_f(X, return_std=True)
    np.testing.assert_allclose(gp.predict_proba(X)[:, 1], stats.norm.cdf(f / np.sqrt(1 + std**2)), rtol=1e-10)


def test_many_classes_are_the_softmax_of_draws():
    X, _ = table(60)
    gp = classifier(n_inducing=20).fit(X, labels(X, 3))
    f, std = gp.predict_f(X[:5], return_std=True)
    draws = f + std * np.random.default_rng(0).normal(size=(40_000, 5, 3))
    np.testing.assert_allclose(gp.predict_proba(X[:5]), special.softmax(draws, -1).mean(0), atol=0.01)


def test_classes_that_overlap_are_said_to():
    """Labels drawn at random by known probabilities: the log loss comes near that of these, and no class is certain."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 1))
    P = special.softmax(np.column_stack((1.5 * X[:, 0], np.zeros(600), -X[:, 0])), -1)
    y = np.array([rng.choice(3, p=p) for p in P])
    Q = classifier(max_steps=60).fit(X[:400], y[:400]).predict_proba(X[400:])
    rows = np.arange(200)
    assert -np.log(Q[rows, y[400:]]).mean() < -np.log(P[400:][rows, y[400:]]).mean() + 0.05
    assert np.abs(Q - P[400:]).mean() < 0.08


def test_the_names_of_classes_do_not_matter():
    X, _ = table(60)
    y = labels(X, 3)
    text, number = (
        classifier(n_inducing=12).fit(X, y),
        classifier(n_inducing=12).fit(X, np.searchsorted(np.unique(y), y) * 10),
    )
    assert_same(outputs(text, X), outputs(number, X))
    assert number.classes_.tolist() == [0, 10, 20]


def test_classes_in_frames():
    data, _ = columns()
    y = ["yes" if c == "red" else "no" for c in data["colour"]]
    pd, pl, pa = (pytest.importorskip(name) for name in ("pandas", "polars", "pyarrow"))
    tables = frames(data)
    said = []
    for frame, target in (
        (tables["pandas"], pd.Series(y, name="answer")),
        (tables["pandas"], pd.Series(y, name="answer").astype("category")),
        (tables["polars"], pl.Series("answer", y)),
        (tables["pyarrow"], pa.chunked_array([y])),
        (tables["pandas"], np.array(y)),
    ):
        gp = classifier(n_inducing=12, max_steps=20).fit(frame, target)
        assert gp.classes_.tolist() == ["no", "yes"]
        assert gp.feature_names_in_.tolist() == list(data)
        assert gp.score(frame, y) > 0.9
        said.append(outputs(gp, frame))
    for other in said[1:]:
        assert_same(other, said[0])


def test_classes_in_an_arrow_array():
    pa = pytest.importorskip("pyarrow")
    X, _ = table(40)
    y = labels(X)
    one, other = classifier(n_inducing=5).fit(X, pa.array(y.tolist())), classifier(n_inducing=5).fit(X, y)
    assert_same(outputs(one, X), outputs(other, X))


def test_bad_classes():
    X, _ = table(60)
    with pytest.raises(ValueError, match="one class"):
        classifier().fit(X, ["a"] * 60)
    with pytest.raises(ValueError, match="60 classes, more than 50: is it a number"):
        classifier().fit(np.tile(X, (3, 1)), np.tile(np.arange(60), 3))
    with pytest.raises(ValueError, match="continuous"):
        classifier().fit(X, X[:, 0])


def test_missing_classes():
    X, _ = table(60)
    for gap in (None, np.nan):
        with pytest.raises(ValueError, match="y has missing values: drop those rows"):
            classifier().fit(X, np.array([gap, "a", "b"] * 20, dtype=object))


def test_rows_of_x_and_classes_must_agree():
    X, _ = table(60)
    gp = classifier(n_inducing=5).fit(X, labels(X))
    with pytest.raises(ValueError, match=r"rows|length|samples"):
        gp.log_density(X, labels(X)[:50])


@pytest.mark.parametrize("classes", [2, 3])
def test_held_out_rows_are_scored(classes):
    X, _ = table(2600)
    y = labels(X, classes)
    gp = classifier(n_inducing=15, symmetry=None, batch_size=256, max_steps=15).fit(X, y)
    assert gp.validation_["rows"] == 260
    assert gp.validation_["accuracy"] > 0.7
    assert 0 < gp.validation_["nll"] < np.log(classes)


def test_scores_of_held_out_rows_are_those_of_their_probabilities():
    likelihood = gpytorch.likelihoods.BernoulliLikelihood()
    rng = np.random.default_rng(0)
    mean, variance, numbers = rng.normal(size=(1, 30)), rng.random((1, 30)), rng.integers(2, size=90)
    rows = rng.permutation(90)[:30]
    scores = _scores(Validation(*map(torch.from_numpy, (rows, mean, variance))), numbers, likelihood)
    p = stats.norm.cdf(mean[0] / np.sqrt(1 + variance[0]))
    right = np.where(numbers[rows] == 1, p, 1 - p)
    assert (scores["method"], scores["rows"]) == ("held-out", 30.0)
    assert scores["accuracy"] == np.mean(right > 0.5)
    assert scores["nll"] == pytest.approx(-np.log(right).mean())


@pytest.mark.parametrize("classes", [2, 3])
def test_a_weight_of_two_is_two_rows(classes):
    X, _ = table(60)
    y = labels(X, classes)
    weight = np.arange(60) % 3
    once = np.repeat(np.arange(60), weight)
    assert_same(
        outputs(classifier(n_inducing=8).fit(X, y, sample_weight=weight), X),
        outputs(classifier(n_inducing=8).fit(X[once], y[once]), X),
    )


@pytest.mark.parametrize("classes", [2, 3])
def test_predictions_in_parts_are_those_of_the_whole(classes, monkeypatch):
    X, _ = table(60)
    gp = classifier(n_inducing=8).fit(X, labels(X, classes))
    whole = outputs(gp, X)
    monkeypatch.setattr("harmonicgp.estimators.base.CHUNK", 7)
    for part, expected in zip(outputs(gp, X), whole, strict=True):
        np.testing.assert_allclose(part, expected, rtol=1e-9, atol=1e-12)


def test_the_order_of_rows_and_names_of_labels_do_not_reach_the_density():
    """Of labels in any order, some of them unheard of between two known ones."""
    X, _ = table(40)
    gp = classifier(n_inducing=8).fit(X, np.where(X[:, 0] > np.median(X[:, 0]), 30, 10))
    P = gp.predict_proba(X[:4])
    expected = [np.log(P[0, 1]), np.log(P[1, 0]), -np.inf, -np.inf]
    np.testing.assert_allclose(gp.log_density(X[:4], [30, 10, 20, 40]), expected)
