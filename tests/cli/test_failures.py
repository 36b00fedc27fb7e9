"""Failures and warnings: one line each."""

from __future__ import annotations

import sys
import warnings

import pandas as pd

from tests.cli.common import REGRESSION, complaint, run, stations


def test_an_unexpected_error_is_one_line_and_debug_shows_it(table, tmp_path, fake):
    def fail():
        raise RuntimeError("the matrix\nis singular")

    fake(fail)
    arguments = ["fit", table, *REGRESSION, "-o", tmp_path / "m.hgp"]
    assert complaint(*arguments, code=1).startswith("error: RuntimeError: the matrix is singular (unexpected")
    for words in (["--debug", *arguments], [*arguments, "--debug"]):
        assert isinstance(run(*words, code=1).exception, RuntimeError)
    assert not (tmp_path / "m.hgp").exists()


def test_a_missing_extra_is_one_line(table, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    line = complaint("fit", table, *REGRESSION, "-o", tmp_path / "m.hgp", "--report", tmp_path / "r.html", code=1)
    assert line == "error: a report needs matplotlib: pip install 'harmonicgp[plot]'"


def test_ctrl_c_is_one_line(table, tmp_path, fake):
    def interrupt():
        raise KeyboardInterrupt

    fake(interrupt)
    arguments = ["fit", table, *REGRESSION, "-o", tmp_path / "m.hgp"]
    assert run(*arguments, code=130).stderr == "stopped; nothing was written.\n"
    resumed = run(*arguments, "--checkpoint-dir", "checkpoints", code=130).stderr
    assert resumed == "stopped; the same command continues from checkpoints.\n"


def test_warnings_are_one_plain_line_each(table, tmp_path, fake):
    def warn():
        for _ in range(2):
            warnings.warn("a column\nis constant", UserWarning, stacklevel=1)

    fake(warn)
    result = run("fit", table, *REGRESSION, "-o", tmp_path / "m.hgp", "--test-fraction", 0, "--quiet")
    assert result.stderr == "warning: a column is constant\n"
    assert result.stdout == ""


def test_text_that_cannot_be_used_is_met_with_a_remedy(tmp_path):
    days = pd.date_range("2023-01-01", periods=80)
    fit = ["fit", tmp_path / "t.csv", "-t", "y", "-o", tmp_path / "m.hgp"]
    for form, example in (("%d/%m/%Y", "01/01/2023"), ("%m/%d/%Y %H:%M", "01/01/2023 00:00"), ("%d.%m.%y", "01.01.23")):
        pd.DataFrame({"when": days.strftime(form), "y": range(80)}).to_csv(tmp_path / "t.csv", index=False)
        said = complaint(*fit, "--test-fraction", 0, code=1)
        assert f"column 'when' holds text that looks like dates, such as {example!r}" in said
        assert "write ISO dates, such as 2023-12-31" in said
    pd.DataFrame({"who am i": [f"n{k}" for k in range(80)], "y": range(80)}).to_csv(tmp_path / "t.csv", index=False)
    assert "drop it if it is an identifier (--drop 'who am i')" in complaint(*fit, code=1)


def test_gaps_are_refused_with_the_option_that_helps(folder, tmp_path):
    path = tmp_path / "gaps.csv"
    table = stations(30)
    table.assign(lon=table.lon.where(table.id > 1)).to_csv(path, index=False)
    says = "values are missing in 'lon' (2 rows): drop those rows, or fit with --missing impute."
    assert says in complaint("predict", folder / "model.hgp", path, "-o", tmp_path / "out.csv", code=1)
    assert says in run("fit", path, *REGRESSION, "-o", tmp_path / "m.hgp", "--test-fraction", 0, code=1).stderr
