"""How one column becomes numbers."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from harmonicgp.tables import (
    TableEncoder,
    UnseenLevelsWarning,
    encodings,
)
from harmonicgp.tables.encodings import MAX_LEVELS
from tests.tables.common import column, encoded, warned


def test_levels_are_sorted_columns_of_zeros_and_ones(frame):
    encoder, X = encoded(frame({"c": ["red", "blue", "green", "red"]}))
    assert encoder.encoded_names == ["c=blue", "c=green", "c=red"]
    assert X.tolist() == [[0, 0, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1]]
    with pytest.warns(UnseenLevelsWarning, match=r"'c' .* \('violet'\) in 1 row: .* none of the levels of the fit"):
        assert encoder.transform(frame({"c": ["violet", "blue"]})).tolist() == [[0, 0, 0], [1, 0, 0]]


def test_two_levels_need_one_column_and_one_level_is_constant(frame):
    encoder, X = encoded(frame({"c": ["no", "yes", "no"], "d": ["only"] * 3, "e": ["other", "a", "a"]}))
    assert encoder.encoded_names == ["c=yes", "d=only", "e=a"]
    assert X.tolist() == [[0, 1, 0], [1, 1, 1], [0, 1, 1]]


def test_rare_levels_share_a_column(frame):
    texts = [f"l{i:02}" for i in range(30) for _ in range(30 - i)] + ["other"] * 500
    encoder, X = encoded(frame({"c": texts}))
    kept = [f"c=l{i:02}" for i in range(MAX_LEVELS - 1)]
    assert encoder.encoded_names == [*kept, "c=other"]
    assert encoder.notes == []
    assert "31 levels" in encoder.warnings[0]
    assert "'c=other'" in encoder.warnings[0]
    assert (X.sum(1) == 1).all()
    assert X[:, -1].sum() == 500 + sum(30 - i for i in range(MAX_LEVELS - 1, 30))
    with pytest.warns(UnseenLevelsWarning, match=r"\('new'\) in 1 row: they count as 'other'"):
        assert encoder.transform(frame({"c": ["new"]}))[0].tolist() == [0.0] * (MAX_LEVELS - 1) + [1.0]


def test_too_many_rare_levels_are_forgotten(monkeypatch):
    monkeypatch.setattr(encodings, "MAX_RARE", 5)
    encoder = TableEncoder.fit(pa.table({"c": [f"l{i}" for i in range(30) for _ in range(2)]}))
    assert encoder.state()["columns"][0]["rare"] is None
    assert warned(encoder, pa.table({"c": ["new"]})) == []


def test_twenty_levels_are_not_lumped(frame):
    encoder, X = encoded(frame({"c": [f"l{i % MAX_LEVELS:02}" for i in range(100)]}))
    assert X.shape[1] == MAX_LEVELS
    assert encoder.notes == []


def test_identifiers_are_refused(frame):
    with pytest.raises(ValueError, match=r"'name' holds text that hardly repeats .*identifier.*encode it yourself"):
        TableEncoder.fit(frame({"name": [f"person {i}" for i in range(60)]}))
    with pytest.raises(ValueError, match=r"'x' reads as numbers, except '\?': correct"):
        TableEncoder.fit(frame({"x": [*map(str, range(60)), "?"]}))
    assert len(encoded(frame({"name": [f"person {i}" for i in range(50)]}))[0].encoded_names) == MAX_LEVELS


def test_intervals_enums_and_dictionaries_are_categories():
    cut = pd.DataFrame({"c": pd.cut([1, 5, 9], [0, 3, 6, 10])})
    assert encoded(cut)[0].encoded_names == ["c=(0, 3]", "c=(3, 6]", "c=(6, 10]"]
    enum = pl.DataFrame({"c": pl.Series(["b", "a", "b"], dtype=pl.Enum(["b", "a", "unused"]))})
    assert column(enum, "c=b") == [1, 0, 1]
    coded = pa.table({"c": pa.array(["x", None, "z", "y"]).dictionary_encode()})
    encoder, X = encoded(coded, missing="impute")
    assert encoder.encoded_names == ["c=missing", "c=x", "c=y", "c=z"]
    assert X.argmax(1).tolist() == [1, 0, 3, 2]


def test_a_date_becomes_trend_and_the_calendars_it_can_tell(frame):
    days = [dt.date(2020, 1, 1) + dt.timedelta(days=i) for i in range(700)]
    encoder, X = encoded(frame({"when": days}))
    assert encoder.encoded_names == ["when (trend)", "when (day of week)", "when (day of year)"]
    assert encoder.kinds == {1: ("periodic", 7.0), 2: ("periodic", 365.25)}
    assert X[:, 0].tolist() == list(range(700))
    assert X[:, 1].tolist() == [day.weekday() for day in days]
    gap = np.abs(np.diff(X[:, 2]))
    assert np.minimum(gap, 365.25 - gap) == pytest.approx(1)  # continuous over New Year
    assert "2020-01-01" in encoder.notes[0]
    assert "no yearly period" not in encoder.notes[0]
    assert "no yearly period" in encoded(frame({"when": days[:500]}))[0].notes[0]


def test_times_of_day(frame):
    times = [dt.datetime(2021, 3, 1, 6) + dt.timedelta(hours=7 * i) for i in range(20)]
    encoder, X = encoded(frame({"when": times}))
    assert encoder.encoded_names == ["when (trend)", "when (time of day)"]
    assert X[:, 0] == pytest.approx([0.25 + 7 * i / 24 for i in range(20)])
    assert X[:, 1].tolist() == [time.hour for time in times]
    longer = [times[0] + dt.timedelta(hours=7 * i) for i in range(60)]
    encoder, X = encoded(frame({"when": longer}))
    assert X[:, 2] == pytest.approx([time.weekday() + time.hour / 24 for time in longer])


def test_calendars_that_the_dates_cannot_tell_are_left_out(frame):
    weekly = [dt.date(2020, 1, 6) + dt.timedelta(days=7 * i) for i in range(8)]
    yearly = [dt.date(1990 + i, 12, 31) for i in range(30)]
    assert encoded(frame({"w": weekly}))[0].encoded_names == ["w (trend)"]
    assert encoded(frame({"y": yearly}))[0].encoded_names == ["y (trend)", "y (day of week)"]
    one_day = [dt.datetime(2020, 1, 6, hour) for hour in range(24)]
    assert encoded(frame({"h": one_day}))[0].encoded_names == ["h (trend)"]


def test_durations_in_days_and_times_of_day_in_hours(frame):
    data = {
        "for": [dt.timedelta(hours=6), dt.timedelta(days=-2)],
        "at": [dt.time(6, 30), dt.time(23, 0, 36)],
        "text": ["06:30", "23:00:36"],
    }
    encoder, X = encoded(frame(data))
    assert encoder.encoded_names == ["for", "at (time of day)", "text (time of day)"]
    assert X.ravel() == pytest.approx([0.25, 6.5, 6.5, -2, 23.01, 23.01])
    assert encoder.kinds == {1: ("periodic", 24.0), 2: ("periodic", 24.0)}
