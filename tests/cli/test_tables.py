"""Tables taken apart for a fit."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from harmonicgp.cli.commands import app
from harmonicgp.cli.tables import TableTask
from harmonicgp.cli.words import Speaker
from tests.cli.common import REGRESSION, complaint, run, stations


def test_targets_that_cannot_be_are_refused(tmp_path):
    path = tmp_path / "t.csv"
    table = pd.DataFrame(
        {"x": range(30), "text": [*map(str, range(29)), "?"], "day": ["2024-01-01"] * 30, "void": None}
    )
    table.to_csv(path, index=False)
    fit = ["fit", path, "-o", tmp_path / "m.hgp"]
    assert "reads as numbers (except '?')" in complaint(*fit, "-t", "text", code=1)
    assert "is of type date" in complaint(*fit, "-t", "day", code=1)
    assert "no row of t.csv has a value of void" in complaint(*fit, "-t", "void", code=1)
    everything = ["--drop", "text", "--drop", "day", "--drop", "void"]
    assert "no column left" in complaint(*fit, "-t", "x", *everything, code=2)


def test_weights_with_holes_are_refused(tmp_path):
    pd.DataFrame({"x": [1.0, 2.0], "y": [1.0, 2.0], "w": [1.0, None]}).to_csv(tmp_path / "t.csv", index=False)
    line = complaint("fit", tmp_path / "t.csv", "-t", "y", "-o", tmp_path / "m.hgp", "--weight", "w", code=1)
    assert "1 row without a value of 'w'" in line


def test_every_column_has_its_part(table, tmp_path, fake):
    estimator = fake()
    result = run(
        *("fit", table, "-t", "temperature", "-t", "rain", "-o", tmp_path / "m.hgp", "--test-fraction", 0),
        *("--weight", "id", "--noise-std", "err", "--drop", "kind"),
    )
    given, expected = estimator.given, stations(40).dropna()
    assert given.X.column_names == ["lon", "lat"]
    assert list(given.y.columns) == ["temperature", "rain"]
    np.testing.assert_array_equal(given.y, expected[["temperature", "rain"]])
    np.testing.assert_array_equal(given.sample_weight, expected.id)
    np.testing.assert_allclose(given.noise_std, expected.err)
    assert given.noise_std.name == "err"
    assert "2 rows without a target" in result.stdout


def test_rows_set_aside_follow_from_the_seed(table, tmp_path, fake):
    def learned(*options):
        estimator = fake()
        result = CliRunner().invoke(app, ["fit", str(table), *REGRESSION, "-o", str(tmp_path / "m.hgp"), *options])
        assert "for the fit" in result.output
        return estimator.given.y.tolist()

    first = learned("--test-fraction", "0.25")
    assert len(first) == 28
    assert first == learned("--test-fraction", "0.25")
    assert first != learned("--test-fraction", "0.25", "--seed", "1")
    assert first == [value for value in stations(40).temperature if value in first]  # in the order of the table


def test_a_class_of_one_row_is_learned(tmp_path):
    path = tmp_path / "t.csv"
    pd.DataFrame({"x": range(40), "kind": ["rare", *["a", "b"] * 19, "rarer"]}).to_csv(path, index=False)
    task = TableTask.read(path, ["kind"], {}, Speaker(quiet=True))
    for seed in range(20):
        training, testing = task.split(0.5, seed)
        assert {"rare", "rarer"} <= set(training.y)
        assert len(training) + len(testing) == 40


def test_the_index_of_a_pandas_table_is_left_out(folder, tmp_path, fake):
    pytest.importorskip("matplotlib")
    table = stations(40).sample(frac=1, random_state=0)
    table.to_parquet(tmp_path / "nameless.parquet")
    table.set_index("id").to_parquet(tmp_path / "named.parquet")
    for name, index in (("nameless", "__index_level_0__"), ("named", "id")):
        file, note = tmp_path / f"{name}.parquet", f"note {index!r} is the index of a pandas table and is left out"
        done = run("predict", folder / "model.hgp", file, "-o", tmp_path / "out.csv")
        assert note in " ".join(done.stdout.split())
        assert index not in pd.read_csv(tmp_path / "out.csv").columns
        done = run("report", folder / "model.hgp", file, "-o", tmp_path / "r.html")
        assert note in " ".join(done.stdout.split())
    run("predict", folder / "model.hgp", tmp_path / "named.parquet", "-o", tmp_path / "out.csv", "--keep", "id")
    assert pd.read_csv(tmp_path / "out.csv").id.tolist() == table.id.tolist()
    estimator = fake()
    for name, index in (("nameless", "__index_level_0__"), ("named", "id")):
        fit = ["fit", tmp_path / f"{name}.parquet", "-t", "temperature", "-o", tmp_path / "m.hgp", "--test-fraction", 0]
        assert f"note {index!r} is the index" in " ".join(run(*fit).stdout.split())
        assert index not in estimator.given.X.column_names
    assert "is the index" not in run(*fit, "--weight", "id").stdout


def test_a_column_that_counts_the_rows_is_told_of(tmp_path, fake):
    fake()
    table = stations(40)
    fit = ["fit", tmp_path / "t.csv", "-t", "rain", "-o", tmp_path / "m.hgp", "--test-fraction", 0]
    note = "note 'id' counts the rows: drop it if it is an identifier (--drop id)."
    for ids, told in ((table.id, True), (table.id + 1000, True), (table.id.where(table.id != 7, 90), False)):
        table.assign(id=ids).to_csv(tmp_path / "t.csv", index=False)
        assert (note in " ".join(run(*fit).stdout.split())) == told
    table.to_csv(tmp_path / "t.csv", index=False)
    assert "counts the rows" not in run(*fit, "--drop", "id").stdout


def test_quotation_marks_left_open_are_not_swallowed(tmp_path):
    rows = [f"{i},{i % 3},word" for i in range(50)]
    rows[9] = '9,0,"word'
    (tmp_path / "open.csv").write_text("x,y,note\n" + "\n".join(rows) + "\n")
    message = complaint("fit", tmp_path / "open.csv", "-t", "y", "-o", tmp_path / "m.hgp", code=1)
    assert "open quotation mark" in message
    rows[29] = '29,2,word"'
    (tmp_path / "two.csv").write_text("x,y,note\n" + "\n".join(rows) + "\n")
    said = run("fit", tmp_path / "two.csv", "-t", "y", "-o", tmp_path / "m.hgp", "--drop", "note", "--max-steps", "5")
    assert "open quotation mark" in said.stderr
