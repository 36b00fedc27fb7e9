"""What the training experiments share: models trained by Adam with the library's own loop, looks at the test set, curves."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gpytorch
import torch
from torch import Tensor

from harmonicgp._extras import require
from harmonicgp.actions import Action
from harmonicgp.features import Features, HarmonicFeatures, OrthogonalFeatures, SparseFeatures
from harmonicgp.groups import Resolution
from harmonicgp.inducing import median_distance, place
from harmonicgp.inference.prediction import Predictor
from harmonicgp.training import Schedule, fit

Row = dict[str, Any]
Score = Callable[[Predictor], dict[str, float]]


def scaled(kernel: gpytorch.kernels.Kernel, X: Tensor) -> gpytorch.kernels.ScaleKernel:
    """With one lengthscale by the median heuristic, and an output scale of one."""
    kernel.lengthscale = median_distance(X)
    whole = gpytorch.kernels.ScaleKernel(kernel)
    whole.outputscale = 1.0
    return whole


def sparse(kernel: gpytorch.kernels.Kernel, X: Tensor, m: int, seed: int = 0) -> Features:
    """SVGP: one block of inducing points by k-means."""
    return SparseFeatures(kernel, place(X, m, seed=seed))


def orthogonal(kernel: gpytorch.kernels.Kernel, X: Tensor, m: int, seed: int = 0) -> Features:
    """SOLVE-GP, m + m."""
    Z = place(X, 2 * m, seed=seed)
    order = torch.randperm(len(Z), generator=torch.Generator().manual_seed(seed))
    return OrthogonalFeatures(kernel, Z[order[:m]], Z[order[m:]])


def harmonic(
    kernel: gpytorch.kernels.Kernel,
    action: Action,
    X: Tensor,
    m: int,
    share: bool = False,
    fold: bool = False,
    resolution: Resolution = "real",
    seed: int = 0,
) -> HarmonicFeatures:
    """HVGP: m inducing points by k-means for every block, each its own, or shared.

    With `fold`, and always where they are shared, they are cluster centres of the rows brought to the fundamental domain: that is
    better where the action maps the data to themselves, and worse where it does not.
    """
    if share:
        return HarmonicFeatures(kernel, action, place(X, m, action=action, seed=seed), resolution)
    blocks = action.group.n_blocks(resolution)
    sets = [place(X, m, action=action if fold else None, seed=seed + t) for t in range(blocks)]
    least = min(len(Z) for Z in sets)
    return HarmonicFeatures(kernel, action, torch.stack([Z[:least] for Z in sets]), resolution)


def train(
    name: str,
    features: Features,
    likelihood: gpytorch.likelihoods.Likelihood,
    X: Tensor,
    y: Tensor,
    score: Score,
    *,
    steps: int,
    rate: float,
    batch: int = 256,
    looks: int = 10,
    seed: int = 0,
) -> Row:
    """A model after `steps` of Adam for everything, with its curve: the loss since the last look, and the scores of the test set.

    Seconds are those of training, without the looks.
    """
    every = max(1, steps // looks)
    curve: list[Row] = []
    losses: list[float] = []
    aside = 0.0

    def look(record: dict[str, Any]) -> None:
        nonlocal aside
        losses.append(-record["bound"])
        if record["step"] % every and record["step"] < steps:
            return
        start = time.perf_counter()
        point = {"step": record["step"], "seconds": record["seconds"] - aside, "loss": sum(losses) / len(losses)}
        losses.clear()
        curve.append(point | score(record["predictor"]()))
        aside += time.perf_counter() - start

    plan = Schedule(
        max_steps=steps, batch_size=batch, learning_rate=rate, optimizer="adam", finish=False, seed=seed, progress=True
    )
    fit(features, likelihood, X, y, bound="elbo", schedule=plan, callbacks=[look])
    row = {"model": name, **curve[-1], "seconds_per_step": curve[-1]["seconds"] / steps, "curve": curve}
    print("  ".join(f"{key} {value:.4g}" if isinstance(value, float) else f"{value}" for key, value in row.items()
                    if key != "curve"), flush=True)  # fmt: skip
    return row


def markdown(rows: Sequence[Row], columns: dict[str, str]) -> str:
    """A table of some columns, each with its format."""
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for row in rows:
        lines.append("| " + " | ".join(_cell(row.get(name), form) for name, form in columns.items()) + " |")
    return "\n".join(lines)


def _cell(value: Any, form: str) -> str:
    return "-" if value is None else format(value, form)


def draw_curves(path: Path, rows: Sequence[Row], panels: dict[str, str], title: str) -> None:
    """Every quantity of `panels` over steps and over seconds, a line for each model; a star where only its end is known."""
    matplotlib = require("matplotlib", extra="plot", purpose="drawing learning curves")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        2, len(panels), figsize=(5.2 * len(panels), 7.2), layout="constrained", squeeze=False, sharey="col"
    )
    for row_axes, along in zip(axes, ("step", "seconds"), strict=True):
        for axis, (key, label) in zip(row_axes, panels.items(), strict=True):
            seconds = [p["seconds"] for row in rows for p in row.get("curve", [row])]
            for k, row in enumerate(rows):
                if "curve" in row:
                    x, y = [p[along] for p in row["curve"]], [p[key] for p in row["curve"]]
                    axis.plot(x, y, marker=".", ls=("-", "--", ":")[k // 8 % 3], label=row["model"])
                elif along == "seconds" and key in row:
                    axis.plot(row[along], row[key], "*", ms=11, color="black", label=row["model"])
            axis.set_xlabel("steps" if along == "step" else "seconds of training")
            axis.set_ylabel(label)
            axis.grid(alpha=0.3)
            if along == "seconds" and max(seconds) > 100 * min(seconds):  # else ticks of a logarithm are crowded
                axis.set_xscale("log")
    axes[-1, -1].legend(fontsize=8)
    figure.suptitle(title)
    figure.savefig(path, dpi=120)
    plt.close(figure)
