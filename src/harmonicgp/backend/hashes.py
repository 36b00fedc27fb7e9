"""Hashes of rows."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]


def hashes(rows: Array) -> Array:
    """A 64-bit hash of every row of [N, k]. Two different rows have equal hashes with a probability of about N^2 / 2^64.

    Examples:
        >>> a, b, c = hashes(np.array([[0.0, 1.0], [-0.0, 1.0], [2.0, 1.0]]))
        >>> bool(a == b), bool(a == c)
        (True, False)
    """
    bits = np.ascontiguousarray(rows + 0.0, dtype=np.float64).view(np.uint64)  # + 0.0: minus zero is zero
    total = np.full(len(rows), 0x9E3779B97F4A7C15, dtype=np.uint64)
    with np.errstate(over="ignore"):
        for j in range(bits.shape[1]):
            total = (total ^ bits[:, j]) * np.uint64(0xFF51AFD7ED558CCD)
            total = (total ^ (total >> np.uint64(32))) * np.uint64(0xC4CEB9FE1A85EC53)
            total ^= total >> np.uint64(29)
    return total
