"""The suites of fits: tables that are made, cells, comparisons and verdicts; real fits at the smallest size."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks import _fits, _process, budgets, neighbours
from benchmarks._fits import MADE, Fit, load_table, measure
from benchmarks._harness import Results
from benchmarks._process import in_own_process
from benchmarks._rates import Rates
from benchmarks.neighbours import Comparison
from benchmarks.peers import Task


def made_up(fit, nll=0.5, k=20, seconds=10.0, **more):
    details = {"neighbours": k, "fit_seconds": seconds, "inducing": 100, "notes": more.pop("notes", [])}
    row = {"nll": nll, "rmse": 0.5, "coverage": 0.95, "seconds": seconds + 1, "note": "one block", "details": details}
    return {**fit.key(), **row, "train_rows": 9000, "columns": 4, "test_rows": 1000, **more}


@pytest.fixture
def no_rates(monkeypatch):
    for module in (neighbours, budgets):
        monkeypatch.setattr(module, "machine_rates", lambda: Rates(1e9, 1e9, 1e9))


@pytest.mark.parametrize("name", MADE)
def test_made_tables_are_the_same_each_time(name):
    first, again = load_table(name, quick=True), load_table(name, quick=True)
    assert first.X.shape[0] == first.y.shape[0] == _fits.QUICK_ROWS
    assert first.test.mean() == pytest.approx(0.1, abs=0.01)
    np.testing.assert_array_equal(first.X, again.X)
    np.testing.assert_array_equal(first.y, again.y)
    assert np.isfinite(first.y).all()


def test_made_tables_are_hard_in_different_ways():
    tables = {name: load_table(name, quick=True) for name in MADE}
    assert tables["wide"].X.shape[1] == 60
    assert MADE["long"].rows == 2_000_000
    assert abs(np.corrcoef(tables["noise"].X.T, tables["noise"].y)[-1, :-1]).max() < 0.08
    tails = tables["tails"].y - tables["tails"].y.mean()
    assert np.mean(tails**4) / np.mean(tails**2) ** 2 > 6  # a normal variable has 3
    smooth = tables["smooth"]
    assert smooth.y[0] == pytest.approx(
        np.sin(2 * smooth.X[0, 0]) * np.cos(smooth.X[0, 1]) + smooth.X[0, 2] * smooth.X[0, 3]
    )


def test_test_rows_beyond_the_cap_are_left_out(monkeypatch):
    X = np.arange(1000.0)[:, None]
    table = Task(X, X[:, 0], np.arange(1000) % 10 == 0)
    monkeypatch.setattr(_fits, "load_task", lambda name, fold: table)
    monkeypatch.setattr(_fits, "TEST_ROWS", 30)
    monkeypatch.setattr(_fits, "QUICK_ROWS", 200)
    whole, quick = load_table("houseelectric"), load_table("houseelectric", quick=True)
    assert (whole.test.sum(), (~whole.test).sum()) == (30, 900)
    assert not set(whole.y[~whole.test]) & set(table.y[table.test])  # none of them is trained on
    assert len(quick.y) == 200


def test_a_fit_is_measured():
    row = measure("tails", {"neighbours": 0}, quick=True)
    assert row["details"]["neighbours"] == 0
    assert row["details"]["inducing"] == 24
    assert (row["train_rows"], row["test_rows"], row["columns"]) == (2160, 240, 3)
    assert row["nll"] < 1.42  # a constant has that
    assert 0 < row["details"]["fit_seconds"] < row["seconds"]
    json.dumps(row)


def test_a_function_in_its_own_process():
    assert in_own_process("operator:add", {}, 60, 1)["error"].startswith("TypeError")
    row = in_own_process("builtins:dict", {"a": 1, "b": [None, "x"]}, 60, 1)
    assert row == {"a": 1, "b": [None, "x"]}
    assert "timeout" in in_own_process("builtins:dict", {}, 0.01, 1)["error"]
    assert "without a word" in in_own_process("sys:exit", {}, 60, 1)["error"]  # no result, though nothing failed
    assert _process.peak_memory() > 1e6


def test_none_gets_the_seconds_and_the_points_of_auto():
    auto, none = neighbours.first_fits(("wide",), None, False)
    assert (auto.options, none.options) == ({"neighbours": "auto"}, {"neighbours": 0})
    (longer,) = neighbours.as_long([made_up(auto, seconds=61.23), made_up(none)])
    assert longer.options["time_budget"] == 61.2
    assert longer.options["n_inducing"] == 100
    assert longer.options["neighbours"] == 0
    assert longer.options["max_steps"] > 400
    assert neighbours.as_long([made_up(auto, train_rows=900)]) == []  # exact: nothing more to spend seconds on
    assert neighbours.as_long([{**auto.key(), "error": "killed"}]) == []
    both = neighbours.first_fits(("wide",), 30.0, False)
    assert [fit.options["time_budget"] for fit in both] == [30.0, 30.0]


@pytest.mark.parametrize(
    ("auto", "none", "longer", "other", "worse"),
    [(0.5, 0.6, 0.55, "none, as long", False), (0.5, 0.497, 0.9, "none", False), (0.5, 0.6, 0.494, "none, as long", True)],
)  # fmt: skip
def test_auto_is_held_against_the_better_side(auto, none, longer, other, worse):
    first, second = neighbours.first_fits(("wide",), None, False)
    rows = [made_up(first, auto), made_up(second, none, 0)]
    rows.append(made_up(neighbours.as_long(rows)[0], longer, 0))
    compared = Comparison.of("wide", rows)
    assert compared.best["setting"] == other
    assert compared.worse == worse
    text = neighbours.page(("wide",), rows, "command", "machine")
    assert f"on {int(worse)} of 1 tables" in text
    assert f"{auto:+.4f} / {min(none, longer):+.4f}" in text
    assert "20 / 0" in text


def test_a_side_that_failed_is_not_a_win():
    first, second = neighbours.first_fits(("wide",), None, False)
    rows = [{**first.key(), "error": "killed by SIGKILL | 9"}, made_up(second)]
    text = neighbours.page(("wide",), rows, "command", "machine")
    assert "on 0 of 0 tables. 1 could not be compared." in text
    assert "killed by SIGKILL / 9" in text
    assert Comparison.of("wide", [made_up(first), {**second.key(), "error": "no"}]).error == "no"


def test_a_rerun_of_a_suite_goes_on(tmp_path, monkeypatch, capsys, no_rates):
    ran = []

    def fake(fit):
        if len(ran) == 1 and fit not in ran:
            ran.append(None)
            raise KeyboardInterrupt
        ran.append(fit)
        return made_up(fit)

    monkeypatch.setattr(_fits, "run_fit", fake)
    command = ["--sets", "tails,noise", "--quick", "--output", str(tmp_path)]
    with pytest.raises(SystemExit, match="130"):
        neighbours.main(command)
    assert neighbours.main(command) == 0
    assert "python -m benchmarks.neighbours --sets tails,noise --quick" in (tmp_path / "neighbours.md").read_text()
    fits = [fit for fit in ran if fit]
    assert [(fit.table, fit.setting) for fit in fits] == [
        ("tails", "auto"), ("tails", "none"), ("noise", "auto"), ("noise", "none"),
        ("tails", "none, as long"), ("noise", "none, as long"),
    ]  # fmt: skip
    assert neighbours.main(command) == 0
    assert len([fit for fit in ran if fit]) == 6
    assert neighbours.main([*command, "--redo"]) == 0
    assert len([fit for fit in ran if fit]) == 12
    assert len(Results(tmp_path / "neighbours.jsonl").rows) == 6
    with pytest.raises(SystemExit):
        neighbours.main(["--sets", "tials"])
    assert "tials: not one of kin40k" in capsys.readouterr().err


def test_suites_without_data_say_so(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("HARMONICGP_DATA", raising=False)
    with pytest.raises(SystemExit, match="1"):
        budgets.main(["--output", str(tmp_path / "out")])
    assert "bench budgets: kin40k.npz is needed" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def budget_rows(*figures):
    return [
        made_up(Fit("wide", setting, {"time_budget": budget}), nll, seconds=share * budget, notes=notes)
        for setting, budget, nll, share, notes in figures
    ]


def test_promises_of_budgets():
    def said(*figures):
        rows = budget_rows(*figures)
        return budgets.complaints(rows, rows[-1])

    short = ("auto", 10.0, 0.5, 0.9, [])
    assert said(short, ("auto", 30.0, 0.509, 1.05, [])) == []
    assert said(short, ("auto", 30.0, 0.511, 0.6, [])) == ["NLL +0.011"]
    assert said(short, ("one block", 30.0, 0.9, 0.6, [])) == []  # of another setting
    assert said(short, ("auto", 30.0, 0.5, 1.06, ["time budget"])) == ["too long"]
    assert said(short, ("auto", 30.0, 0.5, 0.59, ["columns were left out"])) == ["ended early"]
    assert said(short, ("auto", 30.0, 0.5, 0.59, ["the time budget was not used up: exact"])) == []
    block = ("one block", 30.0, 0.5, 0.9, [])
    assert said(block, ("auto", 30.0, 0.5049, 0.9, [])) == []
    assert said(block, ("auto", 30.0, 0.506, 0.9, [])) == ["one block is better by 0.006"]


def test_the_page_of_budgets(tmp_path, monkeypatch, no_rates):
    def fake(fit):
        if fit.setting == "one block":
            return {**fit.key(), "error": "a | b"}
        return made_up(fit, seconds=0.5 * fit.options["time_budget"])

    monkeypatch.setattr(_fits, "run_fit", fake)
    assert budgets.main(["--sets", "wide", "--seconds", "5,20", "--output", str(tmp_path)]) == 0
    text = (tmp_path / "budgets.md").read_text()
    assert "0 of 4 fits are as promised" in text
    assert "python -m benchmarks.budgets --sets wide --seconds 5,20" in text
    assert "ended early" in text
    assert "a / b" in text
    with pytest.raises(SystemExit):
        budgets.main(["--seconds", "5,-1"])
