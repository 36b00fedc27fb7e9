"""The conformance tools name what broke."""

from __future__ import annotations

import gpytorch.kernels as gk
import pytest
import torch

from harmonicgp import Cyclic
from harmonicgp.actions import Action, Longitude, Negation, Rotation, Translation
from harmonicgp.testing import assert_commuting, assert_cyclic, assert_decomposition, assert_invariant


class Broken(Action):
    """A user's action with a mistake of one kind or another."""

    def __init__(self, order, move):
        self.group = Cyclic(order)
        self.move = move

    def move(self, x, s):
        return self.move(x, s)


def test_a_users_own_action_passes():
    swap = Broken(2, lambda x, s: torch.where(s == 1, x.flip(-1), x))
    assert_cyclic(swap, torch.randn(4, 2))
    assert_decomposition(gk.RBFKernel().double(), swap, torch.randn(4, 2))


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (Broken(3, lambda x, s: torch.where(s % 2 == 1, -x, x)), "order 2 on these points, not 3"),
        (Broken(4, lambda x, s: torch.where(s % 2 == 1, -x, x)), "order 2 on these points, not 4"),
        (Broken(2, lambda x, s: x + 1 + 0 * s), "neutral element"),
        (Broken(2, lambda x, s: x * (1 + s)), r"2 steps of way 0, its order, differ .* at point"),
        (Broken(2, lambda x, s: (x * (1 - 2 * s))[..., :1, :]), "shape"),
    ],
)
def test_broken_actions_are_named(action, words):
    with pytest.raises(AssertionError, match=words):
        assert_cyclic(action, torch.randn(4, 2) + 3)


def test_assert_invariant_names_element_and_pair():
    kernel = gk.RBFKernel(ard_num_dims=2).double()
    kernel.lengthscale = torch.tensor([0.5, 2.0])
    x = torch.randn(4, 2)
    assert_invariant(kernel, Negation([[0], [1]]), x)
    with pytest.raises(AssertionError, match=r"element s = \d moves the pair of points \(\d, \d\)"):
        assert_invariant(kernel, Rotation((0, 1), 3), x)
    with pytest.raises(AssertionError, match="Hermitian"):
        assert_decomposition(kernel, Rotation((0, 1), 3), x)


class Day(Translation):
    """An action that names every place by a number from 0 to its period, also under the neutral element."""

    def move(self, x, s):
        return torch.remainder(x + s * (self.period / self.order), self.period)


@pytest.mark.parametrize("action", [Day(0, 12.0, 4), Translation(0, 12.0, 4)])
def test_assert_invariant_names_a_period_that_is_not_the_kernels(action):
    kernel = gk.PeriodicKernel().double()
    kernel.period_length = 24.0
    x = torch.tensor([[1.0], [5.0], [14.0], [23.0]], dtype=torch.float64)
    words = r"whole period of 12 along coordinate 0 changes k, by 0\.\d+ of its largest value: the period of the action is not"
    with pytest.raises(AssertionError, match=words):
        assert_invariant(kernel, action, x)


def test_assert_invariant_names_a_neutral_element_that_moves_points():
    action = Broken(1, lambda x, s: torch.remainder(x + 0 * s, 12.0))  # says nothing of a period
    x = torch.tensor([[1.0], [14.0]], dtype=torch.float64)
    with pytest.raises(AssertionError, match=r"the neutral element s = 0 moves .*, though it must leave k as it is"):
        assert_invariant(gk.RBFKernel().double(), action, x)


def test_assert_decomposition_catches_an_indefinite_function():
    def indefinite(a, b):  # symmetric and invariant, yet no kernel
        return -torch.cdist(a, b)

    with pytest.raises(AssertionError, match="positive semi-definite"):
        assert_decomposition(indefinite, Negation(), torch.randn(5, 2))


def test_assert_decomposition_catches_a_broken_shift():
    # Moves by the wrong element for s = 2: still sums to k and stays Hermitian on its own points.
    def move(x, s):
        return Rotation((0, 1), 3).move(x, torch.where(s == 2, torch.ones_like(s), s))

    action = Broken(3, move)
    action.min_dim = 2
    with pytest.raises(AssertionError, match=r"not Hermitian|shift property fails for element"):
        assert_decomposition(gk.RBFKernel().double(), action, torch.randn(5, 2))


def test_assert_commuting():
    assert_commuting(Rotation((0, 1), 3), Negation([2]), torch.randn(4, 3))
    with pytest.raises(AssertionError, match="take point"):
        assert_commuting(Rotation((0, 1), 3), Negation([0]), torch.randn(4, 3))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_default_tolerance_fits_the_dtype(dtype):
    places = torch.tensor([[2.35, 48.85], [-74.0, 40.7], [139.7, 35.7]], dtype=dtype)
    assert_cyclic(Longitude(24), places)
    assert_cyclic(Rotation((0, 1), 5), torch.randn(5, 2, dtype=dtype))
    kernel = gk.ScaleKernel(gk.MaternKernel(nu=0.5, ard_num_dims=6)).to(dtype)
    assert_decomposition(kernel, Negation.strided(6, 3), torch.randn(20, 6, dtype=dtype))
    assert_invariant(kernel, Negation.strided(6, 3), torch.randn(20, 6, dtype=dtype))


@pytest.mark.parametrize(
    ("move", "words"),
    [
        # cyclic, but no isometry
        (lambda x, s: torch.where(s == 1, x.flip(-1) * torch.tensor([4.0, 0.25]), x), "changes distances"),
        # a circle that is not declared in `periods`
        (lambda x, s: torch.where(s == 1, (x + 12) % 24, x), "changes distances|fold to different points"),
        # cannot move each point by an element of its own
        (
            lambda x, s: x * (1 - 2 * s.reshape(-1)[:, None, None]) if s.dim() > 1 else x * (1 - 2 * s),
            "its own element",
        ),
    ],
)
def test_what_folding_needs_is_checked(move, words):
    with pytest.raises(AssertionError, match=words):
        assert_cyclic(Broken(2, move), 24 * torch.rand(8, 2))
