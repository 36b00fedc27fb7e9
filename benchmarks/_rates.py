"""What a suite of timings needs: interleaved medians with their spread, the machine's own rates, and files for the results."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from harmonicgp.io.container import write_text_atomically


class Timing(NamedTuple):
    """Seconds of warm calls: the median, and the smallest and the largest."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        unit, factor = ("ms", 1e3) if self.median < 1 else ("s", 1.0)
        return f"{factor * self.median:.3g} {unit} ({factor * self.low:.3g} to {factor * self.high:.3g})"


#: Seconds after which threads that wait are at rest.
PAUSE = 0.03


def interleaved(functions: Mapping[str, Callable[[], object]], repeats: int = 7) -> dict[str, Timing]:
    """Every function once to warm up, then all in turn, `repeats` times: what slows the machine slows them all.

    Each starts after a pause, since threads of the one before spin for a while and would take part of the processor from it.
    """
    times: dict[str, list[float]] = {name: [] for name in functions}
    for function in functions.values():
        function()
    for _ in range(repeats):
        for name, function in functions.items():
            rested = time.perf_counter() + PAUSE
            while time.perf_counter() < rested:  # not asleep, which would slow the processor down
                pass
            start = time.perf_counter()
            function()
            times[name].append(time.perf_counter() - start)
    return {name: Timing(statistics.median(each), min(each), max(each)) for name, each in times.items()}


class Rates(NamedTuple):
    """Operations per second with the threads in use: products in float32, Cholesky in float64 (8 x 512), exp in float32."""

    gemm: float
    cholesky: float
    exp: float


def machine_rates() -> Rates:
    """Measured now."""
    a = torch.randn(2048, 2048, dtype=torch.float32)
    values = torch.randn(8_000_000, dtype=torch.float32)
    buffer = torch.empty_like(values)
    K = 3 * torch.eye(512, dtype=torch.float64).expand(8, 512, 512) + 0.001
    found = interleaved(
        {
            "gemm": lambda: a @ a,
            "cholesky": lambda: torch.linalg.cholesky_ex(K),
            "exp": lambda: torch.exp(values, out=buffer),
        }
    )
    return Rates(
        2 * 2048**3 / found["gemm"].median, 8 * 512**3 / 3 / found["cholesky"].median, 8e6 / found["exp"].median
    )


def facts(rates: Rates) -> str:
    """The machine in a sentence."""
    return (
        f"{os.cpu_count()} cores, {torch.get_num_threads()} threads; torch {torch.__version__}; "
        f"products {rates.gemm / 1e9:.0f} GFLOP/s (float32), Cholesky of 8 x 512 {rates.cholesky / 1e9:.0f} GFLOP/s (float64), "
        f"exp {rates.exp / 1e9:.2f} G/s (float32)"
    )


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table with its columns lined up."""
    widths = [max(3, *(len(row[i]) for row in (header, *rows))) for i in range(len(header))]
    lines = [header, ["-" * width for width in widths], *rows]
    return "\n".join("| " + " | ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) + " |" for line in lines)


def publish(name: str, text: str, results: Any, output: Path | None) -> None:
    """Print a suite's page, and keep it with its numbers where a folder is given."""
    print(text)
    if output is not None:
        output.mkdir(parents=True, exist_ok=True)
        write_text_atomically(output / f"{name}.json", json.dumps(results, indent=1) + "\n")
        write_text_atomically(output / f"{name}.md", text + "\n")


def output_of(name: str, doc: str | None, argv: list[str] | None) -> Path | None:
    """The folder that the arguments name."""
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}", description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, help="folder for results in JSON and Markdown")
    output: Path | None = parser.parse_args(argv).output
    return output
