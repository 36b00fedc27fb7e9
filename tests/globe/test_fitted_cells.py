"""Fitted cells: covariates, known errors, and what only maps have."""

from __future__ import annotations

import numpy as np
import pytest

from harmonicgp import HarmonicGPGlobe
from harmonicgp.globe.cells import CellTable
from harmonicgp.globe.fitted_cells import FittedCells
from tests.globe.common import DAYS, travelling, with_depth, xarray


def test_cells_refuse_what_only_maps_have():
    gp = HarmonicGPGlobe()
    gp.field_ = FittedCells(None, None, CellTable.of(travelling(), {}).inputs, None)
    for call in (gp.components, gp.spectrum):
        with pytest.raises(ValueError, match="regression on longitude, latitude, time"):
            call()


def test_covariates_are_inputs(tmp_path):
    data = with_depth()
    aside = np.random.default_rng(1).random(data.heat.shape) < 0.3
    gp = HarmonicGPGlobe().fit(data.assign(heat=data.heat.where(~aside)), "heat")
    assert gp.inputs_ == ["longitude", "latitude", "depth"]
    mean, std = gp.predict(data, return_std=True)
    assert mean.dims == ("lat", "lon")
    assert bool(np.isnan(mean[0, 0]))  # where the covariate is missing nothing can be said
    assert np.isfinite(mean.values.ravel()[1:]).all()
    error = abs(mean - data.heat).where(aside)
    assert float(error.mean()) < 0.2
    assert float((error < 3 * std).where(aside & np.isfinite(error)).mean()) > 0.9
    alone = HarmonicGPGlobe(max_evaluations=8).fit(data.heat.where(~aside))
    assert gp.scores(data.assign(heat=data.heat.where(aside)))["nll"] < (
        alone.scores(data.heat.where(aside))["nll"] - 0.5
    )
    assert any("without a covariate" in note for note in gp.notes_)
    filled = gp.fill(data.assign(heat=data.heat.where(~aside)))
    assert int(np.isnan(filled).sum()) <= 1
    gp.save(tmp_path / "depth.hgp")
    again = HarmonicGPGlobe.load(tmp_path / "depth.hgp")
    xarray.testing.assert_allclose(again.predict(data), mean)
    with pytest.raises(ValueError, match="the model has covariates"):
        again.predict()


def test_known_errors_of_cells():
    field = travelling()
    errors = xarray.full_like(field, 0.01).where(field.time != DAYS[0], 5.0)
    broken = field.where(field.time != DAYS[0], field + 3 * np.random.default_rng(0).normal(size=field.shape))
    gp = HarmonicGPGlobe(kernel="rbf").fit(broken, noise_std=errors)
    assert float(abs(gp.predict() - travelling(0.0)).sel(time=DAYS[3]).max()) < 0.2
    with pytest.raises(ValueError, match="missing where"):
        HarmonicGPGlobe().fit(field, noise_std=errors.where(field.lat > 0))
