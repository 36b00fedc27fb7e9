"""Draws of the posterior error: moments that need no reference of their own (see test_fitted for dense ones)."""

from __future__ import annotations

import torch

from harmonicgp.features.planar import Torus
from harmonicgp.planes.draws import posterior_errors
from harmonicgp.planes.kriging import Kriging
from tests.planes.test_kriging import systems


def test_draws_have_the_same_errors_in_single_precision_and_batches(monkeypatch):
    dense, grid = systems()
    kriging = Kriging.of(grid, torch.ones(len(dense.X), 1).double())
    H, prior = torch.ones(120, 1).double(), Torus.of(dense.kernel, (12, 10), (1.0, 1.0))
    together = [part[0] for part in posterior_errors(kriging, prior, H, 2, 0, 1e-4)]
    loose = [part[0] for part in posterior_errors(kriging, prior, H, 2, 0, 1e-3)]
    assert len(together) == 1
    assert together[0].shape == (2, 120)
    assert float((together[0] - loose[0]).abs().max()) < 0.01
    monkeypatch.setattr("harmonicgp.planes.draws.TOGETHER", 1)
    assert len(list(posterior_errors(kriging, prior, H, 3, 0))) == 3
