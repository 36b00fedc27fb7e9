"""Theorem 4.2: with inputs that share the symmetry, the harmonic parts become independent a posteriori as N grows.

Four blocks (negations of two coordinates), shared inducing inputs, Gaussian noise. For symmetric inputs, x ~ N(0, I), the
off-diagonal blocks of the optimal covariance shrink like 1/sqrt(N) against the diagonal ones, and conjugate gradients for the
joint mean, preconditioned with the blocks, need few iterations. For shifted inputs, x ~ N(1, I), neither holds.

The theorem's proof also needs E[lambda | x], the mean curvature of the log-likelihood at x, to be invariant: true for
Gaussian noise, where lambda is 1/s2; for classification symmetric inputs are not enough. Takes seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gpytorch
import torch
from torch import Tensor

from experiments._runner import run
from harmonicgp._extras import require
from harmonicgp.actions import Negation
from harmonicgp.backend.linalg import conjugate_gradients
from harmonicgp.features import HarmonicFeatures
from harmonicgp.features.evaluation import Shapes, diagonal_blocks
from harmonicgp.inference.closed_form import closed_form
from harmonicgp.inference.posterior import Family, block_solver
from harmonicgp.inference.statistics import gather_statistics

ROWS = {"small": [100, 1000, 10_000], "medium": [100, 300, 1000, 3000, 10_000, 30_000],
        "paper": [100, 300, 1000, 3000, 10_000, 30_000, 100_000, 300_000]}  # fmt: skip


def off_diagonal(M: Tensor, shapes: Shapes) -> float:
    """The spectral norm of D^{-1/2} M D^{-1/2} - I, D the diagonal blocks of M: zero for independent blocks."""
    C = torch.block_diag(*[L for blocks in diagonal_blocks(M, shapes) for L in torch.linalg.cholesky(blocks)])
    scaled = torch.linalg.solve_triangular(C, torch.linalg.solve_triangular(C, M, upper=False).mT, upper=False)
    return float(torch.linalg.matrix_norm(scaled - torch.eye(len(M), dtype=M.dtype), 2))


def coupling(N: int, shift: float, s2: float = 0.1, m: int = 20, seed: int = 0) -> tuple[float, float, int]:
    """The off-diagonal part of the optimal covariance and of the precision, and the CG iterations for the mean."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(N, 2, generator=generator, dtype=torch.float64) + shift
    y = torch.sin(2 * X[:, 0]) * torch.cos(X[:, 1]) + 0.3 * torch.randn(N, generator=generator, dtype=torch.float64)
    kernel = gpytorch.kernels.MaternKernel(nu=1.5).double().requires_grad_(False)
    kernel.lengthscale = 1.0
    Z = (torch.randn(m, 2, generator=torch.Generator().manual_seed(99), dtype=torch.float64)).abs() + 0.1
    features = HarmonicFeatures(kernel, Negation([[0], [1]]), Z, learn_inducing=False)
    statistics = gather_statistics(features.whiten(), features.shapes, X, y[None])
    assert statistics.S is not None
    F = features.n_features
    Lambda = torch.eye(F, dtype=torch.float64) + statistics.S / s2
    factors = [torch.linalg.cholesky(block) for block in diagonal_blocks(Lambda, features.shapes)]
    _, iterations = conjugate_gradients(
        lambda v: v @ Lambda, statistics.b / s2, block_solver(factors, features.shapes), tolerance=1e-6
    )
    covariance = torch.cholesky_inverse(torch.linalg.cholesky(Lambda))
    return off_diagonal(covariance, features.shapes), off_diagonal(Lambda, features.shapes), iterations


def gap(N: int, shift: float, s2: float = 0.1) -> dict[str, float]:
    """Per row, with inducing inputs on every row: the exact log evidence, and the joint and block bounds."""
    generator = torch.Generator().manual_seed(1)
    X = torch.randn(N, 2, generator=generator, dtype=torch.float64) + shift
    y = torch.sin(2 * X[:, 0]) * torch.cos(X[:, 1]) + 0.3 * torch.randn(N, generator=generator, dtype=torch.float64)
    kernel = gpytorch.kernels.MaternKernel(nu=1.5).double().requires_grad_(False)
    kernel.lengthscale = 1.0
    K = kernel(X).to_dense() + s2 * torch.eye(N, dtype=torch.float64)
    zero = torch.zeros(N, dtype=torch.float64)
    values = {"exact": float(torch.distributions.MultivariateNormal(zero, K).log_prob(y)) / N}
    features = HarmonicFeatures(kernel, Negation([[0], [1]]), X, learn_inducing=False)
    statistics = gather_statistics(features.whiten(), features.shapes, X, y[None])
    families: tuple[Family, ...] = ("joint", "block")
    return values | {family: closed_form(statistics, s2, family).bound / N for family in families}


def experiment(size: str, output: Path) -> Mapping[str, Any]:
    """Measure both cases over N, draw independence.png."""
    rows = ROWS[size]
    results: dict[str, Any] = {"N": rows}
    for name, shift in (("symmetric", 0.0), ("shifted", 1.0)):
        measured = [coupling(N, shift) for N in rows]
        covariance, precision, iterations = (list(column) for column in zip(*measured, strict=True))
        results[name] = {"covariance": covariance, "precision": precision, "iterations": iterations}
        for N, (c, p, i) in zip(rows, measured, strict=True):
            print(f"{name:10s} N = {N:7d}: off-diagonal part of S* {c:.4f}, of its inverse {p:.4f}; {i} CG iterations")
    x, y = (torch.tensor(v, dtype=torch.float64).log() for v in (rows, results["symmetric"]["covariance"]))
    slope = float(((x - x.mean()) * (y - y.mean())).sum() / (x - x.mean()).square().sum())
    results["symmetric_slope"] = slope
    print(f"symmetric inputs: coupling falls like N^{slope:.2f}")
    results["all_rows_as_inducing_inputs"] = {
        name: gap(200, shift) for name, shift in (("symmetric", 0.0), ("shifted", 1.0))
    }
    for name, values in results["all_rows_as_inducing_inputs"].items():
        print(
            f"{name}, Z = X, 200 rows: exact log evidence {values['exact']:.4f} per row, joint bound {values['joint']:.4f}, "
            f"block bound {values['block']:.4f}, {values['exact'] - values['block']:.4f} below"
        )
    draw(results, output / "independence.png")
    print(f"picture: {output / 'independence.png'}")
    return results


def draw(results: Mapping[str, Any], path: Path) -> None:
    """Coupling and iterations against N."""
    matplotlib = require("matplotlib", extra="plot", purpose="drawing the figure")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    N = results["N"]
    for name, color in (("symmetric", "#08519c"), ("shifted", "#d95f0e")):
        axes[0].loglog(N, results[name]["covariance"], "o-", color=color, label=f"{name} inputs")
        axes[1].semilogx(N, results[name]["iterations"], "o-", color=color, label=f"{name} inputs")
    first = results["symmetric"]["covariance"][0]
    axes[0].loglog(N, [first * (N[0] / n) ** 0.5 for n in N], "k:", label="$N^{-1/2}$")
    axes[0].set_title("off-diagonal blocks of the optimal covariance S*")
    axes[0].set_ylabel("spectral norm, blocks whitened")
    axes[1].set_title("CG iterations for the joint mean")
    axes[1].set_ylim(bottom=0)
    for axis in axes:
        axis.set_xlabel("rows N")
        axis.grid(alpha=0.3)
        axis.legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)


if __name__ == "__main__":
    run("independence", __doc__, experiment)
