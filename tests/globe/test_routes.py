"""The choice between waves and rows with neighbours."""

from __future__ import annotations

import numpy as np
import pytest

from harmonicgp import HarmonicGPGlobe
from harmonicgp.globe.fields import Points
from harmonicgp.globe.grids import read_grid
from harmonicgp.globe.routes import resolution
from tests.globe.common import field, options, rough_field

QUICK = {"progress": False, "n_inducing": 24}


def test_a_fine_region_gets_neighbours_by_itself():
    region = rough_field(56, noise=0.03)
    gp = HarmonicGPGlobe(kernel="matern12", **QUICK).fit(region)
    assert gp.neighbours_ == 40
    assert gp.regressor_.neighbours_ == 40


def test_points_need_a_place_to_predict():
    X = np.random.default_rng(0).uniform(0, 1, (60, 2))
    gp = HarmonicGPGlobe(kernel="matern12", neighbours=3, n_inducing=4, progress=False).fit(X, X[:, 0])
    with pytest.raises(ValueError, match="say where"):
        gp.predict()
    assert np.isfinite(gp.predict(X)).all()


def test_a_small_fine_region_is_exact():
    """Waves would spend 9,000 frequencies on it."""
    small = rough_field(12)
    gp = HarmonicGPGlobe(kernel="matern12", progress=False).fit(small)
    assert gp.neighbours_ == 0
    assert gp.n_inducing_ == small.size
    assert any("neighbours=0 takes waves" in note for note in gp.notes_)


def test_waves_stay_where_they_resolve_the_field():
    """Cells as wide as the waves, or a smooth field of points."""
    whole = field(step=5.0)
    assert np.isfinite(whole).sum() > 2000
    assert HarmonicGPGlobe(kernel="rbf", max_evaluations=2, progress=False).fit(whole).neighbours_ == 0
    rng = np.random.default_rng(0)
    X = np.column_stack((rng.uniform(-180, 180, 2200), np.rad2deg(np.arcsin(rng.uniform(-1, 1, 2200)))))
    y = np.sin(np.deg2rad(X[:, 1])) + 0.1 * rng.normal(size=2200)
    gp = HarmonicGPGlobe(kernel="rbf", max_evaluations=2, progress=False).fit(X, y)
    assert gp.neighbours_ == 0
    assert gp.regressor_ is None


def test_what_was_asked_for_decides():
    region = rough_field(56)
    given = {"lengthscale": 0.02, "field_std": 1.0, "noise_level": 0.1, "t_max": 50, "n_inducing": 4}
    with pytest.warns(UserWarning, match="waves miss"):
        assert HarmonicGPGlobe(kernel="rbf", **given, progress=False).fit(region).neighbours_ == 0
    with pytest.raises(ValueError, match="lengthscale can be given for waves"):
        HarmonicGPGlobe(neighbours=5, lengthscale=0.1).fit(region)
    slices = region.expand_dims(time=[0, 1])
    with pytest.raises(ValueError, match="one field"):
        HarmonicGPGlobe(neighbours=5, by="time").fit(slices)
    two = region.where((region.lon > float(region.lon[-3])) & (region.lat == region.lat[0]))
    with pytest.raises(ValueError, match="at least three"):
        HarmonicGPGlobe(neighbours=5).fit(two)
    for wrong in (-1, 1.5, "some", True):
        with pytest.raises(ValueError, match="neighbours must be"):
            HarmonicGPGlobe(neighbours=wrong).fit(region)


def test_resolution_of_waves():
    region = read_grid(rough_field(56))
    height, width, latitude = resolution(region, options(n_inducing=8))
    assert height == pytest.approx(56 * 0.02 / 8, rel=1e-6)
    assert width < 1.0
    assert latitude == pytest.approx(44.44)
    import torch

    X = torch.tensor([[0.0, -89.0], [3.0, 89.0], [1.0, 2.0]], dtype=torch.float64)
    height, width, latitude = resolution(Points(X, X[:, :1].T), options())
    assert latitude == 2.0
    assert 2 < height < 8
    assert 2 < width < 8
