"""What the two MNIST experiments share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gpytorch
import numpy as np
import torch
from torch import Tensor

from benchmarks._data import load_npz
from experiments._runner import UsageError, positive, so_far, whole
from experiments._training import Row, Score, draw_curves, markdown, scaled, train
from harmonicgp.diagnostics import trace_error
from harmonicgp.features import Features
from harmonicgp.inference.prediction import Predictor
from harmonicgp.io.container import write_text_atomically
from harmonicgp.likelihoods import RobustMaxLikelihood

Array = np.ndarray[Any, Any]
SHAPE = (28, 28)
CLASSES = 10


class Digits(NamedTuple):
    """Rows of 784 centred pixels, and class numbers."""

    X: Tensor
    y: Tensor
    X_test: Tensor
    y_test: Tensor


#: Each with its data.
Models = dict[str, tuple[Digits, Callable[[gpytorch.kernels.Kernel, Tensor], Features]]]


#: Moves images [n, h, w]; returns them, and their classes where these are not the digits.
Move = Callable[[Array, np.random.Generator], "Array | tuple[Array, Array]"]


def load_digits(
    n: int, n_test: int, move: Move, grey: bool = False, seed: int = 0, only: Sequence[int] = range(10)
) -> Digits:
    """MNIST, or its first rows, with every image moved at random; pixels in [0, 1] less their training means, or less 1/2.

    `only` leaves the other digits out.
    """
    data = load_npz("mnist", ("x_train", "y_train", "x_test", "y_test"))
    names = {key.lower(): key for key in data}
    rng = np.random.default_rng(seed)

    def part(which: str, count: int) -> tuple[Array, Array]:
        labels = data[names[f"y_{which}"]]
        kept = np.flatnonzero(np.isin(labels, list(only)))[:count]
        moved = move(data[names[f"x_{which}"]][kept].reshape(-1, *SHAPE), rng)
        images, classes = moved if isinstance(moved, tuple) else (moved, labels[kept])
        return images.reshape(-1, 784) / np.float32(255), classes

    (X, y), (X_test, y_test) = part("train", n), part("test", n_test)
    centre = np.float32(0.5) if grey else X.mean(0)
    return Digits(
        torch.from_numpy((X - centre).astype(np.float32)), torch.from_numpy(y.astype(np.float32)),
        torch.from_numpy((X_test - centre).astype(np.float32)), torch.from_numpy(y_test.astype(np.int64)),
    )  # fmt: skip


def accuracy(data: Digits, likelihood: RobustMaxLikelihood) -> Score:
    """Percent of the test images whose most probable class is theirs, the NLL of the classes, and where the mean of q is.

    `first_block` is the share of |mu|^2 in the first block, that of the functions which no element changes.
    """

    @torch.no_grad()
    def score(predictor: Predictor) -> dict[str, float]:
        mean, variance = predictor.marginals(data.X_test)
        p = likelihood.class_probabilities(mean.mT.float(), variance.mT.float())
        right = p.argmax(-1) == data.y_test
        nll = -p.gather(1, data.y_test[:, None]).clamp_min(1e-12).log().mean()
        blocks = torch.cat([mu.square().sum((0, 2)) for mu in predictor.posterior.means])
        share = float(blocks[0] / blocks.sum())
        return {"accuracy": 100 * float(right.double().mean()), "nll": float(nll), "first_block": share}

    return score


#: Of both experiments: what the runner asks for beside the size.
OPTIONS: dict[str, dict[str, Any]] = {
    "rate": {"type": positive, "metavar": "RATE", "help": "of Adam (default: 0.001, the paper's)"},
    "steps": {"type": whole, "metavar": "N", "help": "of each model (default: by the size)"},
    "models": {"nargs": "+", "metavar": "NAME", "help": "only those whose names begin so, such as TRAN or 'SVGP 800'"},
}


def compare(
    name: str, title: str, known: Models, output: Path, steps: int, rate: float = 0.001, models: Sequence[str] = ("",)
) -> dict[str, Any]:
    """Train all models, or those whose names begin so, for equal steps; write all anew after each.

    `residual` is the share of the kernel that the inducing images leave before training.
    """
    chosen = {model: what for model, what in known.items() if model.startswith(tuple(models))}
    if not chosen:
        raise UsageError(f"--models {' '.join(models)}: there are {', '.join(known)}.")
    columns = {"model": "", "step": "", "accuracy": ".2f", "nll": ".3f", "loss": ".3f", "first_block": ".2f", "residual": ".4f",
               "seconds_per_step": ".3f"}  # fmt: skip
    panels = {"loss": "training loss", "accuracy": "test accuracy, %"}
    rows: list[Row] = []
    for model, (data, make) in chosen.items():
        kernel = scaled(gpytorch.kernels.RBFKernel(), data.X[:2000])
        likelihood = RobustMaxLikelihood(1 + int(data.y.max()))
        score = accuracy(data, likelihood)
        features = make(kernel, data.X)
        left = trace_error(features, data.X_test[:1000]) / len(data.X_test[:1000])
        row = train(model, features, likelihood, data.X, data.y, score, steps=steps, rate=rate)
        rows.append(row | {"residual": left})
        so_far(output, name, rows=rows)
        write_text_atomically(output / f"{name}.md", markdown(rows, columns) + "\n")
        draw_curves(output / f"{name}.png", rows, panels, f"{title}, {len(data.X):,} images, Adam {rate:g}")
    print(markdown(rows, columns))
    return {"rows": rows}
