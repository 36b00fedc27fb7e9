"""How maps are learned: kernels compared, strips or patches, sizes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harmonicgp.globe import HarmonicGPGlobe, patches
from harmonicgp.globe.learning import GlobeModel
from harmonicgp.globe.training import MOST_POINT_FEATURES, latitude_span, point_sizes, precision
from tests.globe.common import QUICK, field, holes, truth


def test_the_kernel_of_the_highest_bound_is_taken():
    gp = HarmonicGPGlobe(**QUICK).fit(holes(field()))
    assert set(gp.kernels_) == {"rbf", "matern32", "matern52"}
    assert gp.kernel_ == max(gp.kernels_, key=gp.kernels_.get)


def test_uneven_longitudes_need_the_rbf_kernel():
    data = field().isel(lon=[0, 1, 3, 4, 8, 9])
    data = data.assign_coords(lon=data.lon + np.sqrt(np.arange(6)))
    with pytest.raises(ValueError, match="evenly spaced"):
        HarmonicGPGlobe(kernel="matern32", **QUICK).fit(data)


def test_many_scattered_points_are_learned_from_few(monkeypatch):
    for name, value in (("ALL", 200), ("NEIGHBOURS", 40), ("ANYWHERE", 60)):
        monkeypatch.setattr(patches, name, value)
    rng = np.random.default_rng(0)
    X = np.column_stack((rng.uniform(0, 360, 900), np.rad2deg(np.arcsin(rng.uniform(-1, 1, 900)))))
    y = truth(X[:, 0], X[:, 1]) + 0.1 * rng.normal(size=900)
    gp = HarmonicGPGlobe(progress=False, kernel="rbf", max_evaluations=20).fit(X[:700], y[:700])
    assert gp.history_[0]["rows"] == 4 * 40 + 60
    assert gp.scores(X[700:], y[700:])["rmse"] < 0.4


def test_sizes_follow_from_memory_and_residual():
    data = field(5.0, noise=0.2)
    small = HarmonicGPGlobe(kernel="rbf", memory=6e6, **QUICK).fit(data)
    large = HarmonicGPGlobe(kernel="rbf", **QUICK).fit(data)
    assert small.n_inducing_ < 36
    assert large.residual_share_ < 0.1
    assert large.n_inducing_ < 36  # smooth: fewer latitudes than rows are enough


def test_few_features_are_held_in_float64():
    small = GlobeModel("rbf", 0.5, 1.0, 0.1, 10, 9, 36, 0.0)
    large = replace(small, m=1000, t_max=999)
    assert precision("auto", small, 100) == torch.float64
    assert precision("auto", large, 100) == torch.float32
    assert precision("float64", large, 100) == torch.float64
    assert precision("float32", small, 100) == torch.float32


@given(low=st.floats(-90, 90), height=st.floats(0, 180))
def test_inducing_latitudes_surround_the_points(low, height):
    high = min(90.0, low + height)
    south, north = latitude_span(np.array([low, high]))
    assert -90 <= south <= low <= high <= north <= 90
    assert north - south >= 1.0
    if high - low > 150:
        assert (south, north) == (-90.0, 90.0)


@given(st.floats(1.0, 180.0))
def test_points_get_as_many_features_as_can_be_held(extent):
    m, t_max = point_sizes(extent)
    assert m >= 1
    assert m == 1 or m * (2 * t_max + 1) <= MOST_POINT_FEATURES
    assert (m + 1) * (2 * round(180 * (m + 1) / extent) + 1) > MOST_POINT_FEATURES


def test_given_numbers_are_kept():
    known = {"lengthscale": 0.3, "field_std": 2.0, "noise_level": 0.1, "t_max": 6, "n_inducing": 8}
    gp = HarmonicGPGlobe(kernel="rbf", progress=False, **known).fit(field(20.0))
    found = {"lengthscale": gp.lengthscale_, "field_std": gp.field_std_, "noise_level": gp.noise_std_}
    assert found | {"t_max": gp.t_max_, "n_inducing": gp.n_inducing_} == pytest.approx(known)
    assert gp.history_ == []
