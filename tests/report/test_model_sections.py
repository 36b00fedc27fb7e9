"""The sections on the model."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from harmonicgp.diagnostics import write_report
from harmonicgp.report.page import environment
from tests.report.common import LinearClassifier, LinearModel, check, label, table


@pytest.mark.parametrize("task", ["two targets", "classes", "three classes"])
def test_one_column(tmp_path, task):
    X, y = table(120, 1)
    if task == "two targets":
        y = np.column_stack([y, -y])
        model = LinearModel().fit(X, y)
    else:
        y = label(y) if task == "three classes" else y > 10
        model = LinearClassifier().fit(X, y)
    write_report(tmp_path / "r.html", model, X, y)
    curves = [image for image in check(tmp_path / "r.html").images if image["alt"].startswith("Curve: pred")]
    assert len(curves) == (2 if task == "two targets" else 1)


@pytest.mark.parametrize(
    ("make", "span"), [(pd.DataFrame, 180), (pl.DataFrame, 20), (pa.table, 180)], ids=["pandas", "polars", "pyarrow"]
)
def test_globe(tmp_path, make, span):
    X, y = table(150, 3)
    X *= [span, 60, 1]
    frame = make({"lon": X[:, 0] % 360, "lat": X[:, 1], "height": X[:, 2]})
    model = LinearModel({0: "longitude", 1: "latitude", 2: ("periodic", 24.0)}).fit(frame, y)
    model.Z[0, :2] = -179.5, 3.0
    write_report(tmp_path / "r.html", model, frame, y)
    page = check(tmp_path / "r.html")
    assert "Map: 150 rows by lon and lat" in page.images[-1]["alt"]
    for words in ("longitude", "latitude", "period 24"):
        assert words in page.sections["data"]


def test_a_model_without_components_says_why(tmp_path, quick):
    """As a joint posterior does that is too large for its dense matrix."""

    def refuse(X):
        raise ValueError("components need the dense matrix")

    X, y = table()
    model = LinearModel().fit(X, y)
    model.predict_components = refuse
    write_report(tmp_path / "a.html", model, X, y)
    assert "components need the dense matrix" in check(tmp_path / "a.html").words


def test_steps_without_a_bound_and_one_block(tmp_path, quick):
    X, y = table(80)
    model = LinearModel().fit(X, y)
    model.history_[3]["bound"] = float("nan")
    model.history_[19]["validation"] = float("nan")
    model.predict_components = lambda X: SimpleNamespace(labels=["all"], mean=np.zeros((1, len(X))))
    model.symmetry_.table, model.symmetry_.origin = [], "asked"
    model.validation_ = {"rmse": [0.1, 0.2], "coverage": {0.9: 0.88}, "rows": 5}
    write_report(tmp_path / "r.html", model, X, y)
    page = check(tmp_path / "r.html")
    assert "1 steps had no finite bound" in page.sections["learning"]
    assert "one block" in page.sections["harmonics"]
    assert "there was no search" in page.sections["symmetry"]
    assert "RMSE: 0.1, 0.2" in page.sections["scores"]
    assert "90 % interval 88 %" in page.sections["scores"]


def test_every_column_of_the_table_of_symmetries_is_explained(tmp_path, quick):
    from harmonicgp.diagnostics import suggest_symmetry

    X, y = table(80)
    model = LinearModel().fit(X, y)
    model.symmetry_ = suggest_symmetry(X, y, n_inducing=8, time_budget=0.1, progress=False)
    legend = environment().get_template("symmetry.html").make_module({"name": None}).legend
    assert {"name", *legend} == {key for row in model.symmetry_.table for key in row}
    write_report(tmp_path / "r.html", model, X, y)
    words = check(tmp_path / "r.html").sections["symmetry"]
    for key, meaning in legend.items():
        assert f"{key.replace('_', ' ')}: {meaning}." in words
