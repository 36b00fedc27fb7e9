"""Longitudes and latitudes: found, checked, put in order; lattices of longitudes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harmonicgp.globe.coordinates import find_lattice, merge_meridians, places_on, sort_latitudes


def order_of(longitudes):
    lattice = find_lattice(np.asarray(longitudes))
    return None if lattice is None else lattice[0]


@pytest.mark.parametrize(
    ("longitudes", "n"),
    [
        (np.arange(0, 360, 0.25), 1440),
        (np.arange(-180, 180, 0.1).astype(np.float32), 3600),
        (np.round(np.arange(30) / 3 + 5, 4), 1080),  # written with four decimals
        (np.arange(86400) / 240, 86400),
        (np.arange(100_001) * 360 / 100_001, None),
        ([0, 180], 2),
        ([-180, 180, 0], 2),
        ([0, 2, 5], 360),  # no gap is the step
        ([-10, -5, 0, 355, 350], 72),
        ([-1e-17, 90, 180], 4),
        (np.arange(10) * 0.7, None),
        (350 + np.arange(20) * 0.7, None),
        (np.mod(350 + np.arange(20) * 0.7, 360), None),
        ([0, 1, 2.01, 3], None),
        ([7], None),
        ([7, 367], None),
        ([], None),
        ([0, np.nan], None),
    ],
)
def test_lattices(longitudes, n):
    assert order_of(longitudes) == n


@given(
    n=st.integers(2, 5000), origin=st.floats(-180, 180), seed=st.integers(0, 9), wobble=st.sampled_from([0, 2e-4, 0.02])
)
def test_a_lattice_is_found_from_any_part_of_it(n, origin, seed, wobble):
    rng = np.random.default_rng(seed)
    chosen = np.unique(np.append([0, 1, 2, 3], rng.integers(0, n, 40)) % n)
    steps = rng.permutation(chosen) + wobble * np.append([1, -1], rng.uniform(-1, 1, len(chosen)))[: len(chosen)]
    turned = np.where(rng.random(len(chosen)) < 0.5, 0, 360)
    found = order_of(origin + steps * 360 / n + turned)
    if wobble < 1e-3:
        assert found == n
    else:
        assert found != n


@given(n=st.integers(2, 3000), origin=st.floats(-180, 180), seed=st.integers(0, 9))
def test_places_on_a_lattice_lead_back_to_their_longitudes(n, origin, seed):
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, n, 20)
    longitudes = origin + numbers * 360 / n + 360.0 * rng.integers(-1, 2, 20)
    np.testing.assert_array_equal(places_on(longitudes, n, origin), numbers)


@given(st.lists(st.integers(-90, 90), min_size=1, unique=True))
def test_latitudes_are_sorted_and_know_where_they_were(latitudes):
    given = np.array(latitudes, dtype=np.float64)
    rising, place = sort_latitudes(given, "lat", "the field")
    assert (np.diff(rising) > 0).all()
    np.testing.assert_array_equal(rising[place], given)


def test_latitudes_beyond_the_poles_or_there_twice_are_refused():
    assert sort_latitudes(np.array([90.000005, 0.0]), "lat", "it")[0][-1] == 90.0  # the rounding of float32
    for latitudes, words in (([0.0, 91.0], "swapped"), ([5.0, 0.0, 5.0], "latitude 5 twice")):
        with pytest.raises(ValueError, match=words):
            sort_latitudes(np.array(latitudes), "lat", "it")


@given(n=st.integers(3, 40), shift=st.integers(0, 39), closed=st.booleans(), west=st.sampled_from([-180.0, 0.0, 7.5]))
def test_the_column_that_closes_the_circle_is_the_first_meridian(n, shift, closed, west):
    longitudes = np.roll(west + np.arange(n) * 360 / n, shift % n)
    given = np.append(longitudes, longitudes[0]) if closed else longitudes
    first, columns = merge_meridians(given, "lon", "the field")
    np.testing.assert_array_equal(first, np.arange(n))
    np.testing.assert_array_equal(columns, np.append(np.arange(n), 0) if closed else np.arange(n))


def test_longitudes_that_no_map_has_are_refused():
    for longitudes, words in (([0.0, 200.0, 400.0], "spans 400"), ([0.0, 10.0, 10.0, 20.0], "longitude 10 twice")):
        with pytest.raises(ValueError, match=words):
            merge_meridians(np.array(longitudes), "lon", "the field")
