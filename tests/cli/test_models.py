"""Models of tables: fitted, saved, scored."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tests.cli.common import QUICK, REGRESSION, complaint, run


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


def test_a_file_that_is_no_model_is_refused(folder, tmp_path):
    table = folder / "stations.csv"
    assert "stations.csv" in complaint("predict", table, table, "-o", tmp_path / "out.csv", code=1)


def test_a_classification_refuses_what_it_has_not(folder, tmp_path):
    fit = ["fit", folder / "stations.csv", "-t", "kind", "-o", tmp_path / "m.hgp"]
    assert "takes no --noise-std" in complaint(*fit, "--drop", "temperature", "--noise-std", "err", code=2)


def test_a_report_reads_codes_and_classes_as_they_are_written(tmp_path):
    rng = np.random.default_rng(0)
    codes = np.array(["01", "1", "A"])[rng.integers(3, size=120)]
    kind = np.where(codes == "01", "007", "x")
    pd.DataFrame({"code": codes, "x": rng.normal(size=120), "kind": kind}).to_csv(tmp_path / "fit.csv", index=False)
    run("fit", tmp_path / "fit.csv", "-t", "kind", "-o", tmp_path / "m.hgp", "--max-steps", "20", "--n-inducing", "16")
    rows = "\n".join(f"01,{x:.2f},007" for x in rng.normal(size=20))
    (tmp_path / "held.csv").write_text(f"code,x,kind\n{rows}\n")  # digits alone
    said = run("report", tmp_path / "m.hgp", tmp_path / "held.csv", "-o", tmp_path / "r.html")
    assert "accuracy 100" in said.stdout or "100.0% correct" in said.stdout, said.stdout
    assert "warning" not in said.stderr
