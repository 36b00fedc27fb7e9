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
    strided,
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


@each_motion
@given(data=st.data())
def test_folding_is_idempotent_and_lands_an_orbit_on_one_point(motion, data):
    motion, x = _draw(data, motion)
    action = motion.action
    folded = action.fold(x)
    assert_close(action.wrap(action.fold(folded) - folded), torch.zeros_like(x), rtol=0, atol=1e-9)
    gap = action.wrap(action.fold(action.orbit(x)) - folded)
    assert_close(gap, torch.zeros_like(gap), rtol=0, atol=1e-9)
    # The representative is on the orbit, moved there by the element that fold_index names.
    place = action.fold_index(x)
    images = action.orbit(x)[place, torch.arange(len(x))]
    if motion.kind != "globe":  # a pole is renamed on top
        assert_close(action.wrap(images - folded), torch.zeros_like(x), rtol=0, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("T", [1, 2, 3, 7, 12, 360, 3600])
def test_folding_tidy_longitudes(T, dtype):
    # Grid lines fall on the edges of the cells: the hard case for rounding.
    longitude = torch.arange(-180, 540, 0.5, dtype=dtype)
    x = torch.stack([longitude, torch.zeros_like(longitude)], 1)
    action = Longitude(T)
    folded = action.fold(x)
    tolerance = 1e-3 if dtype == torch.float32 else 1e-9
    assert float(action.wrap(action.fold(folded) - folded).abs().max()) < tolerance
    step = 360 / T
    offset = folded[:, 0].double() - torch.remainder(x[:, 0].double() + 180, step) + 180
    spread = torch.remainder(offset + step / 2, step)
    assert float((spread - step / 2).abs().max()) < tolerance * 10


def test_folding_bounds_the_domain():
    x = torch.randn(500, 3)
    assert bool((Negation([[0], [1], [2]]).fold(x) >= 0).all())
    hours = Translation(axis=0, period=24.0, order=12).fold(24 * torch.rand(500, 1))
    assert 0 <= float(hours.min()) <= float(hours.max()) < 2.0 + 1e-3
    angles = torch.atan2(*reversed(Rotation((0, 1), 8).fold(x)[:, :2].unbind(-1)))
    assert float(angles.max() - angles.min()) < 2 * np.pi / 8 + 1e-9


def test_folding_a_pole_gives_one_name():
    poles = torch.tensor([[10.0, 90.0], [-75.0, 90.0], [33.0, -90.0], [133.0, -90.0]])
    folded = Longitude(5).fold(poles)
    assert_close(folded[0], folded[1])
    assert_close(folded[2], folded[3])
    x = torch.cat([poles, torch.randn(4, 1)], 1)
    assert_close((Longitude(5) * Negation([2])).fold(x)[:, 0], torch.full((4,), -180.0))


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


def test_the_papers_striding():
    assert strided(7, 3) == ((0, 3, 6), (1, 4), (2, 5))
    assert Negation.strided(7, 3).subsets == strided(7, 3)


def test_principal_negation_keeps_a_sheared_distribution():
    # Figure 4 of the paper: axis negation leaves the distribution, principal negation does not.
    x = torch.randn(4000, 2) @ torch.tensor([[2.0, 1.8], [0.0, 0.5]]) + torch.tensor([3.0, -1.0])
    covariance = torch.cov(x.T)

    def drift(action):
        images = action.orbit(x)
        return max(float((torch.cov(image.T) - covariance).abs().max()) for image in images)

    assert drift(PrincipalNegation(2).fit(x)) < 1e-9
    assert drift(Negation([[0], [1]])) > 1.0
    images = PrincipalNegation(2).fit(x).orbit(x)
    assert_close(images.mean(1), x.mean(0).expand(4, 2))


def test_fitting_returns_a_new_action():
    action = PrincipalNegation(2)
    action.fit(torch.randn(10, 3))
    with pytest.raises(ValueError, match=r"\.fit\(X\)"):
        action.orbit(torch.randn(4, 3))


def test_principal_directions_do_not_flip_between_runs():
    x = torch.randn(50, 4)
    first, second = PrincipalNegation(1).fit(x), PrincipalNegation(1).fit(x.flip(0))
    assert_close(first.directions, second.directions)


def test_image_actions_on_channels():
    images = torch.randn(2, 4, 6, 3)
    flat = images.reshape(2, -1)
    assert_close(ImageFlip((4, 6, 3)).apply(flat, (1, 0)), images.flip(1).reshape(2, -1))
    assert_close(ImageFlip((4, 6, 3), axes=(1,)).apply(flat, 1), images.flip(2).reshape(2, -1))
    shift = ImageShift((4, 6, 3), (2, 3))
    assert shift.group == Cyclic(2) ** 2
    assert_close(shift.apply(flat, (1, 1)), images.roll((2, 3), (1, 2)).reshape(2, -1))


def test_translate_mnist_has_its_49_elements():
    assert ImageShift((28, 28), 4).group == Cyclic(7) ** 2


def test_quarter_turns_are_exact():
    x = torch.tensor([[1.0, 2.0]])
    assert_close(
        Rotation((0, 1), 4).orbit(x)[:, 0],
        torch.tensor([[1.0, 2], [-2, 1], [-1, -2], [2, -1]]),
        rtol=0,
        atol=0,
    )


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


def test_principal_directions_of_many_rows_need_little_memory():
    x = torch.randn(300_000, 3) @ torch.diag(torch.tensor([3.0, 2.0, 1.0]))
    V = PrincipalNegation(3).fit(x).directions
    assert_close(V.abs(), torch.eye(3), rtol=0, atol=0.05)
    assert PrincipalNegation(2).fit(torch.randn(3, 5)).directions.shape == (5, 5)  # fewer rows than columns


def test_places_with_several_names_fold_to_one():
    hours = Translation(0, 24.0, 12).fold(torch.tensor([[1.0], [25.0], [3.0], [27.0], [-23.0]]))
    assert_close(hours, torch.ones(5, 1))
    places = Longitude(24).fold(torch.tensor([[190.0, 10.0], [-170.0, 10.0], [550.0, 10.0]]))
    assert_close(places, places[:1].expand(3, 2))
    assert -180 <= float(places[0, 0]) < -165
    end = Translation(0, 24.0, 12).apply(torch.tensor([[-2.0000002]], dtype=torch.float32), 1)
    assert 0 <= float(end) < 24
