"""The experiment runs at its small size and shows what it claims."""

from __future__ import annotations

import json
import subprocess
import sys


def test_both_dials_bring_the_model_to_the_exact_gp(tmp_path):
    command = [sys.executable, "-m", "experiments.two_dials", "--size", "small", "--output", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "two_dials.json").read_text())
    inducing, neighbours, both = results["panels"].values()
    for name in ("mean", "std"):
        assert both[name] < 0.6 * neighbours[name]
        assert neighbours[name] < 0.6 * inducing[name]
        assert results["table"][-1][name] < 2e-3  # most of both
        assert results["all_rows_are_neighbours"][name] < 1e-7
    assert (tmp_path / "two-dials.png").stat().st_size > 10_000
    assert "two-dials.png" in done.stdout
