"""What is new to a model in some rows."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from harmonicgp.diagnostics import write_report
from harmonicgp.report.novelty import Novelty
from harmonicgp.tables import UnseenGapsWarning, UnseenLevelsWarning
from tests.report.common import LinearClassifier, LinearModel, check, label, table


def test_what_to_know_first(tmp_path, quick):
    X, y = table(80)
    model = LinearModel().fit(X, y)
    model.notes_ = ["dates are used as days.", "column c is constant."]
    rows = np.arange(80)
    model.beyond = lambda X: {"x0": rows < 3, "x2": (rows > 0) & (rows < 5)}
    write_report(tmp_path / "r.html", model, X, y)
    words = " ".join(check(tmp_path / "r.html").sections["warnings"].split())
    assert words.endswith(
        "column b has many missing values: they count as a level of their own. "
        "5 of 80 rows are outside the range of the fit in x0, x2: the model extrapolates there, with wider error bars. "
        "dates are used as days. column c is constant."
    )
    assert (tmp_path / "r.html").read_text().count('<ul class="warnings">') == 1
    model = LinearClassifier().fit(X, label(y))
    model.beyond = lambda X: {f"x{k}": rows < 1 for k in range(12)}
    write_report(tmp_path / "r.html", model, X, label(y))
    words = check(tmp_path / "r.html").sections["warnings"]
    assert "1 of 80 rows is outside the range of the fit in x0, " in words
    assert "x9 and 2 more: the model extrapolates there." in words


def test_parts_of_a_table_add_up():
    first = Novelty(10, 2, ("b",), (UnseenLevelsWarning("c", ["x"], 1, "'other'"),))
    second = Novelty(5, 1, ("a", "b"), (UnseenLevelsWarning("c", ["y"], 2, "'other'"), UnseenGapsWarning("a", 1, "0")))
    both = first + second
    assert (both.rows, both.out_of_range, both.columns) == (15, 3, ("b", "a"))
    assert [(type(each), each.column, each.rows) for each in both.unseen] == [
        (UnseenLevelsWarning, "c", 3),
        (UnseenGapsWarning, "a", 1),
    ]
    assert both.sentence(SimpleNamespace(encoded_names_=["a", "b"])).startswith(
        "3 of 15 rows are outside the range of the fit"
    )
    assert Novelty(4).sentence(SimpleNamespace()) == ""
