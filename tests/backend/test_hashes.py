"""Numbers that stand for rows: equal for equal rows, and only for them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from harmonicgp.backend.hashes import hashes

few_values = st.sampled_from([0.0, -0.0, 1.0, -1.0, 1.0 + 2**-52, 1e-300, 1e300, np.inf, -np.inf])


@given(arrays(np.float64, array_shapes(min_dims=2, max_dims=2, max_side=6), elements=few_values))
def test_rows_are_equal_where_their_numbers_are(rows):
    numbers = hashes(rows)
    assert numbers.shape == (len(rows),)
    same = (rows[:, None] == rows).all(-1)
    np.testing.assert_array_equal(numbers[:, None] == numbers, same)
    np.testing.assert_array_equal(
        hashes(np.asfortranarray(rows)[::-1]), numbers[::-1]
    )  # rows know nothing of each other


def test_the_order_of_columns_counts():
    rows = np.array([[1.0, 2.0], [2.0, 1.0], [3.0, 0.0], [0.0, 3.0]])
    assert len(set(hashes(rows).tolist())) == 4


def test_no_two_of_many_rows_share_a_number():
    side = np.arange(300.0)
    rows = np.stack(np.meshgrid(side, side), -1).reshape(-1, 2)
    assert len(np.unique(hashes(rows))) == len(rows)
    assert len(np.unique(hashes(rows) % 1024)) == 1024  # the low bits are used
