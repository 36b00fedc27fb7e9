"""A function in a process of its own, so that its peak of memory and its failures are its own.

`python -m benchmarks._process MODULE:FUNCTION ARGUMENTS FILE` writes the dict that the function returns to a file of JSON;
`in_own_process` starts it.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from harmonicgp.io.container import write_text_atomically

Row = dict[str, Any]


def in_own_process(target: str, arguments: Row, timeout: float, threads: int) -> Row:
    """The dict that "module:function" returns for these arguments, or a dict with an `error` of one line."""
    limits = {f"{name}_NUM_THREADS": str(threads) for name in ("OMP", "MKL", "OPENBLAS")}
    root = str(Path(__file__).parents[1])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "row.json"
        try:
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks._process", target, json.dumps(arguments), str(file)],
                env={**os.environ, **limits, "PYTHONPATH": path},
                capture_output=True,
                text=True,
                errors="replace",
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return {"error": f"timeout after {timeout:g} s"}
        if done.returncode == 0 and file.exists():
            row: Row = json.loads(file.read_text("utf-8"))
            return row
    if done.returncode < 0:
        return {"error": f"killed by {signal.Signals(-done.returncode).name}"}
    return {"error": (done.stderr.strip().splitlines() or ["failed without a word"])[-1]}


def peak_memory() -> int:
    """The most memory this process has held, in bytes.

    On Linux from /proc: the figure of `getrusage` is at least the peak of the process that started this one.
    """
    try:
        lines = Path("/proc/self/status").read_text("ascii").splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        import resource

        unit = 1 if sys.platform == "darwin" else 1024
        return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    place, given, out = sys.argv[1:]
    module, _, function = place.partition(":")
    result = getattr(importlib.import_module(module), function)(**json.loads(given))
    write_text_atomically(Path(out), json.dumps(result))
