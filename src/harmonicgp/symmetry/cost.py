"""What a fit costs, from shapes alone: reruns then make the same choices."""

from __future__ import annotations

import time

import torch

from harmonicgp.actions import Action
from harmonicgp.inference.posterior import Family

#: Inducing points of one block on tables that are not small; other symmetries get what costs the same.
ONE_BLOCK = 1024
#: What an evaluation of a kernel costs, with all passes over its matrices, in floating-point operations of a matrix product that
#: takes as long: steps of equal modelled cost take about as long with one block of 1,024 points as with two, four or eight.
KERNEL_COST = 1500.0


def step_cost(action: Action | None, m: int, batch: int, family: Family, outputs: int = 1) -> float:
    """The modelled cost of a training step, in floating-point operations: from shapes alone, so that reruns agree."""
    shapes, order = _shapes(action, m)
    features = sum(n * (6.0 * f**3 + 6.0 * f**2 * batch) for n, f in shapes)
    F = sum(n * f for n, f in shapes)
    blocks = [(1, F)] if family == "joint" else shapes
    posterior = sum(n * (4.0 * f**3 + 6.0 * f**2 * batch) for n, f in blocks)
    return features + outputs * posterior + KERNEL_COST * order * m * (m + batch)


def finish_cost(action: Action | None, m: int, N: int) -> float:
    """The modelled cost of a closed form on all rows, and of refining scalars."""
    F = sum(n * f for n, f in _shapes(action, m)[0])
    return 2.0 * N * F**2 + 15.0 * F**3


def _shapes(action: Action | None, m: int) -> tuple[list[tuple[int, int]], int]:
    """Numbers of blocks with their features, and the order of the group."""
    if action is None:
        return [(1, m)], 1
    pairs = action.group.conjugate_pairs
    real = sum(t == minus for t, minus in pairs)
    return [(real, m), (len(pairs) - real, 2 * m)], action.group.order


def inducing_for(
    cost: float, action: Action | None, batch: int, family: Family, outputs: int, largest: int, most_features: int
) -> int:
    """The largest number of inducing points a block whose step costs no more than `cost`."""
    per_point = sum(n * f for n, f in _shapes(action, 1)[0])
    low, high = 1, max(1, min(largest, most_features // per_point))
    while low < high:
        middle = (low + high + 1) // 2
        if step_cost(action, middle, batch, family, outputs) <= cost:
            low = middle
        else:
            high = middle - 1
    return low


def affordable(seconds: float, N: int, steps: int, batch: int, device: torch.device) -> float:
    """The modelled cost of a step for which training and finish take about `seconds` on this machine's device."""
    a = torch.ones(700, 700, dtype=torch.get_default_dtype(), device=device)
    a @ a
    start = time.perf_counter()
    for _ in range(3):
        a @ a
    rate = 0.4 * 3 * 2 * 700**3 / max(time.perf_counter() - start, 1e-6)  # a step reaches about half of it
    low, high = 16, ONE_BLOCK
    while low < high:
        m = (low + high + 1) // 2
        total = steps * step_cost(None, m, batch, "block") + 4 * finish_cost(None, 2 * m, N)
        low, high = (m, high) if total <= 0.8 * seconds * rate else (low, m - 1)
    return step_cost(None, low, batch, "block")
