"""Modelled costs."""

from __future__ import annotations

from harmonicgp.actions import Negation, Rotation
from harmonicgp.symmetry.cost import inducing_for, step_cost


def test_equal_cost():
    allowance = step_cost(None, 256, 1024, "block")
    for action in (None, Negation([[0], [1]]), Rotation((0, 1), 5)):
        m = inducing_for(allowance, action, 1024, "block", 1, 10_000, 100_000)
        assert step_cost(action, m, 1024, "block") <= allowance < step_cost(action, m + 1, 1024, "block")
