"""Rotation of a plane."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from harmonicgp.actions import Rotation
from harmonicgp.actions.rotation import roots_of_unity


def test_quarter_turns_are_exact():
    x = torch.tensor([[1.0, 2.0]])
    assert_close(
        Rotation((0, 1), 4).orbit(x)[:, 0],
        torch.tensor([[1.0, 2], [-2, 1], [-1, -2], [2, -1]]),
        rtol=0,
        atol=0,
    )


@given(st.integers(1, 500))
def test_roots_of_unity_are_those_of_numpy_and_exact_at_quarters(T):
    c, i = (part.numpy() for part in roots_of_unity(T))
    np.testing.assert_allclose(c + 1j * i, np.exp(2j * np.pi * np.arange(T) / T), atol=1e-14)
    for quarter, (cos, sin) in enumerate([(1, 0), (0, 1), (-1, 0), (0, -1)]):
        if quarter * T % 4 == 0:
            assert (c[quarter * T // 4], i[quarter * T // 4]) == (cos, sin)
    assert not np.signbit(c[c == 0]).any()


@given(T=st.integers(1, 12), s=st.integers(-20, 20), order=st.permutations(range(4)), seed=st.integers(0, 99))
def test_only_the_plane_turns(T, s, order, seed):
    p, q, *rest = order
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(seed))
    action = Rotation((p, q), T)
    moved = action.apply(x, s)
    assert torch.equal(moved[:, rest], x[:, rest])
    turned = torch.complex(x[:, p], x[:, q]).numpy() * np.exp(2j * np.pi * s / T)
    np.testing.assert_allclose(torch.complex(moved[:, p], moved[:, q]), turned, atol=1e-12)
    assert action.mixed_columns(4) == [[p, q]]
    assert action.planes() == [((p, q), T)]
