"""Predictions of tables."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from harmonicgp.cli import predictions
from tests.cli.common import QUICK, complaint, journal, run, stations


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
        "warning: column 'site' holds levels that were not in the fit ('moor', 'marsh') in 4 rows: "
        "they count as none of the levels of the fit, and error bars do not include this.\n"
        "warning: 'wind' has missing values in 2 rows, and had none in the fit: they are replaced by the median, and error bars "
        "do not include this.\n"
    )
    assert " ".join(result.stdout.split()).endswith(
        "note 4 of 120 rows are outside the range of the fit in when (trend), wind: "
        "the model extrapolates there, with wider error bars."
    )
    quiet = run(*arguments, "-q")
    assert (quiet.stdout, quiet.stderr) == ("", result.stderr)
    same = run("predict", diary.model, diary.folder / "journal.csv", "-o", tmp_path / "out.csv")
    assert same.stderr == ""
    assert "beyond" not in same.stdout


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
    assert "already has a column 'temperature_mean'" in taken
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
        "warning: the model was fitted with known errors of each row (err): error bars here do not include them; "
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
