"""Kinds that a user declares."""

from __future__ import annotations

import numpy as np
import pytest

from harmonicgp.tables import (
    check_kinds,
)
from harmonicgp.tables.kinds import undeclared_places


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"c": "longitude"}, "'c', which is not in the table; it has 'a', 'b'"),
        ({2: "longitude"}, "column 2; there are 2"),
        ({-3: "longitude"}, "column -3"),
        ({1.5: "longitude"}, r"got 1\.5"),
        ({True: "longitude"}, "got True"),
        ({"a": "lattitude"}, "'a': a kind is .* got 'lattitude'"),
        ({"a": ("periodic",)}, r"'a': a kind is"),
        ({"a": ("periodic", 0)}, "'a': a period must be"),
        ({"a": ("periodic", float("nan"))}, "'a': a period must be"),
        ({"a": ("periodic", True)}, "'a': a period must be"),
        ({"a": ("periodic", "24")}, "'a': a period must be"),
        ({"a": "latitude"}, "latitude but no longitude"),
        ({"a": "longitude"}, "longitude but no latitude.*360"),
        ({"a": "latitude", "b": "latitude"}, "more than one latitude"),
        ({"a": "latitude", 0: "longitude"}, "twice"),
        ({1: "latitude", -1: "longitude"}, "twice"),
    ],
)
def test_kinds_that_make_no_sense(columns, words):
    with pytest.raises(ValueError, match=words):
        check_kinds(columns, ["a", "b"], 2)


def test_kinds_of_a_plain_array():
    assert check_kinds(None, None, 3) == {}
    assert check_kinds({-1: "latitude", np.int64(0): "longitude"}, None, 3) == {2: "latitude", 0: "longitude"}
    with pytest.raises(ValueError, match=r"'a'.*use column numbers"):
        check_kinds({"a": "latitude"}, None, 3)
    with pytest.raises(TypeError, match="dict"):
        check_kinds(["latitude"], None, 3)


@pytest.mark.parametrize(
    ("names", "lon", "lat"),
    [
        (["a", "longitude", "latitude"], (-9, 3), (50, 59)),
        (["a", "LNG", "Lat"], (0, 359.5), (-80, 80)),
        (["a", "pickup_lon", "pickup_lat"], (-75, -73), (40, 41)),
    ],
)
def test_columns_that_look_like_places_are_named(names, lon, lat):
    said = undeclared_places(names, [(0, 1), lon, lat], {})
    assert said.startswith(f"{names[1]!r} and {names[2]!r} look like longitude and latitude")
    assert f"--columns {names[1]}=longitude" in said
    declared = {1: "longitude", 2: "latitude"}
    assert undeclared_places(names, [(0, 1), lon, lat], declared) is None
    assert undeclared_places(names, [(0, 1), lon, (0, 4000)], {}) is None
    assert undeclared_places(["a", "salon", "flat"], [(0, 1), lon, lat], {}) is None
