"""The rows that a report is about, and what it reads from a model."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd

from harmonicgp import HarmonicGPRegressor
from harmonicgp.diagnostics import write_report
from harmonicgp.report.case import Case
from tests.report.common import LinearModel, check, table


def test_plane_and_columns_that_are_not_there(tmp_path):
    X, y = table(150, 2)
    X[5, 1] = np.nan
    model = LinearModel().fit(np.nan_to_num(X), y)
    write_report(tmp_path / "r.html", model, X, y)
    assert "Map: 149 rows by x0 and x1" in check(tmp_path / "r.html").images[-1]["alt"]
    frame = pd.DataFrame({"colour": np.where(X[:, 0] > 0, "red", "blue")})
    model = LinearModel().fit(frame, y)
    model.encoded_names_ = ["colour=red"]
    write_report(tmp_path / "r.html", model, frame, y)
    assert "colour=red are not columns of X" in check(tmp_path / "r.html").sections["inducing"]


def test_at_most_5000_rows_are_drawn():
    X, y = table(5200)
    case = Case.of(LinearModel().fit(X, y), X, y)
    assert len(case.sample) == len(case.sample_rows) == len(case.observed) == 5000
    assert (np.diff(case.sample) > 0).all()
    np.testing.assert_array_equal(case.columns([2, 0]), X[case.sample][:, [2, 0]])


def test_what_a_model_lacks_is_said_in_words(tmp_path, quick):
    X, y = table(80)

    class Bare(LinearModel):
        predict_components = inducing_points = None

    model = Bare().fit(X, y)
    for name in ("history_", "symmetry_", "validation_", "timings_", "warnings_", "column_kinds_", "target_names_"):
        delattr(model, name)
    model.elbo_, model.inducing_points = float("nan"), lambda: None
    write_report(tmp_path / "r.html", model, X, y)
    page = check(tmp_path / "r.html")
    for key, words in {
        "warnings": "no warnings",
        "scores": "held out no rows",
        "learning": "no finite bound",
        "harmonics": "does not split",
        "symmetry": "one block",
        "inducing": "does not give its inducing points",
        "timings": "no timings",
    }.items():
        assert words in page.sections[key]


def test_small_tables_are_told_of_as_they_are(tmp_path, quick):
    """No search, no rows held out, no batches, an inducing point at every row."""
    X, y = table(60, d=2)
    exact = HarmonicGPRegressor(max_steps=15, progress=False).fit(X, y)
    asked = HarmonicGPRegressor(max_steps=15, symmetry=None, progress=False).fit(X, y)
    few = HarmonicGPRegressor(max_steps=60, likelihood="student_t", n_inducing=8, progress=False).fit(X, y)
    pages = []
    for model in (exact, asked, few):
        write_report(tmp_path / "r.html", model, X, y, file="runs/y.hgp", set_aside=model is exact)
        pages.append({key: " ".join(words.split()) for key, words in check(tmp_path / "r.html").sections.items()})
    assert "No symmetry was searched for (60 rows are too few" in pages[0]["symmetry"]
    assert "The user chose it" in pages[1]["symmetry"]
    for page in pages[:2]:
        assert "Every row is an inducing point" in page["inducing"]
        assert "log marginal likelihood" in page["learning"]
    assert "8 inducing points" in pages[2]["inducing"]
    assert any("validation" in record for record in few.history_)
    for page in pages:
        assert "one batch" not in page["learning"]
        assert "held out" not in page["learning"]
        assert 'load_model("runs/y.hgp")' in page["loading"]
    assert "These rows were held out from the fit" in pages[0]["scores"]
    assert "only if it was not fitted" not in pages[0]["scores"]
    assert "only if it was not fitted" in pages[1]["scores"]


def test_a_model_of_an_older_file_is_exact_if_it_was_fitted_as_one():
    X, y = table(5)
    case = Case.of(LinearModel().fit(X, y), X, y)

    def exact(origin="few rows", **changes):
        settings = {"likelihood": "gaussian", "n_inducing": "auto", "validation_fraction": 0.0}
        choice = SimpleNamespace(origin=origin, action=None)
        model = SimpleNamespace(**(settings | {"symmetry_": choice, "validation_": None} | changes))
        return replace(case, model=model).exact

    assert exact()
    assert exact(origin="asked", validation_fraction=0.1)
    assert not exact(origin="asked")
    assert not exact(n_inducing=8)
    assert not exact(likelihood="student_t")
    assert not exact(validation_={"method": "held-out"})
