"""Modelled costs: of shapes alone, and equal where they are meant to be."""

from __future__ import annotations

import pytest
import torch

from harmonicgp.actions import ImageShift, Negation, Product, Rotation
from harmonicgp.symmetry import cost
from harmonicgp.symmetry.cost import KERNEL_COST, ONE_BLOCK, affordable, finish_cost, inducing_for, step_cost

ACTIONS = [
    Negation([[0], [1]]),
    Rotation((0, 1), 5),
    Product(Rotation((0, 1), 4), Negation([2])),
    ImageShift((4, 4), 2),
]


def test_equal_cost():
    allowance = step_cost(None, 256, 1024, "block")
    for action in (None, Negation([[0], [1]]), Rotation((0, 1), 5)):
        m = inducing_for(allowance, action, 1024, "block", 1, 10_000, 100_000)
        assert step_cost(action, m, 1024, "block") <= allowance < step_cost(action, m + 1, 1024, "block")


@pytest.mark.parametrize("action", ACTIONS, ids=repr)
def test_blocks_cost_what_their_features_cost(action):
    """A frequency that is its own conjugate has m real features, any other pair 2 m; the kernel is seen from every element."""
    m, batch, outputs, order = 7, 30, 3, action.group.order
    real = int((action.group.characters().imag.abs().amax(1) < 1e-9).sum())
    sizes = [m] * real + [2 * m] * ((order - real) // 2)
    assert sum(sizes) == order * m
    features = sum(6 * f**3 + 6 * f**2 * batch for f in sizes)
    kernel = KERNEL_COST * order * m * (m + batch)
    for family, blocks in (("block", sizes), ("joint", [order * m])):
        posterior = sum(4 * f**3 + 6 * f**2 * batch for f in blocks)
        expected = features + outputs * posterior + kernel
        assert step_cost(action, m, batch, family, outputs) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("action", ACTIONS, ids=repr)
def test_the_finish_is_joint(action):
    assert finish_cost(action, 7, 1000) == finish_cost(None, 7 * action.group.order, 1000)


def test_inducing_points_are_bounded():
    action = Rotation((0, 1), 5)
    assert inducing_for(0.0, action, 64, "block", 1, 100, 100) == 1
    assert inducing_for(1e30, action, 64, "block", 1, 100, 10_000) == 100
    assert inducing_for(1e30, action, 64, "block", 1, 100, 43) == 8  # five times eight features
    assert inducing_for(1e30, action, 64, "block", 1, 100, 4) == 1


@pytest.mark.parametrize("seconds", [1e-9, 0.3, 3.0, 30.0, 1e9])
def test_what_is_affordable_is_the_most_that_fits(seconds, monkeypatch):
    """Against all numbers of points one by one, on a machine that takes a second for three products."""
    clock = iter([5.0, 6.0])
    monkeypatch.setattr(cost.time, "perf_counter", lambda: next(clock))
    rate = 0.4 * 3 * 2 * 700**3
    N, steps, batch = 5000, 20, 256

    def total(m):
        return steps * step_cost(None, m, batch, "block") + 4 * finish_cost(None, 2 * m, N)

    fits = [m for m in range(16, ONE_BLOCK + 1) if total(m) <= 0.8 * seconds * rate]
    expected = step_cost(None, max(fits, default=16), batch, "block")
    assert affordable(seconds, N, steps, batch, torch.device("cpu")) == expected
