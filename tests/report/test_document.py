"""The report as a whole."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from harmonicgp._extras import MissingExtraError
from harmonicgp.diagnostics import Scores, write_report
from harmonicgp.report import case
from harmonicgp.report.page import number, percent
from tests.report.common import HOSTILE, LinearClassifier, LinearModel, check, label, table

COMMON = ["warnings", "data", "scores", "learning", "harmonics", "symmetry", "inducing", "timings", "loading"]


def test_regression(tmp_path):
    (X, y), (Xs, ys) = table(), table(5200, seed=1)
    scores = write_report(tmp_path / "report.html", LinearModel().fit(X, y), Xs, ys)
    page = check(tmp_path / "report.html")
    assert isinstance(scores, Scores)
    assert list(page.sections) == [*COMMON[:3], "calibration", "predictions", *COMMON[3:]]
    assert len(page.images) == 6
    assert number(scores.rmse) in page.sections["scores"]
    assert "only if it was not fitted to these rows" in page.sections["scores"]
    assert "Scores of 100 rows that the fit held out itself" in page.sections["scores"]
    assert percent(scores.coverage[0.9]) in page.sections["calibration"]
    assert "5000 of 5200 rows drawn" in page.sections["predictions"]
    assert "✓ negation in 2 ways" in page.sections["symmetry"]
    assert "✓ one block" not in page.sections["symmetry"]
    assert "too many for a map" in page.sections["inducing"]
    assert "1 h 6 min" in page.sections["timings"]
    assert "many missing values" in page.sections["warnings"]
    assert "from harmonicgp import load_model" in page.sections["loading"]
    assert "rows in their 95 % interval: 91 %" in page.sections["scores"]
    for key in ("cost: operations", "bound: how well", "round: 1 compares"):
        assert key in page.sections["symmetry"]
    assert "warp: " not in page.sections["symmetry"]  # which this table has not
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_hostile_names_and_several_targets(tmp_path, monkeypatch):
    assert case.MOST_TARGETS == 6
    monkeypatch.setattr(case, "MOST_TARGETS", 2)
    rng = np.random.default_rng(0)
    X, y = table(300)
    frame = pd.DataFrame(dict(zip(HOSTILE[:3], X.T, strict=True)))
    frame[HOSTILE[3]] = rng.choice(["<b>", "&amp;", None], 300)
    frame["day"] = pd.Timestamp("2024-02-01") + pd.to_timedelta(rng.integers(0, 90, 300), "D")
    targets = np.column_stack([y * k + rng.normal(size=300) for k in range(4)])
    model = LinearModel().fit(frame, targets)
    model.target_names_ = HOSTILE
    model.symmetry_.table[0]["<i>key</i>"] = "<i>value</i>"
    model.warnings_ = HOSTILE
    components = model.predict_components
    model.predict_components = lambda X: SimpleNamespace(labels=HOSTILE[:3], mean=components(X).mean)
    scores = write_report(tmp_path / "r.html", model, frame, targets, title="\ud800</title><script>")
    page = check(tmp_path / "r.html")
    assert len(scores.targets) == 4
    assert [key for key in page.sections if key.startswith("target")] == ["target-1", "target-2"]
    assert "2 more targets have no section" in page.sections["target-2"]
    assert len(page.images) == 2 * 4 + 1 + 2
    for words in ("<script>alert('a')</script>", '"><img src=x onerror=alert(1)>', "&amp; (", "<b> (", "2024-02-01"):
        assert words in page.sections["data"]
    assert "<i>key</i>" in page.sections["symmetry"]
    assert "</title><script>" in page.words


@pytest.mark.parametrize("classes", [2, 3])
def test_classifier(tmp_path, classes):
    (X, y), (Xs, ys) = table(300, 2), table(200, 2, seed=1)
    of = label if classes == 3 else (lambda y: y > 10)
    scores = write_report(tmp_path / "r.html", LinearClassifier().fit(X, of(y)), Xs, of(ys))
    page = check(tmp_path / "r.html")
    assert list(page.sections) == [*COMMON[:3], "calibration", "confusion", *COMMON[3:]]
    assert percent(scores.accuracy) in page.sections["scores"]
    assert str(scores.confusion[0, 0]) in page.sections["confusion"]
    assert "accuracy: 90 %" in page.sections["scores"]
    assert len(page.images) == 4  # reliability, learning, harmonics, map
    assert "predict_proba" in page.sections["loading"]


def test_a_failure_leaves_the_old_page_alone(tmp_path, quick):
    X, y = table(50)
    model = LinearModel().fit(X, y)
    (tmp_path / "r.html").write_text("old")

    def broken(X):
        raise RuntimeError("broken")

    model.predict_components = broken
    with pytest.raises(RuntimeError, match="broken"):
        write_report(tmp_path / "r.html", model, X, y)
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("r.html", "old")]


def test_a_path_that_cannot_be_written_shows_before_the_work(tmp_path):
    X, y = table(50)
    model = LinearModel().fit(X, y)
    with pytest.raises(FileNotFoundError, match="make it first"):
        write_report(tmp_path / "none" / "r.html", model, X, y)
    with pytest.raises(IsADirectoryError, match="name a file"):
        write_report(tmp_path, model, X, y)
    assert model.largest_chunk == 0


@pytest.mark.parametrize("module", ["matplotlib", "jinja2"])
def test_without_an_optional_module(tmp_path, monkeypatch, module):
    X, y = table(50)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=r"harmonicgp\[plot\]"):
        write_report(tmp_path / "r.html", LinearModel().fit(X, y), X, y)
