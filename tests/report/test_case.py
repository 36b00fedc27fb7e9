"""The rows that a report is about."""

from __future__ import annotations

import numpy as np
import pandas as pd

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
