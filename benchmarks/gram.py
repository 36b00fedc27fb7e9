"""Kernel evaluations per second of the harmonic Gram matrices, against the machine's own exp rate, in one run.

    python -m benchmarks.gram [--output DIR]

Every one of |G| m n evaluations needs about one exp, so the exp rate is the limit. "naive" is the generic path: the whole orbit
through GPyTorch's kernel, then a transform. Both give the same answer; the largest relative difference is printed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import gpytorch.kernels as gk
import torch
from torch import Tensor

from benchmarks._rates import facts, interleaved, machine_rates, output_of, publish, table
from harmonicgp.actions import Action, ImageShift, Negation, Rotation
from harmonicgp.backend import native
from harmonicgp.backend.memory import memory_kept
from harmonicgp.groups import Resolution
from harmonicgp.kernels.functions import kernel_matrix
from harmonicgp.kernels.harmonic import HarmonicKernel, HarmonicTransform

CASES: list[tuple[Action, int, int, float, Resolution]] = [
    (Negation.strided(8, 3), 8, 1000, 2.0, "complex"),
    (Rotation((0, 1), 8), 8, 1000, 2.0, "real"),
    (Rotation((0, 1), 8), 8, 1000, 2.0, "complex"),
    (ImageShift((28, 28), 4), 784, 300, 30.0, "real"),
    (ImageShift((28, 28), 4), 784, 300, 30.0, "complex"),
]


def main(argv: list[str] | None = None) -> int:
    """Measure and print a row for each case."""
    output = output_of("gram", __doc__, argv)
    torch.manual_seed(0)
    rates, rows, results = machine_rates(), [], []
    values = torch.randn(8_000_000, dtype=torch.float32)
    buffer = torch.empty_like(values)

    def exp() -> None:
        torch.exp(values, out=buffer)

    for action, d, m, length, resolution in CASES:
        z, x = torch.randn(m, d, requires_grad=True), torch.randn(m, d)
        kernel = gk.ScaleKernel(gk.MaternKernel(nu=1.5))
        kernel.base_kernel.lengthscale = length
        harmonic, transform = (
            HarmonicKernel(kernel, action, resolution, check=False),
            HarmonicTransform(action, resolution),
        )

        def fused(h: HarmonicKernel = harmonic, z: Tensor = z, x: Tensor = x) -> Tensor:
            return h.gram(z, x)

        def naive(t: HarmonicTransform = transform, k: gk.Kernel = kernel, z: Tensor = z, x: Tensor = x) -> Tensor:
            return t(lambda moved: kernel_matrix(k, moved, x), z)

        def forward(function: Callable[[], Tensor]) -> Callable[[], None]:
            def run() -> None:
                with torch.no_grad():
                    function()

            return run

        expected, found = naive().detach(), fused().detach()
        upstream = torch.randn(expected.shape, dtype=expected.dtype)

        def both(function: Callable[[], Tensor], upstream: Tensor = upstream) -> Callable[[], None]:
            return lambda: function().backward(upstream)

        apart = float((found - expected).abs().max() / expected.abs().max())
        # Apart from the naive form, whose large blocks of memory come and go: fresh pages would be what is measured.
        with memory_kept():  # as in a fit; for all of them
            timings = interleaved({"forward": forward(fused), "exp": exp}, repeats=15)
            timings |= interleaved({"both": both(fused), "naive both": both(naive)}, repeats=5)
            timings |= interleaved({"naive forward": forward(naive)}, repeats=5)
        exp_rate = 8e6 / timings["exp"].median
        rate = action.group.order * m * m / timings["forward"].median
        result = {
            "action": repr(action),
            "m": m,
            "resolution": resolution,
            "evaluations per second": rate,
            "of the exp rate": rate / exp_rate,
            "forward, times naive": timings["naive forward"].median / timings["forward"].median,
            "forward and backward, times naive": timings["naive both"].median / timings["both"].median,
            "relative difference": apart,
            "seconds": {name: tuple(timing) for name, timing in timings.items()},
        }
        results.append(result)
        rows.append(
            [
                f"`{action!r}`",
                f"{m}",
                resolution,
                str(timings["forward"]),
                f"{rate / 1e9:.2f} G/s",
                f"{rate / exp_rate:.2f}",
                f"{result['forward, times naive']:.1f}x",
                f"{result['forward and backward, times naive']:.1f}x",
                f"{apart:.0e}",
            ]
        )
    header = ["action", "m = n", "blocks", "forward", "evaluations", "of the exp rate", "forward, of naive"]
    header += ["forward and backward", "difference"]
    text = f"""## Gram matrices

Matern-3/2, float32. {facts(rates)}. {"Compiled" if native.available() else "In PyTorch"}.

{table(header, rows)}"""
    publish("gram", text, {"rates": rates._asdict(), "cases": results}, output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
