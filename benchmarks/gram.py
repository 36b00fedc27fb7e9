"""Kernel evaluations per second of the harmonic Gram matrices, against the machine's own exp rate, in one run.

    python -m benchmarks.gram

Every T m n evaluation needs about one exp, so the exp rate is the limit; the rest is distances, passes over memory and
the transform.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import gpytorch.kernels as gk
import torch

from harmonicgp.actions import Action, ImageShift, Negation, Rotation
from harmonicgp.kernels import harmonic_gram


def median_seconds(function: Callable[[], object], repeats: int = 7) -> float:
    """The median time of a warm call."""
    function()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    """Print one row for each case."""
    torch.manual_seed(0)
    values = torch.randn(8_000_000)
    buffer = torch.empty_like(values)
    exp_rate = values.numel() / median_seconds(lambda: torch.exp(values, out=buffer)) / 1e9
    print(f"{torch.get_num_threads()} threads, float32; exp alone: {exp_rate:.2f} G/s")
    cases: list[tuple[Action, int, int]] = [
        (Negation.strided(8, 3), 8, 1000),
        (Rotation((0, 1), 8), 8, 1000),
        (ImageShift((28, 28), 4), 784, 300),
    ]
    for action, d, m in cases:
        z, x = torch.randn(m, d), torch.randn(m, d)
        kernel = gk.MaternKernel(nu=1.5).requires_grad_(False)
        evaluations = action.group.order * m * m
        for resolution in ("complex", "real"):
            seconds = median_seconds(lambda a=action, z=z, x=x, r=resolution, k=kernel: harmonic_gram(k, a, z, x, r))
            rate = evaluations / seconds / 1e9
            print(
                f"{action!r:40s} m = n = {m:5d} {resolution:8s} {seconds * 1e3:8.1f} ms  "
                f"{rate:.3f} G evaluations/s  {rate / exp_rate:.3f} of the exp rate"
            )


if __name__ == "__main__":
    main()
