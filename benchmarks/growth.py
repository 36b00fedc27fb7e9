"""How the cost of a step, of a closed form and of their memory grows with rows N, blocks T, points m and batch B.

    python -m benchmarks.growth [--output DIR]

Exponents are fitted to the logarithms of medians. A step does not look at N; a closed form does, once.
"""

from __future__ import annotations

import sys

import numpy as np
import torch

from benchmarks._rates import facts, interleaved, machine_rates, output_of, publish, table
from benchmarks.step import data, harmonic, our_step
from harmonicgp.features import Features
from harmonicgp.inference.statistics import gather_statistics


def exponent(sizes: list[int], seconds: list[float]) -> float:
    """The slope of log seconds over log sizes."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def main(argv: list[str] | None = None) -> int:
    """Measure and print."""
    output = output_of("growth", __doc__, argv)
    torch.manual_seed(0)
    X, y = data(160_000)
    few = X[:20_000], y[:20_000]
    small = harmonic(few[0], 64, 2)
    series = {
        "N, closed form (4 x 64)": (
            [20_000, 40_000, 80_000, 160_000],
            lambda n: lambda: _statistics(small, X[:n], y[:n]),
        ),
        "T, step (m = 256, B = 1024)": (
            [1, 2, 4, 8, 16],
            lambda T: our_step(harmonic(few[0], 256, T.bit_length() - 1), *few),
        ),
        "m, step (T = 4, B = 1024)": ([128, 256, 512, 1024], lambda m: our_step(harmonic(few[0], m, 2), *few)),
        "B, step (T = 4, m = 256)": (
            [256, 512, 1024, 2048, 4096],
            lambda B: our_step(harmonic(few[0], 256, 2), *few, batch=B),
        ),
    }
    rows, results = [], {}
    for name, (sizes, make) in series.items():
        timings = interleaved({str(size): make(size) for size in sizes}, repeats=5)
        seconds = [timings[str(size)].median for size in sizes]
        slope = exponent(sizes, seconds)
        results[name] = {"sizes": sizes, "seconds": seconds, "exponent": slope}
        rows.append(
            [name, ", ".join(f"{n:,}: {1e3 * s:.0f} ms" for n, s in zip(sizes, seconds, strict=True)), f"{slope:.2f}"]
        )
    rates = machine_rates()
    text = f"## Growth\n\nfloat32. {facts(rates)}.\n\n{table(['with', 'seconds', 'exponent'], rows)}"
    publish("growth", text, {"rates": rates._asdict(), "series": results}, output)
    return 0


@torch.no_grad()
def _statistics(features: Features, X: torch.Tensor, y: torch.Tensor) -> None:
    gather_statistics(features.whiten(), features.shapes, X, y[None], dense=None)


if __name__ == "__main__":
    sys.exit(main())
