"""The fundamental domain: one image of every orbit, found without making the images."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from harmonicgp.actions import Negation, Rotation, Translation
from tests.cases import FIXED_MOTIONS, motions, points

each_motion = pytest.mark.parametrize("motion", [*FIXED_MOTIONS, None], ids=lambda m: repr(m.action) if m else "drawn")


def _draw(data, motion, n=5):
    motion = motion or data.draw(motions())
    x = data.draw(points(motion, n))
    return motion, torch.from_numpy(x)


@each_motion
@given(data=st.data())
def test_folding_is_idempotent_and_lands_an_orbit_on_one_point(motion, data):
    motion, x = _draw(data, motion)
    action = motion.action
    folded = action.fold(x)
    assert_close(action.wrap(action.fold(folded) - folded), torch.zeros_like(x), rtol=0, atol=1e-9)
    gap = action.wrap(action.fold(action.orbit(x)) - folded)
    assert_close(gap, torch.zeros_like(gap), rtol=0, atol=1e-9)
    # The representative is on the orbit, moved there by the element that fold_index names.
    place = action.fold_index(x)
    images = action.orbit(x)[place, torch.arange(len(x))]
    if motion.kind != "globe":  # a pole is renamed on top
        assert_close(action.wrap(images - folded), torch.zeros_like(x), rtol=0, atol=1e-9)


def test_folding_bounds_the_domain():
    x = torch.randn(500, 3)
    assert bool((Negation([[0], [1], [2]]).fold(x) >= 0).all())
    hours = Translation(axis=0, period=24.0, order=12).fold(24 * torch.rand(500, 1))
    assert 0 <= float(hours.min()) <= float(hours.max()) < 2.0 + 1e-3
    angles = torch.atan2(*reversed(Rotation((0, 1), 8).fold(x)[:, :2].unbind(-1)))
    assert float(angles.max() - angles.min()) < 2 * np.pi / 8 + 1e-9


@given(n=st.integers(1, 5), period=st.floats(0.5, 50.0), turns=st.integers(-3, 3), seed=st.integers(0, 99))
def test_circles_are_embedded_as_circles(n, period, turns, seed):
    x = np.random.default_rng(seed).normal(size=(n, 3))
    action = Translation(axis=1, period=period, order=2)
    found = action.embed(torch.from_numpy(x)).numpy()
    angle = 2 * np.pi * x[:, 1] / period
    np.testing.assert_allclose(found, np.column_stack((x[:, 0], np.cos(angle), np.sin(angle), x[:, 2])), atol=1e-12)
    again = action.embed(torch.from_numpy(x + turns * period * np.array([0, 1, 0])))
    np.testing.assert_allclose(again, found, atol=1e-9)
    plain = torch.from_numpy(x)
    assert Negation().embed(plain) is plain


@each_motion
@given(data=st.data())
def test_the_nearest_image_is_that_of_a_search(motion, data):
    """Against all images of every row, measured where circles are circles."""
    motion, _ = _draw(data, motion)
    action = motion.action
    x = torch.from_numpy(np.random.default_rng(1).uniform(0.1, 20.0, size=(5, motion.d)))
    gaps = action.embed(action.images(x)) - action.embed(action.generic_point(motion.d))
    distances = gaps.square().sum(-1)  # [|G|, n]
    chosen = distances[action.fold_index(x), torch.arange(len(x))]
    assert_close(chosen, distances.amin(0), rtol=1e-7, atol=1e-7)
