"""Rates of predictions: real models of the smallest size, and a table that is streamed."""

from __future__ import annotations

import pyarrow.parquet
import pytest

from benchmarks import prediction
from benchmarks._rates import Rates
from benchmarks.prediction import Sizes
from harmonicgp.tables import read_table

TINY = Sizes(2_050, (3,), (16,), (0, 5), (1, 40), 70_000, 1)


def test_rates_are_rows_by_seconds():
    found = prediction.rates(TINY)
    assert [(row["rows"], row["neighbours"]) for row in found] == [(1, 0), (1, 5), (40, 0), (40, 5)]
    for row in found:
        assert row["rows_per_second"] == pytest.approx(row["rows"] / row["seconds"][0])
    text = prediction.rates_table(found)
    assert [cell.strip() for cell in text.splitlines()[0].split("|")[4:6]] == ["no neighbours", "5"]
    assert len(text.splitlines()) == 4


def test_a_streamed_table_is_predicted(tmp_path):
    source, target, model = tmp_path / "rows.parquet", tmp_path / "out.parquet", tmp_path / "model.hgp"
    prediction.write_rows(source, 66_000, 3)  # more than a batch
    prediction.fitted(2_050, 3, 16, 0).save(model)
    row = prediction.stream(str(model), str(source), str(target))
    assert row["seconds"] > 0
    assert row["memory"] > 1e6
    assert pyarrow.parquet.read_metadata(target).num_rows == 66_000
    assert {"y_mean", "y_std"} <= set(read_table(target).column_names)
    with pytest.raises(RuntimeError, match="ended with"):
        prediction.stream(str(model), str(tmp_path / "absent.csv"), str(target))


def test_the_page_of_predictions(tmp_path, monkeypatch):
    asked = []

    def fake(target, arguments, timeout, threads):
        asked.append(target)
        if target.endswith(":fit_many"):
            return {"error": "killed by SIGKILL"}
        return {"seconds": 2.0, "memory": 3e8}

    monkeypatch.setattr(prediction, "in_own_process", fake)
    monkeypatch.setattr(prediction, "write_rows", lambda path, n, d: None)
    monkeypatch.setattr(prediction, "fitted", lambda *sizes: type("Model", (), {"save": lambda self, path: None})())
    monkeypatch.setattr(prediction, "rates", lambda sizes: [])
    monkeypatch.setattr(prediction, "machine_rates", lambda: Rates(1e9, 1e9, 1e9))
    assert prediction.main(["--million", "--ten-million", "--quick", "--output", str(tmp_path)]) == 0
    text = (tmp_path / "prediction.md").read_text()
    assert "python -m benchmarks.prediction --million --ten-million --quick" in text
    assert "| 10,000,000 | 20         | 5,000,000     | 300" in text
    assert "killed by SIGKILL" in text
    assert len(asked) == 11


def test_many_rows_are_fitted_with_the_defaults():
    row = prediction.fit_many(300, 3)
    assert row["rows"] == 300
    assert row["data"] == 300 * 3 * 4 + 300 * 8
    assert row["memory"] >= 0
    assert "300 x 3" in prediction.million_text(row)
