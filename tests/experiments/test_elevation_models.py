"""The models of the Earth experiment at a tiny size: splits, scores, and that each trains, predicts and reports."""

from __future__ import annotations

import math
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from benchmarks._data import DataNotFoundError
from experiments._elevation_models import (
    Split,
    check_budget,
    hvgp,
    load_split,
    make_split,
    peak_rise,
    scores,
    ski,
    spread,
    svgp,
    time_limit,
)
from harmonicgp.actions import Longitude
from harmonicgp.kernels.globe import unit_vectors

SCORES = {"rmse", "nll", "coverage", "rmse_by_area", "nll_by_area", "coverage_by_area"}


@pytest.fixture(scope="module")
def split() -> Split:
    """A smooth field on a grid of 20 degrees."""
    longitudes, latitudes = np.arange(-170.0, 180, 20), np.arange(-80.0, 90, 20)
    lon, lat = np.deg2rad(longitudes), np.deg2rad(latitudes)[:, None]
    return make_split(longitudes, latitudes, 3 + 2 * np.sin(lat) + np.cos(lat) * np.cos(lon))


def constant(split: Split) -> dict[str, float]:
    y = split.heights[split.test]
    return scores(0 * y, 0 * y + 1, y, np.repeat(split.latitudes, split.test.sum(1)))


def check(result, split, steps):
    assert result.steps == steps
    assert result.seconds > 0
    assert result.memory_bytes >= 0
    assert set(result.scores) == SCORES
    assert all(math.isfinite(value) for value in result.scores.values())
    field = result.predict(split.latitudes, split.longitudes)
    assert field.shape == split.heights.shape
    error = (field - split.heights)[split.test].astype(np.float64)
    assert_allclose(np.sqrt(np.mean(error**2)), result.scores["rmse"], rtol=1e-4)


def test_the_small_split_is_the_embedded_relief():
    split = load_split("small")
    assert split.heights.shape == split.train.shape == (len(split.latitudes), len(split.longitudes)) == (180, 360)
    assert split.heights.dtype == np.float32
    assert not (split.train & split.test).any()
    assert_allclose([split.train.mean(), split.test.mean()], [0.72, 0.2], atol=0.01)
    known = split.heights[split.train].astype(np.float64)
    assert_allclose([known.mean(), known.std()], [0, 1], atol=1e-4)
    X, y = split.points(np.array([0, 361]))
    assert X.tolist() == [[-179.5, -89.5], [-178.5, -88.5]]
    assert y.tolist() == [split.heights[0, 0], split.heights[1, 1]]


def test_larger_splits_take_the_nearest_sample(tmp_path, monkeypatch):
    """Heights that say where they are: twelfths of a degree, as ETOPO5 has them."""
    lon, lat = np.arange(4320) / 12, np.arange(2161) / 12 - 90
    height = (100 * lat[:, None] + 10 * np.cos(np.deg2rad(lon))).round().astype(np.int16)
    np.savez(tmp_path / "etopo5.npz", lon=lon, lat=lat, height=height)
    monkeypatch.setenv("HARMONICGP_DATA", str(tmp_path))
    split = load_split("medium")
    assert split.heights.shape == (360, 720)
    assert_allclose(split.longitudes[[0, -1]], [-179.75, 179.75])
    assert_allclose(split.latitudes[[0, -1]], [-89.75, 89.75])
    metres = 1000 * (split.heights * split.scale + split.centre)
    expected = 100 * split.latitudes[:, None] + 10 * np.cos(np.deg2rad(split.longitudes))
    assert np.abs(metres - expected).max() < 100 / 24 + 1  # half a step of latitude, and rounding


@pytest.mark.parametrize("size", ["medium", "paper"])
def test_larger_splits_say_what_they_need(size, monkeypatch):
    monkeypatch.delenv("HARMONICGP_DATA", raising=False)
    with pytest.raises(DataNotFoundError, match="HARMONICGP_DATA"):
        load_split(size)


def test_an_unknown_size_is_an_error():
    with pytest.raises(ValueError, match="small, medium or paper"):
        load_split("large")


def test_scores_by_hand():
    found = scores(np.zeros(2), np.ones(2), np.array([1.0, 3.0]), np.array([0.0, 60.0]))
    assert_allclose(found["rmse"], math.sqrt(5))
    assert_allclose(found["rmse_by_area"], math.sqrt((1 + 0.5 * 9) / 1.5))
    assert_allclose(found["nll"], 0.5 * math.log(2 * math.pi) + 2.5)
    assert_allclose(found["nll_by_area"], 0.5 * math.log(2 * math.pi) + 0.5 * (1 + 0.5 * 9) / 1.5)
    assert_allclose([found["coverage"], found["coverage_by_area"]], [0.5, 1 / 1.5])


@pytest.mark.parametrize("turns", [1, 12])
def test_inducing_points_are_even_and_stay_apart_in_their_orbits(turns):
    m = 200
    points = spread(m, turns)
    assert points.shape == (m, 2)
    assert (points[:, 0] >= -180).all()
    assert (points[:, 0] < 180).all()
    orbit = unit_vectors(Longitude(turns).orbit(points).flatten(0, 1).double())
    assert orbit.mean(0).abs().max() < 0.02
    spacing = math.sqrt(4 * math.pi / (m * turns))
    inner = points[:, 1].abs().repeat(turns) < 75  # turns of one point crowd at the poles, whatever the lattice
    assert torch.pdist(orbit[inner]).min() > 0.25 * spacing


@pytest.mark.parametrize(("T", "blocks"), [(12, 7), (24, 13)])
def test_the_papers_blocks(T, blocks):
    assert Longitude(T).group.n_blocks("real") == blocks


def test_svgp_beats_the_constant(split):
    result = svgp(split, 20, steps=100, batch=64)
    check(result, split, 100)
    assert result.name == "SVGP 20"
    worst = constant(split)
    assert result.scores["rmse"] < 0.7 * worst["rmse"]
    assert result.scores["nll"] < worst["nll"]


def test_hvgp_beats_the_constant(split):
    result = hvgp(split, 4, 8, steps=100, batch=64)
    check(result, split, 100)
    assert result.name == "HVGP 3 x 8"
    worst = constant(split)
    assert result.scores["rmse"] < 0.7 * worst["rmse"]
    assert result.scores["nll"] < worst["nll"]


@pytest.mark.parametrize("train", [lambda s, **k: svgp(s, 5, **k), lambda s, **k: hvgp(s, 2, 4, **k)])
def test_training_ends_when_its_time_is_up(split, train):
    result = train(split, seconds=0.05)
    assert result.steps >= 1
    assert result.seconds >= 0.05


def test_equal_seeds_give_equal_models(split):
    first, second = (svgp(split, 8, steps=5, seed=3).scores for _ in range(2))
    assert first == second


def test_training_must_end():
    with pytest.raises(ValueError, match="seconds, steps, or both"):
        check_budget(None, None)
    with pytest.raises(ValueError, match="must be positive"):
        check_budget(None, 0)


def test_ski_beats_the_constant(split):
    reasons: list[str] = []
    result = ski(split, rows=100, grid=10, steps=3, report=reasons.append)
    assert result is not None
    assert not reasons
    check(result, split, 3)
    assert result.scores["rmse"] < 0.7 * constant(split)["rmse"]


def test_ski_that_takes_too_long_says_so(split):
    reasons: list[str] = []
    assert ski(split, rows=100, grid=14, steps=1000, limit=0.001, report=reasons.append) is None
    assert reasons == ["SKI 14^3 on 100 points: not done in 0.001 s."]


def test_ski_without_memory_says_so(split, monkeypatch):
    def fail(*args):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr("experiments._elevation_models.InterpolatedGP", fail)
    reasons: list[str] = []
    assert ski(split, rows=100, report=reasons.append) is None
    assert reasons == ["SKI 100^3 on 100 points: out of memory."]


def test_ski_needs_a_grid_to_interpolate_on(split):
    with pytest.raises(ValueError, match="at least 8"):
        ski(split, grid=4)


def test_the_time_limit_ends_what_runs():
    with pytest.raises(TimeoutError), time_limit(0.01):
        time.sleep(60)
    with time_limit(60):
        pass


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="the peak of memory is read from /proc, which only Linux has"
)
def test_the_rise_of_the_peak_sees_what_was_freed():
    with peak_rise() as rise:
        before = rise()
        block = np.ones(20_000_000)
        del block
    assert rise() - before > 100e6
