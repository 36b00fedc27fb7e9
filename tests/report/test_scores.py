from __future__ import annotations

import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy.stats import binom
from sklearn import metrics

from harmonicgp.diagnostics import classification_scores, coverage, pit_histogram, regression_scores, rmse
from harmonicgp.report.scores import LEVELS, PIT_BINS, binomial_band
from tests.report.common import LinearClassifier, LinearModel, table


def label(y):
    return np.where(y > 11, "high", np.where(y < 9, "low", "middle"))


def test_coverage_counts_central_intervals():
    pit = np.array([[0.0, 0.5], [0.04, 0.06], [0.96, 0.94], [1.0, 0.26]])
    np.testing.assert_allclose(coverage(pit, [0.5, 0.9, 1.0]), [[0, 0.5], [0, 1], [1, 1]])
    np.testing.assert_allclose(coverage(pit[:, 1], [0.5, 0.9]), [0.5, 1])
    grid = (np.arange(10_000) + 0.5) / 10_000
    np.testing.assert_allclose(coverage(grid), LEVELS, atol=2e-4)


def test_histogram_counts_every_row_once():
    pit = np.random.default_rng(0).uniform(size=(500, 2))
    pit[0] = 1.0
    counts = pit_histogram(pit, 7)
    assert counts.shape == (7, 2)
    assert (counts.sum(0) == 500).all()
    np.testing.assert_array_equal(counts[:, 1], pit_histogram(pit[:, 1], 7))
    np.testing.assert_array_equal(counts[:, 0], [((pit[:, 0] * 7).astype(int).clip(0, 6) == k).sum() for k in range(7)])


def test_rmse():
    assert rmse([0.0, 0.0, 3.0], [0.0, 4.0, 0.0]) == pytest.approx(np.sqrt(25 / 3))


@pytest.mark.parametrize(("rows", "share"), [(10, 0.5), (200, 0.9), (10_000, 0.99), (3, 1.0)])
def test_band_holds_what_it_says(rows, share):
    low, high = binomial_band(rows, share)
    inside = binom.cdf(round(high * rows), rows, share) - binom.cdf(round(low * rows) - 1, rows, share)
    assert 0.95 <= inside <= 1
    assert low <= share <= high


def test_regression_scores_from_the_definitions():
    (X, y), (Xs, ys) = table(), table(300, seed=1)
    model = LinearModel().fit(X, y)
    scores = regression_scores(model, Xs, ys)
    mean = model.predict(Xs)
    assert scores.rows == 300
    assert scores.rmse == pytest.approx(rmse(ys, mean))
    assert scores.mae == pytest.approx(np.abs(ys - mean).mean())
    assert scores.r2 == pytest.approx(metrics.r2_score(ys, mean))
    assert scores.nll == pytest.approx(-model.log_density(Xs, ys).mean())
    for level in LEVELS:
        low, high = model.predict_quantiles(Xs, [0.5 - level / 2, 0.5 + level / 2]).T
        assert scores.coverage[level] == pytest.approx(np.mean((low <= ys) & (ys <= high)))
        assert scores.width[level] == pytest.approx(np.mean(high - low))
    np.testing.assert_array_equal(scores.pit, pit_histogram(model.pit(Xs, ys), PIT_BINS))
    assert scores.targets == ()
    assert json.loads(json.dumps(scores.as_dict()))["coverage"]["0.9"] == scores.coverage[0.9]


@pytest.mark.parametrize("size", [1, 7, 299, 300, 10**6])
def test_chunks_change_nothing_and_bound_what_is_asked_at_once(size):
    (X, y), (Xs, ys) = table(), table(300, seed=1)
    model = LinearModel().fit(X, np.column_stack([y, -2 * y]))
    ys = np.column_stack([ys, -2 * ys])
    whole = regression_scores(model, Xs, ys)
    model.largest_chunk = 0
    parts = regression_scores(model, Xs, ys, chunk_size=size)
    assert model.largest_chunk == min(size, 300)
    for a, b in zip(whole.targets, parts.targets, strict=True):
        assert a.rmse == pytest.approx(b.rmse)
        assert a.nll == pytest.approx(b.nll)
        assert a.coverage == pytest.approx(b.coverage)
        assert a.width == pytest.approx(b.width)
        np.testing.assert_array_equal(a.pit, b.pit)


def test_several_targets_are_each_scored_as_if_alone():
    (X, y), (Xs, ys) = table(), table(300, seed=1)
    model, ys = LinearModel().fit(X, np.column_stack([y, 100 - 5 * y])), np.column_stack([ys, 100 - 5 * ys])
    both = regression_scores(model, Xs, ys)
    for p, each in enumerate(both.targets):
        assert each.rmse == pytest.approx(rmse(ys[:, p], model.predict(Xs)[:, p]))
        assert each.nll == pytest.approx(-model.log_density(Xs, ys)[:, p].mean())
        assert list(each.coverage.values()) == pytest.approx(coverage(model.pit(Xs, ys)[:, p]).tolist())
    first, second = both.targets
    assert second.rmse == pytest.approx(5 * first.rmse)
    assert both.rmse == pytest.approx((first.rmse + second.rmse) / 2)
    assert both.coverage[0.9] == pytest.approx((first.coverage[0.9] + second.coverage[0.9]) / 2)
    assert both.pit.sum() == 600
    assert [each["target"] for each in both.as_dict()["targets"]] == ["y0", "y1"]


def test_one_column_of_y_is_one_target():
    (X, y), (Xs, ys) = table(), table(100, seed=1)
    flat, column = LinearModel().fit(X, y), LinearModel().fit(X, y[:, None])
    a, b, c = (regression_scores(m, Xs, t) for m, t in ((flat, ys), (column, ys[:, None]), (flat, ys[:, None])))
    assert a.rmse == pytest.approx(b.rmse) == pytest.approx(c.rmse)
    assert a.nll == pytest.approx(b.nll) == pytest.approx(c.nll)


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table], ids=["pandas", "polars", "pyarrow"])
def test_frames_score_as_arrays_do(make):
    (X, y), (Xs, ys) = table(), table(150, seed=1)
    frame = make({f"x{j}": Xs[:, j] for j in range(3)})
    model = LinearModel().fit(X, y)
    expected = regression_scores(model, Xs, ys)
    found = regression_scores(model, frame, make({"y": ys})["y"], chunk_size=64)
    assert found.rmse == pytest.approx(expected.rmse)
    assert found.coverage == pytest.approx(expected.coverage)


def test_a_constant_target_has_no_r2():
    X, y = table(50)
    scores = regression_scores(LinearModel().fit(X, y), X, np.full(50, 0.1))
    assert np.isnan(scores.r2)
    assert np.isfinite(scores.rmse)


def test_too_sure_a_model_covers_too_little():
    (X, y), (Xs, ys) = table(1000), table(1000, seed=1)
    calibrated, sure = (regression_scores(LinearModel(overconfident=k).fit(X, y), Xs, ys) for k in (1, 3))
    assert calibrated.coverage[0.9] == pytest.approx(0.9, abs=0.04)
    assert sure.coverage[0.9] < 0.6
    assert sure.nll > calibrated.nll


@pytest.mark.parametrize(
    ("X", "y", "error", "words"),
    [
        (np.ones((3, 3)), [1.0, np.nan, 2.0], ValueError, "first in row 1: drop"),
        (np.ones((3, 3)), ["a", "b", "c"], TypeError, "classification_scores"),
        (np.ones((3, 3)), [1.0, 2.0], ValueError, "X has 3 rows and y has 2"),
        (np.ones((0, 3)), np.ones(0), ValueError, "no rows"),
        (np.ones(3), np.ones(3), ValueError, r"array \[n, d\]"),
        (np.ones((3, 3)), np.ones((3, 2)), ValueError, "targets of the model differ"),
        (np.ones((3, 3)), np.ones((3, 1, 1)), ValueError, r"\[n, P\]"),
        (pl.LazyFrame({"a": [1.0]}), [1.0], TypeError, r"\.collect\(\)"),
    ],
)
def test_bad_tables(X, y, error, words):
    model = LinearModel().fit(*table(50))
    with pytest.raises(error, match=words):
        regression_scores(model, X, y)


@pytest.mark.parametrize("pit", [[0.2, np.nan], [1.2], [-0.1], [], [[[0.5]]]])
def test_bad_pit(pit):
    with pytest.raises(ValueError, match="pit must"):
        coverage(pit)


def test_bad_levels_bins_and_chunks():
    with pytest.raises(ValueError, match=r"0\.9 for 90 %"):
        coverage([0.5], [90])
    with pytest.raises(ValueError, match="bins"):
        pit_histogram([0.5], 0)
    X, y = table(20)
    with pytest.raises(ValueError, match="chunk_size"):
        regression_scores(LinearModel().fit(X, y), X, y, chunk_size=0)


@pytest.mark.parametrize("classes", [2, 3])
def test_classification_scores_are_those_of_scikit_learn(classes):
    (X, y), (Xs, ys) = table(500), table(200, seed=1)
    of = label if classes == 3 else (lambda y: y > 10)
    model = LinearClassifier().fit(X, of(y))
    scores = classification_scores(model, Xs, of(ys), chunk_size=64)
    p = model.predict_proba(Xs)
    assert scores.accuracy == pytest.approx(metrics.accuracy_score(of(ys), model.predict(Xs)))
    assert scores.log_loss == pytest.approx(metrics.log_loss(of(ys), p, labels=model.classes_))
    brier = metrics.brier_score_loss(of(ys), p, labels=model.classes_)
    assert scores.brier == pytest.approx(brier)
    np.testing.assert_array_equal(scores.confusion, metrics.confusion_matrix(of(ys), model.predict(Xs)))
    bins = scores.reliability
    assert bins.counts.sum() == 200
    stated = p[:, 1] if classes == 2 else p.max(1)
    came = of(ys) == (model.classes_[1] if classes == 2 else model.predict(Xs))
    for k in range(10):
        rows = (stated * 10).astype(int).clip(0, 9) == k
        assert bins.counts[k] == rows.sum()
        if rows.any():
            assert bins.predicted[k] == pytest.approx(stated[rows].mean())
            assert bins.observed[k] == pytest.approx(came[rows].mean())
        else:
            assert np.isnan(bins.observed[k])


def test_labels_come_in_many_forms():
    (X, y), (Xs, ys) = table(300), table(50, seed=1)
    model = LinearClassifier().fit(X, label(y))
    expected = classification_scores(model, Xs, label(ys)).accuracy
    for labels in (
        label(ys).tolist(),
        label(ys)[:, None],
        pd.Series(label(ys)),
        pl.Series(label(ys)).cast(pl.Categorical),
    ):
        assert classification_scores(model, Xs, labels).accuracy == expected
    json.dumps(classification_scores(model, Xs, label(ys)).as_dict())


def test_an_impossible_label_costs_much_but_not_everything():
    X, y = table(50)
    model = LinearClassifier().fit(X, y > 10)
    model.predict_proba = lambda X: np.tile([1.0, 0.0], (len(X), 1))
    assert np.isfinite(classification_scores(model, X, y > 10).log_loss)


def test_unknown_labels():
    X, y = table(50)
    model = LinearClassifier().fit(X, label(y))
    labels = label(y).astype(object)
    labels[3], labels[4] = "huge", None
    with pytest.raises(ValueError, match=r"not in the fit: 'huge', None\. Drop"):
        classification_scores(model, X, labels)
    with pytest.raises(ValueError, match="one label a row"):
        classification_scores(model, X, np.ones((50, 2)))
