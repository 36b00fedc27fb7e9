"""The embedded relief: a grid of the Earth, known mountains and deeps at their places."""

from __future__ import annotations

import numpy as np
import pytest

from harmonicgp.globe.relief import load_relief


def test_the_grid_covers_the_globe():
    relief = load_relief()
    np.testing.assert_allclose(relief.longitude, np.arange(-179.5, 180))
    np.testing.assert_allclose(relief.latitude, np.arange(-89.5, 90))
    assert relief.height.shape == (180, 360)
    assert np.isfinite(relief.height).all()


@pytest.mark.parametrize(
    ("longitude", "latitude", "low", "high"),
    [
        (87.5, 33.5, 4.0, 6.5),  # Tibet
        (0.0, -85.0, 2.0, 4.0),  # the ice of Antarctica
        (142.5, 11.5, -11.0, -4.0),  # the Mariana trench
        (0.0, 89.0, -5.0, -1.0),  # the Arctic ocean
    ],
)
def test_heights_are_in_kilometres_at_their_places(longitude, latitude, low, high):
    relief = load_relief()
    i, j = np.abs(relief.latitude - latitude).argmin(), np.abs(relief.longitude - longitude).argmin()
    assert low < relief.height[i, j] < high


def test_seven_tenths_of_the_earth_are_sea():
    relief = load_relief()
    area = np.broadcast_to(np.cos(np.deg2rad(relief.latitude))[:, None], relief.height.shape)
    assert (area * (relief.height < 0)).sum() / area.sum() == pytest.approx(0.71, abs=0.02)
    assert (area * relief.height).sum() / area.sum() == pytest.approx(-2.4, abs=0.2)
