from __future__ import annotations

import json
import struct
import subprocess
import sys

import gpytorch.kernels as gk
import torch
from torch.testing import assert_close

from experiments.decomposition import quadrant, sampling_factor
from harmonicgp.actions import Rotation
from harmonicgp.kernels import harmonic_gram


def test_samples_have_the_covariance_of_the_harmonic_kernels():
    """The factor built from one quadrant and the phases is a factor of k_t on the whole grid."""
    kernel, action, x = gk.RBFKernel().double().requires_grad_(False), Rotation((0, 1), 4), quadrant(6)
    A = sampling_factor(kernel, action, x, jitter=0.0)
    grid = action.orbit(x).flatten(0, 1)
    assert_close(A @ A.mH, harmonic_gram(kernel, action, grid, grid, "full"), rtol=0, atol=1e-10)
    whole = torch.cartesian_prod(*[torch.arange(-2.5, 3.0)] * 2)
    assert {tuple(p) for p in grid.round(decimals=9).tolist()} == {tuple(p) for p in whole.tolist()}


def test_the_script_draws_the_figure(tmp_path):
    command = [sys.executable, "-m", "experiments.decomposition", "--size", "small", "--output", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    results = json.loads((tmp_path / "decomposition.json").read_text())
    expected = [[1, 0], [0, -1], [-1, 0], [0, 1]]  # (-i)^t
    assert_close(torch.tensor(results["quarter_turn"]), torch.tensor(expected, dtype=torch.float64))
    assert results["largest_gap_of_the_sum"] < 1e-12
    picture = (tmp_path / "figure1.png").read_bytes()
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", picture[16:24])
    assert width > 1000
    assert height > 500
    assert "figure1.png" in done.stdout


def test_an_output_that_cannot_be_written_is_one_clear_line(tmp_path):
    (tmp_path / "file").write_text("")
    command = [sys.executable, "-m", "experiments.decomposition", "--output", str(tmp_path / "file" / "below")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "cannot write to --output" in done.stderr.splitlines()[-1]
