"""Fields in a region: the simulated scene of Heaton et al., a million cells, 200,000 points, and PyKrige and GPBoost beside them.

    python -m benchmarks.fields --output out [--cases heaton,million,points] [--seconds 600]

Each row runs in a process of its own, with two threads and at most --seconds; results are kept in fields.jsonl, so that a
rerun goes on. heaton needs heaton_simulated.npz in the folder of HARMONICGP_DATA. The others are drawn from an exponential
covariance of variance 4 with a noise of 0.3. million: 1000 x 1000 cells, a range of 40 cells, 30 % missing at random and five
discs of radius 60. points: 200,000 random cells of 2500 x 2500 as points, a range of 100, and 20,000 more to predict. Peers
get the same data, or the largest part that they finish: `rows` says how many. PyKrige is optional: without it its rows say so.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._data import load_npz
from benchmarks._process import Row, in_own_process, peak_memory

HALF = 1.959963984540054
#: Case, model and the number of training rows, None for all.
RUNS = (
    ("heaton", "HarmonicGPField", None),
    ("heaton", "GPBoost Vecchia", None),
    ("heaton", "PyKrige, 50 nearest", 20_000),
    ("million", "HarmonicGPField", None),
    ("points", "HarmonicGPField", None),
    ("points", "GPBoost Vecchia", None),
    ("points", "PyKrige, 50 nearest", 20_000),
)
#: The truth of the made fields: range in cells, variance, standard deviation of the noise.
RANGE, VARIANCE, NOISE = 40.0, 4.0, 0.3


def heaton() -> tuple[Any, Any]:
    """Values [300, 500], NaN where they are to be predicted, and the truth there."""
    data = load_npz("heaton_simulated", ("mask", "true"))
    values, truth = (data[name].reshape(300, 500).astype(float) for name in ("mask", "true"))
    return values, np.where(np.isnan(values), truth, np.nan)


def exponential(shape: tuple[int, int], seed: int, reach: float = RANGE) -> Any:
    """A draw with an exponential covariance."""
    import gpytorch
    import torch

    from harmonicgp.features.planar import Torus

    kernel = gpytorch.kernels.MaternKernel(nu=0.5, ard_num_dims=2).double().requires_grad_(False)
    kernel.lengthscale = torch.tensor([reach, reach], dtype=torch.float64)
    torus = Torus.of(kernel, shape, (1.0, 1.0), 1e-4)
    return math.sqrt(VARIANCE) * torus.sample(1, torch.Generator().manual_seed(seed))[0].numpy()


def million() -> tuple[Any, Any]:
    """Values [1000, 1000] with holes, and noisy values in the holes."""
    rng, n = np.random.default_rng(0), 1000
    values = exponential((n, n), 0) + NOISE * rng.normal(size=(n, n))
    rows, columns = np.mgrid[:n, :n]
    hole = rng.random((n, n)) < 0.3
    for y, x in ((200, 200), (500, 700), (800, 300), (60, 900), (950, 950)):
        hole |= (rows - y) ** 2 + (columns - x) ** 2 < 60**2
    return np.where(hole, np.nan, values), np.where(hole, values, np.nan)


def points() -> tuple[Any, Any, Any, Any]:
    """Training and test points: cells of a fine grid in random places, with the value of the cell."""
    rng, n = np.random.default_rng(1), 2500
    field = exponential((n, n), 1, 100.0)
    cells = rng.choice(n * n, 220_000, replace=False)
    X = np.stack(np.unravel_index(cells, (n, n)), 1).astype(float)
    y = field.ravel()[cells] + NOISE * rng.normal(size=len(cells))
    keep = rng.permutation(len(cells))
    train, test = keep[:200_000], keep[200_000:]
    return X[train], y[train], X[test], y[test]


def table(case: str, rows: int | None) -> tuple[Any, Any, Any, Any]:
    """Any case as points; at most `rows` of training."""
    if case == "points":
        X, y, Xs, ys = points()
    else:
        values, truth = heaton() if case == "heaton" else million()
        seen, tested = np.isfinite(values), np.isfinite(truth)
        X, Xs = (np.stack(np.nonzero(part), 1).astype(float) for part in (seen, tested))
        y, ys = values[seen], truth[tested]
    if rows is not None:
        some = np.random.default_rng(0).choice(len(y), rows, replace=False)
        X, y = X[some], y[some]
    return X, y, Xs, ys


def ours(case: str, rows: int | None) -> Row:
    """HarmonicGPField with its defaults."""
    from harmonicgp import HarmonicGPField

    if case == "points":
        X, y, Xs, ys = points()
        start = time.perf_counter()
        gp = HarmonicGPField(progress=False).fit(X, y)
        mean, std = gp.predict(Xs, return_std=True)
    else:
        values, truth = heaton() if case == "heaton" else million()
        start = time.perf_counter()
        gp = HarmonicGPField(progress=False).fit(values)
        mean, std = gp.predict(return_std=True)
    seconds = time.perf_counter() - start
    found = {"kernel": gp.kernel_, "lengthscale": list(gp.lengthscale_.values()), "field": gp.field_std_}
    found |= {"noise": gp.noise_std_, "std_error": gp.std_error_}
    if case == "points":
        return scores(ys, mean, std) | {"seconds": seconds, "fit": gp.seconds_, "rows": len(y)} | found
    tested = np.isfinite(truth)
    row = scores(truth[tested], mean[tested], std[tested]) | found
    if case == "million":
        from scipy.ndimage import distance_transform_edt

        depth = distance_transform_edt(np.isnan(values))
        edge = np.ones(truth.shape, bool)
        edge[20:-20, 20:-20] = False
        for name, part in (("deep", depth > 20), ("edge", edge)):
            some = tested & part
            row[f"coverage_{name}"] = float((np.abs(truth - mean)[some] <= HALF * std[some]).mean())
    return row | {"seconds": seconds, "fit": gp.seconds_, "rows": int(np.isfinite(values).sum())}


def gpboost_vecchia(case: str, rows: int | None) -> Row:
    """GPBoost's Vecchia approximation, exponential covariance, its defaults for the rest."""
    import gpboost

    X, y, Xs, ys = table(case, rows)
    start = time.perf_counter()
    model = gpboost.GPModel(gp_coords=X, cov_function="exponential", gp_approx="vecchia", seed=0)
    model.fit(y=y, X=np.ones((len(y), 1)))
    fit = time.perf_counter() - start
    found = model.predict(gp_coords_pred=Xs, X_pred=np.ones((len(ys), 1)), predict_var=True)
    seconds = time.perf_counter() - start
    return scores(ys, found["mu"], np.sqrt(found["var"])) | {"seconds": seconds, "fit": fit, "rows": len(y)}


def pykrige_nearest(case: str, rows: int | None) -> Row:
    """PyKrige's ordinary kriging with an exponential variogram and a moving window of 50 points."""
    from pykrige.ok import OrdinaryKriging

    X, y, Xs, ys = table(case, rows)
    start = time.perf_counter()
    model = OrdinaryKriging(X[:, 0], X[:, 1], y, variogram_model="exponential", nlags=30)
    fit = time.perf_counter() - start
    mean, variance = model.execute("points", Xs[:, 0], Xs[:, 1], backend="C", n_closest_points=50)
    seconds = time.perf_counter() - start
    return scores(ys, mean.data, np.sqrt(np.maximum(variance.data, 1e-12))) | {
        "seconds": seconds, "fit": fit, "rows": len(y),
    }  # fmt: skip


def scores(y: Any, mean: Any, std: Any) -> Row:
    """MAE, RMSE, CRPS, the score of 95 % intervals, and their coverage."""
    from scipy.special import ndtr

    error, z = y - mean, (y - mean) / std
    density = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
    beyond = np.maximum(np.abs(error) - HALF * std, 0.0)
    return {
        "mae": float(np.abs(error).mean()),
        "rmse": float(np.sqrt((error**2).mean())),
        "crps": float((std * (z * (2 * ndtr(z) - 1) + 2 * density - 1 / math.sqrt(math.pi))).mean()),
        "interval": float((2 * HALF * std + 40 * beyond).mean()),
        "coverage": float((np.abs(z) <= HALF).mean()),
    }


MODELS = {"HarmonicGPField": ours, "GPBoost Vecchia": gpboost_vecchia, "PyKrige, 50 nearest": pykrige_nearest}


def one(case: str, model: str, rows: int | None) -> Row:
    """One row of the table."""
    return MODELS[model](case, rows) | {"memory": peak_memory()}


def main(argv: list[str]) -> None:
    """Run the cases, and print the table."""
    parser = argparse.ArgumentParser(prog="benchmarks.fields")
    parser.add_argument("--output", type=Path, default=Path("out"))
    parser.add_argument("--cases", default="heaton,million,points")
    parser.add_argument("--seconds", type=float, default=600.0)
    options = parser.parse_args(argv)
    options.output.mkdir(parents=True, exist_ok=True)
    file = options.output / "fields.jsonl"
    done = [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.exists() else []
    for case, model, rows in RUNS:
        if case not in options.cases.split(",") or any((r["case"], r["model"]) == (case, model) for r in done):
            continue
        arguments = {"case": case, "model": model, "rows": rows}
        row = arguments | in_own_process("benchmarks.fields:one", arguments, options.seconds, 2)
        done.append(row)
        with file.open("a", encoding="utf-8") as out:
            out.write(json.dumps(row) + "\n")
    print("| case | model | rows | MAE | RMSE | CRPS | interval | coverage | seconds | of these fit | GB |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for row in done:
        if "error" in row:
            print(f"| {row['case']} | {row['model']} | | {row['error']} |")
            continue
        numbers = [f"{row[name]:.3f}" for name in ("mae", "rmse", "crps", "interval")]
        ends = [
            f"{100 * row['coverage']:.1f} %",
            f"{row['seconds']:.0f}",
            f"{row['fit']:.0f}",
            f"{row['memory'] / 1e9:.1f}",
        ]
        print(f"| {' | '.join([row['case'], row['model'], format(row['rows'], ','), *numbers, *ends])} |")


if __name__ == "__main__":
    import sys

    main(sys.argv[1:])
