"""The command line: what it writes, what it says, how it fails."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest

from harmonicgp import HarmonicGPRegressor, __version__
from harmonicgp.symmetry import search
from tests.cli.common import REGRESSION, complaint, process, run, stations

COMMANDS = ("fit", "predict", "report", "suggest", "info", "demo", "bench")


def test_version_and_a_bare_call():
    assert run("--version").stdout == f"harmonicgp {__version__}\n"
    text = run().stdout
    assert all(f"\n  {name} " in text for name in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples_that_fit_the_screen(command):
    text = run(command, "--help").stdout
    assert f"\n    harmonicgp {command}" in text.partition("Examples:")[2]
    assert max(map(len, text.splitlines())) <= 80


def test_examples_in_help_parse():
    """Every option that an example names is one of the command."""
    for command in COMMANDS:
        text = run(command, "--help").stdout
        options, _, examples = text.partition("Examples:")
        for word in examples.split():
            if word.startswith("-"):
                assert any(word in line.replace(",", " ").split() for line in options.splitlines()), (command, word)


def test_help_is_quick_because_nothing_heavy_is_imported():
    code = (
        "import sys\n"
        "from harmonicgp.cli import main\n"
        "sys.argv = ['harmonicgp', 'fit', '--help']\n"
        "try:\n    main()\n"
        "finally:\n    print([name for name in ('torch', 'sklearn', 'pandas', 'pyarrow') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["fit", "TABLE", "-o", "m.hgp"], 2, "--target"),
        (["fit", "TABLE", "-t", "temperature"], 2, "--output"),
        (["fitt"], 2, "fit"),
        (["fit", "TABLE", "--tarjet", "temperature"], 2, "--target"),
        (["fit", "TABLE", "-t", "temperature", "-o", "m.hgp", "--max-steps", "0"], 2, "max-steps"),
        (["fit", "TABLE", "-t", "temperature", "-o", "m.hgp", "--missing", "drop"], 2, "'impute'"),
        (["fit", "TABLE", "-t", "temperature", "-o", "m.hgp", "--test-fraction", "1"], 2, "below 1"),
        (["fit", "TABLE", "-t", "temperature", "-o", "m.hgp", "--time-budget", "0"], 2, "seconds"),
        (["fit", "TABLE", "-t", "temperature", "-o", "m.hgp", "--test-fraction", "0", "--report", "r.html"], 2, "held-out"),
        (["fit", "TABLE", "-t", "temperature", "-o", "m.hgp", "--weight", "temperature"], 2, "--target and by --weight"),
        (["fit", "TABLE", "-t", "temperature", "-o", "m.hgp", "--drop", "id", "--drop", "id"], 2, "is named twice"),
        (["fit", "TABLE", "-t", "temperature", "-t", "kind", "-o", "m.hgp"], 2, "'kind' has classes"),
        (["fit", "TABLE", "-t", "temperature", "-o", "m.hgp", "--weight", "kind"], 2, "'kind' is of type text"),
        (["fit", "TABLE", "-t", "temperature", "-o", "no/m.hgp"], 2, "does not exist"),
        (["fit", "TABLE", "-t", "temperature", "-o", "TABLE"], 2, "overwrite"),
        (["fit", "nothing.csv", "-t", "temperature", "-o", "m.hgp"], 1, "no file nothing.csv"),
        (["predict", "no.hgp", "TABLE", "-o", "out.csv"], 1, "no model file no.hgp"),
        (["predict", "no.hgp", "TABLE", "-o", "out.csv", "--quantiles", "2"], 2, "between 0 and 1"),
        (["report", "no.hgp", "TABLE", "-o", "r.html"], 1, "no model file"),
        (["info", "no.hgp"], 1, "no model file"),
        (["bench"], 2, "checkout"),
    ],
)  # fmt: skip
def test_a_bad_command_line_is_one_line_and_a_code(arguments, code, message, table, monkeypatch):
    monkeypatch.chdir(table.parent)
    words = [table.name if word == "TABLE" else word for word in arguments]
    assert message in complaint(*words, code=code)


@pytest.mark.parametrize(
    ("option", "word", "says"),
    [
        ("--missing", "imput", "--missing takes 'refuse' or 'impute'; got 'imput' (did you mean 'impute'?)."),
        ("--target-transform", "logs", "takes 'log' or 'quantile'; got 'logs' (did you mean 'log'?)."),
        ("--likelihood", "student", "takes 'gaussian' or 'student_t'; got 'student' (did you mean 'student_t'?)."),
        ("--calibration", "always", "--calibration takes 'conformal'; got 'always'."),
        ("--kernel", "matern23", "takes 'rbf', 'matern12', 'matern32' or 'matern52'; got 'matern23' (did you mean"),
    ],
)
def test_a_wrong_word_is_met_with_the_right_ones(table, tmp_path, option, word, says):
    line = complaint("fit", table, "-t", "temperature", "-o", tmp_path / "m.hgp", option, word, code=2)
    assert line.startswith(f"error: {option} takes ")
    assert says in line


def test_the_choices_are_those_of_the_library(tmp_path):
    from harmonicgp.kernels.profiles import NAMED_PROFILES

    text = run("fit", "--help").stdout
    assert set(re.search(r"--kernel <(.*?)>", text)[1].split("|")) == set(NAMED_PROFILES)
    line = complaint("demo", "--size", "smal", "-o", tmp_path / "demo", code=2)
    assert line == "error: --size takes 'small' or 'medium'; got 'smal' (did you mean 'small'?)."
    assert not (tmp_path / "demo").exists()
    assert complaint("fitt", code=2).endswith("'fit'? See 'harmonicgp --help'.")


def test_fit_says_what_it_did(folder):
    text = " ".join((folder / "fit.txt").read_text().split())
    assert "stations.csv: 240 rows, 7 columns" in text
    assert "2 rows without a target" in text
    assert "temperature (regression)" in text
    assert "lon (number), lat (number)" in text
    assert "214 for the fit, 24 held out" in text
    assert "symmetry" in text
    assert "RMSE" in text
    assert "inside their 95% intervals" in text
    assert str(folder / "model.hgp") in text
    text = " ".join((folder / "classify.txt").read_text().split())
    assert "kind (2 classes)" in text
    assert "% correct (the most frequent class alone:" in text


def test_report_and_info(folder, tmp_path):
    pytest.importorskip("matplotlib")
    page = tmp_path / "report.html"
    text = run("report", folder / "model.hgp", folder / "stations.csv", "-o", page).stdout
    assert "on 238 rows, RMSE" in text
    assert "<html" in page.read_text()
    text = run("info", folder / "kind.hgp").stdout
    assert "HarmonicGPClassifier" in text
    assert "north, south" in text
    assert "lon, lat" in text


def test_neighbours_are_an_option_and_told(tmp_path):
    g = np.random.default_rng(0)
    rows = pd.DataFrame({"a": g.uniform(0, 30, 2400)})
    rows.assign(y=np.sin(7 * rows.a)).to_csv(tmp_path / "waves.csv", index=False)
    model = tmp_path / "model.hgp"
    few = ("--n-inducing", 8, "--max-steps", 3, "--symmetry", "none", "-o", model, "--quiet")
    run("fit", tmp_path / "waves.csv", "-t", "y", "--neighbours", 6, *few)
    assert "file holds all training rows: the nearest 6 correct" in " ".join(run("info", model).stdout.split())
    run("fit", tmp_path / "waves.csv", "-t", "y", "--neighbours", 0, *few)
    assert "file      holds no training rows, but inducing inputs" in run("info", model).stdout
    for wrong in (-1, "many", "1.5"):
        words = complaint("fit", tmp_path / "waves.csv", "-t", "y", "--neighbours", wrong, *few, code=2)
        assert f"--neighbours takes auto or a whole number, 0 for none; got '{wrong}'" in words


@pytest.mark.parametrize("neighbours", ["auto", 0])
def test_an_exact_model_has_its_inputs_in_the_file_and_info_says_so(neighbours, tmp_path):
    g = np.random.default_rng(0)
    rows = pd.DataFrame({"a": g.uniform(0, 3, 60)})
    rows.assign(y=np.sin(rows.a)).to_csv(tmp_path / "few.csv", index=False)
    run("fit", tmp_path / "few.csv", "-t", "y", "-o", tmp_path / "m.hgp", "--max-steps", 3, "--neighbours", neighbours)
    text = " ".join(run("info", tmp_path / "m.hgp").stdout.split())
    assert "file holds the inputs of all training rows" in text


def test_info_of_a_classifier_says_that_it_holds_no_rows(folder):
    assert "holds no training rows" in run("info", folder / "kind.hgp").stdout


def test_info_of_a_model_of_arrays(tmp_path):
    g = np.random.default_rng(0)
    X = g.normal(size=(40, 3))
    HarmonicGPRegressor(max_steps=2).fit(X, X[:, 0]).save(tmp_path / "model.hgp")
    assert "3, without names" in run("info", tmp_path / "model.hgp").stdout


def test_a_model_of_an_array_predicts_and_reports_on_tables_by_the_order_of_their_columns(tmp_path):
    g = np.random.default_rng(0)
    X = g.normal(size=(40, 3))
    gp = HarmonicGPRegressor(max_steps=2).fit(X, X[:, 0])
    gp.save(tmp_path / "model.hgp")
    table = pd.DataFrame(X, columns=["a", "b", "c"]).assign(y=X[:, 0])
    table.to_csv(tmp_path / "table.csv", index=False)
    done = run("predict", tmp_path / "model.hgp", tmp_path / "table.csv", "-o", tmp_path / "out.csv")
    assert done.stderr == ""
    np.testing.assert_allclose(pd.read_csv(tmp_path / "out.csv").y_mean, gp.predict(X), rtol=1e-6)
    said = run("report", tmp_path / "model.hgp", tmp_path / "table.csv", "-o", tmp_path / "out.html").stdout
    assert "on 40 rows" in said
    table.rename(columns={"y": "other"}).to_csv(tmp_path / "wide.csv", index=False)
    words = complaint("predict", tmp_path / "model.hgp", tmp_path / "wide.csv", "-o", tmp_path / "out.csv", code=1)
    assert "an array of 3 columns without names, and wide.csv has 4: a, b, c, other" in words


def test_suggest_prints_the_candidates(folder, monkeypatch):
    monkeypatch.setattr(search, "ROUNDS", search.ROUNDS[:1])  # the first tells enough here
    picture = folder / "symmetries.png"
    text = run("suggest", folder / "stations.csv", *REGRESSION, "--picture", picture).stdout
    assert picture.stat().st_size > 10_000
    assert "suggested" in text
    assert "moved inputs" in text
    assert "one block" in text
    assert "negation" in text
    assert "runs no search, because there are few rows: it fits an exact model" in text
    classes = ["-t", "kind", "--drop", "temperature", "--quiet"]
    text = run("suggest", folder / "stations.csv", *classes).stdout
    assert len(text.splitlines()) == 1
    words = complaint("suggest", folder / "stations.csv", *REGRESSION, "--picture", folder / "s.txt", code=2)
    assert "--picture draws .png, .svg, .pdf files" in words


def test_the_process_has_the_exit_codes(folder, tmp_path):
    done = process("predict", folder / "model.hgp", folder / "stations.csv", "-o", tmp_path / "out.csv")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(pd.read_csv(tmp_path / "out.csv")) == 240
    done = process("fit", tmp_path / "out.csv", "-t", "nothing", "-o", tmp_path / "m.hgp", "-q")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1


@pytest.mark.skipif(os.name == "nt", reason="the test uses pipes and signals of POSIX, which Windows does not have")
@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["fit", "stations.csv", "-t", "nothing", "-o", "m.hgp"], 2, "error: --target"),  # what it does goes on
        (["--help"], 1, ""),
    ],
)
def test_a_closed_pipe_is_quiet(table, arguments, code, says):
    reader, writer = os.pipe()
    os.close(reader)  # as if head had gone already
    command = [sys.executable, "-m", "harmonicgp", *arguments]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False, cwd=table.parent)
    os.close(writer)
    assert done.returncode == code
    assert done.stderr.count("\n") == bool(says)
    assert done.stderr.startswith(says)


@pytest.mark.skipif(os.name == "nt", reason="the test uses pipes and signals of POSIX, which Windows does not have")
def test_an_interrupted_process_says_so(tmp_path):
    stations(20_000).to_csv(tmp_path / "stations.csv", index=False)  # enough for some seconds
    command = [sys.executable, "-m", "harmonicgp", "fit", str(tmp_path / "stations.csv"), *REGRESSION]
    command += ["-o", str(tmp_path / "m.hgp"), "--max-steps", "1000000"]
    running = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's & ignores it
    )
    assert running.stdout is not None
    for line in running.stdout:
        if "for the fit" in line:
            break
    time.sleep(0.5)
    running.send_signal(signal.SIGINT)
    _, stderr = running.communicate(timeout=60)
    assert running.returncode == 130
    assert stderr.splitlines()[-1] == "stopped; nothing was written."
    assert "Traceback" not in stderr
    assert not (tmp_path / "m.hgp").exists()
