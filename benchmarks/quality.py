"""Seconds to reach a given NLL: ours under time budgets, against GPyTorch's SVGP-1024 and GPBoost's Vecchia approximation.

    python -m benchmarks.quality --output DIR [--sets kin40k,houseelectric] [--models ours,adam,natural,gpboost]

SVGP is trained by Adam, and by GPyTorch's natural gradients with Adam for the rest. kin40k: ten minutes, looked at every
minute. houseelectric (two million rows, logarithm of y): one pass over the data. Ours is fitted anew for every budget,
nothing else given. Test fold 0; scores are of y divided by the standard deviation of the training y. Evaluations are left
out of SVGP's clock. GPBoost is given up after ten minutes too. Results are kept in quality.jsonl, so that the suite goes on
where it was. Needs HARMONICGP_DATA; a model that is not installed is left out.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gpytorch
import numpy as np
import torch
from torch import Tensor

from benchmarks._data import DataNotFoundError, Fold, standardised_fold
from benchmarks._harness import load_task
from benchmarks._rates import facts, machine_rates, publish, table
from benchmarks.peers import _SVGP, SVGPState, Task, gaussian_scores, svgp_point
from harmonicgp.inducing import median_distance, place
from harmonicgp.io.container import write_text_atomically

BUDGETS = {"kin40k": (10.0, 20.0, 30.0, 60.0, 300.0), "houseelectric": (20.0, 40.0, 120.0)}
#: After which GPBoost is given up.
GPBOOST_SECONDS = 600.0
MODELS = ("ours", "adam", "natural", "gpboost")
Point = dict[str, Any]


def ours(task: Task, budget: float) -> Iterator[Point]:
    """A fit within a budget."""
    from harmonicgp import HarmonicGPRegressor

    start = time.perf_counter()
    model = HarmonicGPRegressor(time_budget=budget).fit(task.X[~task.test], task.y[~task.test])
    seconds = time.perf_counter() - start
    X, y = task.X[task.test], task.y[task.test]
    rmse = float(np.sqrt(np.mean((model.predict(X) - y) ** 2))) / task.scale
    nll = -float(np.mean(model.log_density(X, y))) - math.log(task.scale)
    yield {"at": f"budget {budget:g} s", "seconds": seconds, "rmse": rmse, "nll": nll, "note": model.symmetry_.name}


def svgp(fold: Fold, natural: bool, passes: int | None, most: float = 600.0, every: float = 60.0) -> Iterator[Point]:
    """SVGP-1024, looked at `every` so many seconds of training, and at its end: after `most` seconds, or some passes."""
    torch.manual_seed(0)
    start = time.perf_counter()
    base = gpytorch.kernels.MaternKernel(nu=1.5, ard_num_dims=fold.X.shape[1])
    base.lengthscale = median_distance(fold.X, ard=True)
    model = _SVGP(place(fold.X, 1024, seed=0), gpytorch.kernels.ScaleKernel(base), natural=natural)
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(fold.y))
    optimizers: list[torch.optim.Optimizer] = []
    if natural:
        optimizers.append(gpytorch.optim.NGD(model.variational_parameters(), num_data=len(fold.y), lr=0.1))
        learned = [*model.hyperparameters(), *likelihood.parameters()]
    else:
        learned = [*model.parameters(), *likelihood.parameters()]
    optimizers.append(torch.optim.Adam(learned, lr=0.01))
    seconds, looked, done, step = time.perf_counter() - start, 0.0, 0, 0
    while True:
        model.train()
        likelihood.train()
        for rows in torch.randperm(len(fold.y)).split(1024):
            start = time.perf_counter()
            for optimizer in optimizers:
                optimizer.zero_grad()
            (-bound(model(fold.X[rows]), fold.y[rows])).backward()
            for optimizer in optimizers:
                optimizer.step()
            step += 1
            seconds += time.perf_counter() - start
            if passes is None and seconds >= looked + every:
                looked = seconds
                yield svgp_point(SVGPState(f"{step} steps", seconds, model, likelihood), fold)
                if seconds >= most:
                    return
                model.train()
                likelihood.train()
        done += 1
        if passes is not None and done >= passes:
            yield svgp_point(SVGPState(f"{done} pass, {step} steps", seconds, model, likelihood), fold)
            return


def gpboost(fold: Fold) -> Iterator[Point]:
    """GPBoost's Vecchia approximation, as its documentation sets it up."""
    import gpboost as gpb

    def array(t: Tensor) -> Any:
        return t.double().numpy()

    start = time.perf_counter()
    model = gpb.GPModel(
        gp_coords=array(fold.X), cov_function="matern_ard", cov_fct_shape=1.5, likelihood="gaussian",
        gp_approx="vecchia", num_neighbors=20, seed=0,
    )  # fmt: skip
    model.fit(y=array(fold.y), params={"maxit": 50})
    found = model.predict(gp_coords_pred=array(fold.X_test), predict_var=True, predict_response=True)
    seconds = time.perf_counter() - start
    rmse, nll, coverage = gaussian_scores(found["mu"], found["var"], array(fold.y_test))
    yield {"at": "50 iterations", "seconds": seconds, "rmse": rmse, "nll": nll, "coverage": coverage}


def _sent(sender: Any, work: Callable[[Fold], Iterator[Point]], fold: Fold) -> None:
    sender.send(list(work(fold)))


def within(seconds: float, work: Callable[[Fold], Iterator[Point]], fold: Fold) -> list[Point]:
    """What `work` finds in a fresh process, which is ended after so many seconds."""
    fresh = multiprocessing.get_context("spawn")
    receiver, sender = fresh.Pipe(duplex=False)
    process = fresh.Process(target=_sent, args=(sender, work, fold))
    start = time.perf_counter()
    process.start()
    sender.close()  # so that one that dies is not waited for
    try:
        if receiver.poll(seconds):
            return list(receiver.recv())
        return [{"at": "not finished", "seconds": time.perf_counter() - start, "rmse": math.nan, "nll": math.nan}]
    finally:
        process.kill()
        process.join()


def run(name: str, model: str, budget: float | None) -> list[Point]:
    """One run of a model on a set."""
    task = load_task(name, 0)
    if model == "ours":
        assert budget is not None
        return list(ours(task, budget))
    fold = standardised_fold(*task)
    if model == "gpboost":
        return within(GPBOOST_SECONDS, gpboost, fold)
    return list(svgp(fold, model == "natural", 1 if name == "houseelectric" else None))


def main(argv: list[str] | None = None) -> int:
    """Run what is missing, and print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.quality", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--sets", default=",".join(BUDGETS))
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--redo", action="store_true", help="measure these models on these sets anew")
    arguments = parser.parse_args(argv)
    arguments.output.mkdir(parents=True, exist_ok=True)
    path = arguments.output / "quality.jsonl"
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []
    sets, models = arguments.sets.split(","), arguments.models.split(",")
    if arguments.redo:
        rows = [row for row in rows if row["set"] not in sets or row["model"] not in models]
    for name in sets:
        for model in models:
            if model == "gpboost" and importlib.util.find_spec("gpboost") is None:
                print("gpboost is left out, not installed", file=sys.stderr)
                continue
            for budget in BUDGETS[name] if model == "ours" else (None,):
                if any((r["set"], r["model"], r["budget"]) == (name, model, budget) for r in rows):
                    continue
                try:
                    points = run(name, model, budget)
                except DataNotFoundError as error:
                    print(f"{name}: {error}", file=sys.stderr)
                    return 1
                rows.append({"set": name, "model": model, "budget": budget, "points": points})
                write_text_atomically(path, "".join(json.dumps(row) + "\n" for row in rows))
                print(name, model, points[-1], flush=True)
    publish("quality", page(rows), rows, arguments.output)
    return 0


def _figure(value: float, form: str) -> str:
    return format(value, form) if math.isfinite(value) else "-"


def page(rows: list[dict[str, Any]]) -> str:
    """The table, and the goals."""
    lines = [
        [row["set"], row["model"], p["at"], f"{p['seconds']:.1f}", _figure(p["nll"], "+.3f"), _figure(p["rmse"], ".4f")]
        for row in rows
        for p in row["points"]
    ]
    verdicts = []
    for name in dict.fromkeys(row["set"] for row in rows):
        peers = [p for r in rows if r["set"] == name and r["model"] in ("adam", "natural") for p in r["points"]]
        own = [p for r in rows if r["set"] == name and r["model"] == "ours" for p in r["points"]]
        if peers and own:
            best = min(peers, key=lambda p: p["nll"])
            reached = [p for p in own if p["nll"] <= best["nll"]]
            if not reached:
                verdicts.append(f"- {name}: SVGP's best NLL, {best['nll']:+.3f}, was not reached.")
                continue
            first = min(reached, key=lambda p: p["seconds"])
            verdicts.append(
                f"- {name}: SVGP's best NLL, {best['nll']:+.3f} after {best['seconds']:.0f} s, is passed in "
                f"{first['seconds']:.1f} s ({first['nll']:+.3f}): 1/{best['seconds'] / first['seconds']:.0f} of its time."
            )
    header = ["set", "model", "at", "seconds", "NLL", "RMSE"]
    return f"## Quality\n\n{facts(machine_rates())}.\n\n{table(header, lines)}\n\n" + "\n".join(verdicts)


if __name__ == "__main__":
    sys.exit(main())
