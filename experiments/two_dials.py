"""Two dials: inducing points for the smooth part of a function, neighbours for the rest.

The data are made up: a sample of a GP whose kernel has a long and a short lengthscale, with noise and a gap. Kernel and noise
are known, so all errors come from the approximation. Four panels show inducing points alone, neighbours alone, both, and the
exact GP, each with its error against the exact GP. A table has the errors of more settings of the two dials. Takes seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import gpytorch
import torch
from torch import Tensor

from experiments._runner import run
from harmonicgp._extras import require
from harmonicgp.features import SparseFeatures
from harmonicgp.likelihoods.observation import observe
from harmonicgp.training import Schedule, fit
from harmonicgp.training.neighbour_finish import fit_neighbours
from harmonicgp.training.problem import Problem

ROWS = {"small": 200, "medium": 400, "paper": 1000}
#: The settings in the picture.
INDUCING, NEIGHBOURS = 12, 5
#: The settings in the table.
TABLE_INDUCING, TABLE_NEIGHBOURS = (0, 6, 12, 24, 48), (0, 2, 5, 10, 20)
#: Rows of the check that all rows as neighbours give the exact GP.
CHECKED = 60
#: The ends of the data, the gap in them, and the noise variance.
ENDS, GAP, NOISE = (-5.0, 5.0), (0.9, 2.1), 0.06
#: Nothing is learned, and all rows inform the posterior.
AS_GIVEN = Schedule(max_steps=0, validation_fraction=0.0, refine=False, progress=False)


class Curve(NamedTuple):
    """Mean and standard deviation of f, both [n]."""

    mean: Tensor
    std: Tensor

    def error(self, exact: Curve) -> dict[str, float]:
        """Root mean squared differences from the exact GP."""
        return {
            name: float((a - b).square().mean().sqrt()) for name, a, b in zip(self._fields, self, exact, strict=True)
        }


class Panel(NamedTuple):
    """A panel of the picture."""

    title: str
    curve: Curve
    Z: Tensor  #: inducing inputs that are drawn, [m, 1]


def experiment(size: str, output: Path) -> Mapping[str, Any]:
    """Predict in four ways, draw two-dials.png, report the errors against the exact GP."""
    kernel = two_scales()
    X, y = rows(kernel, ROWS[size])
    x = torch.linspace(*ENDS, 501, dtype=torch.float64)[:, None]
    exact, m, k = exact_gp(kernel, X, y, x), INDUCING, NEIGHBOURS
    panels = [
        Panel(f"{m} inducing points", approximation(kernel, X, y, x, m, 0), inducing(m)),
        Panel(f"{k} neighbours", approximation(kernel, X, y, x, 0, k), inducing(0)),
        Panel(f"{m} inducing points and {k} neighbours", approximation(kernel, X, y, x, m, k), inducing(m)),
        Panel(f"exact GP of all {len(X)} rows", exact, inducing(0)),
    ]
    path = output / "two-dials.png"
    draw(X, y, x, panels, path)
    few = slice(CHECKED)
    limit = approximation(kernel, X[few], y[few], x, 4, CHECKED).error(exact_gp(kernel, X[few], y[few], x))
    results = {
        "panels": {panel.title: panel.curve.error(exact) for panel in panels[:3]},
        "table": [
            {"inducing": m, "neighbours": k, **approximation(kernel, X, y, x, m, k).error(exact)}
            for m in TABLE_INDUCING
            for k in TABLE_NEIGHBOURS
        ],
        "all_rows_are_neighbours": limit,
    }
    for title, error in results["panels"].items():  # type: ignore[attr-defined]
        print(f"{title}: mean off by {error['mean']:.2g}, std by {error['std']:.2g}")
    print(f"all of {CHECKED} rows are neighbours: mean off by {limit['mean']:.1g}, std by {limit['std']:.1g}")
    print(f"picture: {path}")
    return results


def two_scales() -> gpytorch.kernels.Kernel:
    """A smooth kernel with a long lengthscale and a rough one with a short lengthscale."""
    smooth = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())
    rough = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(nu=1.5))
    smooth.outputscale, smooth.base_kernel.lengthscale = 1.0, 1.5
    rough.outputscale, rough.base_kernel.lengthscale = 0.12, 0.25
    return (smooth + rough).double().requires_grad_(False)


def rows(kernel: gpytorch.kernels.Kernel, N: int) -> tuple[Tensor, Tensor]:
    """N places [N, 1] outside the gap, and a sample of the GP there with noise, [N]."""
    generator = torch.Generator().manual_seed(0)
    low, high = ENDS
    places = low + (high - low) * torch.rand(2 * N, 1, generator=generator, dtype=torch.float64)
    X = places[(places[:, 0] < GAP[0]) | (places[:, 0] > GAP[1])][:N]
    L = torch.linalg.cholesky(covariance(kernel, X, X) + NOISE * torch.eye(N, dtype=X.dtype))
    return X, L @ torch.randn(N, generator=generator, dtype=torch.float64)


def covariance(kernel: gpytorch.kernels.Kernel, x1: Tensor, x2: Tensor) -> Tensor:
    """The matrix k(x1, x2)."""
    K: Tensor = kernel(x1, x2).to_dense()
    return K


def exact_gp(kernel: gpytorch.kernels.Kernel, X: Tensor, y: Tensor, x: Tensor) -> Curve:
    """f at x [n, 1] by the dense formulas."""
    L = torch.linalg.cholesky(covariance(kernel, X, X) + NOISE * torch.eye(len(X), dtype=X.dtype))
    A, b = (torch.linalg.solve_triangular(L, t, upper=False) for t in (covariance(kernel, X, x), y[:, None]))
    prior = covariance(kernel, x[:1], x[:1])[0, 0]  # stationary
    return Curve((A.mT @ b)[:, 0], (prior - A.square().sum(0)).clamp_min(0).sqrt())


def inducing(m: int) -> Tensor:
    """M inducing inputs, evenly spaced, [m, 1]."""
    return torch.linspace(*ENDS, m, dtype=torch.float64)[:, None]


def approximation(kernel: gpytorch.kernels.Kernel, X: Tensor, y: Tensor, x: Tensor, m: int, k: int) -> Curve:
    """f at x [n, 1] with m inducing points and k neighbours."""
    # Without inducing points: one so far away that its features vanish.
    Z = inducing(m) if m else torch.full((1, 1), 1e3, dtype=X.dtype)
    features = SparseFeatures(kernel, Z, learn_inducing=False)
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double().requires_grad_(False)
    likelihood.noise = NOISE
    result = fit(features, likelihood, X, y, schedule=AS_GIVEN)
    problem = Problem(features, observe(likelihood), X, y[None], mean=None, noise=None, bound="elbo")
    mean, variance = fit_neighbours(result, problem, k, AS_GIVEN).predictor().marginals(x)
    return Curve(mean[0], variance[0].clamp_min(0).sqrt())


def draw(X: Tensor, y: Tensor, x: Tensor, panels: list[Panel], path: Path) -> None:
    """Four panels: the last is the exact GP, whose mean is a dashed line in the others."""
    matplotlib = require("matplotlib", extra="plot", purpose="drawing the two dials")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    exact = panels[-1].curve
    figure, axes = plt.subplots(2, 2, figsize=(11, 6.6), sharex=True, sharey=True, layout="constrained")
    low, high = float(y.min()) - 0.7, float(y.max()) + 0.7
    for axis, (title, curve, Z) in zip(axes.flat, panels, strict=True):
        band, place = 1.96 * curve.std, x[:, 0]
        axis.fill_between(
            place, curve.mean - band, curve.mean + band, color="#9ecae1", alpha=0.8, lw=0, label="95 % band"
        )
        axis.plot(X[:, 0], y, ".", ms=3, color="black", alpha=0.5, label="rows")
        axis.plot(place, curve.mean, color="#08519c", lw=1.5, label="mean")
        if curve is not exact:
            axis.plot(place, exact.mean, "--", color="#d95f0e", lw=1.1, label="mean of the exact GP")
            error = curve.error(exact)
            words = f"off by {error['mean']:.2f} (mean), {error['std']:.2f} (std)"
            axis.text(0.985, 0.96, words, ha="right", va="top", transform=axis.transAxes, fontsize=10)
        axis.plot(Z[:, 0], torch.full_like(Z[:, 0], low + 0.2), "^", color="#31a354", ms=7, label="inducing inputs")
        axis.set_title(title)
        axis.grid(alpha=0.3)
    axes[0, 0].set_ylim(low, high)
    axes[0, 0].set_xlim(ENDS[0] - 0.2, ENDS[1] + 0.2)
    for axis in axes[1]:
        axis.set_xlabel("x")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=9, frameon=False)
    figure.savefig(path, dpi=120)
    plt.close(figure)


if __name__ == "__main__":
    run("two_dials", __doc__, experiment)
