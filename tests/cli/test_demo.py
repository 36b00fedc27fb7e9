"""The demonstration; `make demo` runs the whole of it."""

from __future__ import annotations

import numpy as np
import pytest

from harmonicgp.cli import demo
from harmonicgp.globe.relief import Relief


def test_a_coarse_grid_has_the_middle_of_its_cells():
    grid = Relief(np.arange(8.0), np.arange(4.0), np.arange(32.0).reshape(4, 8))
    coarse = demo._coarse(grid, 2)
    np.testing.assert_array_equal(coarse.longitude, [1, 3, 5, 7])
    np.testing.assert_array_equal(coarse.height, grid.height[1::2, 1::2])


@pytest.mark.parametrize("blocks", [2, 5, 19])
def test_waves_are_grouped_into_their_sum(blocks):
    mean = np.random.default_rng(0).normal(size=(blocks, 6))
    groups = demo._grouped(mean)
    np.testing.assert_allclose(sum(part for _, part in groups), mean.sum(0))
