"""Places on a circle and on the globe: one name for each."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from harmonicgp.actions import Longitude, Negation, Translation
from harmonicgp.kernels.globe import unit_vectors


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


def test_folding_a_pole_gives_one_name():
    poles = torch.tensor([[10.0, 90.0], [-75.0, 90.0], [33.0, -90.0], [133.0, -90.0]])
    folded = Longitude(5).fold(poles)
    assert_close(folded[0], folded[1])
    assert_close(folded[2], folded[3])
    x = torch.cat([poles, torch.randn(4, 1)], 1)
    assert_close((Longitude(5) * Negation([2])).fold(x)[:, 0], torch.full((4,), -180.0))


def test_places_with_several_names_fold_to_one():
    hours = Translation(0, 24.0, 12).fold(torch.tensor([[1.0], [25.0], [3.0], [27.0], [-23.0]]))
    assert_close(hours, torch.ones(5, 1))
    places = Longitude(24).fold(torch.tensor([[190.0, 10.0], [-170.0, 10.0], [550.0, 10.0]]))
    assert_close(places, places[:1].expand(3, 2))
    assert -180 <= float(places[0, 0]) < -165
    end = Translation(0, 24.0, 12).apply(torch.tensor([[-2.0000002]], dtype=torch.float32), 1)
    assert 0 <= float(end) < 24


def test_swapped_longitude_and_latitude():
    with pytest.raises(ValueError, match="swapped"):
        Longitude(4).orbit(torch.tensor([[45.0, 170.0]]))


@given(start=st.floats(-50, 50), period=st.floats(0.1, 100), T=st.integers(1, 12), seed=st.integers(0, 99))
def test_moved_places_lie_in_the_period(start, period, T, seed):
    x = start + period * (4 * torch.rand(6, 2, generator=torch.Generator().manual_seed(seed)) - 2)
    action = Translation(1, period, T, start)
    for s, image in enumerate(action.orbit(x)):
        assert torch.equal(image[:, 0], x[:, 0])
        if s == 0:
            assert torch.equal(image, x)
            continue
        assert bool(((image[:, 1] >= start) & (image[:, 1] < start + period)).all())
        laps = (image[:, 1] - x[:, 1] - s * period / T) / period
        assert_close(laps, laps.round(), rtol=0, atol=1e-9)


def test_numbers_too_large_for_their_steps_are_refused():
    action = Translation(0, 1.0, 100)
    for dtype, large in ((torch.float32, 1e5), (torch.float64, 1e14)):
        with pytest.raises(ValueError, match=r"cannot tell apart steps of 0\.01 safely"):
            action.orbit(torch.tensor([[large]], dtype=dtype))
    action.orbit(torch.tensor([[1e5]], dtype=torch.float64))


def test_longitudes_are_columns_of_the_globe():
    action = Longitude(8, axis=1)
    assert action.declared_kinds() == {1: "longitude", 2: "latitude"}
    x = torch.tensor([[170.0, 20.0], [-10.0, -60.0]])
    turned = Longitude(8).on_unit_vectors().apply(unit_vectors(x), 3)
    assert_close(turned, unit_vectors(Longitude(8).apply(x, 3)))
