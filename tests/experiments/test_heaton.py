"""The scores of the experiment against their definitions, and its data as it reads them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from experiments.heaton import SHAPE, Prediction, Region, load, scores


def test_scores_against_their_definitions():
    rng = np.random.default_rng(0)
    truth, mean, std = rng.normal(size=(3, 4)), rng.normal(size=(3, 4)), rng.uniform(0.2, 2, (3, 4))
    values = np.where(np.arange(12).reshape(3, 4) < 4, truth, np.nan)
    truth[2, 3] = np.nan
    region = Region(np.arange(4.0), np.arange(3.0), values, truth)
    result = scores(Prediction(mean, std, 0.0, ""), region)
    tested = np.isnan(values) & np.isfinite(truth)
    assert tested.sum() == 7
    y, m, s = truth[tested], mean[tested], std[tested]
    assert result["mae"] == pytest.approx(np.abs(y - m).mean())
    assert result["rmse"] == pytest.approx(np.sqrt(np.mean((y - m) ** 2)))
    x = np.linspace(-20, 20, 40_001)[:, None]
    crps = ((norm.cdf(x, m, s) - (x >= y)) ** 2).sum(0) * (x[1, 0] - x[0, 0])
    assert result["crps"] == pytest.approx(crps.mean(), abs=1e-3)
    low, high = norm.ppf(0.025, m, s), norm.ppf(0.975, m, s)
    interval = high - low + 40 * np.maximum(low - y, 0) + 40 * np.maximum(y - high, 0)
    assert result["interval"] == pytest.approx(interval.mean())
    assert result["coverage"] == pytest.approx(np.mean((low <= y) & (y <= high)))


def test_data_are_read_as_a_grid(tmp_path, monkeypatch):
    lat, lon = np.meshgrid(np.linspace(37, 34, SHAPE[0]), np.linspace(-96, -91, SHAPE[1]), indexing="ij")
    truth = lat + lon
    mask = np.where(lon > -92, np.nan, truth)
    np.savez(tmp_path / "heaton_simulated.npz", lon=lon.ravel(), lat=lat.ravel(), mask=mask.ravel(), true=truth.ravel())
    monkeypatch.setenv("HARMONICGP_DATA", str(tmp_path))
    region = load(2)
    assert region.values.shape == (150, 250)
    np.testing.assert_allclose(region.truth, region.latitudes[:, None] + region.longitudes)
    np.testing.assert_array_equal(region.tested, np.broadcast_to(region.longitudes > -92, region.truth.shape))
