"""The role and the values of one column."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from harmonicgp.tables import (
    TableEncoder,
    columns,
)
from tests.tables.common import column, encoded


def test_the_number_types_of_each_library():
    decimals = [Decimal("1.5"), Decimal("2.25")]
    expected = [[1.5, 7.0, 1.0], [2.25, 2.0**64 - 1, 0.0]]
    arrow = pa.table({"d": decimals, "u": pa.array([7, 2**64 - 1], pa.uint64()), "b": [True, False]})
    wide = pa.table({"d": pa.array(decimals, pa.decimal256(50, 3)), "u": arrow["u"], "b": arrow["b"]})
    backed = arrow.to_pandas(types_mapper=pd.ArrowDtype)
    objects = pd.DataFrame({"d": decimals, "u": [7, 2**64 - 1], "b": pd.Series([True, False], dtype=object)})
    nullable = pd.DataFrame({"d": [1.5, 2.25], "u": [7, 2**64 - 1], "b": [True, False]}).convert_dtypes()
    huge = pl.DataFrame({"d": decimals, "u": pl.Series([7, 2**64 - 1], dtype=pl.Int128), "b": [True, False]})
    for table in (arrow, wide, backed, objects, nullable, pl.from_arrow(arrow), huge):
        assert encoded(table)[1].tolist() == expected


@pytest.mark.parametrize("dtype", ["Int64", "Float64", "boolean", "int64[pyarrow]", object])
def test_missing_in_the_nullable_types_of_pandas(dtype):
    table = pd.DataFrame({"a": pd.array([1, None, 1], dtype=dtype)})
    with pytest.raises(ValueError, match=r"'a' \(1 row\)"):
        TableEncoder.fit(table)
    assert column(table, "a missing", missing="impute") == [0, 1, 0]


def test_infinities_are_refused_in_fit_and_transform(frame):
    encoder = TableEncoder.fit(frame({"a": [1.0, 2.0]}), missing="impute")
    for work in (encoder.transform, TableEncoder.fit, lambda t: TableEncoder.fit(t, missing="impute")):
        with pytest.raises(ValueError, match="'a' holds infinite"):
            work(frame({"a": [1.0, -np.inf]}))
    with pytest.raises(ValueError, match="'a'"):
        TableEncoder.fit(pd.DataFrame({"a": pd.Series([10**400, 1], dtype=object)}))
    with pytest.raises(ValueError, match="'a' holds infinite"):
        TableEncoder.fit(frame({"a": ["1e999", "2"]}))


def test_numbers_written_as_text_are_read(frame):
    encoder, X = encoded(frame({"a": ["1", " 2.5", "-3e2"]}))
    assert X.tolist() == [[1.0], [2.5], [-300.0]]
    assert encoder.notes == ["'a' holds numbers as text and is read as numbers."]
    assert encoder.transform(frame({"a": [4, 5]})).tolist() == [[4.0], [5.0]]
    with pytest.raises(ValueError, match=r"'a' held numbers in the fit; 'x' is not a number"):
        encoder.transform(frame({"a": ["1", "x"]}))


def test_a_time_zone_sets_the_clock_on_the_wall():
    utc = [dt.datetime(2021, 1, 1, 11) + dt.timedelta(days=30 * i, hours=i % 5) for i in range(30)]
    arrow = pa.table({"when": pa.array(utc, pa.timestamp("ms", "Europe/Paris"))})
    from zoneinfo import ZoneInfo

    wall = [time.replace(tzinfo=dt.UTC).astimezone(ZoneInfo("Europe/Paris")) for time in utc]
    for table in (arrow, arrow.to_pandas(), arrow.to_pandas(types_mapper=pd.ArrowDtype), pl.from_arrow(arrow)):
        encoder, X = encoded(table)
        assert X[:, encoder.encoded_names.index("when (time of day)")].tolist() == [time.hour for time in wall]
        elsewhere = pa.table({"when": arrow["when"].cast(pa.timestamp("us", "Asia/Tokyo"))})
        for same in (elsewhere, elsewhere.to_pandas(), pl.from_arrow(elsewhere)):
            assert (encoder.transform(same) == X).all()
        with pytest.raises(ValueError, match="'when' has dates without a time zone; the fit had them with"):
            encoder.transform(pa.table({"when": utc}))
        with pytest.raises(ValueError, match="'when' is in time zone UTC, the fit was in Europe/Paris"):
            encoder.transform(pa.table({"when": ["2021-01-01T11:00:00Z"]}))


def test_dates_written_as_text_are_read(frame):
    texts = ["2020-01-01", "2020-01-02T12:00", "2020-01-05 06:00:00.5"]
    encoder, X = encoded(frame({"when": texts}))
    assert X[:, 0] == pytest.approx([0, 1.5, 4.25 + 0.5 / 86400])
    assert "dates as text" in encoder.notes[0]
    assert encoder.transform(frame({"when": [dt.datetime(2020, 1, 3)]}))[0, 0] == 2.0
    with pytest.raises(ValueError, match="'2020-02-30' is not a date"):
        encoder.transform(frame({"when": ["2020-02-30"]}))
    zoned, X = encoded(frame({"when": ["2020-01-01T01:00:00+02:00", "2020-01-01T00:30:00Z"]}))
    assert X[:, 0] * 24 == pytest.approx([23, 24.5])
    with pytest.raises(ValueError, match="'when' has dates without a time zone"):
        zoned.transform(frame({"when": ["2020-01-01"]}))
    with pytest.raises(ValueError, match="'when' has dates with and without a time zone"):
        TableEncoder.fit(frame({"when": ["2020-01-01", "2020-01-01T00:30:00Z"]}))


def test_dates_of_all_units_and_objects():
    days = [dt.date(1960, 1, 1), dt.date(2020, 1, 2)]
    arrow = pa.table({"when": days})
    typed = [pa.table({"when": arrow["when"].cast(t)}) for t in (pa.date64(), *map(pa.timestamp, ("s", "us", "ns")))]
    backed = arrow.to_pandas(types_mapper=pd.ArrowDtype)
    for table in (arrow, *typed, backed, pd.DataFrame({"when": pd.Series(days, dtype=object)})):
        assert encoded(table)[1].tolist() == encoded(pl.DataFrame({"when": days}))[1].tolist()
    with pytest.raises(ValueError, match="'when' holds dates too far"):
        TableEncoder.fit(pl.DataFrame({"when": pl.Series([0, 2**31 - 1], dtype=pl.Int32).cast(pl.Date)}))


def test_nan_blank_text_and_null_are_all_missing(frame):
    encoder, X = encoded(frame({"a": [1.0, float("nan")], "b": ["x", " "]}), missing="impute")
    assert encoder.encoded_names == ["a", "a missing", "b=x"]
    assert X.tolist() == [[1, 0, 1], [1, 1, 0]]


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"odd": [[1], [2]]}),
        pa.table({"odd": [{"a": 1}, {"a": 2}]}),
        pa.table({"odd": [b"a", b"b"]}),
        pl.DataFrame({"odd": [[1], [2]]}),
        pl.DataFrame({"odd": [{"a": 1}, {"a": 2}]}),
        pl.DataFrame({"odd": pl.Series([object(), object()], dtype=pl.Object)}),
        pd.DataFrame({"odd": [1j, 2j]}),
        pd.DataFrame({"odd": [[1], [2]]}),
        pd.DataFrame({"odd": [b"a", b"b"]}),
        pd.DataFrame({"odd": pd.period_range("2020-01", periods=2, freq="M")}),
        pd.DataFrame({"odd": pd.interval_range(0, 2)}),
        pd.DataFrame({"odd": ["a", 1]}),
        pd.DataFrame({"odd": [dt.date(2020, 1, 1), "2020"]}),
    ],
)
def test_types_that_cannot_be_numbers(table):
    with pytest.raises(ValueError, match="'odd'"):
        TableEncoder.fit(table)


def test_a_mixed_column_shows_examples(monkeypatch):
    table = pd.DataFrame({"odd": ["a", 1.5, None]})
    for rows in (columns.CHUNK, 1):
        monkeypatch.setattr(columns, "CHUNK", rows)
        with pytest.raises(ValueError, match=r"'odd' mixes texts \('a'\) and numbers \(1.5\)"):
            TableEncoder.fit(table)
