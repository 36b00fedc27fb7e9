"""Frames to numbers: the same from pandas, polars and Arrow, and a clear error for what cannot work."""

from __future__ import annotations

import datetime as dt
import json
import pickle
import warnings
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harmonicgp.tables import (
    IdentifierColumnError,
    MissingValuesError,
    TableEncoder,
    UnseenGapsWarning,
    UnseenLevelsWarning,
    check_kinds,
    columns,
    encodings,
    is_frame,
)
from harmonicgp.tables.encodings import MAX_LEVELS

LIBRARIES = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}


@pytest.fixture(params=LIBRARIES)
def frame(request):
    """How each library makes a table of a dict."""
    return LIBRARIES[request.param]


def encoded(table, **options):
    encoder = TableEncoder.fit(table, **options)
    X = encoder.transform(table)
    assert X.dtype == np.float64
    assert X.shape == (len(table), len(encoder.encoded_names))
    assert np.isfinite(X).all()
    return encoder, X


def column(table, name, **options):
    encoder, X = encoded(table, **options)
    return X[:, encoder.encoded_names.index(name)].tolist()


# What is a frame


def test_frames_are_known_and_other_things_are_not(frame):
    assert is_frame(frame({"a": [1]}))
    for other in (np.ones((2, 2)), [[1.0]], {"a": [1]}, pd.Series([1]), None, pa.array([1])):
        assert not is_frame(other)
        with pytest.raises(TypeError, match="pandas, polars or Arrow"):
            TableEncoder.fit(other)


def test_a_lazy_frame_is_told_to_collect():
    with pytest.raises(ValueError, match=r"\.collect\(\)"):
        is_frame(pl.LazyFrame({"a": [1]}))


def test_names_and_emptiness():
    with pytest.raises(ValueError, match="empty: 0 rows"):
        TableEncoder.fit(pl.DataFrame({"a": []}))
    with pytest.raises(ValueError, match="0 columns"):
        TableEncoder.fit(pd.DataFrame(index=[0, 1]))
    with pytest.raises(ValueError, match="same name: 'a'"):
        TableEncoder.fit(pd.DataFrame([[1, 2]], columns=["a", "a"]))
    with pytest.raises(ValueError, match="same name: 'a'"):
        TableEncoder.fit(pa.table([[1], [2]], names=["a", "a"]))
    with pytest.raises(ValueError, match=r"astype\(str\)"):
        TableEncoder.fit(pd.DataFrame(np.ones((2, 2))))


# Numbers


def test_numbers_pass_through(frame):
    data = {"i": [1, -2, 3], "f": [0.1, 2.0, 3e300], "b": [True, False, True], "big": [2**60 + 1, 2, 3]}
    encoder, X = encoded(frame(data))
    assert encoder.encoded_names == encoder.names == ["i", "f", "b", "big"]
    assert (X == np.array([data[name] for name in data], float).T).all()
    assert encoder.kinds == {}
    assert encoder.notes == []


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
    assert encoder.notes == ["'a' holds numbers written as text, and is read as numbers."]
    assert encoder.transform(frame({"a": [4, 5]})).tolist() == [[4.0], [5.0]]
    with pytest.raises(ValueError, match=r"'a' held numbers in the fit; 'x' is none"):
        encoder.transform(frame({"a": ["1", "x"]}))


def test_numbers_as_categories_stay_categories():
    names = ["a=1", "a=2", "a=3"]
    arrow = pa.table({"a": pa.array(["1", "2", "3"]).dictionary_encode()})
    for table in (pd.DataFrame({"a": pd.Categorical([1, 2, 3])}), arrow, pl.from_arrow(arrow)):
        encoder, X = encoded(table)
        assert encoder.encoded_names == names
        assert X.tolist() == np.eye(3).tolist()
    assert (encoder.transform(pd.DataFrame({"a": [1, 2, 3]})) == np.eye(3)).all()  # a file with digits only
    with pytest.raises(ValueError, match="'a' held text in the fit and holds numbers"):
        encoder.transform(pd.DataFrame({"a": [1.5, 2, 3]}))


# Kinds


def test_kinds_stay_one_column_and_are_carried(frame):
    table = frame({"lat": [1.0, 2.0], "t": ["a", "b"], "lon": [3.0, 4.0], "hour": [5, 6]})
    encoder, X = encoded(table, columns={"lon": "longitude", 0: "latitude", -1: ("periodic", 24)})
    assert encoder.encoded_names == ["lat", "t=b", "lon", "hour"]
    assert encoder.kinds == {0: "latitude", 2: "longitude", 3: ("periodic", 24.0)}
    assert X[:, 3].tolist() == [5.0, 6.0]


def test_a_date_with_a_period_stays_one_column(frame):
    days = [dt.date(2020, 1, 1) + dt.timedelta(days=50 * i) for i in range(30)]
    encoder, X = encoded(frame({"when": days}), columns={"when": ["periodic", 30]})
    assert encoder.encoded_names == ["when"]
    assert encoder.kinds == {0: ("periodic", 30.0)}
    assert X[:, 0].tolist() == [50.0 * i for i in range(30)]


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
        ({"a": "latitude"}, "latitude and no longitude"),
        ({"a": "longitude"}, "longitude and no latitude.*360"),
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


def test_kinds_need_numbers(frame):
    with pytest.raises(ValueError, match=r"'a' is declared as .*periodic.* and holds text"):
        TableEncoder.fit(frame({"a": ["x", "y", "z"]}), columns={"a": ("periodic", 3)})
    with pytest.raises(ValueError, match="'a' is declared as 'longitude' and holds dates"):
        TableEncoder.fit(frame({"a": [dt.date(2020, 1, 1)], "b": [1.0]}), columns={"a": "longitude", "b": "latitude"})


# Levels


def test_levels_are_sorted_columns_of_zeros_and_ones(frame):
    encoder, X = encoded(frame({"c": ["red", "blue", "green", "red"]}))
    assert encoder.encoded_names == ["c=blue", "c=green", "c=red"]
    assert X.tolist() == [[0, 0, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1]]
    with pytest.warns(UnseenLevelsWarning, match=r"'c' .* \('violet'\) in 1 row: .* none of the known levels"):
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


def warned(encoder, table):
    """The warnings of unseen levels and gaps, in words."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        encoder.transform(table)
    assert all(issubclass(each.category, (UnseenLevelsWarning, UnseenGapsWarning)) for each in caught)
    return [str(each.message) for each in caught]


def test_unseen_levels_are_told_of_once_for_each_column(frame, monkeypatch):
    seen = {"c": ["red", "blue", "green", "red"], "d": ["no", "yes", "no", "yes"], "e": ["other", "a", "a", "a"]}
    encoder = TableEncoder.fit(frame(seen))
    assert warned(encoder, frame(seen)) == []
    table = frame({"c": ["violet", "mauve", "puce", "pink", "violet"], "d": ["perhaps"] * 5, "e": ["b"] + ["a"] * 4})
    expected = [
        "column 'c' holds levels that the fit has not seen ('violet', 'mauve', 'puce', ...) in 5 rows: "
        "they count as none of the known levels, and error bars do not know of it.",
        "column 'd' holds levels that the fit has not seen ('perhaps') in 5 rows: they count as 'no', and error bars do not "
        "know of it.",
        "column 'e' holds levels that the fit has not seen ('b') in 1 row: they count as 'other', and error bars do not "
        "know of it.",
    ]
    assert warned(encoder, table) == expected
    assert encoder.transform(table, warn=False)[:, 3].tolist() == [0.0] * 5  # as a "no"
    monkeypatch.setattr(columns, "CHUNK", 2)
    assert warned(encoder, table) == expected  # chunks are summed
    assert warned(TableEncoder.from_state(json.loads(json.dumps(encoder.state()))), table) == expected


def test_rare_levels_are_not_unseen():
    table = pa.table({"c": [f"l{i}" for i in range(30) for _ in range(2)]})
    encoder = TableEncoder.fit(table)
    assert warned(encoder, table) == []
    state = encoder.state()
    del state["columns"][0]["rare"], state["warnings"]  # as older files have it: what shares a column is not known
    older = TableEncoder.from_state(state)
    assert warned(older, pa.table({"c": ["new", "l1"]})) == []
    assert len(warned(encoder, pa.table({"c": ["new", "l1"]}))) == 1


def test_warnings_of_two_parts_make_one():
    parts = [UnseenLevelsWarning("c", levels, 2, "'other'") for levels in (["a", "b"], ["b", "c", "d", "e"])]
    assert "('a', 'b', 'c', ...) in 4 rows" in str(parts[0] + parts[1])
    assert "('a', 'b') in 4 rows" in str(parts[0] + parts[0])


def test_errors_and_warnings_have_fields_and_can_be_sent_to_another_process():
    missing = MissingValuesError({f"c{k}": k + 1 for k in range(12)})
    identifier = IdentifierColumnError("who", 80, 81.0)
    levels, gaps = UnseenLevelsWarning("c", ["a", "b", "c", "d"], 5, "'other'"), UnseenGapsWarning("c", 1, "the median")
    assert str(missing).endswith("'c9' (10 rows) and 2 more columns: drop those rows, or fit with missing=\"impute\".")
    for notice in (missing, identifier, levels, gaps):
        again = pickle.loads(pickle.dumps(notice))
        assert type(again) is type(notice)
        assert str(again) == str(notice)
        assert vars(again) == vars(notice)


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
    with pytest.raises(ValueError, match=r"'x' reads as numbers, but for '\?': mend"):
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


# Dates


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
    assert "no period of a year" not in encoder.notes[0]
    assert "no period of a year" in encoded(frame({"when": days[:500]}))[0].notes[0]


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
    assert "written as text" in encoder.notes[0]
    assert encoder.transform(frame({"when": [dt.datetime(2020, 1, 3)]}))[0, 0] == 2.0
    with pytest.raises(ValueError, match="'2020-02-30' is none"):
        encoder.transform(frame({"when": ["2020-02-30"]}))
    zoned, X = encoded(frame({"when": ["2020-01-01T01:00:00+02:00", "2020-01-01T00:30:00Z"]}))
    assert X[:, 0] * 24 == pytest.approx([23, 24.5])
    with pytest.raises(ValueError, match="'when' has dates without a time zone"):
        zoned.transform(frame({"when": ["2020-01-01"]}))
    with pytest.raises(ValueError, match="'when' has dates with a time zone and dates without"):
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


# Missing values


def test_missing_values_are_refused_by_name(frame):
    table = frame(
        {"a": [1.0, None, None], "b": ["x", None, "y"], "c": [1, 2, 3], "d": [None, None, dt.date(2020, 1, 1)]}
    )
    with pytest.raises(ValueError, match=r"'a' \(2 rows\), 'b' \(1 row\), 'd' \(2 rows\): drop.*missing=\"impute\""):
        TableEncoder.fit(table)
    encoder = TableEncoder.fit(frame({"a": [1.0, 2.0], "b": ["x", "y"]}))
    with pytest.raises(ValueError, match=r"'a' \(1 row\), 'b' \(1 row\)"):
        encoder.transform(frame({"a": [1.0, None], "b": [None, "x"]}))


def test_missing_values_are_imputed_and_marked(frame):
    days = [dt.date(2020, 1, 1), dt.date(2020, 1, 5), None, dt.date(2020, 1, 3)]
    table = frame({"a": [5.0, None, 1.0, 2.0], "b": ["x", None, "y", "x"], "c": [4, 3, 2, 1], "d": days})
    encoder, X = encoded(table, missing="impute")
    assert encoder.encoded_names == ["a", "a missing", "b=missing", "b=x", "b=y", "c", "d (trend)", "d missing"]
    assert X[:, 0].tolist() == [5, 2, 1, 2]
    assert X[:, 1].tolist() == X[:, 2].tolist() == [0, 1, 0, 0]
    assert X[:, 6].tolist() == [0, 4, 2, 2]
    assert X[:, 7].tolist() == [0, 0, 1, 0]
    assert len([note for note in encoder.notes if "lacks 1" in note]) == 3


def test_values_missing_only_later_are_imputed_too(frame):
    encoder = TableEncoder.fit(
        frame({"a": [1.0, 2.0, 30.0], "b": ["x", "y", "y"], "d": [dt.date(2020, 1, i) for i in (1, 2, 9)]}),
        missing="impute",
    )
    assert encoder.encoded_names == ["a", "b=y", "d (trend)"]
    table = {"a": [None, 5.0], "b": [None, "x"], "d": [None, dt.date(2020, 1, 3)]}
    assert encoder.transform(frame(table), warn=False).tolist() == [[2, 1, 1], [5, 0, 2]]
    assert encoder.transform(pa.table({name: pa.nulls(1) for name in "abd"}), warn=False).tolist() == [[2, 1, 1]]
    end = "and error bars do not know of it."
    assert warned(encoder, frame(table)) == [
        f"'a' lacks a value in 1 row and lacked none in the fit: it is filled with the median, {end}",
        f"'b' lacks a value in 1 row and lacked none in the fit: it is filled with the most frequent level 'y', {end}",
        f"'d' lacks a value in 1 row and lacked none in the fit: it is filled with the median, {end}",
    ]
    gaps = {"a": [None, None, 5.0], "b": ["x"] * 3, "d": [dt.date(2020, 1, 3)] * 3}
    assert warned(encoder, frame(gaps)) == [
        f"'a' lacks values in 2 rows and lacked none in the fit: they are filled with the median, {end}"
    ]
    marked = TableEncoder.fit(frame({"a": [1.0, None, 30.0], "b": ["x", None, "y"]}), missing="impute")
    assert warned(marked, frame({"a": [None, 5.0], "b": [None, "x"]})) == []


def test_nan_blank_text_and_null_are_all_missing(frame):
    encoder, X = encoded(frame({"a": [1.0, float("nan")], "b": ["x", " "]}), missing="impute")
    assert encoder.encoded_names == ["a", "a missing", "b=x"]
    assert X.tolist() == [[1, 0, 1], [1, 1, 0]]


@pytest.mark.parametrize(
    "empty", [[None, None], [float("nan")] * 2, ["", " "], pd.Series([pd.NaT] * 2), pa.nulls(2).cast(pa.string())]
)
def test_a_column_without_values(empty):
    table = pd.DataFrame({"a": [1.0, 2.0], "e": pd.Series(empty)})
    with pytest.raises(ValueError, match="'e' has no values"):
        TableEncoder.fit(table)
    encoder, X = encoded(table, missing="impute")
    assert encoder.names == ["a", "e"]
    assert encoder.encoded_names == ["a"]
    assert (encoder.notes, encoder.warnings) == ([], ["'e' has no values at all and is left out."])
    assert encoder.transform(table[["a"]]).tolist() == X.tolist()
    with pytest.raises(ValueError, match="none of the columns"):
        TableEncoder.fit(table[["e"]], missing="impute")


def test_an_unknown_policy_is_refused():
    with pytest.raises(ValueError, match="'refuse' or 'impute'"):
        TableEncoder.fit(pd.DataFrame({"a": [1]}), missing="drop")


# Tables of another shape


def test_columns_are_found_by_name(frame):
    encoder = TableEncoder.fit(frame({"a": [1, 2, 3], "b": ["x", "y", "z"]}))
    table = frame({"more": [[1]], "b": ["y"], "a": [7]})
    assert encoder.transform(table).tolist() == [[7, 0, 1, 0]]
    with pytest.raises(ValueError, match="lacks columns of the fit: 'a', 'b'; it has 'c'"):
        encoder.transform(frame({"c": [1]}))
    with pytest.raises(ValueError, match="'b' held text in the fit and holds dates now"):
        encoder.transform(frame({"a": [1], "b": [dt.date(2020, 1, 1)]}))
    with pytest.raises(ValueError, match="'a' held numbers in the fit and holds dates now"):
        encoder.transform(frame({"a": [dt.date(2020, 1, 1)], "b": ["x"]}))


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
    with pytest.raises(ValueError, match=r"'odd' mixes texts \('a'\) and numbers \(1.5\)"):
        TableEncoder.fit(table)
    monkeypatch.setattr(columns, "CHUNK", 1)
    with pytest.raises(ValueError, match="'odd' mixes text and numbers"):
        TableEncoder.fit(table)


# Properties

INSTANTS = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1))
COLUMNS = [
    st.integers(-(2**62), 2**62),
    st.floats(width=64),
    st.booleans(),
    st.sampled_from(["red", "blue", "green", "other", "missing", "", "1", "2020-01-01"]),
    st.sampled_from(["1", "-2.5", "1e3"]),
    st.sampled_from(["2020-01-01", "1999-12-31T23:59", "2024-02-29 01:02:03.5"]),
    INSTANTS,
    INSTANTS.map(dt.datetime.date),
    st.timedeltas(dt.timedelta(days=-9999), dt.timedelta(days=9999)),
    st.times(),
]


@st.composite
def mixed_tables(draw):
    """A dict of columns of one type each, with gaps."""
    n = draw(st.integers(1, 8))
    gaps = draw(st.booleans())
    names = draw(st.lists(st.sampled_from(["a", "b", "c d", "é", "=,"]), min_size=1, max_size=4, unique=True))
    return {
        name: draw(st.lists(values | st.none() if gaps else values, min_size=n, max_size=n))
        for name in names
        for values in [draw(st.sampled_from(COLUMNS))]
    }


@given(mixed_tables(), st.sampled_from(["refuse", "impute"]))
def test_all_libraries_agree_on_finite_numbers_or_on_a_named_column(data, missing):
    arrow = pa.table(data)
    outcomes = []
    for table in (arrow, pl.from_arrow(arrow), arrow.to_pandas(), arrow.to_pandas(types_mapper=pd.ArrowDtype)):
        try:
            encoder, X = encoded(table, missing=missing)
            outcomes.append((encoder, X.tolist()))
        except ValueError as error:
            outcomes.append((str(error),))
    if len(outcomes[0]) == 1:
        assert any(repr(name) in outcomes[0][0] for name in data)
    assert all(outcome == outcomes[0] for outcome in outcomes[1:])


@given(mixed_tables(), st.sampled_from(["refuse", "impute"]))
def test_the_state_makes_an_equal_encoder(data, missing):
    table = pa.table(data)
    try:
        encoder, X = encoded(table, missing=missing)
    except ValueError:
        return
    text = json.dumps(encoder.state(), allow_nan=False)
    again = TableEncoder.from_state(json.loads(text))
    assert again == encoder
    assert json.dumps(again.state()) == text
    assert (again.encoded_names, again.kinds) == (encoder.encoded_names, encoder.kinds)
    assert again.transform(table).tobytes() == X.tobytes()


@given(mixed_tables())
def test_chunks_and_new_rows_change_nothing(data):
    table = pa.table(data)
    try:
        encoder, X = encoded(table, missing="impute")
    except ValueError:
        return
    assert np.concatenate([encoder.transform(table.slice(i, 1)) for i in range(len(table))]).tolist() == X.tolist()
    before, columns.CHUNK = columns.CHUNK, 3
    try:
        again, Y = encoded(table, missing="impute")
    finally:
        columns.CHUNK = before
    assert again == encoder
    assert Y.tolist() == X.tolist()


def test_the_state_keeps_kinds_and_refuses_rubbish():
    table = pd.DataFrame({"lat": [0.1, 0.2], "lon": [1 / 3, 2.0], "h": [1e-300, 0.1]})
    encoder = TableEncoder.fit(
        table, columns={"lat": "latitude", "lon": "longitude", "h": ("periodic", 0.1)}, missing="impute"
    )
    again = TableEncoder.from_state(json.loads(json.dumps(encoder.state())))
    assert again == encoder
    assert again.kinds == {0: "latitude", 1: "longitude", 2: ("periodic", 0.1)}
    for rubbish in ({}, {"columns": [{"type": "none"}]}, {"columns": [{"type": "numbers", "x": 1}]}, {"columns": [1]}):
        with pytest.raises(ValueError, match="no state of a TableEncoder"):
            TableEncoder.from_state(rubbish)
