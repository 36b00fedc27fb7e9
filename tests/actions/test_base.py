"""Every action: cyclic, its orbit repeated application, equal to its numpy twin, and folded to one representative."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from harmonicgp import Cyclic
from harmonicgp.actions import (
    ImageFlip,
    ImageShift,
    Longitude,
    Negation,
    Orthogonal,
    Permutation,
    PrincipalNegation,
    Product,
    Rotation,
    Translation,
)
from harmonicgp.testing import assert_commuting, assert_cyclic
from tests import reference as ref
from tests.cases import FIXED_MOTIONS, motions, points

each_motion = pytest.mark.parametrize("motion", [*FIXED_MOTIONS, None], ids=lambda m: repr(m.action) if m else "drawn")


def _draw(data, motion, n=5):
    motion = motion or data.draw(motions())
    x = data.draw(points(motion, n))
    return motion, torch.from_numpy(x)


@each_motion
@given(data=st.data())
def test_cyclic_and_orbit_is_repeated_application(motion, data):
    motion, _ = _draw(data, motion)
    x = torch.from_numpy(np.random.default_rng(0).uniform(0.1, 20.0, size=(4, motion.d)))  # in no special position
    assert_cyclic(motion.action, x)


@each_motion
@given(data=st.data())
def test_orbit_equals_the_numpy_twin(motion, data):
    motion, x = _draw(data, motion)
    orbit = motion.action.orbit(x)
    for s, image in zip(ref.elements(motion.action.group.orders), orbit, strict=True):
        gap = motion.action.wrap(image - torch.from_numpy(motion.move(x.numpy(), s).copy()))
        assert_close(gap, torch.zeros_like(gap), rtol=0, atol=1e-10)
        assert_close(motion.action.apply(x, s), image, rtol=0, atol=1e-12)  # a batched product may round differently


def test_points_move_in_batches_of_any_shape_and_dtype():
    for action in [Rotation((0, 1), 3), Negation([[0], [2]]), Permutation([1, 2, 0]),
                   Orthogonal(torch.eye(3)[[1, 2, 0]]), Rotation((0, 1), 3) * Negation([2]),
                   PrincipalNegation(2).fit(torch.randn(20, 3))]:  # fmt: skip
        for dtype in (torch.float32, torch.float64):
            x = torch.randn(2, 4, 5, 3, dtype=dtype)
            orbit = action.orbit(x)
            assert orbit.shape == (action.group.order, 2, 4, 5, 3)
            assert orbit.dtype == dtype
            assert_close(orbit[:, 1, 2], action.orbit(x[1, 2]))
            assert action.fold(x).shape == x.shape


def test_gradients_pass_through_orbits():
    quarter = Orthogonal(torch.tensor([[0.0, -1.0], [1.0, 0.0]]))
    for action in [Rotation((0, 1), 3), Negation([[0], [1]]), Permutation([1, 0]), Translation(1, 24.0, 5), quarter,
                   PrincipalNegation(1).fit(torch.randn(9, 2))]:  # fmt: skip
        assert torch.autograd.gradcheck(action.orbit, torch.randn(3, 2, requires_grad=True))


def test_inverse_undoes():
    action, x = Rotation((0, 1), 5) * Negation([2]), torch.randn(4, 3)
    assert action.inverse((2, 1)) == (3, 1)
    assert_close(action.apply(action.apply(x, (2, 1)), action.inverse((2, 1))), x)


def test_repr_evaluates():
    for action in [Negation(), Negation([[0, 1], [2]]), PrincipalNegation(3), Rotation((0, 2), 6),
                   Translation(0, 24.0, 12), Translation(1, 7.0, 3, start=-1.0), Longitude(360), Longitude(5, axis=1),
                   ImageFlip((4, 4)), ImageFlip((4, 4), axes=(1,)), ImageShift((4, 4), 2), ImageShift((4, 6), (2, 3)),
                   Permutation([1, 0]), Negation([0]) * Rotation((1, 2), 3)]:  # fmt: skip
        again = eval(repr(action))
        assert repr(again) == repr(action)
        assert again.group == action.group


# Products -----------------------------------------------------------------------------------------------------------


def test_products_flatten_and_multiply_groups():
    action = Product(Negation([0]), Rotation((1, 2), 3) * Negation([3]))
    assert len(action.factors) == 3
    assert action.group == Cyclic(2) * Cyclic(3) * Cyclic(2)
    assert_commuting(Negation([0]), Rotation((1, 2), 3), torch.randn(5, 3))


def test_circles_of_one_coordinate_compose():
    action = Translation(0, 24.0, 2) * Translation(0, 24.0, 3)  # Z2 x Z3 is Z6, two hours... four hours a step
    x = 24 * torch.rand(40, 1)
    assert_cyclic(action, x)
    folded = action.fold(action.orbit(x))
    assert float(action.wrap(folded - folded[0]).abs().max()) < 1e-9


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Negation([0]), Rotation((0, 1), 4)),
        (Rotation((0, 1), 4), Rotation((1, 2), 4)),
        (Permutation([1, 0, 2]), Negation([0])),
        (Negation(), Translation(0, 24.0, 3)),
    ],
    ids=repr,
)
def test_actions_that_do_not_commute_are_refused(first, second):
    with pytest.raises(ValueError, match="commute"):
        first * second
    with pytest.raises(AssertionError, match="do not commute"):
        assert_commuting(first, second, torch.randn(4, 3) + 3)


@pytest.mark.parametrize(
    "factors",
    [(Negation(), Negation()), (Negation([[0], [1]]), Rotation((0, 1), 2)), (Longitude(4), Longitude(6))],
    ids=repr,
)
def test_factors_that_repeat_each_other_are_refused(factors):
    with pytest.raises(ValueError, match=r"leaves every point of \d coordinates in its place"):
        Product(*factors)


def test_a_product_is_checked_at_the_width_it_is_used_at():
    action = Negation() * Rotation((0, 1), 4)  # at two columns the half turn is the negation
    assert action.orbit(torch.randn(3, 3)).shape == (8, 3, 3)
    with pytest.raises(ValueError, match="of 2 coordinates in its place"):
        action.orbit(torch.randn(3, 2))


@pytest.mark.parametrize(
    ("action", "d"),
    [
        (Negation([[0], [2, 1]]), 3),
        (Negation(), 3),
        (Rotation((2, 0), 5), 3),
        (Permutation([1, 2, 0]), 3),
        (Translation(1, 24.0, 4, start=-3.0), 3),
    ],
    ids=repr,
)
def test_renumbered_actions_move_the_columns_that_these_have_become(action, d):
    columns, width = [4, 0, 3], 6
    wide = torch.randn(5, width)
    moved = action.renumbered(columns, width)
    assert moved.group == action.group
    for s in range(action.group.order):
        element = tuple(action.group.elements()[s].tolist())
        expected = wide.clone()
        expected[:, columns] = action.apply(wide[:, columns], element)
        assert_close(moved.apply(wide, element), expected)


def test_which_actions_print_as_they_are_made():
    matrix = Orthogonal(torch.diag(torch.tensor([1.0, -1.0])))
    assert not matrix.repr_parses
    assert not Product(matrix, Negation([0])).repr_parses
    assert Negation([0]).repr_parses
    assert Product(Negation([0]), Rotation((1, 2), 3)).repr_parses

    class Mine(Negation):
        __repr__ = object.__repr__

    assert not Mine([0]).repr_parses
