"""The tabular suite on a table made here: every model, the file of results, the page."""

from __future__ import annotations

import itertools
import json
import math
import os
import signal
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from benchmarks import _harness, peers, tabular
from benchmarks._data import standardised_fold
from benchmarks._harness import SETS, Cell, Results, load_task, run_cell
from benchmarks.peers import MODELS, Caps, Outcome, Task, coverage_between, gaussian_scores, svgp_course, svgp_point
from benchmarks.tabular import Suite, main, page, pooled, verdicts

TINY = Caps(
    svgp_seconds=2.0,
    svgp_epochs=50,
    svgp_inducing=20,
    sklearn_rows=150,
    sklearn_search_rows=60,
    sklearn_iterations=20,
    trees=60,
    gpboost_seconds=4.0,
    gpboost_rows=120,
    gpboost_search_rows=60,
    gpboost_iterations=6,
)


def columns(n=150, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, 50 + 7 * (np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.1 * rng.normal(size=n))


@pytest.fixture
def clock(monkeypatch):
    """A hundredth of a second for each look at the clock: as many steps on a busy machine as on an idle one."""
    ticks = itertools.count()
    monkeypatch.setattr(peers, "time", SimpleNamespace(perf_counter=lambda: 0.01 * next(ticks)))


def task():
    X, y = columns()
    return Task(X, y, np.arange(len(y)) % 10 == 0)


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A folder of data whose nine files are all the same small table."""
    folder = tmp_path / "data"
    folder.mkdir()
    X, y = columns(120)
    masks = np.eye(10, dtype=bool)[np.arange(120) % 10]
    for name in SETS:
        np.savez(folder / f"{name}.npz", X=X, y=y, n=120, test_mask=np.packbits(masks, axis=0))
    leak = np.exp(y / 20)
    X = np.column_stack((X, np.zeros((120, 12)), 0.3 * leak, 0.7 * leak))
    np.savez(folder / "bike.npz", X=X, y=y, n=120, test_mask=np.packbits(masks, axis=0))
    monkeypatch.setenv("HARMONICGP_DATA", str(folder))
    return folder


def made_up(cell, **figures):
    row = {"rmse": 0.3, "nll": 0.2, "coverage": 0.95, "seconds": 5.0, "note": "", "details": {}, "memory": 3e6}
    return {**cell.key(), **row, "rows": 100, "columns": 4, "test_rows": 10, **figures}


@pytest.mark.parametrize("name", MODELS)
def test_every_model_learns_the_table(name, clock):
    outcome = MODELS[name].run(task(), TINY)
    assert outcome.rmse < 0.6  # of standardised y: a constant has 1
    assert outcome.coverage > 0.6
    assert outcome.seconds > 0
    assert outcome.nll < 1.0  # a constant has 1.42
    json.dumps(outcome.details)


@pytest.mark.parametrize("name", ["svgp", "sklearn", "lightgbm", "gpboost"])
def test_scores_do_not_depend_on_the_units_of_y(name, clock):
    """All scores are of y in units of its training standard deviation."""
    caps = Caps(**{**vars(TINY), "svgp_seconds": 1e-9, "sklearn_iterations": 2, "trees": 5, "gpboost_iterations": 2})
    here = task()
    other = here._replace(y=1000 * here.y - 5)
    a, b = (MODELS[name].run(t, caps) for t in (here, other))
    assert a.rmse == pytest.approx(b.rmse, rel=0.02)
    assert a.coverage == pytest.approx(b.coverage, abs=0.07)
    if a.nll is not None:
        assert a.nll == pytest.approx(b.nll, abs=0.02)


def test_coverage_of_repeated_values():
    """Float32 turns a value into a neighbour, which still covers it."""
    y = np.array([0.1, 0.1, 0.1, 0.1, 0.7])
    low = high = np.float32(y).astype(np.float64)
    assert low[0] > y[0]
    assert coverage_between(low, high, y) == 1.0
    assert coverage_between(low + 0.01, high + 1, y) == 0.0


class OwnDistribution:
    """A model of y with a distribution that is not N(mean, std): Laplace around 50."""

    elbo_, timings_, warnings_ = 0.0, {"train": 1.0}, ["beware"]
    symmetry_ = SimpleNamespace(name="one block")
    neighbours_, notes_ = 20, ["columns were read"]

    def fit(self, X, y):
        assert 40 < y.mean() < 60  # the table as it is
        return self

    def inducing_points(self):
        return np.zeros((3, 2))

    def predict(self, X, return_std):
        assert return_std
        return np.full(len(X), 50.0), np.full(len(X), 7 * math.sqrt(2))

    def predict_quantiles(self, X, levels):
        return np.full((len(X), 2), [50 + 7 * math.log(2 * levels[0]), 50 - 7 * math.log(2 - 2 * levels[1])])

    def log_density(self, X, y):
        return -math.log(14) - np.abs(y - 50) / 7


def test_our_own_distribution_is_scored(monkeypatch):
    monkeypatch.setattr("harmonicgp.estimators.HarmonicGPRegressor", OwnDistribution)
    here = task()
    outcome = MODELS["harmonicgp"].run(here, TINY)
    error, b = np.abs(here.y[here.test] - 50) / here.scale, 7 / here.scale
    assert outcome.rmse == pytest.approx(np.sqrt(np.mean(error**2)))
    assert outcome.nll == pytest.approx(np.mean(math.log(2 * b) + error / b))
    assert outcome.coverage == pytest.approx(np.mean(error <= -b * math.log(0.05)))
    assert outcome.note == "one block, 20 neighbours"
    assert (outcome.details["neighbours"], outcome.details["inducing"]) == (20, 3)
    assert 0 <= outcome.details["fit_seconds"] <= outcome.seconds


def test_the_density_of_trees_is_normal_with_the_spread_of_held_out_rows():
    here = task()
    outcome = MODELS["lightgbm"].run(here, TINY)
    sd = outcome.details["std"]
    expected = 0.5 * math.log(2 * math.pi * sd**2) + 0.5 * (outcome.rmse / sd) ** 2
    assert outcome.nll == pytest.approx(expected)
    assert 0.1 < sd < 0.9


def test_gpboost_is_a_gp_given_its_neighbours():
    """With all rows as neighbours its predictions are those of the exact GP at its parameters."""
    X, y = columns(40)
    here = Task(X, y, np.arange(40) < 20)
    caps = Caps(gpboost_iterations=3)
    outcome = peers.run_gpboost(here, caps)
    noise, variance, *ranges = outcome.details["parameters"]
    fold = standardised_fold(*here, dtype=torch.float64)
    r = math.sqrt(3) * torch.cdist(fold.X / torch.tensor(ranges), fold.X / torch.tensor(ranges))
    K = variance * (1 + r) * torch.exp(-r) + noise * torch.eye(20, dtype=torch.float64)
    r = math.sqrt(3) * torch.cdist(fold.X_test / torch.tensor(ranges), fold.X / torch.tensor(ranges))
    k = variance * (1 + r) * torch.exp(-r)
    mean = (k @ torch.linalg.solve(K, fold.y)).numpy()
    v = (variance + noise - (k @ torch.linalg.inv(K) * k).sum(1)).numpy()
    rmse, nll, coverage = gaussian_scores(mean, v, fold.y_test.numpy())
    assert (outcome.rmse, outcome.nll, outcome.coverage) == pytest.approx((rmse, nll, coverage), rel=1e-5)
    assert outcome.note.endswith("iterations on 20 rows")


class Slow:
    """GPBoost whose iterations take a tenth of a second for 60 rows, on a clock of its own."""

    now, asked = 0.0, []

    def __init__(self, gp_coords, **options):
        self.rows = len(gp_coords)

    def set_prediction_data(self, num_neighbors_pred):
        return self

    def fit(self, y, params):
        Slow.asked.append((self.rows, params["maxit"]))
        Slow.now += params["maxit"] * self.rows / 600
        self.ran, self.parameters = params["maxit"], params["init_cov_pars"]

    def get_cov_pars(self, format_pandas):
        return self.parameters

    def _get_num_optim_iter(self):
        return self.ran

    def predict(self, y, cov_pars, gp_coords_pred, **options):
        return {"mu": np.zeros(len(gp_coords_pred)), "var": np.ones(len(gp_coords_pred))}


@pytest.mark.parametrize(
    ("seconds", "asked"),
    [
        (1e9, [(60, 1), (60, 49), (120, 1), (120, 49)]),
        (1.45, [(60, 1), (60, 6), (120, 1), (120, 2)]),
        (0.25, [(60, 1)]),  # another would be beyond half the time, one on all rows beyond all of it
    ],
)
def test_gpboost_ends_in_time(seconds, asked, monkeypatch):
    Slow.now, Slow.asked = 0.0, []
    monkeypatch.setattr(peers, "time", SimpleNamespace(perf_counter=lambda: Slow.now))
    monkeypatch.setattr(peers, "require", lambda *words: SimpleNamespace(GPModel=Slow))
    outcome = peers.run_gpboost(
        task(), Caps(gpboost_seconds=seconds, gpboost_rows=120, gpboost_search_rows=60, gpboost_test_rows=9)
    )
    assert Slow.asked == asked
    assert outcome.seconds <= seconds
    assert outcome.note.endswith(" on 120; 9 test rows")


def test_gaussian_scores_by_hand():
    rmse, nll, coverage = gaussian_scores(np.zeros(2), np.array([1.0, 4.0]), np.array([2.0, 2.0]))
    assert rmse == pytest.approx(2.0)
    assert nll == pytest.approx(0.5 * math.log(2 * math.pi) + (2.0 + 0.5 * math.log(4) + 0.5) / 2)
    assert coverage == 0.5
    with pytest.raises(FloatingPointError, match="not finite"):
        Outcome(1.0, float("nan"), 0.9, 1.0)


@torch.no_grad()
def dense_nll(state, fold):
    """The NLL of an SVGP from its parameters: q(f) = N(A m, K + A (S - I) A'), A = K_xz L^{-T}, K_zz = L L'."""
    model, kernel = state.model.double(), state.model.covar_module
    Z = model.variational_strategy.inducing_points
    q = model.variational_strategy._variational_distribution
    X, y = fold.X_test.double(), fold.y_test.double()
    jitter = model.variational_strategy.jitter_val
    K_zz, K_xz = kernel(Z).to_dense() + jitter * torch.eye(len(Z)), kernel(X, Z).to_dense()
    A = torch.linalg.solve_triangular(torch.linalg.cholesky(K_zz), K_xz.mT, upper=False).mT
    root = q.chol_variational_covar.tril()
    mean = model.mean_module.constant + A @ q.variational_mean
    variance = kernel.outputscale + jitter + ((A @ root) ** 2 - A**2).sum(-1) + state.likelihood.double().noise
    error = y - mean
    return float((0.5 * (2 * math.pi * variance).log() + 0.5 * error**2 / variance).mean())


def test_the_nll_of_the_svgp_is_that_of_its_parameters(clock):
    """At both points: nothing that was kept from the first evaluation reaches the second."""
    fold = standardised_fold(*task(), dtype=torch.float64)
    points = []
    for state in svgp_course(fold, Caps(svgp_seconds=1.5, svgp_epochs=8, svgp_inducing=20)):
        point = svgp_point(state, fold)
        assert point["nll"] == pytest.approx(dense_nll(state, fold), abs=1e-5)
        points.append(point)
    assert [point["at"] for point in points] == ["8 epochs", "1.5 s"]
    assert points[1]["nll"] < points[0]["nll"] - 0.01
    assert points[0]["seconds"] < 1.5 <= points[1]["seconds"]


def test_the_svgp_reports_its_better_point(clock):
    outcome = MODELS["svgp"].run(task(), TINY)
    points = outcome.details["points"]
    assert len(points) == 2
    best = min(points, key=lambda point: point["nll"])
    assert (outcome.nll, outcome.seconds, outcome.note) == (best["nll"], best["seconds"], best["at"])
    short = MODELS["svgp"].run(task(), Caps(svgp_seconds=1e-9, svgp_inducing=20))
    assert [point["at"] for point in short.details["points"]] == ["1e-09 s"]  # its epochs would have taken longer


def test_results_are_found_again_and_forgotten(tmp_path):
    path, cell = tmp_path / "a.jsonl", Cell("energy", "svgp", 3)
    results = Results(path)
    results.add(made_up(cell))
    results.add(made_up(Cell("energy", "sklearn", 3), nll=None))
    again = Results(path)
    assert again.find(cell) == made_up(cell)
    assert again.find(cell._replace(fold=4)) is None
    assert again.find(cell._replace(quick=True)) is None
    again.rows[0]["versions"]["torch"] = "0.1"
    assert again.find(cell) is None  # measured with another version
    again = Results(path)
    again.forget(("svgp",), quick=True)
    assert len(Results(path).rows) == 2
    again.forget(("svgp",), quick=False)
    assert [row["model"] for row in Results(path).rows] == ["sklearn"]
    assert list(tmp_path.iterdir()) == [path]
    path.write_text('{"set": ')
    with pytest.raises(ValueError, match=r"line 1 of .* is not JSON"):
        Results(path)


def test_a_rerun_goes_on_where_it_was(data, tmp_path, monkeypatch, capsys):
    ran = []

    def fake(cell):
        if len(ran) == 5:
            ran.append(None)
            raise KeyboardInterrupt
        ran.append(cell)
        return made_up(cell)

    monkeypatch.setattr(tabular, "run_cell", fake)
    monkeypatch.setattr(tabular, "machine", str)
    command = ["--sets", "pol,wine", "--models", "harmonicgp,svgp", "--output", str(tmp_path / "out")]
    handler = signal.getsignal(signal.SIGTERM)
    assert main(command) == 130
    assert signal.getsignal(signal.SIGTERM) is handler
    assert "the same command goes on" in capsys.readouterr().err
    assert main(command) == 0
    assert "5 of 22 cells are there already" in capsys.readouterr().out
    assert len(ran) == 23
    assert len({cell for cell in ran if cell}) == 22
    assert main(command) == 0
    assert len(ran) == 23
    assert main([*command, "--redo", "svgp"]) == 0
    assert {cell.model for cell in ran[23:]} == {"svgp"}
    assert len(ran) == 23 + 11


def test_a_cell_in_its_own_process(data, tmp_path, capsys, monkeypatch):
    """The whole way, with the quickest model."""
    monkeypatch.setattr(_harness, "THREADS", 1)  # tests share the cores
    output = tmp_path / "out"
    assert main(["--sets", "bike", "--models", "lightgbm", "--quick", "--output", str(output)]) == 0
    (row,) = [json.loads(line) for line in (output / "tabular.jsonl").read_text().splitlines()]
    assert row["columns"] == 15
    assert (row["rows"], row["test_rows"]) == (120, 12)
    assert row["memory"] >= 0
    assert row["rmse"] < 1.5
    printed = capsys.readouterr().out
    assert "| bike (120 x 15) | lightgbm |" in printed
    assert "Against SVGP" not in printed
    assert (output / "benchmarks-tabular.md").read_text().startswith("# Tabular benchmark (quick)\n")


def test_failures_are_rows(data, monkeypatch):
    (data / "pol.npz").unlink()
    row = run_cell(Cell("pol", "lightgbm", 0))
    assert row["set"] == "pol"
    assert "there is no pol.npz" in row["error"]
    slow = Cell("wine", "lightgbm", 0, quick=True)
    monkeypatch.setattr(_harness, "QUICK", Caps(timeout=0.01))
    assert run_cell(slow)["error"] == "timeout after 0.01 s"
    monkeypatch.setattr(_harness, "QUICK", Caps())
    monkeypatch.setattr(sys, "executable", str(data / "python"))
    (data / "python").write_text("#!/bin/sh\nkill -KILL $$\n")
    (data / "python").chmod(0o755)
    assert run_cell(slow)["error"] == "killed by SIGKILL"


def test_scores_are_pooled_over_test_rows(tmp_path):
    results, suite = Results(tmp_path / "a.jsonl"), Suite(quick=True)
    cells = suite.cells("energy", "svgp")
    assert pooled(results, cells) == {"error": "not run"}
    results.add(made_up(cells[0], rmse=1.0, nll=1.0, coverage=1.0, test_rows=30, memory=5, note="50 epochs"))
    assert pooled(results, cells) == {"error": "1 of 2 folds run"}
    results.add(made_up(cells[1], rmse=2.0, nll=2.0, coverage=0.5, test_rows=10, memory=9, note="20 s"))
    row = pooled(results, cells)
    assert row["rmse"] == pytest.approx(math.sqrt((3 * 1 + 4) / 4))
    assert (row["nll"], row["coverage"], row["seconds"], row["memory"]) == (1.25, 0.875, 10.0, 9)
    assert row["note"] == "50 epochs / 20 s"
    results.forget(("svgp",), quick=True)
    results.add({**cells[0].key(), "error": "killed by SIGKILL"})
    assert pooled(results, cells) == {"error": "1 of 2 folds: killed by SIGKILL"}


def test_the_page_counts_wins_and_losses(tmp_path):
    results = Results(tmp_path / "a.jsonl")
    suite = Suite(sets=("kin40k", "pol", "bike", "elevators"))
    figures = {  # ours: nll, seconds, coverage; SVGP: nll, seconds
        "kin40k": ((-0.6, 50.0, 0.96), (-0.4, 100.0)),
        "pol": ((0.5, 20.0, 0.90), (0.4, 100.0)),
        "bike": ((0.1, 300.0, 0.95), (0.2, 100.0)),
    }
    for name, ((nll, seconds, coverage), (peer_nll, peer_seconds)) in figures.items():
        results.add(made_up(Cell(name, "harmonicgp", 0), nll=nll, seconds=seconds, coverage=coverage))
        results.add(made_up(Cell(name, "svgp", 0), nll=peer_nll, seconds=peer_seconds, note="50 epochs"))
        results.add(made_up(Cell(name, "lightgbm", 0), nll=None))
    results.add({**Cell("elevators", "harmonicgp", 0).key(), "error": "ValueError: a | b"})
    results.add(made_up(Cell("elevators", "svgp", 0)))
    text = page(results, suite, "a machine")
    assert "better NLL on 2 of 4, at no more time on 2 of 4 (both on 1); coverage within 2 points on 2 of 4." in text
    rows = {tuple(c.strip() for c in line.split("|")[1:-1]) for line in text.splitlines() if line.startswith("|")}
    assert ("kin40k", "-0.600", "-0.400", "yes", "0.50", "yes") in rows
    assert ("pol", "+0.500", "+0.400", "no", "0.20", "no") in rows
    assert ("elevators", "-", "-", "-", "-", "-") in rows
    assert ("elevators", "harmonicgp", "-", "-", "-", "-", "-", "ValueError: a / b") in rows
    assert ("pol (100 x 4)", "lightgbm", "0.3000", "-", "95.0 %", "5.0", "3", "") in rows
    assert ("pol", "sklearn", "-", "-", "-", "-", "-", "not run") in rows
    assert "python -m benchmarks.tabular --sets kin40k,pol,bike,elevators`" in text
    assert "a machine" in text
    assert verdicts(results, suite) in text
    assert "Against SVGP" not in page(results, suite._replace(models=("svgp", "lightgbm")), "a machine")


def test_without_data_one_clear_line(monkeypatch, tmp_path, capsys):
    monkeypatch.delenv("HARMONICGP_DATA", raising=False)
    assert main(["--output", str(tmp_path / "out")]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == (
        "bench tabular: kin40k.npz is needed: set the environment variable HARMONICGP_DATA to the folder of the data files.\n"
    )
    assert not (tmp_path / "out").exists()


def test_wrong_names_are_refused(capsys):
    with pytest.raises(SystemExit):
        main(["--models", "svgp,gpflow"])
    assert "gpflow: not one of harmonicgp, svgp, sklearn, lightgbm, gpboost, gpboost-vif" in capsys.readouterr().err


def test_a_model_that_is_not_installed_is_left_out(data, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(_harness, "library_version", lambda name: "none" if name == "lightgbm" else "1")
    monkeypatch.setattr(tabular, "run_cell", made_up)
    monkeypatch.setattr(tabular, "machine", str)
    assert main(["--sets", "pol", "--output", str(tmp_path / "out")]) == 0
    said = capsys.readouterr()
    assert said.err == "lightgbm is left out, not installed: pip install 'harmonicgp[bench]'\n"
    assert "lightgbm" not in said.out


def test_folds_and_the_leak_are_checked(data):
    X, y = columns(120)
    masks = np.zeros((120, 10), dtype=bool)
    np.savez(data / "pol.npz", X=X, y=np.column_stack((y, -y)), test_mask=np.packbits(masks, axis=0))
    with pytest.raises(ValueError, match="each row in one of ten folds"):
        load_task("pol", 0)
    masks[:, 0] = True
    np.savez(data / "pol.npz", X=X, y=np.column_stack((y, -y)), test_mask=np.packbits(masks, axis=0))
    assert_close(torch.from_numpy(load_task("pol", 0).y), torch.from_numpy(y))  # the first of two targets
    noise = np.random.default_rng(0).normal(size=(120, 17))
    np.savez(data / "bike.npz", X=noise, y=y, test_mask=np.packbits(masks, axis=0))
    with pytest.raises(ValueError, match="do not add up to the target"):
        load_task("bike", 0)


def test_large_sets_are_run_when_named(data, tmp_path, monkeypatch, capsys):
    rng = np.random.default_rng(0)
    X = np.column_stack((rng.integers(1, 7, 400), rng.integers(0, 3, 400), rng.integers(0, 3, 400)))
    names, places = np.array(["month", "origin", "destination"]), np.array([[40.0, -70], [35, -100], [60, -150]])
    y = rng.integers(-100, 400, 400)
    np.savez(data / "flights3m.npz", X=np.int16(X), y=np.int16(y), feature_names=names, airport_latlon=places)
    folds = [load_task("flights3m", fold) for fold in range(10)]
    assert folds[0].X.shape == (400, 5)
    assert (folds[0].y.min(), folds[0].y.max()) == (-60, 180)
    assert (sum(fold.test.astype(int) for fold in folds) == 1).all()
    assert set(_harness.LARGE).isdisjoint(Suite().sets)
    ran = []
    monkeypatch.setattr(tabular, "run_cell", lambda cell: ran.append(cell) or made_up(cell))
    monkeypatch.setattr(tabular, "machine", str)
    assert main(["--sets", "flights3m", "--models", "harmonicgp", "--output", str(tmp_path / "out")]) == 0
    assert ran == [Cell("flights3m", "harmonicgp", 0)]
    assert "clipped to -60 and 180" in (tmp_path / "out" / "benchmarks-tabular.md").read_text()


def test_results_of_an_earlier_revision_do_not_count(tmp_path):
    results, cell = Results(tmp_path / "a.jsonl"), Cell("wine", "lightgbm", 0)
    earlier = made_up(cell, nll=None)
    del earlier["revision"]
    results.add(earlier)
    assert results.find(cell) is None
    results.add(made_up(cell))
    assert results.find(cell)["nll"] == 0.2


NO_DATA = "the data files are not in the repository: set HARMONICGP_DATA to a folder that holds them"


@pytest.mark.skipif(not os.environ.get("HARMONICGP_DATA"), reason=NO_DATA)
def test_the_tables_are_those_of_the_paper():
    shapes = {name: load_task(name, 0).X.shape for name in SETS}
    assert shapes == {
        "kin40k": (40_000, 8),
        "elevators": (16_599, 18),
        "pol": (15_000, 26),
        "keggdirected": (48_827, 20),
        "pumadyn32nm": (8_192, 32),
        "bike": (17_379, 15),
        "energy": (768, 8),
        "concrete": (1_030, 8),
        "wine": (1_599, 11),
    }
    bike = load_task("bike", 0)
    for column in bike.X.T:  # no column that is left tells the target by itself; the hour of the day tells most
        _, group = np.unique(column, return_inverse=True)
        means = np.bincount(group, bike.y) / np.bincount(group)
        assert 1 - np.var(bike.y - means[group]) / np.var(bike.y) < 0.75
