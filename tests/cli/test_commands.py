"""The command line: what it writes, what it says, how it fails."""

from __future__ import annotations

import html
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

from harmonicgp import __version__
from harmonicgp.cli import app, models, predictions
from harmonicgp.cli.failures import UsageError
from harmonicgp.cli.options import parse_columns, parse_levels
from harmonicgp.cli.tables import ColumnRoles, TableTask
from harmonicgp.cli.words import Speaker
from harmonicgp.symmetry import search

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")

ROOT = Path(__file__).parents[2]
COMMANDS = ("fit", "predict", "report", "suggest", "info", "demo", "bench")
QUICK = ["--max-steps", "15", "--n-inducing", "16"]
REGRESSION = ["--target", "temperature", "--drop", "id", "--drop", "kind", "--drop", "err", "--drop", "rain"]


def stations(n: int = 240) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "id": np.arange(n),
            "lon": rng.uniform(-180, 180, n).round(2),
            "lat": rng.uniform(-60, 60, n).round(2),
            "err": rng.uniform(0.1, 0.2, n),
        }
    )
    table["temperature"] = 25 - 0.3 * table.lat.abs() + 0.1 * rng.normal(size=n)
    table["rain"] = 0.05 * table.lat + 0.1 * rng.normal(size=n)
    table["kind"] = np.where(table.lat > 0, "north", "south")
    table.loc[[3, 7], "temperature"] = np.nan
    return table


def run(*arguments: object, code: int = 0):
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)  # what is meant for users is shown, not raised
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


def complaint(*arguments: object, code: int) -> str:
    """The one line on stderr of a command that fails."""
    line, end = run(*arguments, code=code).stderr.split("\n")
    assert line.startswith("error: ")
    assert end == ""
    return line


def process(*arguments: object, **settings: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "harmonicgp.cli", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **settings)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Tables, a regression and a classification, made once."""
    folder = tmp_path_factory.mktemp("cli")
    stations().to_csv(folder / "stations.csv", index=False)
    stations().to_parquet(folder / "stations.parquet")
    made = {
        "fit": run("fit", folder / "stations.csv", *REGRESSION, "-o", folder / "model.hgp", *QUICK),
        "classify": run(
            *("fit", folder / "stations.parquet", "-t", "kind", "-o", folder / "kind.hgp", *QUICK),
            *("--drop", "id", "--drop", "temperature", "--drop", "rain", "--drop", "err"),
        ),
    }
    (folder / "fit.txt").write_text(made["fit"].stdout)
    (folder / "classify.txt").write_text(made["classify"].stdout)
    return folder


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "stations.csv"
    stations(40).to_csv(path, index=False)
    return path


class FakeRegressor:
    """An estimator whose fit does what a test asks for."""

    then: object = None

    def __init__(self, random_state=0, progress=True, max_steps=None, n_inducing=None, checkpoint_dir=None):
        self.symmetry_ = SimpleNamespace(
            name="one block", reason="", action=None, candidate=SimpleNamespace(warp=False)
        )
        self.n_steps_, self.timings_, self.notes_, self.warnings_ = 1, {"train": 0.1}, [], []

    def fit(self, X, y, sample_weight=None, noise_std=None):
        FakeRegressor.given = SimpleNamespace(X=X, y=y, sample_weight=sample_weight, noise_std=noise_std)
        if callable(self.then):
            self.then()
        return self

    def save(self, path):
        path.write_text("model")


@pytest.fixture
def fake(monkeypatch):
    """The library's estimators replaced, for what only the command line does."""

    def install(then=None):
        monkeypatch.setattr(FakeRegressor, "then", staticmethod(then) if then else None)
        monkeypatch.setattr(models, "estimators_module", lambda: SimpleNamespace(HarmonicGPRegressor=FakeRegressor))
        return FakeRegressor

    return install


# The parts that need no model ----------------------------------------------------------------------------------------


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
    ("text", "kinds"),
    [
        ([], {}),
        (["lon=longitude,lat=latitude"], {"lon": "longitude", "lat": "latitude"}),
        (["a=b=periodic:0.5", "lat=latitude"], {"a=b": ("periodic", 0.5), "lat": "latitude"}),
    ],
)
def test_columns_are_parsed(text, kinds):
    assert parse_columns(text) == kinds


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lon", "NAME=KIND"),
        ("=longitude", "NAME=KIND"),
        ("lon=longitud", "did you mean 'longitude'"),
        ("lon=longitude:3", "longitude, latitude or periodic"),
        ("hour=periodic", "hour=periodic:24"),
        ("hour=periodic:-1", "hour=periodic:24"),
        ("hour=periodic:nan", "hour=periodic:24"),
        ("hour=periodic:inf", "hour=periodic:24"),
        ("lon=longitude,lon=latitude", "twice"),
    ],
)
def test_bad_columns_are_refused(text, message):
    with pytest.raises(UsageError, match=message):
        parse_columns([text])


def test_quantiles_have_exact_names():
    assert parse_levels("0.025, 0.07,.5,0.999") == {"q2.5": 0.025, "q7": 0.07, "q50": 0.5, "q99.9": 0.999}
    assert parse_levels(None) == {}
    for text in ("", "0", "1", "2.5", "x", "nan", "0.1,,0.9"):
        with pytest.raises(UsageError, match="between 0 and 1"):
            parse_levels(text)


# How it fails --------------------------------------------------------------------------------------------------------


def test_wrong_names_are_met_with_the_right_ones(table, tmp_path):
    line = complaint("fit", table, "--target", "Temprature", "-o", tmp_path / "m.hgp", code=2)
    assert "no column 'Temprature' (did you mean 'temperature'?)" in line
    assert "It has id, lon" in line
    for option, value in (("--drop", "idd"), ("--weight", "w"), ("--noise-std", "e"), ("--columns", "lom=longitude")):
        line = complaint("fit", table, "-t", "temperature", "-o", tmp_path / "m.hgp", option, value, code=2)
        assert line.startswith(f"error: {option}: stations.csv has no column")


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
        (["fit", "TABLE", "-t", "temperature", "-o", "m.hgp", "--test-fraction", "0", "--report", "r.html"], 2, "aside"),
        (["fit", "TABLE", "-t", "temperature", "-o", "m.hgp", "--weight", "temperature"], 2, "--target and as --weight"),
        (["fit", "TABLE", "-t", "temperature", "-o", "m.hgp", "--drop", "id", "--drop", "id"], 2, "given twice"),
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


def test_targets_that_cannot_be_are_refused(tmp_path):
    path = tmp_path / "t.csv"
    table = pd.DataFrame(
        {"x": range(30), "text": [*map(str, range(29)), "?"], "day": ["2024-01-01"] * 30, "void": None}
    )
    table.to_csv(path, index=False)
    fit = ["fit", path, "-o", tmp_path / "m.hgp"]
    assert "reads as numbers (but not '?')" in complaint(*fit, "-t", "text", code=1)
    assert "is of type date" in complaint(*fit, "-t", "day", code=1)
    assert "no row of t.csv has a value of void" in complaint(*fit, "-t", "void", code=1)
    everything = ["--drop", "text", "--drop", "day", "--drop", "void"]
    assert "no column left" in complaint(*fit, "-t", "x", *everything, code=2)


def test_weights_with_holes_are_refused(tmp_path):
    pd.DataFrame({"x": [1.0, 2.0], "y": [1.0, 2.0], "w": [1.0, None]}).to_csv(tmp_path / "t.csv", index=False)
    line = complaint("fit", tmp_path / "t.csv", "-t", "y", "-o", tmp_path / "m.hgp", "--weight", "w", code=1)
    assert "1 row without a value of 'w'" in line


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
    assert resumed == "stopped; the same command goes on from checkpoints.\n"


def test_warnings_are_one_plain_line_each(table, tmp_path, fake):
    def warn():
        for _ in range(2):
            warnings.warn("a column\nis constant", UserWarning, stacklevel=1)

    fake(warn)
    result = run("fit", table, *REGRESSION, "-o", tmp_path / "m.hgp", "--test-fraction", 0, "--quiet")
    assert result.stderr == "warning: a column is constant\n"
    assert result.stdout == ""


def test_benchmarks_are_listed_and_run(tmp_path, monkeypatch):
    (tmp_path / "src" / "harmonicgp").mkdir(parents=True)
    suites = tmp_path / "benchmarks"
    suites.mkdir()
    (suites / "__init__.py").touch()
    (suites / "speed.py").write_text(
        '"""How fast.\n\nMore."""\ndef main(argv):\n    print(argv)\n    return len(argv)\n'
    )
    (suites / "plain.py").write_text('"""Nothing to set."""\ndef main():\n    print("ran")\n')
    (suites / "_help.py").write_text("def main(): pass\n")
    (suites / "parts.py").write_text("x = 1\n")
    monkeypatch.chdir(suites)
    for name in [name for name in sys.modules if name.partition(".")[0] == "benchmarks"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert [line.split(maxsplit=1) for line in run("bench").stdout.splitlines()] == [
        ["plain", "Nothing to set."],
        ["speed", "How fast."],
    ]
    assert run("bench", "speed", "--size", "2", "--help", code=3).stdout == "['--size', '2', '--help']\n"
    assert run("bench", "plain").stdout == "ran\n"
    assert "takes no arguments" in complaint("bench", "plain", "--size", code=2)
    assert "did you mean 'speed'" in complaint("bench", "sped", code=2)
    for name in [name for name in sys.modules if name.partition(".")[0] == "benchmarks"]:
        del sys.modules[name]


# What is given to a fit ----------------------------------------------------------------------------------------------


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
        assert "to learn from" in result.output
        return estimator.given.y.tolist()

    first = learned("--test-fraction", "0.25")
    assert len(first) == 28
    assert first == learned("--test-fraction", "0.25")
    assert first != learned("--test-fraction", "0.25", "--seed", "1")
    assert first == [value for value in stations(40).temperature if value in first]  # in the order of the table


def test_a_class_of_one_row_is_learned(tmp_path):
    path = tmp_path / "t.csv"
    pd.DataFrame({"x": range(40), "kind": ["rare", *["a", "b"] * 19, "rarer"]}).to_csv(path, index=False)
    task = TableTask.read(path, ColumnRoles(["kind"], [], {}), Speaker(quiet=True))
    for seed in range(20):
        training, testing = task.split(0.5, seed)
        assert {"rare", "rarer"} <= set(training.y)
        assert len(training) + len(testing) == 40


# With a real model ---------------------------------------------------------------------------------------------------


def test_fit_says_what_it_did(folder):
    text = " ".join((folder / "fit.txt").read_text().split())
    assert "stations.csv: 240 rows, 7 columns" in text
    assert "2 rows without a target" in text
    assert "temperature (regression)" in text
    assert "lon (number), lat (number)" in text
    assert "214 to learn from, 24 set aside" in text
    assert "symmetry" in text
    assert "RMSE" in text
    assert "inside their 95% intervals" in text
    assert str(folder / "model.hgp") in text
    text = " ".join((folder / "classify.txt").read_text().split())
    assert "kind (2 classes)" in text
    assert "% right (the commonest class alone:" in text


def test_a_fit_is_repeatable_and_declared_columns_are_used(folder, tmp_path):
    arguments = ["fit", folder / "stations.csv", *REGRESSION, *QUICK, "--columns", "lon=longitude,lat=latitude", "-q"]
    outputs = []
    for name in ("a", "b"):
        run(*arguments, "-o", tmp_path / f"{name}.hgp")
        run("predict", tmp_path / f"{name}.hgp", folder / "stations.csv", "-o", tmp_path / f"{name}.csv", "-q")
        outputs.append((tmp_path / f"{name}.csv").read_bytes())
    assert outputs[0] == outputs[1]
    run("predict", folder / "model.hgp", folder / "stations.csv", "-o", tmp_path / "plain.csv", "-q")
    assert outputs[0] != (tmp_path / "plain.csv").read_bytes()


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_predictions_keep_the_rows_in_order(folder, tmp_path, suffix, monkeypatch):
    monkeypatch.setattr(predictions, "BATCH_ROWS", 100)
    out = tmp_path / f"out.{suffix}"
    result = run(
        "predict", folder / "model.hgp", folder / f"stations.{suffix}", "-o", out, "--quantiles", "0.025,0.975"
    )
    read = pd.read_csv if suffix == "csv" else pd.read_parquet
    table, source = read(out), stations()
    new = ["temperature_mean", "temperature_std", "temperature_q2.5", "temperature_q97.5"]
    assert list(table.columns) == [*source.columns, *new]
    assert ", ".join(new[:2]) in " ".join(result.stdout.split())
    pd.testing.assert_frame_equal(table[source.columns], source, check_dtype=False)
    assert (table["temperature_q2.5"] < table.temperature_mean).all()
    assert (table["temperature_q97.5"] > table.temperature_mean).all()

    from harmonicgp import load_model

    mean, std = load_model(folder / "model.hgp").predict(source[["lon", "lat"]], return_std=True)
    np.testing.assert_allclose(table.temperature_mean, np.ravel(mean), rtol=1e-4)
    np.testing.assert_allclose(table.temperature_std, np.ravel(std), rtol=1e-4)


# Text, dates, gaps, and rows that are new to the model -----------------------------------------------------------------


def journal(n: int = 120) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 12, n), unit="D")
    table = pd.DataFrame(
        {
            "when": days.strftime("%Y-%m-%dT%H:%M"),
            "site": rng.choice(["hill", "lake", "town"], n),
            "wind": rng.uniform(0, 9, n),
        }
    )
    table["room"] = [f"r{k % 30}" for k in range(n)]
    table["depth"] = table.wind.where(table.index % 10 > 0)
    table["warmth"] = table.wind + 0.1 * rng.normal(size=n)
    return table


@pytest.fixture(scope="module")
def diary(tmp_path_factory):
    """A model of a journal, and what the fit said."""
    folder = tmp_path_factory.mktemp("diary")
    journal().to_csv(folder / "journal.csv", index=False)
    fit = ["fit", folder / "journal.csv", "-t", "warmth", "-o", folder / "model.hgp", "--missing", "impute", *QUICK]
    return SimpleNamespace(folder=folder, model=folder / "model.hgp", fit=run(*fit))


def test_notes_are_entries_and_warnings_are_warnings(diary):
    said = " ".join(diary.fit.stdout.split())
    for words in ("'when' holds dates: used as", "'depth' lacks"):
        assert f"note {words}" in said
        assert words not in diary.fit.stderr
    assert diary.fit.stderr.startswith("warning: 'room' has 30 levels: ")
    assert diary.fit.stderr.count("\n") == 1
    again = run("info", diary.model)
    assert again.stderr == diary.fit.stderr
    assert "note      'when' holds dates" in again.stdout


def test_new_levels_are_told_of_once_and_rows_beyond_the_data_counted(diary, tmp_path, monkeypatch):
    monkeypatch.setattr(predictions, "BATCH_ROWS", 25)
    table = journal()
    table.loc[[0, 30, 31, 90], "site"] = ["moor", "marsh", "moor", "moor"]
    table.loc[[5, 6, 50], "wind"] = 20.0
    table.loc[[6, 110], "when"] = "2025-06-01T00:00"
    table.loc[[40, 100], "wind"] = np.nan
    table.to_csv(tmp_path / "new.csv", index=False)
    arguments = [
        "predict",
        diary.model,
        tmp_path / "new.csv",
        "-o",
        tmp_path / "out.csv",
        "--latent",
        "--quantiles",
        "0.5",
    ]
    result = run(*arguments)
    assert result.stderr == (
        "warning: column 'site' holds levels that the fit has not seen ('moor', 'marsh') in 4 rows: "
        "they count as none of the known levels, and error bars do not know of it.\n"
        "warning: 'wind' lacks values in 2 rows and lacked none in the fit: they are filled with the median, and error bars "
        "do not know of it.\n"
    )
    assert " ".join(result.stdout.split()).endswith(
        "note 4 of 120 rows lie beyond the data of the fit in when (trend), wind: "
        "their error bars widen, their means lean on the model."
    )
    quiet = run(*arguments, "-q")
    assert (quiet.stdout, quiet.stderr) == ("", result.stderr)
    same = run("predict", diary.model, diary.folder / "journal.csv", "-o", tmp_path / "out.csv")
    assert same.stderr == ""
    assert "beyond" not in same.stdout


def test_a_report_tells_of_what_is_new(diary, tmp_path):
    pytest.importorskip("matplotlib")
    table = journal()
    table.loc[:2, "site"] = "moor"
    table.loc[3, "wind"] = -5.0
    table.loc[4, "wind"] = np.nan
    table.to_csv(tmp_path / "new.csv", index=False)
    result = run("report", diary.model, tmp_path / "new.csv", "-o", tmp_path / "r.html")
    page = html.unescape((tmp_path / "r.html").read_text())
    for line in ("('moor') in 3 rows", "'wind' lacks a value in 1 row and lacked none in the fit"):
        assert line in result.stderr
        assert line in page
    assert result.stderr.count("\n") == 2
    words = "1 of 120 rows lies beyond the data of the fit in wind: its error bar widens"
    assert words in " ".join(result.stdout.split())
    assert words in page


def test_columns_of_a_csv_file_are_passed_on_as_they_are_written(diary, tmp_path):
    table = journal(8)
    table["code"] = [f"{k:03}" for k in range(8)]
    table["price"] = ["1.50", "NA", "", "1e3", "+2", " 7", "0x1F", "nan"]
    table["words"] = ['say "so"', "a,b", "plain", "", "two\nlines", "x", "y", "z"]
    table.to_csv(tmp_path / "new.csv", index=False)
    run("predict", diary.model, tmp_path / "new.csv", "-o", tmp_path / "out.csv", "-q")
    read = {"dtype": str, "keep_default_na": False}
    written, out = (pd.read_csv(tmp_path / name, **read) for name in ("new.csv", "out.csv"))
    pd.testing.assert_frame_equal(out[written.columns], written)
    assert out.columns[-2:].tolist() == ["warmth_mean", "warmth_std"]
    first = (tmp_path / "new.csv").read_text().splitlines()[2]
    assert (tmp_path / "out.csv").read_text().splitlines()[2].startswith(f"{first},")
    run("predict", diary.model, tmp_path / "new.csv", "-o", tmp_path / "out.parquet", "-q")
    assert pd.read_parquet(tmp_path / "out.parquet").when.dtype.kind == "M"  # a file that keeps types has them


def test_latent_is_narrower_and_only_what_is_kept_is_written(folder, tmp_path):
    out = tmp_path / "out.csv"
    run("predict", folder / "model.hgp", folder / "stations.csv", "-o", out, "--latent", "--keep", "id")
    table = pd.read_csv(out)
    assert list(table.columns) == [
        *("id", "temperature_mean", "temperature_std", "temperature_f_mean", "temperature_f_std"),
    ]
    assert (table.temperature_f_std < table.temperature_std).all()
    again = tmp_path / "again.csv"
    stations().merge(table.drop(columns="temperature_std"), on="id").to_csv(again, index=False)
    taken = complaint("predict", folder / "model.hgp", again, "-o", tmp_path / "x.csv", code=2)
    assert "has a column 'temperature_mean' already" in taken
    assert not (tmp_path / "x.csv").exists()


def test_classes_and_probabilities(folder, tmp_path):
    out = tmp_path / "out.csv"
    run("predict", folder / "kind.hgp", folder / "stations.csv", "-o", out)
    table = pd.read_csv(out)
    assert list(table.columns[-3:]) == ["kind_predicted", "kind_p_north", "kind_p_south"]
    np.testing.assert_allclose(table.kind_p_north + table.kind_p_south, 1.0, rtol=1e-4)
    assert (np.where(table.kind_p_north > 0.5, "north", "south") == table.kind_predicted).all()
    run("predict", folder / "kind.hgp", folder / "stations.csv", "-o", out, "--keep", "lat")
    assert list(pd.read_csv(out).columns) == ["lat", "kind", "kind_p_north", "kind_p_south"]
    line = complaint("predict", folder / "kind.hgp", folder / "stations.csv", "-o", out, "--quantiles", "0.1", code=2)
    assert "is a classification" in line


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


def test_text_that_cannot_be_used_is_met_with_a_remedy(tmp_path):
    days = pd.date_range("2023-01-01", periods=80)
    fit = ["fit", tmp_path / "t.csv", "-t", "y", "-o", tmp_path / "m.hgp"]
    for form, example in (("%d/%m/%Y", "01/01/2023"), ("%m/%d/%Y %H:%M", "01/01/2023 00:00"), ("%d.%m.%y", "01.01.23")):
        pd.DataFrame({"when": days.strftime(form), "y": range(80)}).to_csv(tmp_path / "t.csv", index=False)
        said = complaint(*fit, "--test-fraction", 0, code=1)
        assert f"column 'when' holds text that looks like dates, such as {example!r}" in said
        assert "ISO dates (2023-12-31), which are read" in said
    pd.DataFrame({"who am i": [f"n{k}" for k in range(80)], "y": range(80)}).to_csv(tmp_path / "t.csv", index=False)
    assert "drop it if it is an identifier (--drop 'who am i')" in complaint(*fit, code=1)


def test_known_errors_are_in_scores_and_error_bars(tmp_path):
    pytest.importorskip("matplotlib")
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.uniform(-3, 3, 300), "err": np.tile([0.05, 2.0], 150)})
    table["y"] = np.sin(table.x) + table.err * rng.normal(size=300)
    table.to_csv(tmp_path / "t.csv", index=False)
    table.rename(columns={"err": "sigma"}).to_csv(tmp_path / "renamed.csv", index=False)
    fit = run("fit", tmp_path / "t.csv", "-t", "y", "-o", tmp_path / "m.hgp", "--noise-std", "err", *QUICK[:2])
    share = re.search(r"([\d.]+)% of the targets inside their 95%", " ".join(fit.stdout.split()))
    assert float(share[1]) > 85
    report = run("report", tmp_path / "m.hgp", tmp_path / "t.csv", "-o", tmp_path / "r.html")
    assert "\nnoise     err\n" in report.stdout
    out = {}
    for name, extra in (("t", []), ("renamed", []), ("renamed", ["--noise-std", "sigma"])):
        file = tmp_path / "out.csv"
        done = run("predict", tmp_path / "m.hgp", tmp_path / f"{name}.csv", "-o", file, "--quantiles", "0.975", *extra)
        out[name, bool(extra)] = (pd.read_csv(file), done)
    frame, done = out["t", False]
    assert (frame.y_std > table.err).all()
    np.testing.assert_allclose(frame["y_q97.5"], frame.y_mean + 1.96 * frame.y_std, rtol=1e-3)
    assert (done.stderr, "noise     err\n" in done.stdout) == ("", True)
    np.testing.assert_allclose(out["renamed", True][0].y_std, frame.y_std)
    bare, done = out["renamed", False]
    assert (bare.y_std < 1).all()
    assert done.stderr == (
        "warning: the model was fitted with known errors of each row (err): error bars here are without them; "
        "give --noise-std.\n"
    )
    said = complaint("predict", tmp_path / "m.hgp", tmp_path / "t.csv", "-o", file, "--noise-std", "er", code=2)
    assert "did you mean 'err'" in said


def test_several_targets(folder, tmp_path):
    run(
        *("fit", folder / "stations.csv", "-t", "temperature", "-t", "rain", "-o", tmp_path / "two.hgp", "-q", *QUICK),
        *("--drop", "id", "--drop", "kind", "--drop", "err"),
    )
    run("predict", tmp_path / "two.hgp", folder / "stations.csv", "-o", tmp_path / "out.csv", "--quantiles", "0.5")
    table = pd.read_csv(tmp_path / "out.csv")
    columns = [f"{name}_{end}" for name in ("temperature", "rain") for end in ("mean", "std", "q50")]
    assert list(table.columns[-6:]) == columns
    assert np.corrcoef(table.rain, table.rain_mean)[0, 1] > 0.5
    assert abs(np.corrcoef(table.rain, table.temperature_mean)[0, 1]) < 0.5


def test_a_table_without_the_inputs_is_refused(folder, tmp_path):
    path = tmp_path / "other.csv"
    stations().head(5).drop(columns="temperature").rename(columns={"lat": "Lat."}).to_csv(path, index=False)
    line = complaint("predict", folder / "model.hgp", path, "-o", tmp_path / "out.csv", code=1)
    assert "other.csv lacks lat, which model.hgp needs (did you mean 'Lat.'?)" in line
    line = run("report", folder / "model.hgp", path, "-o", tmp_path / "r.html", code=1).stderr
    assert "other.csv lacks temperature, lat" in line
    (tmp_path / "empty.csv").write_text("lon,lat\n")
    assert "no rows" in complaint("predict", folder / "model.hgp", tmp_path / "empty.csv", "-o", path, code=1)


def test_columns_that_the_fit_does_not_use_are_not_demanded(tmp_path):
    pytest.importorskip("matplotlib")
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.normal(size=60), "town": "Ulm"})
    table = table.assign(twice=2 * table.x, y=np.sin(table.x))[["town", "x", "twice", "y"]]
    table.to_csv(tmp_path / "t.csv", index=False)
    table[["x", "y"]].to_csv(tmp_path / "short.csv", index=False)
    table[["town", "y"]].to_csv(tmp_path / "too_short.csv", index=False)
    run("fit", tmp_path / "t.csv", "-t", "y", "-o", tmp_path / "m.hgp", *QUICK)
    for name in ("t", "short"):
        run("predict", tmp_path / "m.hgp", tmp_path / f"{name}.csv", "-o", tmp_path / f"out_{name}.csv")
        run("report", tmp_path / "m.hgp", tmp_path / f"{name}.csv", "-o", tmp_path / "r.html")
    whole, short = (pd.read_csv(tmp_path / f"out_{name}.csv") for name in ("t", "short"))
    np.testing.assert_array_equal(whole.y_mean, short.y_mean)
    said = complaint("predict", tmp_path / "m.hgp", tmp_path / "too_short.csv", "-o", tmp_path / "out.csv", code=1)
    assert "too_short.csv lacks x, which" in said


def test_gaps_are_refused_with_the_option_that_helps(folder, tmp_path):
    path = tmp_path / "gaps.csv"
    table = stations(30)
    table.assign(lon=table.lon.where(table.id > 1)).to_csv(path, index=False)
    says = "values are missing in 'lon' (2 rows): drop those rows, or fit with --missing impute."
    assert says in complaint("predict", folder / "model.hgp", path, "-o", tmp_path / "out.csv", code=1)
    assert says in run("fit", path, *REGRESSION, "-o", tmp_path / "m.hgp", "--test-fraction", 0, code=1).stderr


def test_a_file_that_is_no_model_is_refused(folder, tmp_path):
    table = folder / "stations.csv"
    assert "stations.csv" in complaint("predict", table, table, "-o", tmp_path / "out.csv", code=1)


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


def test_suggest_prints_the_candidates(folder, monkeypatch):
    monkeypatch.setattr(search, "ROUNDS", search.ROUNDS[:1])  # the first tells enough here
    picture = folder / "symmetries.png"
    text = run("suggest", folder / "stations.csv", *REGRESSION, "--picture", picture).stdout
    assert picture.stat().st_size > 10_000
    assert "suggested" in text
    assert "moved inputs" in text
    assert "one block" in text
    assert "negation" in text
    assert "searches nothing, for rows are few, and is an exact model" in text
    classes = ["-t", "kind", "--drop", "temperature", "--quiet"]
    text = run("suggest", folder / "stations.csv", *classes).stdout
    assert len(text.splitlines()) == 1
    words = complaint("suggest", folder / "stations.csv", *REGRESSION, "--picture", folder / "s.txt", code=2)
    assert "--picture draws .png, .svg, .pdf files" in words


def test_a_classification_refuses_what_it_has_not(folder, tmp_path):
    fit = ["fit", folder / "stations.csv", "-t", "kind", "-o", tmp_path / "m.hgp"]
    assert "takes no --noise-std" in complaint(*fit, "--drop", "temperature", "--noise-std", "err", code=2)


# As a process --------------------------------------------------------------------------------------------------------


def test_the_process_has_the_exit_codes(folder, tmp_path):
    done = process("predict", folder / "model.hgp", folder / "stations.csv", "-o", tmp_path / "out.csv")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(pd.read_csv(tmp_path / "out.csv")) == 240
    done = process("fit", tmp_path / "out.csv", "-t", "nothing", "-o", tmp_path / "m.hgp", "-q")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1


@pytest.mark.skipif(os.name == "nt", reason="pipes and signals of POSIX")
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
    command = [sys.executable, "-m", "harmonicgp.cli", *arguments]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False, cwd=table.parent)
    os.close(writer)
    assert done.returncode == code
    assert done.stderr.count("\n") == bool(says)
    assert done.stderr.startswith(says)


@pytest.mark.skipif(os.name == "nt", reason="pipes and signals of POSIX")
def test_an_interrupted_process_says_so(tmp_path):
    stations(20_000).to_csv(tmp_path / "stations.csv", index=False)  # enough for some seconds
    command = [sys.executable, "-m", "harmonicgp.cli", "fit", str(tmp_path / "stations.csv"), *REGRESSION]
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
        if "to learn from" in line:
            break
    time.sleep(0.5)
    running.send_signal(signal.SIGINT)
    _, stderr = running.communicate(timeout=60)
    assert running.returncode == 130
    assert stderr.splitlines()[-1] == "stopped; nothing was written."
    assert "Traceback" not in stderr
    assert not (tmp_path / "m.hgp").exists()


def test_codes_with_leading_zeros_are_what_they_were_in_the_fit(tmp_path):
    rng = np.random.default_rng(0)
    codes = np.array(["01", "02", "A1"])[rng.integers(3, size=90)]
    y = np.select([codes == "01", codes == "02"], [0.0, 5.0], 10.0) + 0.1 * rng.normal(size=90)
    pd.DataFrame({"code": codes, "y": y}).to_csv(tmp_path / "fit.csv", index=False)
    run("fit", tmp_path / "fit.csv", "--target", "y", "-o", tmp_path / "m.hgp", "--max-steps", "20")
    (tmp_path / "new.csv").write_text("code\n01\n02\n")  # digits alone: Arrow reads numbers
    said = run("predict", tmp_path / "m.hgp", tmp_path / "new.csv", "-o", tmp_path / "out.csv")
    assert "warning" not in said.stderr
    lines = (tmp_path / "out.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in lines] == ["code", "01", "02"]
    assert np.allclose([float(line.split(",")[1]) for line in lines[1:]], [0, 5], atol=0.5)


def test_a_report_reads_codes_and_classes_as_they_are_written(tmp_path):
    rng = np.random.default_rng(0)
    codes = np.array(["01", "1", "A"])[rng.integers(3, size=120)]
    kind = np.where(codes == "01", "007", "x")
    pd.DataFrame({"code": codes, "x": rng.normal(size=120), "kind": kind}).to_csv(tmp_path / "fit.csv", index=False)
    run("fit", tmp_path / "fit.csv", "-t", "kind", "-o", tmp_path / "m.hgp", "--max-steps", "20", "--n-inducing", "16")
    rows = "\n".join(f"01,{x:.2f},007" for x in rng.normal(size=20))
    (tmp_path / "held.csv").write_text(f"code,x,kind\n{rows}\n")  # digits alone
    said = run("report", tmp_path / "m.hgp", tmp_path / "held.csv", "-o", tmp_path / "r.html")
    assert "accuracy 100" in said.stdout or "100.0% right" in said.stdout, said.stdout
    assert "warning" not in said.stderr


@pytest.mark.parametrize("cell", ["true", "2.5", "2024-01-01", "12345678901234567890"])
def test_a_file_of_one_row_may_look_like_anything(tmp_path, cell):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"code": np.array(["a", cell])[rng.integers(2, size=60)], "x": rng.normal(size=60)})
    table["y"] = (table.code == cell) * 5.0 + table.x
    table.to_csv(tmp_path / "fit.csv", index=False)
    run("fit", tmp_path / "fit.csv", "-t", "y", "-o", tmp_path / "m.hgp", "--max-steps", "20")
    (tmp_path / "one.csv").write_text(f"code,x\n{cell},0.0\n")
    run("predict", tmp_path / "m.hgp", tmp_path / "one.csv", "-o", tmp_path / "out.csv")
    assert float((tmp_path / "out.csv").read_text().splitlines()[1].split(",")[2]) == pytest.approx(5.0, abs=0.7)


def test_quotation_marks_left_open_are_not_swallowed(tmp_path):
    rows = [f"{i},{i % 3},word" for i in range(50)]
    rows[9] = '9,0,"word'
    (tmp_path / "open.csv").write_text("x,y,note\n" + "\n".join(rows) + "\n")
    message = complaint("fit", tmp_path / "open.csv", "-t", "y", "-o", tmp_path / "m.hgp", code=1)
    assert "never closed" in message
    rows[29] = '29,2,word"'
    (tmp_path / "two.csv").write_text("x,y,note\n" + "\n".join(rows) + "\n")
    said = run("fit", tmp_path / "two.csv", "-t", "y", "-o", tmp_path / "m.hgp", "--drop", "note", "--max-steps", "5")
    assert "stray quotation mark" in said.stderr
