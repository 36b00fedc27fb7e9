"""The doors of the harmonic kernels."""

from __future__ import annotations

import gpytorch.kernels as gk
import pytest
import torch
from torch.testing import assert_close

from harmonicgp.actions import Rotation
from harmonicgp.kernels import harmonic_diagonal, harmonic_gram


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"x1": torch.zeros(0, 2)}, ValueError, "empty"),
        ({"x2": torch.full((3, 2), float("nan"))}, ValueError, "x2 has NaN"),
        ({"x1": torch.zeros(3, 2, dtype=torch.complex128)}, TypeError, "complex"),
        ({"x1": torch.zeros(3, 1)}, ValueError, "at least 2 coordinates"),
        ({"x1": torch.zeros(5, 3, 2)}, ValueError, "one set for each of the 2 blocks"),
        ({"x2": torch.zeros(3, 4)}, ValueError, "points of one space"),
        ({"x2": torch.zeros(3, 2, dtype=torch.float32)}, TypeError, "one dtype"),
        ({"kernel": "rbf"}, TypeError, "GPyTorch kernel or a function"),
        ({"kernel": gk.RBFKernel(batch_shape=torch.Size([3]))}, ValueError, "batch of kernels"),
        ({"kernel": gk.MultitaskKernel(gk.RBFKernel(), num_tasks=2)}, ValueError, "one number for each pair"),
        ({"resolution": "half"}, ValueError, "resolution must be one of"),
        ({"action": "rotate"}, TypeError, "must be an action"),
        ({"kernel": lambda a, b: 1.0}, TypeError, "dense tensor"),
        ({"kernel": lambda a, b: torch.zeros(2)}, ValueError, "one number for each pair"),
    ],
)
def test_bad_input(arguments, error, words):
    good = {
        "kernel": gk.RBFKernel().double(),
        "action": Rotation((0, 1), 3),
        "x1": torch.randn(4, 2),
        "x2": torch.randn(4, 2),
    }
    with pytest.raises(error, match=words):
        harmonic_gram(**{**good, **arguments})


def test_one_element_group_is_the_kernel_itself():
    x, kernel = torch.randn(4, 2), gk.RBFKernel().double()
    for resolution in ("full", "complex", "real"):
        K = harmonic_gram(kernel, Rotation((0, 1), 1), x, x, resolution)
        assert_close(K, kernel(x).to_dense()[None])
        assert_close(harmonic_diagonal(kernel, Rotation((0, 1), 1), x, resolution), torch.ones(1, 4))
