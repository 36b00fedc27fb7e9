"""Big tables in bounded memory, each in a process of its own, whose peak the kernel of the system reports."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from harmonicgp import HarmonicGPRegressor

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not Path("/proc/self/status").exists(), reason="peak memory is read from /proc, which is Linux's"
    ),
]

PEAK = """
def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 2**20 for line in status if line.startswith("VmHWM"))
"""

FIT = """
import numpy as np, torch
from harmonicgp import HarmonicGPRegressor

torch.set_num_threads(1)
X = np.random.default_rng(0).normal(size=(1_000_000, 8))
y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * np.random.default_rng(1).normal(size=len(X))
gp = HarmonicGPRegressor(max_steps=20, progress=False).fit(X, y)
print(gp.score(X[:5000], y[:5000]), gp.timings_, gp.symmetry_.name, gp.validation_)
print(peak())
"""

PREDICT = """
import sys
from harmonicgp.cli import main
try:
    main()
finally:
    print(peak(), file=sys.stderr)
"""


def run(code, *arguments):
    """Standard output and error of a program, with what it needs to tell its peak memory in GB."""
    command = [sys.executable, "-c", PEAK + code, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3600)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def test_a_million_rows_are_fitted_within_four_gigabytes():
    start = time.perf_counter()
    said, _ = run(FIT)
    facts, gigabytes = said.splitlines()[-2:]
    print(f"{facts}\n{gigabytes} GB, {time.perf_counter() - start:.0f} s")
    assert float(gigabytes) < 4
    assert float(facts.split()[0]) > 0.8


def test_ten_million_rows_are_predicted_within_two_gigabytes(tmp_path):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    rng = np.random.default_rng(0)
    n, chunk = 10_000_000, 500_000
    names = ["a", "b", "c"]
    table, model, output = tmp_path / "rows.parquet", tmp_path / "small.hgp", tmp_path / "out.parquet"

    def rows(count):
        return pa.table({name: rng.normal(size=count) for name in names})

    first = rows(3000)
    y = np.sin(first["a"].to_numpy())
    HarmonicGPRegressor(symmetry=None, n_inducing=32, max_steps=30, progress=False).fit(first, y).save(model)
    with pq.ParquetWriter(table, first.schema) as writer:
        for _ in range(n // chunk):
            writer.write_table(rows(chunk))
    start = time.perf_counter()
    _, said = run(PREDICT, "predict", model, table, "-o", output, "--keep", "a")
    gigabytes = float(said.splitlines()[-1])
    print(f"{gigabytes} GB, {time.perf_counter() - start:.0f} s")
    assert gigabytes < 2
    written = pq.ParquetFile(output)
    assert written.metadata.num_rows == n
    batch = next(written.iter_batches(batch_size=1000)).to_pydict()
    assert np.abs(np.array(batch["y_mean"]) - np.sin(batch["a"])).mean() < 0.05
    assert np.isfinite(batch["y_std"]).all()
