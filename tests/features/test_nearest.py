"""Neighbours against sorting all distances."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harmonicgp.features import nearest
from harmonicgp.features.nearest import NearestIndex, dimensions, earlier, tiles


def distances(a, b):
    return np.linalg.norm(a.double().numpy()[:, None] - b.double().numpy()[None], axis=-1)


@pytest.mark.parametrize("d", [1, 3, 14])
def test_the_nearest_are_those_of_all_distances(d):
    g = torch.Generator().manual_seed(d)
    points, queries = torch.randn(3000, d, generator=g), torch.randn(50, d, generator=g)
    found = NearestIndex(points).nearest(queries, 7)
    every = distances(queries, points)
    assert np.allclose(np.take_along_axis(every, found.rows.numpy(), 1), np.sort(every, 1)[:, :7], atol=1e-5)
    assert bool(found.present.all())


@given(N=st.integers(1, 60), k=st.integers(0, 70), d=st.integers(1, 3), seed=st.integers(0, 99), repeated=st.booleans())
def test_earlier_rows_come_before_and_are_present_once(N, k, d, seed, repeated):
    points = torch.randn(N, d, generator=torch.Generator().manual_seed(seed))
    if repeated:
        points = points.round()
    table = earlier(points, k)
    for i in range(N):
        rows = table.rows[i][table.present[i]].tolist()
        assert len(set(rows)) == len(rows) == min(k, i, N - 1)
        assert all(row < i for row in rows)


def test_few_points_have_their_nearest_earlier_rows():
    points = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    table = earlier(points, 10)
    every = distances(points, points)
    for i in range(1, 40):
        near = every[i, table.rows[i][table.present[i]].numpy()]
        assert np.allclose(np.sort(near), np.sort(every[i, :i])[:10], atol=1e-5)


def test_most_of_many_rows_have_their_nearest_earlier_ones():
    points = torch.randn(4000, 2, generator=torch.Generator().manual_seed(0))
    table, every = earlier(points, 10), distances(points, points)
    right = [
        np.allclose(np.sort(every[i, table.rows[i][table.present[i]].numpy()]), np.sort(every[i, :i])[:10], atol=1e-5)
        for i in range(2000, 4000)
    ]
    assert np.mean(right) > 0.99


def test_the_last_rows_alone():
    points = torch.randn(500, 2, generator=torch.Generator().manual_seed(1))
    every, last = earlier(points, 5), earlier(points, 5, 400)
    assert torch.equal(last.rows.sort().values, every.rows[400:].sort().values)


@given(N=st.integers(1, 300), size=st.integers(1, 64))
def test_tiles_hold_every_row_once(N, size):
    parts = tiles(torch.randn(N, 2, generator=torch.Generator().manual_seed(N)), size)
    assert sorted(torch.cat(parts).tolist()) == list(range(N))
    assert max(map(len, parts)) <= size


def test_dimensions_count_what_the_points_spread_over():
    g = np.random.default_rng(0)
    assert dimensions(g.normal(size=(5000, 6))) == pytest.approx(6, rel=0.02)
    assert dimensions(g.normal(size=(5000, 1)) @ g.normal(size=(1, 6))) == pytest.approx(1, rel=1e-6)
    assert dimensions(np.ones((5, 3))) == 0


def test_many_points_in_many_dimensions_have_near_neighbours_quickly(monkeypatch):
    monkeypatch.setattr(nearest, "LARGE", 3000)
    points = torch.randn(6000, 14, generator=torch.Generator().manual_seed(0))
    rows = NearestIndex(points).rows(points[:50], 10)
    every = torch.cdist(points[:50], points)
    least = every.topk(10, largest=False).values
    assert float(every.gather(1, rows).mean() / least.mean()) < 1.3
    assert float(every.mean() / least.mean()) > 1.5
    assert all(len(set(row)) == 10 for row in rows.tolist())
