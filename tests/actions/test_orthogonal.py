"""Any orthogonal matrix of finite order, against its eigenvalues and powers of numpy."""

from __future__ import annotations

import math

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from harmonicgp.actions import Orthogonal


@given(first=st.integers(1, 6), second=st.integers(2, 6), seed=st.integers(0, 99))
def test_the_order_is_the_least_common_multiple_of_its_turns(first, second, seed):
    """Two planes turned by 2 pi / first and 2 pi / second, in a basis of no special position."""
    R = np.zeros((4, 4))
    for at, T in ((0, first), (2, second)):
        c, s = math.cos(2 * math.pi / T), math.sin(2 * math.pi / T)
        R[at : at + 2, at : at + 2] = [[c, -s], [s, c]]
    basis = np.linalg.qr(np.random.default_rng(seed).normal(size=(4, 4)))[0]
    R = basis @ R @ basis.T
    action = Orthogonal(torch.from_numpy(R))
    assert action.order == math.lcm(first, second)
    x = torch.randn(3, 4)
    for s, image in enumerate(action.orbit(x)):
        np.testing.assert_allclose(image, x.numpy() @ np.linalg.matrix_power(R, s).T, atol=1e-9)


def test_each_point_may_move_by_an_element_of_its_own():
    action = Orthogonal(torch.eye(3)[[1, 2, 0]])
    x, s = torch.randn(5, 3), torch.tensor([[0], [1], [2], [1], [0]])
    moved = action.move(x, s)
    for row, (k,), image in zip(x, s.tolist(), moved, strict=True):
        np.testing.assert_array_equal(image, np.roll(row.numpy(), -k))
    assert not action.repr_parses
