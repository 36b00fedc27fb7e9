"""The appendix's toy: Snelson's data split into a symmetric and an antisymmetric part.

Fits 2 x 5 inducing points (T = 2, G(x) = -x, five points for each part) to Snelson's 200 points, inputs centred, and draws
the posterior prediction, the residual that the inducing points leave, and the two parts with their inducing points; bands
are three standard deviations. Takes seconds. Needs snelson1d.npz in the folder that HARMONICGP_DATA names.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gpytorch
import torch
from torch import Tensor

from benchmarks._data import load_npz
from experiments._runner import run
from harmonicgp._extras import require
from harmonicgp.actions import Negation
from harmonicgp.features import HarmonicFeatures
from harmonicgp.training import Schedule, fit

STEPS = {"small": 100, "medium": 400, "paper": 2000}


def experiment(size: str, output: Path) -> Mapping[str, Any]:
    """Fit, draw snelson.png, report the fit and the checks of the decomposition."""
    data = load_npz("snelson1d")
    X = torch.from_numpy(data["X"].reshape(-1, 1)).double()
    y = torch.from_numpy(data["y"].reshape(-1)).double()
    X, y = X - X.mean(), y - y.mean()
    kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel()).double()
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = 0.1
    half = torch.linspace(0.3, float(X.abs().max()), 5, dtype=torch.float64)[:, None]
    features = HarmonicFeatures(kernel, Negation(), torch.stack((half, half)))
    plan = Schedule(max_steps=STEPS[size], batch_size=200, learning_rate=0.05, refine=False)
    result = fit(features, likelihood, X, y, schedule=plan)
    x = torch.linspace(-4.5, 4.5, 301, dtype=torch.float64)[:, None]
    predictor = result.predictor()
    mean, variance = predictor.marginals(x)
    means, variances, residual = predictor.components(x)
    s2 = float(likelihood.noise.detach())
    path = output / "snelson.png"
    draw(X, y, x, mean[0], variance[0] + s2, means[0], variances[0], residual, features.Z.detach(), path)
    flipped = predictor.components(-x)[0][0]
    results = {
        "bound_per_row": result.bound,
        "noise_variance": s2,
        "rmse_on_the_data": float((predictor.marginals(X)[0][0] - y).square().mean().sqrt()),
        "symmetric_part_gap": float((flipped[0] - means[0, 0]).abs().max()),
        "antisymmetric_part_gap": float((flipped[1] + means[0, 1]).abs().max()),
        "parts_add_up_gap": float((means[0].sum(0) - mean[0]).abs().max()),
    }
    for name, value in results.items():
        print(f"{name}: {value:.3g}")
    print(f"picture: {path}")
    return results


def draw(
    X: Tensor, y: Tensor, x: Tensor, mean: Tensor, total: Tensor, means: Tensor, variances: Tensor, residual: Tensor,
    Z: Tensor, path: Path,
) -> None:  # fmt: skip
    """Four panels as in the paper's appendix."""
    matplotlib = require("matplotlib", extra="plot", purpose="drawing Snelson's toy")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    panels = [
        ("posterior prediction of y", mean, total, None),
        ("residual", torch.zeros_like(residual), residual, None),
        ("symmetric part, $k_0$", means[0], variances[0], Z[0]),
        ("antisymmetric part, $k_1$", means[1], variances[1], Z[1]),
    ]
    figure, axes = plt.subplots(1, 4, figsize=(13, 3.4), sharex=True, sharey=True, layout="constrained")
    for axis, (title, m, v, z) in zip(axes, panels, strict=True):
        band = 3 * v.clamp_min(0).sqrt()
        axis.fill_between(x[:, 0], m - band, m + band, color="#9ecae1", alpha=0.7, lw=0, label="± 3 std")
        axis.plot(x[:, 0], m, color="#08519c", label="mean")
        if z is None and title.startswith("posterior"):
            axis.plot(X[:, 0], y, ".", ms=3, color="black", alpha=0.6, label="data")
        if z is not None:
            axis.plot(z[:, 0], torch.full_like(z[:, 0], -2.6), "^", color="#d95f0e", ms=7, label="inducing inputs")
        axis.set_title(title)
        axis.set_xlabel("x, centred")
        axis.grid(alpha=0.3)
    axes[0].set_ylim(-3, 3)
    axes[0].legend(loc="upper right", fontsize=8)
    axes[2].legend(loc="upper right", fontsize=8)
    figure.suptitle(
        "Snelson's data with 2 x 5 inducing points: the prediction is the sum of the other three, and the noise"
    )
    figure.savefig(path, dpi=120)
    plt.close(figure)


if __name__ == "__main__":
    run("snelson", __doc__, experiment)
