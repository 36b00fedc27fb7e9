"""What a command prints."""

from __future__ import annotations

import html

import numpy as np
import pytest

from harmonicgp.cli.words import Speaker, count, did_you_mean, listing
from tests.cli.common import journal, run


def test_notes_are_entries_and_warnings_are_warnings(diary):
    said = " ".join(diary.fit.stdout.split())
    for words in ("'when' holds dates: used as", "'depth' has "):
        assert f"note {words}" in said
        assert words not in diary.fit.stderr
    assert diary.fit.stderr.startswith("warning: 'room' has 30 levels: ")
    assert diary.fit.stderr.count("\n") == 1
    again = run("info", diary.model)
    assert again.stderr == diary.fit.stderr
    assert "note      'when' holds dates" in again.stdout


def test_a_report_tells_of_what_is_new(diary, tmp_path):
    pytest.importorskip("matplotlib")
    table = journal()
    table.loc[:2, "site"] = "moor"
    table.loc[3, "wind"] = -5.0
    table.loc[4, "wind"] = np.nan
    table.to_csv(tmp_path / "new.csv", index=False)
    result = run("report", diary.model, tmp_path / "new.csv", "-o", tmp_path / "r.html")
    page = html.unescape((tmp_path / "r.html").read_text())
    for line in ("('moor') in 3 rows", "'wind' has missing values in 1 row, and had none in the fit"):
        assert line in result.stderr
        assert line in page
    assert result.stderr.count("\n") == 2
    words = "1 of 120 rows is outside the range of the fit in wind: the model extrapolates"
    assert words in " ".join(result.stdout.split())
    assert words in page


def test_a_long_label_is_apart_from_its_text(capsys):
    Speaker()("neighbours", "20")
    Speaker()("note", "short")
    assert capsys.readouterr().out == "neighbours 20\nnote      short\n"


def test_small_words():
    assert [count(1, "row"), count(2000, "row"), count(2, "class")] == ["1 row", "2,000 rows", "2 classes"]
    assert listing(["a", "b", "c"], most=2) == "a, b and 1 more"
    assert did_you_mean("Colum", ["column", "row"]) == " (did you mean 'column'?)"
    assert did_you_mean("x", ["column", "row"]) == ""
