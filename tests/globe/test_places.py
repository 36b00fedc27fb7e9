"""Grids of predictions: labels of results, slices by their coordinates, and files."""

from __future__ import annotations

import json

import numpy as np
import pytest

from harmonicgp.globe.places import Source
from harmonicgp.globe.reading import read
from tests.globe.common import field, xarray


def test_results_get_the_labels_of_their_place():
    data = xarray.concat([field(30.0), field(30.0)], "time").assign_coords(time=[3, 5]).transpose("lon", "time", "lat")
    source = Source.of(read(data, None, None, "time"), "time")
    values = np.arange(2.0 * 6 * 12).reshape(2, 6, 12)
    whole = source.place(data).labelled(values, "x", "m", "words")
    assert whole.dims == data.dims
    np.testing.assert_array_equal(whole.transpose("time", "lat", "lon"), values)
    one = source.place(data.sel(time=5))
    assert one.slices == [1]
    single = one.labelled(values[1:], "x", None, "words")
    assert single.dims == ("lon", "lat")
    assert int(single.time) == 5
    drawn = source.place(None).labelled(np.stack([values] * 3), "x", None, "words", ("sample", np.arange(3)))
    assert drawn.dims == ("sample", "time", "lon", "lat")
    np.testing.assert_array_equal(drawn.isel(sample=2).transpose("time", "lat", "lon"), values)


@pytest.mark.parametrize("slices", [np.array([3, 5]), np.array(["2020-01-01", "1850-06-30T12:00"], "M8[ns]"), None])
def test_sources_come_back_from_their_state(slices):
    data = xarray.concat([field(30.0), field(30.0)], "time").isel(lat=slice(None, None, -1))
    data = data if slices is None else data.assign_coords(time=slices)
    source = Source.of(read(data, None, None, "time"), "time")
    header, tensors = source.state()
    again = Source.from_state(json.loads(json.dumps(header)), tensors, "time")
    assert (again.names, again.dims, again.by) == (source.names, source.dims, "time")
    for name in ("latitudes", "longitudes", "slices"):
        np.testing.assert_array_equal(getattr(again, name), getattr(source, name))
    np.testing.assert_array_equal(again.latitudes, data.lat)  # in the order of the data
    assert again.slices.dtype == source.slices.dtype


def test_slices_are_asked_for_by_their_coordinates():
    data = xarray.concat([field(30.0)] * 3, "time").assign_coords(time=[3, 5, 9])
    source = Source.of(read(data, None, None, "time"), "time")
    assert source.place(None).slices is None
    assert source.place(data[::-1]).slices == [2, 1, 0]
    assert source.place(data.sel(time=9)).slices == [2]
    assert source.place(data.sel(time=[5, 5])).slices == [1, 1]
    assert source.place(data.drop_vars("time")).slices == [0, 1, 2]
    for where, words in (
        (data.assign_coords(time=[3, 5, 8]), "no slice was fitted for time = 8"),
        (data.drop_vars("time")[:2], "give all 3 slices"),
    ):
        with pytest.raises(ValueError, match=words):
            source.place(where)


def test_dimensions_that_are_not_those_of_the_map_are_refused():
    with pytest.raises(ValueError, match="has no dimensions lat, time"):
        Source(("lat", "lon"), ("lat", "time"), np.zeros(1), np.zeros(1), np.zeros(1), None)
