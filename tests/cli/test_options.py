"""Options: how they are read, and what is refused."""

from __future__ import annotations

import pytest

from harmonicgp.cli.failures import UsageError
from harmonicgp.cli.options import parse_columns, parse_levels
from tests.cli.common import complaint


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ([], {}),
        (["lon=longitude,lat=latitude"], {"lon": "longitude", "lat": "latitude"}),
        (["a=b=periodic:0.5", "lat=latitude"], {"a=b": ("periodic", 0.5), "lat": "latitude"}),
    ],
)
def test_columns_are_parsed(text, kinds):
    assert parse_columns(text) == kinds


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lon", "NAME=KIND"),
        ("=longitude", "NAME=KIND"),
        ("lon=longitud", "did you mean 'longitude'"),
        ("lon=longitude:3", "longitude, latitude or periodic"),
        ("hour=periodic", "hour=periodic:24"),
        ("hour=periodic:-1", "hour=periodic:24"),
        ("hour=periodic:nan", "hour=periodic:24"),
        ("hour=periodic:inf", "hour=periodic:24"),
        ("lon=longitude,lon=latitude", "twice"),
    ],
)
def test_bad_columns_are_refused(text, message):
    with pytest.raises(UsageError, match=message):
        parse_columns([text])


def test_quantiles_have_exact_names():
    assert parse_levels("0.025, 0.07,.5,0.999") == {"q2.5": 0.025, "q7": 0.07, "q50": 0.5, "q99.9": 0.999}
    assert parse_levels(None) == {}
    for text in ("", "0", "1", "2.5", "x", "nan", "0.1,,0.9"):
        with pytest.raises(UsageError, match="between 0 and 1"):
            parse_levels(text)


def test_wrong_names_are_met_with_the_right_ones(table, tmp_path):
    line = complaint("fit", table, "--target", "Temprature", "-o", tmp_path / "m.hgp", code=2)
    assert "no column 'Temprature' (did you mean 'temperature'?)" in line
    assert "It has id, lon" in line
    for option, value in (("--drop", "idd"), ("--weight", "w"), ("--noise-std", "e"), ("--columns", "lom=longitude")):
        line = complaint("fit", table, "-t", "temperature", "-o", tmp_path / "m.hgp", option, value, code=2)
        assert line.startswith(f"error: {option}: stations.csv has no column")
