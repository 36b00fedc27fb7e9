"""Strips, sizes, the evidence and its slopes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harmonicgp.globe import HarmonicGPGlobe, learning
from harmonicgp.globe.learning import GlobeModel, fields_evidence, maximise
from tests.features.common import grid
from tests.globe.common import field


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


def test_inducing_latitudes_lie_evenly_and_never_at_a_pole():
    latitudes = MODEL.latitudes()
    assert len(latitudes) == 9
    assert float(latitudes.abs().max()) == pytest.approx(80.0)
    np.testing.assert_allclose(np.diff(latitudes), 20.0)
    again = MODEL.with_logarithms(MODEL.logarithms)
    np.testing.assert_allclose(again.logarithms, np.log([0.5, 1.3, 0.2]))
    assert (again.m, again.t_max, again.order) == (9, 6, 36)


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
    learned = maximise(model, evidence, 0.05, (False, True, False), 10)
    assert learned.model.scale == pytest.approx(1.3)
    assert learned.bound > evidence(model)[0] / evidence.cells
    assert learned.inverse[1].tolist() == [0.0, 0.0, 0.0]
    assert len(learned.history) <= 12
    assert maximise(model, evidence, 0.05, (True, True, True)).model == model


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


@given(rows=st.integers(1, 400), longitudes=st.integers(2, 800), extent=st.floats(1.0, 180.0), log=st.floats(5, 10))
def test_the_largest_sizes_fit_into_memory(rows, longitudes, extent, log):
    memory = 10.0**log
    m, t_max = learning.largest_sizes(rows, longitudes, extent, memory)
    assert 1 <= m <= rows
    assert 0 <= t_max <= longitudes // 2
    held = (t_max + 1) * m * (4.0 * rows + 24.0 * m) + 48.0 * rows * longitudes
    assert m == 1 or held <= 0.75 * memory
    assert learning.largest_sizes(rows, longitudes, extent, 2 * memory)[0] >= m


def test_the_smallest_sizes_leave_a_small_residual():
    latitudes = torch.linspace(-85, 85, 18)
    large = replace(MODEL, m=60, t_max=60, order=120)
    smallest = learning.smallest_sizes(large, latitudes)
    assert smallest.m < large.m
    assert smallest.t_max < large.t_max
    assert learning.residual_share(smallest, latitudes) < 2 * learning.RESIDUAL_SHARE
    assert learning.residual_share(replace(large, m=2), latitudes) > learning.RESIDUAL_SHARE
    assert learning.smallest_sizes(replace(large, m=2), latitudes).m == 2  # too few already


def test_some_of_many_fields_are_looked_at():
    fields = [grid(30.0, seed=k, fields=20) for k in range(9)]
    chosen = learning.sample_fields(fields)
    assert len(chosen) == 4
    assert all(len(each.values) <= 8 for each in chosen)
    assert learning.sample_fields(fields[:1])[0].latitudes is fields[0].latitudes
