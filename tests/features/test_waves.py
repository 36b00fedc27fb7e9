"""Waves along parallels are the operator that dense features are."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from harmonicgp.features import GlobeGrid
from tests.features.common import cells, features_of, fit_field, grid, kernel


def collected(evaluation, weights):
    """All Gram matrices of one stack, [blocks, m, m]."""
    (shape,) = evaluation.shapes
    out = torch.zeros(shape[0], shape[1], shape[1])

    def work(stack, b, gram):
        out[b] = gram

    evaluation.grams(weights, work)
    return out


def test_waves_are_the_operator_that_dense_features_are():
    """Products, sums, Gram matrices, moments and parts, on grids and at points, on the lattice and off it."""
    field, k = grid(), kernel("matern32", 0.3)
    features = features_of(k, t_max=18).requires_grad_(False)
    posterior = fit_field(features, field, 0.3, tolerance=1e-12).posterior
    off = GlobeGrid(field.latitudes[::3], field.longitudes[::4] + 3.3)
    points = torch.cat((cells(field)[0][::7], off.points().flatten(0, 1)))
    for x in (field.grid, off, cells(field)[0][::5], points):
        waves = features(x)
        dense = waves.dense()
        u, w, chosen = torch.randn(2, features.n_features), torch.rand(waves.cells), [0, 5, 18, 20, 30]
        assert_close(waves.project(u).flatten(1), dense.project(u), rtol=0, atol=1e-9)
        for a, b in zip(posterior.moments(waves), posterior.moments(dense), strict=True):
            assert_close(a.flatten(1), b, rtol=0, atol=1e-9)
        assert_close(waves.parts(u, chosen).flatten(2), dense.parts(u, chosen), rtol=0, atol=1e-9)
        if waves.A.is_complex():
            with pytest.raises(ValueError, match="lattice"):
                waves.accumulate(w[None])
            continue
        assert_close(waves.accumulate(w[None]), dense.accumulate(w.flatten()[None]), rtol=0, atol=1e-9)
        assert_close(collected(waves, w), collected(dense, w.flatten()), rtol=0, atol=1e-8)
