"""Strips, sizes, the evidence and its slopes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harmonicgp.globe import HarmonicGPGlobe, learning
from harmonicgp.globe.learning import fields_evidence, latitude_span, maximise
from harmonicgp.globe.model import GlobeModel
from tests.features.common import grid
from tests.globe.common import QUICK, field, holes, truth


def test_strips_tell_what_the_whole_grid_tells(monkeypatch):
    data = field(5.0, noise=0.2)
    whole = HarmonicGPGlobe(kernel="rbf", progress=False).fit(data)
    monkeypatch.setattr(learning, "STRIPS_FROM", 10)
    monkeypatch.setattr(learning, "STRIPS_SHARE", 0.6)
    strips = HarmonicGPGlobe(kernel="rbf", progress=False).fit(data)
    assert {record["rows"] for record in strips.history_} != {record["rows"] for record in whole.history_}
    assert strips.history_[-1]["rows"] == 36  # the last evaluations are on all rows
    assert strips.noise_std_ == pytest.approx(whole.noise_std_, rel=0.1)
    assert strips.lengthscale_ == pytest.approx(whole.lengthscale_, rel=0.5)
    np.testing.assert_allclose(strips.predict().values, whole.predict().values, atol=0.2)


MODEL = GlobeModel("rbf", 0.5, 1.3, 0.2, 9, 6, 36, -175.0)


@pytest.mark.parametrize("kernel", ["rbf", "matern32"])
@pytest.mark.parametrize("noise", [False, True])
def test_slopes_of_the_evidence_are_those_of_finite_differences(kernel, noise):
    data = grid(15.0, fields=2, noise=noise)
    model = replace(MODEL, kernel=kernel, order=24, t_max=5)
    evidence = fields_evidence([data, data.rows(slice(2, 9))], "tight", torch.float64)
    assert evidence.cells == 2 * (data.n_cells + data.rows(slice(2, 9)).n_cells)
    _, slopes = evidence(model)
    for i in range(3):
        step = 1e-4 * np.eye(3)[i]
        up, down = (evidence(model.with_logarithms(model.logarithms + sign * step))[0] for sign in (1, -1))
        assert slopes[i] == pytest.approx((up - down) / 2e-4, rel=2e-3, abs=2e-2)


def test_what_is_fixed_stays_and_the_evidence_rises():
    evidence = fields_evidence([grid(15.0)], "tight", torch.float64)
    model = replace(MODEL, order=24, t_max=5)
    learned = maximise(model, evidence, (False, True, False), 10)
    assert learned.model.scale == pytest.approx(1.3)
    assert learned.bound > evidence(model)[0] / evidence.cells
    assert learned.inverse[1].tolist() == [0.0, 0.0, 0.0]
    assert len(learned.history) <= 12
    assert maximise(model, evidence, (True, True, True), 10).model == model


def test_strips_are_neighbouring_rows_with_cells():
    data = grid(1.0)
    parts = learning.strips(data)
    assert len(parts) <= learning.STRIPS
    for part in parts:
        np.testing.assert_allclose(np.diff(part.latitudes), 1.0)
        assert part.n_cells > 0
        assert len(part.latitudes) == 8  # of 180 rows: the fewest that a strip has
    small = grid(5.0)
    assert learning.strips(small)[0] is small


def test_some_of_many_fields_are_looked_at():
    fields = [grid(30.0, seed=k, fields=20) for k in range(9)]
    chosen = learning.sample_fields(fields)
    assert len(chosen) == 4
    assert all(len(each.values) <= 8 for each in chosen)
    assert learning.sample_fields(fields[:1])[0].latitudes is fields[0].latitudes


def test_the_best_of_several_kernels_is_learned_on():
    gp = HarmonicGPGlobe(**QUICK).fit(field(20.0))  # without holes: on strips
    assert gp.kernel_ == max(gp.kernels_, key=gp.kernels_.get)
    assert len({record["rows"] for record in gp.history_}) == 1
    assert max(record["bound"] for record in gp.history_) == pytest.approx(gp.kernels_[gp.kernel_])


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
        monkeypatch.setattr(learning, name, value)
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


@given(low=st.floats(-90, 90), height=st.floats(0, 180))
def test_inducing_latitudes_surround_the_points(low, height):
    high = min(90.0, low + height)
    south, north = latitude_span(np.array([low, high]))
    assert -90 <= south <= low <= high <= north <= 90
    assert north - south >= 1.0
    if high - low > 150:
        assert (south, north) == (-90.0, 90.0)


def test_given_numbers_are_kept():
    known = {"lengthscale": 0.3, "field_std": 2.0, "noise_level": 0.1, "t_max": 6, "n_inducing": 8}
    gp = HarmonicGPGlobe(kernel="rbf", progress=False, **known).fit(field(20.0))
    found = {"lengthscale": gp.lengthscale_, "field_std": gp.field_std_, "noise_level": gp.noise_std_}
    assert found | {"t_max": gp.t_max_, "n_inducing": gp.n_inducing_} == pytest.approx(known)
    assert gp.history_ == []
