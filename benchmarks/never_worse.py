"""The automatic choice of a symmetry against one block of equal modelled cost, search included.

    python -m benchmarks.never_worse [--sets kin40k,elevators,...]

For every set (test fold 0) fits `HarmonicGPRegressor()` and then `HarmonicGPRegressor(symmetry=None)` with as many inducing
points as one block gets by default and as many steps as use up the modelled cost of the first fit, its search included; prints
the final bound a row and the test NLL of both. The choice keeps its promise where its bound is not below and its NLL at most 0.02
above. Sets need HARMONICGP_DATA; "skewed" is made.
"""

from __future__ import annotations

import argparse
import sys
import time

import numpy as np

from benchmarks._data import DataNotFoundError
from benchmarks._harness import load_task
from benchmarks.peers import Task
from harmonicgp import HarmonicGPRegressor
from harmonicgp.symmetry.cost import ONE_BLOCK, finish_cost, step_cost

SETS = ("skewed", "pumadyn32nm", "elevators", "bike", "pol", "kin40k")


def skewed(rows: int = 12_000) -> Task:
    """Nine log-normal columns that depend on each other, and a wave along a direction of their logarithms."""
    rng = np.random.default_rng(0)
    u = rng.normal(size=(rows, 9)) @ (np.eye(9) + 0.4 * rng.normal(size=(9, 9)))
    y = np.sin(u @ rng.normal(size=9) / 2) + 0.5 * rng.normal(size=rows)
    return Task(np.exp(u), y, np.arange(rows) % 10 == 0)


def scores(gp: HarmonicGPRegressor, task: Task) -> tuple[float, float, float]:
    """The bound a row, the test NLL in units of the standardised target, and seconds."""
    train = ~task.test
    start = time.perf_counter()
    gp.fit(task.X[train], task.y[train])
    seconds = time.perf_counter() - start
    nll = -gp.log_density(task.X[task.test], task.y[task.test]).mean() - np.log(task.y[train].std())
    return gp.elbo_, float(nll), seconds


def main(argv: list[str] | None = None) -> int:
    """Run and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.never_worse", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--sets", default=",".join(SETS), help=f"some of {', '.join(SETS)}")
    arguments = parser.parse_args(argv)
    print(
        f"{'set':12} {'choice':38} {'bound':>9} {'NLL':>8} {'s':>5}   one block: {'bound':>9} {'NLL':>8} {'s':>5}  kept"
    )
    for name in arguments.sets.split(","):
        try:
            task = skewed() if name == "skewed" else load_task(name, 0)
        except DataNotFoundError as error:
            print(f"{name}: {error}", file=sys.stderr)
            return 1
        N = int((~task.test).sum())
        gp = HarmonicGPRegressor()
        bound, nll, seconds = scores(gp, task)
        left = gp.modelled_cost_ - finish_cost(None, ONE_BLOCK, N)
        steps = max(int(left / step_cost(None, ONE_BLOCK, gp.batch_size, "block")), 1)
        plain = HarmonicGPRegressor(symmetry=None, warp=None, n_inducing=ONE_BLOCK, max_steps=steps)
        bound1, nll1, seconds1 = scores(plain, task)
        kept = bound >= bound1 and nll <= nll1 + 0.02
        print(
            f"{name:12} {gp.symmetry_.name[:38]:38} {bound:9.4f} {nll:8.4f} {seconds:5.0f}   "
            f"{'':10} {bound1:9.4f} {nll1:8.4f} {seconds1:5.0f}  {'yes' if kept else 'no'}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
