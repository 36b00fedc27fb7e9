"""The model of a field: inducing latitudes, and sizes from memory and residual."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harmonicgp.globe.model import (
    MOST_POINT_FEATURES,
    RESIDUAL_SHARE,
    GlobeModel,
    largest_sizes,
    point_sizes,
    residual_share,
    smallest_sizes,
)

MODEL = GlobeModel("rbf", 0.5, 1.3, 0.2, 9, 6, 36, -175.0)


def test_inducing_latitudes_lie_evenly_and_never_at_a_pole():
    latitudes = MODEL.latitudes()
    assert len(latitudes) == 9
    assert float(latitudes.abs().max()) == pytest.approx(80.0)
    np.testing.assert_allclose(np.diff(latitudes), 20.0)
    again = MODEL.with_logarithms(MODEL.logarithms)
    np.testing.assert_allclose(again.logarithms, np.log([0.5, 1.3, 0.2]))
    assert (again.m, again.t_max, again.order) == (9, 6, 36)


@given(rows=st.integers(1, 400), longitudes=st.integers(2, 800), extent=st.floats(1.0, 180.0), log=st.floats(5, 10))
def test_the_largest_sizes_fit_into_memory(rows, longitudes, extent, log):
    memory = 10.0**log
    m, t_max = largest_sizes(rows, longitudes, extent, memory)
    assert 1 <= m <= rows
    assert 0 <= t_max <= longitudes // 2
    held = (t_max + 1) * m * (4.0 * rows + 24.0 * m) + 48.0 * rows * longitudes
    assert m == 1 or held <= 0.75 * memory
    assert largest_sizes(rows, longitudes, extent, 2 * memory)[0] >= m


def test_the_smallest_sizes_leave_a_small_residual():
    latitudes = torch.linspace(-85, 85, 18)
    large = replace(MODEL, m=60, t_max=60, order=120)
    smallest = smallest_sizes(large, latitudes)
    assert smallest.m < large.m
    assert smallest.t_max < large.t_max
    assert residual_share(smallest, latitudes) < 2 * RESIDUAL_SHARE
    assert residual_share(replace(large, m=2), latitudes) > RESIDUAL_SHARE
    assert smallest_sizes(replace(large, m=2), latitudes).m == 2  # too few already


def test_few_features_are_held_in_float64():
    small = GlobeModel("rbf", 0.5, 1.0, 0.1, 10, 9, 36, 0.0)
    large = replace(small, m=1000, t_max=999)
    assert small.precision("auto", 100) == torch.float64
    assert large.precision("auto", 100) == torch.float32
    assert large.precision("float64", 100) == torch.float64
    assert small.precision("float32", 100) == torch.float32


@given(st.floats(1.0, 180.0))
def test_points_get_as_many_features_as_can_be_held(extent):
    m, t_max = point_sizes(extent)
    assert m >= 1
    assert m == 1 or m * (2 * t_max + 1) <= MOST_POINT_FEATURES
    assert (m + 1) * (2 * round(180 * (m + 1) / extent) + 1) > MOST_POINT_FEATURES
