"""Permutations of columns, and flips and rolls of images."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from harmonicgp import Cyclic
from harmonicgp.actions import ImageFlip, ImageShift, Permutation


def test_image_actions_on_channels():
    images = torch.randn(2, 4, 6, 3)
    flat = images.reshape(2, -1)
    assert_close(ImageFlip((4, 6, 3)).apply(flat, (1, 0)), images.flip(1).reshape(2, -1))
    assert_close(ImageFlip((4, 6, 3), axes=(1,)).apply(flat, 1), images.flip(2).reshape(2, -1))
    shift = ImageShift((4, 6, 3), (2, 3))
    assert shift.group == Cyclic(2) ** 2
    assert_close(shift.apply(flat, (1, 1)), images.roll((2, 3), (1, 2)).reshape(2, -1))


def test_translate_mnist_has_its_49_elements():
    assert ImageShift((28, 28), 4).group == Cyclic(7) ** 2


@given(order=st.integers(1, 7).flatmap(lambda d: st.permutations(range(d))), s=st.integers(-30, 30))
def test_a_permutation_is_repeated_and_has_the_order_of_its_cycles(order, s):
    action, d = Permutation(order), len(order)
    x = torch.randn(3, d)
    expected, powers = x.numpy(), [list(range(d))]
    while (image := [powers[-1][i] for i in order]) != powers[0]:
        powers.append(image)
    assert action.group.order == len(powers)
    for _ in range(s % len(powers)):
        expected = expected[:, order]
    np.testing.assert_array_equal(action.apply(x, s), expected)
    moved = [i for i, j in enumerate(order) if i != j]
    assert action.mixed_columns(d) == ([moved] if moved else [])


@given(height=st.integers(2, 5), width=st.integers(2, 5), channels=st.integers(1, 3), data=st.data())
def test_flips_and_rolls_are_those_of_numpy(height, width, channels, data):
    shape = (height, width, channels)
    images = np.random.default_rng(0).normal(size=(2, *shape))
    flat = torch.from_numpy(images.reshape(2, -1))
    down, right = (data.draw(st.integers(0, 1)) for _ in range(2))
    flipped = images[:, :: 1 - 2 * down, :: 1 - 2 * right]
    np.testing.assert_array_equal(ImageFlip(shape).apply(flat, (down, right)), flipped.reshape(2, -1))
    s = tuple(data.draw(st.integers(0, side - 1)) for side in (height, width))
    rolled = np.roll(images, s, (1, 2))
    np.testing.assert_array_equal(ImageShift(shape, 1).apply(flat, s), rolled.reshape(2, -1))
