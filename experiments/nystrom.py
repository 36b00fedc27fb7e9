"""How much of a kernel inducing points hold: trace(K - Q) for one set of points and for harmonic kernels by negations.

3,000 random rows of each table, Matern-3/2, lengthscale by the median heuristic, inducing points by k-means and then moved to
lower the error. For every M: one set of M, of 2 M, SOLVE-GP's M + M, and T x M by negations along axes and along principal
directions, each block with its own points, T = 4, 8, 16. A lower error at equal M is a larger part of the kernel at the cost
of small factorisations.

Tables: kin40k, keggdirected, elevators, houseelectric. Sizes: small (800 rows, one M, 10 steps; a minute), medium (M to 64,
100 steps; half an hour on two cores), paper (M to 256, 500 steps; a day). Needs the tables in the folder that HARMONICGP_DATA
names.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gpytorch
import numpy as np
import torch
from torch import Tensor

from experiments._runner import run, so_far, some_of
from experiments._tables import load_table
from experiments._training import Row, harmonic, markdown, orthogonal, scaled, sparse
from harmonicgp._extras import require
from harmonicgp.actions import Negation
from harmonicgp.diagnostics import minimise_trace_error, trace_error
from harmonicgp.features import Features
from harmonicgp.io.container import write_text_atomically

TABLES = ("kin40k", "keggdirected", "elevators", "houseelectric")
#: Rows, sizes M, steps.
SIZES = {"small": (800, (16,), 10), "medium": (3000, (16, 32, 64), 100), "paper": (3000, (32, 64, 128, 256), 500)}
WAYS = (2, 3, 4)


def rows_of(name: str, n: int, principal: bool, seed: int = 0) -> Tensor:
    """Standardised random rows, turned to principal axes or not."""
    X = load_table(name).X
    X = X[np.random.default_rng(seed).choice(len(X), min(n, len(X)), replace=False)]
    spread = X.std(0)
    X = (X - X.mean(0))[:, spread > 0] / spread[spread > 0]
    if principal:
        _, axes = np.linalg.eigh(X.T @ X)
        X = X @ axes[:, ::-1]
    return torch.from_numpy(X)


def errors(make: Callable[[], Features], X: Tensor, steps: int) -> tuple[float, float, float]:
    """Mean residual per row at first and after moving the inducing points, and seconds."""
    start = time.perf_counter()
    features = make()
    before = trace_error(features, X) / len(X)
    minimise_trace_error(features, X, steps=steps, learning_rate=0.02)
    return before, trace_error(features, X) / len(X), time.perf_counter() - start


def experiment(size: str, output: Path, tables: Sequence[str] | None = None) -> Mapping[str, Any]:
    """All tables and models; the table, the figure, and how often principal directions and T x M win."""
    n, sizes, steps = SIZES[size]
    rows: list[Row] = []
    for name in tables or TABLES:
        raw, turned = rows_of(name, n, False), rows_of(name, n, True)
        for m in sizes:
            for model, before, after, seconds in models(raw, turned, m, steps):
                rows.append(
                    {"table": name, "M": m, "model": model, "k-means": before, "moved": after, "seconds": seconds}
                )
                print(f"{name} M = {m} {model}: {before:.4f} -> {after:.4f} ({seconds:.1f} s)", flush=True)
        verdicts = tell(rows, output)
    return {"rows": rows, "verdicts": verdicts}


def tell(rows: list[Row], output: Path) -> list[str]:
    """The table, the figure and the verdicts so far."""
    text = markdown(rows, {"table": "", "M": "", "model": "", "k-means": ".4f", "moved": ".4f", "seconds": ".1f"})
    verdicts = compared(rows)
    text += "\n\n" + "\n".join(f"- {verdict}" for verdict in verdicts)
    so_far(output, "nystrom", rows=rows, verdicts=verdicts)
    write_text_atomically(output / "nystrom.md", text + "\n")
    print("\n".join(verdicts), flush=True)
    draw(output / "nystrom.png", rows)
    return verdicts


def models(raw: Tensor, turned: Tensor, m: int, steps: int) -> Any:
    """Each with its errors and seconds."""

    def kernel() -> gpytorch.kernels.Kernel:
        return scaled(gpytorch.kernels.MaternKernel(nu=1.5).double(), raw).requires_grad_(False)

    yield "M", *errors(lambda: sparse(kernel(), raw, m), raw, steps)
    yield "2M", *errors(lambda: sparse(kernel(), raw, 2 * m), raw, steps)
    yield "M+M", *errors(lambda: orthogonal(kernel(), raw, m), raw, steps)
    for J in WAYS:
        if raw.shape[1] < J:
            continue
        action = Negation.strided(raw.shape[1], J)
        for X, words in ((raw, "axes"), (turned, "principal")):
            made = errors(lambda X=X, action=action: harmonic(kernel(), action, X, m), X, steps)  # type: ignore[misc]
            yield f"{2**J}xM {words}", *made


def compared(rows: list[Row]) -> list[str]:
    """The paper's two claims, counted over tables, sizes and T."""
    found = {(r["table"], r["M"], r["model"]): r["moved"] for r in rows}
    pairs = [(t, m, model) for t, m, model in found if model.endswith("axes")]
    principal = sum(found[t, m, model.replace("axes", "principal")] < found[t, m, model] for t, m, model in pairs)
    harmonics = [(t, m, model) for t, m, model in found if "x" in model]
    verdicts = [f"principal directions leave less than axes in {principal} of {len(pairs)} cases"]
    for peer in ("M", "2M", "M+M"):
        better = sum(found[t, m, model] < found[t, m, peer] for t, m, model in harmonics)
        worse = sorted({t for t, m, model in harmonics if found[t, m, model] >= found[t, m, peer]})
        words = f" (not always on {', '.join(worse)})" if worse else ""
        verdicts.append(f"TxM leaves less than {peer} in {better} of {len(harmonics)} cases{words}")
    return verdicts


def draw(path: Path, rows: list[Row]) -> None:
    """A panel for each table: the error against M."""
    matplotlib = require("matplotlib", extra="plot", purpose="drawing the trace errors")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    tables = list(dict.fromkeys(row["table"] for row in rows))
    figure, axes = plt.subplots(1, len(tables), figsize=(4.2 * len(tables), 4.4), layout="constrained", squeeze=False)
    colours = {"M": "black", "2M": "#8c510a", "M+M": "#d8b365", "4xM": "#a6cee3", "8xM": "#1f78b4", "16xM": "#08306b"}
    for axis, name in zip(axes[0], tables, strict=True):
        for model in dict.fromkeys(row["model"] for row in rows):
            mine = [row for row in rows if row["table"] == name and row["model"] == model]
            style = {"axes": ":^", "principal": "-o"}.get(model.split()[-1], "--s")
            filled = {} if style == "-o" else {"mfc": "white"}
            axis.plot([r["M"] for r in mine], [r["moved"] for r in mine], style, ms=5, color=colours[model.split()[0]],
                      label=model, **filled)  # fmt: skip
        axis.set_title(name)
        axis.set_xlabel("M, inducing points of a block")
        axis.set_xscale("log", base=2)
        ticks = sorted({row["M"] for row in rows})
        axis.set_xticks(ticks, [str(m) for m in ticks])
        axis.grid(alpha=0.3)
    axes[0, 0].set_ylabel("trace error a row")
    axes[0, -1].legend(fontsize=8)
    figure.savefig(path, dpi=120)
    plt.close(figure)


if __name__ == "__main__":
    run("nystrom", __doc__, experiment, {"tables": some_of(TABLES)})
