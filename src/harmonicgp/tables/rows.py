"""Equal rows as one row with a weight: a weight of two is two rows, everywhere."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np

from harmonicgp.backend.hashes import hashes

Array: TypeAlias = np.ndarray[Any, Any]


class Rows(NamedTuple):
    """Distinct rows in an order of their values alone."""

    X: Array  #: [N, d]
    y: Array  #: [N, P]
    noise: Array | None  #: known standard deviations, [N]
    counts: Array | None  #: how many rows each stands for, None for all one


def merge(X: Array, y: Array, noise: Array | None = None, weight: Array | None = None) -> Rows:
    """Rows X [N, d], y [N, P] without those of weight zero, equal ones as one."""
    if weight is not None:
        used = weight > 0
        if not used.all():
            X, y, weight = X[used], y[used], weight[used]
            noise = None if noise is None else noise[used]
    parts = [X, y] if noise is None else [X, y, noise[:, None]]
    keys = hashes(np.concatenate(parts, 1))
    _, first, inverse, repeats = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
    if weight is None or len(repeats) == 0:
        counts = repeats.astype(np.float64)
    else:
        order = np.lexsort((weight, inverse))  # sums that do not depend on the order of the table
        counts = np.add.reduceat(weight[order], np.concatenate(([0], np.cumsum(repeats)[:-1])))
    ones = bool((counts == 1).all())
    return Rows(X[first], y[first], None if noise is None else noise[first], None if ones else counts)
