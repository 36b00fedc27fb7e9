"""The sections on rows."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from harmonicgp.diagnostics import write_report
from tests.report.common import LinearClassifier, LinearModel, check, table


def test_many_classes_columns_and_components(tmp_path, quick):
    X, _ = table(400, 70)
    labels = [f"<{k}>" for k in np.argsort(np.argsort(X[:, 0])) // 20]
    model = LinearClassifier().fit(X, labels)
    means = np.sin(np.arange(400.0)) * np.arange(40.0)[:, None]
    model.predict_components = lambda X: SimpleNamespace(labels=[f"t={t}" for t in range(40)], mean=means)
    write_report(tmp_path / "r.html", model, X, labels)
    page = check(tmp_path / "r.html")
    assert "The 9 most frequent classes; the 11 others" in page.sections["confusion"]
    assert "10 more columns" in page.sections["data"]
    assert "20 levels: <" in page.sections["data"]
    assert any(image["alt"].startswith("Bars: t=39") for image in page.images)


def test_the_verdict_is_on_the_worst_level(tmp_path, quick):
    """A model that is right about its 90 % interval, and not about the others."""
    (X, y), n = table(1000), 1000
    model = LinearModel().fit(X, y)
    pit = np.linspace(0.05, 0.95, n)
    pit[:50], pit[-50:] = 0.001, 0.999  # beyond all but their 99.8 % interval
    model.pit = lambda part, target: pit[: len(part)]
    write_report(tmp_path / "r.html", model, X, y)
    words = " ".join(check(tmp_path / "r.html").sections["calibration"].split())
    assert "90 % of the rows lie in their 99 % interval: these intervals are too narrow" in words


@pytest.mark.parametrize("steps", [1, 2])
def test_short_histories_and_a_constant_target(tmp_path, steps):
    X, y = table(30)
    model = LinearModel().fit(X, y)
    model.history_ = model.history_[:steps]
    write_report(tmp_path / "r.html", model, X[:1] if steps == 1 else X, np.full(1 if steps == 1 else 30, 7.0))
    assert "R² is undefined" in check(tmp_path / "r.html").sections["scores"]


@pytest.mark.parametrize(("overconfident", "words"), [(3.0, "too narrow"), (0.3, "too wide"), (1.0, "within chance")])
def test_the_verdict_on_calibration(tmp_path, quick, overconfident, words):
    (X, y), (Xs, ys) = table(1000), table(500, seed=1)
    write_report(tmp_path / "r.html", LinearModel(overconfident=overconfident).fit(X, y), Xs, ys)
    assert words in check(tmp_path / "r.html").sections["calibration"]
