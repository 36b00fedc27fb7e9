"""Draws and error bars of the joint posterior of a field."""

from __future__ import annotations

import sys

import pytest
import torch
from torch.testing import assert_close

from harmonicgp.features import GlobeGrid
from harmonicgp.inference import Predictor, joint_deviations
from harmonicgp.inference.closed_form import closed_form
from harmonicgp.inference.statistics import gather_statistics
from tests.features.common import cells, features_of, fit_field, grid, kernel, sums


@pytest.mark.parametrize("exact", [True, False])
def test_joint_draws_have_the_joint_covariance(exact, monkeypatch):
    field, k, s2 = grid(), kernel("matern32"), 0.3
    features = features_of(k, t_max=7)
    fit, statistics = fit_field(features, field, s2, tolerance=1e-10), sums(features, field, s2)
    if not exact:
        monkeypatch.setattr(sys.modules["harmonicgp.inference.closed_form"], "MAX_EXACT_DEVIATIONS", 0)
    flat = joint_deviations(statistics, s2, fit.posterior.mean_vector(), 4000, tolerance=1e-8).deviations
    X, y, _ = cells(field)
    joint = closed_form(gather_statistics(features.whiten(), features.shapes, X, y), s2, "joint")
    expected = torch.linalg.inv(joint.posterior.precisions[0][0, 0])
    found = flat.mT @ flat / len(flat)
    if exact:
        assert_close(found, expected, rtol=0, atol=1e-10)
    else:
        scale = expected.diagonal().sqrt()
        assert float(((found - expected) / (scale[:, None] * scale)).abs().max()) < 0.12


@pytest.mark.parametrize("name", ["rbf", "matern52"])
def test_joint_error_bars_on_grids_and_at_points(name):
    field, k, s2 = grid(), kernel(name, 0.3), 0.3
    features = features_of(k, t_max=9)
    fit, statistics = fit_field(features, field, s2, tolerance=1e-11), sums(features, field, s2)
    predictor = Predictor.freeze(features, joint_deviations(statistics, s2, fit.posterior.mean_vector()))
    X, y, _ = cells(field)
    joint = closed_form(gather_statistics(features.whiten(), features.shapes, X, y), s2, "joint")
    latitudes, longitudes = torch.linspace(-80, 80, 5).double(), torch.tensor([-175.0, -171.3, 0.0, 5.0, 94.4]).double()
    mean, variance = predictor.marginals(GlobeGrid(latitudes, longitudes))
    lat, lon = torch.meshgrid(latitudes, longitudes, indexing="ij")
    points = torch.stack((lon.flatten(), lat.flatten()), -1)
    with torch.no_grad():
        evaluation = features(points).dense()
    m, v = joint.posterior.moments(evaluation)
    assert_close(mean.flatten(1), m, rtol=0, atol=1e-7)
    assert_close(variance.flatten(), v[0] + evaluation.residual.variance, rtol=0, atol=1e-7)
    at_points = predictor.marginals(points)
    assert_close(at_points[0], mean.flatten(1), rtol=0, atol=1e-10)
    assert_close(at_points[1], variance.flatten(1), rtol=0, atol=1e-10)
