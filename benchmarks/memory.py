"""The most memory that training steps take, against what they must hold: parameters, posterior and features of a batch.

    python -m benchmarks.memory [--output DIR]

Each case runs in five processes of its own; the figure is the rise of the peak from before the first step to after the fifth, in
a process that has done a step and linear algebra of small size: the median, with the range (threads meet in the allocator in an
order that differs from run to run). Held must be: inducing inputs, one factor of the kernel's blocks and of the posterior's, the
precisions (float64), and the features (float32).
"""

from __future__ import annotations

import json
import subprocess
import sys

import torch

from benchmarks._process import peak_memory
from benchmarks._rates import facts, machine_rates, output_of, publish, table
from benchmarks.step import data, harmonic, our_step
from harmonicgp.backend.memory import memory_kept
from harmonicgp.backend.threads import side_by_side

REPEATS = 5
CASES = ((3, 256, 1024), (3, 512, 1024), (3, 512, 4096), (0, 1024, 1024), (4, 512, 1024))


def measure(ways: int, m: int, B: int) -> tuple[float, float]:
    """Bytes that must be held, and the rise of the peak."""
    X, y = data()
    our_step(harmonic(X[:500], 16, ways), X[:500], y[:500], 64)()  # imports, compiled code and threads
    side_by_side(8 * [_linear_algebra])
    _linear_algebra()
    step = our_step(harmonic(X, m, ways), X, y, B)
    before = peak_memory()
    with memory_kept():  # as in a fit
        for _ in range(5):
            step()
    T = 2**ways
    return 8.0 * 3 * T * m * m + 4.0 * (T * m * B + m * X.shape[1]), max(0.0, float(peak_memory() - before))


def _linear_algebra() -> None:
    """So that the library of matrix products has the work space that it keeps for good, some 25 MB with two threads."""
    a = torch.eye(512)
    torch.linalg.solve_triangular(a, a @ a, upper=False)
    torch.linalg.cholesky(a.double())


def main(argv: list[str] | None = None) -> int:
    """Measure and print."""
    output = output_of("memory", __doc__, argv)
    rows, results = [], []
    for case in CASES:
        code = f"import json; from benchmarks.memory import measure; print(json.dumps(measure{case}))"
        measured = []
        for _ in range(REPEATS):
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
            measured.append(json.loads(done.stdout.splitlines()[-1]))
        held, rises = measured[0][0], sorted(rise for _, rise in measured)
        T, rise = 2 ** case[0], rises[REPEATS // 2]
        results.append({"T": T, "m": case[1], "B": case[2], "held": held, "rises": rises})
        ratio = f"{rise / held:.2f} ({rises[0] / held:.2f} to {rises[-1] / held:.2f})"
        rows.append([f"{T} x {case[1]}, B = {case[2]}", f"{held / 1e6:.0f}", f"{rise / 1e6:.0f}", ratio])
    header = ["step", "held, MB", "rise of the peak, MB", "ratio"]
    text = f"## Memory of a step\n\nfloat32. {facts(machine_rates())}.\n\n{table(header, rows)}"
    publish("memory", text, results, output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
