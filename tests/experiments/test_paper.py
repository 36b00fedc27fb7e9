"""The paper's experiments at toy size, on made-up data of the right shapes."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from benchmarks._data import DataFileError
from experiments import _runner
from experiments._mnist import compare
from experiments._runner import UsageError, so_far
from experiments._tables import load_table
from experiments.flip_mnist import flipped_how
from experiments.nystrom import compared
from experiments.translate_mnist import rolled


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Small files with the names and shapes of the real ones."""
    rng = np.random.default_rng(0)
    base = tmp_path / "data"
    base.mkdir()
    for name, d in (("kin40k", 8), ("keggdirected", 6), ("elevators", 5)):
        X = rng.normal(size=(1200, d)).astype(np.float32)
        y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=1200).astype(np.float32)
        masks = np.packbits(np.eye(10, dtype=bool)[np.arange(1200) % 10], axis=0)
        np.savez(base / f"{name}.npz", X=X, y=y, test_mask=masks, n=1200)
    X = rng.integers(0, 100, size=(1200, 4)).astype(np.int16)
    np.savez(base / "houseelectric.npz", X=X, x_scale=0.1, y=(1 + X[:, 0]).astype(np.int16), y_scale=0.01,
             test_fold=np.arange(1200) % 10)  # fmt: skip
    images = (rng.random((2500, 28, 28)) * 255).astype(np.uint8)
    labels = (images[:, 10:14, 10:14].mean((1, 2)) > 128).astype(np.uint8) + 4 * (images[:, 3, 3] > 99)
    np.savez(base / "mnist.npz", X_train=images, y_train=labels, X_test=images[:500], y_test=labels[:500])
    monkeypatch.setenv("HARMONICGP_DATA", str(base))
    return tmp_path


def run(name, folder, *options):
    command = [
        sys.executable,
        "-m",
        f"experiments.{name}",
        "--size",
        "small",
        "--output",
        str(folder / "out"),
        *options,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "out" / f"{name}.json").read_text()), folder / "out"


def test_nystrom(folder):
    results, out = run("nystrom", folder)
    assert len(results["rows"]) == 4 * (3 + 2 * 3)
    assert all(row["moved"] <= row["k-means"] + 1e-9 for row in results["rows"])
    assert (out / "nystrom.png").stat().st_size > 10_000
    assert "of 12 cases" in (out / "nystrom.md").read_text()


def test_the_verdicts_count():
    rows = [
        {"table": "a", "M": 8, "model": model, "moved": error}
        for model, error in (("M", 0.5), ("2M", 0.3), ("M+M", 0.35), ("4xM axes", 0.4), ("4xM principal", 0.2))
    ]
    assert compared(rows) == [
        "principal directions leave less than axes in 1 of 1 cases",
        "TxM leaves less than M in 2 of 2 cases",
        "TxM leaves less than 2M in 1 of 2 cases (not always on a)",
        "TxM leaves less than M+M in 1 of 2 cases (not always on a)",
    ]


def test_pca(folder):
    results, out = run("pca", folder)
    assert {row["table"] for row in results["rows"]} == {"kin40k", "elevators", "keggdirected", "houseelectric"}
    assert (out / "pca.png").stat().st_size > 10_000


@pytest.mark.slow
def test_regression_and_solve_gp(folder):
    results, out = run("regression", folder)
    models = [row["model"] for row in results["rows"]]
    assert models[:6] == ["M", "2M", "M+M", "2xM", "8xM", "8x2M"]
    assert models[6].startswith("ours")
    assert all(len(row["curve"]) == 10 for row in results["rows"][:6])
    assert "ours" in results["remarks"][0]
    assert (out / "regression-kin40k.png").stat().st_size > 10_000
    results, _ = run("solve_gp", folder)
    assert [row["model"] for row in results["rows"]] == ["M", "2M", "M+M", "2xM"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["flip_mnist", "translate_mnist"])
def test_mnist(name, folder):
    results, out = run(name, folder)
    assert len(results["rows"]) == 6
    assert all(0 <= row["accuracy"] <= 100 for row in results["rows"])
    assert all(row["curve"][-1]["loss"] < row["curve"][0]["loss"] for row in results["rows"])
    assert (out / f"{name}.png").stat().st_size > 10_000


@pytest.mark.slow
def test_some_models_for_some_steps(folder):
    results, _ = run("translate_mnist", folder, "--models", "SVGP 8", "TRAN-S", "--steps", "10", "--rate", "0.01")
    assert [row["model"] for row in results["rows"]] == ["TRAN-S 16 x 8", "SVGP 8"]
    assert all(row["step"] == 10 for row in results["rows"])
    assert results["rate"] == 0.01


def test_models_that_are_not_there_are_named(tmp_path):
    with pytest.raises(UsageError, match="there are SVGP 8, TRAN"):
        compare("name", "title", {"SVGP 8": None, "TRAN": None}, tmp_path, 10, models=["tran", "NEG"])


def test_digits_are_moved_about():
    images = np.arange(2 * 6).reshape(1, 3, 4).repeat(400, 0)
    rng = np.random.default_rng(0)
    turned, how = flipped_how(images, rng)
    kinds = (images[0], images[0][:, ::-1], images[0][::-1], images[0][::-1, ::-1])
    for number, expected in enumerate(kinds):
        assert 60 < (how == number).sum() < 140
        assert ((turned == expected).all((1, 2)) == (how == number)).all()
    moved = rolled(images, rng)
    places = {tuple(np.argwhere(image == 0)[0]) for image in moved}
    assert len(places) == 12
    assert all((image == np.roll(images[0], tuple(np.argwhere(image == 0)[0]), (0, 1))).all() for image in moved)


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("kin40k.npz", b"not an archive", "kin40k.npz cannot be read"),
        ("kin40k.npz", b"", "kin40k.npz cannot be read"),
        ("3droad.csv", b"a,b,c\n", "3droad.csv"),
        ("3droad.csv", b"", "3droad.csv is empty"),
        ("3droad.csv", b"NA,2,3\n4,5,6\n", "3droad.csv is no table of numbers"),
        ("3droad.csv", b"1,2,3\n" * 3, "100 rows or more"),
        ("3droad.csv", b"".join(b"1,2,%d\n" % k for k in range(200)), "inputs that vary"),
        ("3droad.csv", b"1,2,3\n4,5\n", "3droad.csv is no table of numbers"),
        ("3droad.csv", b"1,2,nan\n4,5,6\n", "finite numbers"),
        ("song.csv", b"1\n2\n", "two or more"),
    ],
)
@pytest.mark.filterwarnings("ignore:loadtxt. input contained no data")
def test_broken_files_are_named(folder, file, content, words):
    (folder / "data" / file).write_bytes(content)
    with pytest.raises(DataFileError, match=words):
        load_table(file.partition(".")[0])


def test_arrays_that_are_missing_are_named(folder):
    np.savez(folder / "data" / "pol.npz", X=np.zeros((3, 2)))
    with pytest.raises(DataFileError, match=r"pol.npz has no y; it has X"):
        load_table("pol")


def test_a_table_of_ones_own(folder):
    lines = "".join(f"7,{k},{2 * k},{3 * k}\n" for k in range(120))
    for head, mark in (
        ("id,lon,lat,height\n", ""),
        ("", ""),
        ("", "\ufeff"),
    ):  # with names, without, as some programs write it
        (folder / "data" / "3droad.csv").write_text(mark + head + lines, encoding="utf-8")
        table = load_table("3droad")
        assert table.X.tolist() == [[k, 2 * k] for k in range(120)]
        assert table.y.tolist() == [3 * k for k in range(120)]


def test_an_experiment_that_is_ended_early_keeps_what_it_has(tmp_path, monkeypatch):
    def experiment(size, output):
        so_far(output, "some", rows=[np.float32(1)], figures={"a": float("nan")})
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "argv", ["some", "--output", str(tmp_path)])
    with pytest.raises(KeyboardInterrupt):
        _runner.run("some", "Some.", experiment)
    found = json.loads((tmp_path / "some.json").read_text())
    assert (found["experiment"], found["complete"], found["rows"]) == ("some", False, [1])
    assert (found["size"], found["figures"]) == ("small", {"a": None})
    _runner.run("some", "Some.", lambda size, output: {"rows": [1, 2]})
    found = json.loads((tmp_path / "some.json").read_text())
    assert (found["size"], found["complete"], found["rows"]) == ("small", True, [1, 2])
