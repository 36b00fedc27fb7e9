"""Frames to numbers: the same from pandas, polars and Arrow, and a clear error for what cannot work."""

from __future__ import annotations

import datetime as dt
import json

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harmonicgp.tables import (
    TableEncoder,
    columns,
    is_frame,
)
from tests.tables.common import encoded, warned


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


def test_numbers_pass_through(frame):
    data = {"i": [1, -2, 3], "f": [0.1, 2.0, 3e300], "b": [True, False, True], "big": [2**60 + 1, 2, 3]}
    encoder, X = encoded(frame(data))
    assert encoder.encoded_names == encoder.names == ["i", "f", "b", "big"]
    assert (X == np.array([data[name] for name in data], float).T).all()
    assert encoder.kinds == {}
    assert encoder.notes == []


def test_numbers_as_categories_stay_categories():
    names = ["a=1", "a=2", "a=3"]
    arrow = pa.table({"a": pa.array(["1", "2", "3"]).dictionary_encode()})
    for table in (pd.DataFrame({"a": pd.Categorical([1, 2, 3])}), arrow, pl.from_arrow(arrow)):
        encoder, X = encoded(table)
        assert encoder.encoded_names == names
        assert X.tolist() == np.eye(3).tolist()
    assert (encoder.transform(pd.DataFrame({"a": [1, 2, 3]})) == np.eye(3)).all()  # a file with digits only
    with pytest.raises(ValueError, match="'a' held text in the fit, but holds numbers"):
        encoder.transform(pd.DataFrame({"a": [1.5, 2, 3]}))


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


def test_kinds_need_numbers(frame):
    with pytest.raises(ValueError, match=r"'a' is declared .*periodic.*, but holds text"):
        TableEncoder.fit(frame({"a": ["x", "y", "z"]}), columns={"a": ("periodic", 3)})
    with pytest.raises(ValueError, match="'a' is declared 'longitude', but holds dates"):
        TableEncoder.fit(frame({"a": [dt.date(2020, 1, 1)], "b": [1.0]}), columns={"a": "longitude", "b": "latitude"})


def test_unseen_levels_are_told_of_once_for_each_column(frame, monkeypatch):
    seen = {"c": ["red", "blue", "green", "red"], "d": ["no", "yes", "no", "yes"], "e": ["other", "a", "a", "a"]}
    encoder = TableEncoder.fit(frame(seen))
    assert warned(encoder, frame(seen)) == []
    table = frame({"c": ["violet", "mauve", "puce", "pink", "violet"], "d": ["perhaps"] * 5, "e": ["b"] + ["a"] * 4})
    expected = [
        "column 'c' holds levels that were not in the fit ('violet', 'mauve', 'puce', ...) in 5 rows: "
        "they count as none of the levels of the fit, and error bars do not include this.",
        "column 'd' holds levels that were not in the fit ('perhaps') in 5 rows: they count as 'no', and error bars do not "
        "include this.",
        "column 'e' holds levels that were not in the fit ('b') in 1 row: they count as 'other', and error bars do not "
        "include this.",
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
    assert len([note for note in encoder.notes if "has 1 missing" in note]) == 3


def test_values_missing_only_later_are_imputed_too(frame):
    encoder = TableEncoder.fit(
        frame({"a": [1.0, 2.0, 30.0], "b": ["x", "y", "y"], "d": [dt.date(2020, 1, i) for i in (1, 2, 9)]}),
        missing="impute",
    )
    assert encoder.encoded_names == ["a", "b=y", "d (trend)"]
    table = {"a": [None, 5.0], "b": [None, "x"], "d": [None, dt.date(2020, 1, 3)]}
    assert encoder.transform(frame(table), warn=False).tolist() == [[2, 1, 1], [5, 0, 2]]
    assert encoder.transform(pa.table({name: pa.nulls(1) for name in "abd"}), warn=False).tolist() == [[2, 1, 1]]
    end = "and error bars do not include this."
    assert warned(encoder, frame(table)) == [
        f"'a' has missing values in 1 row, and had none in the fit: they are replaced by the median, {end}",
        f"'b' has missing values in 1 row, and had none in the fit: they are replaced by the most frequent level 'y', {end}",
        f"'d' has missing values in 1 row, and had none in the fit: they are replaced by the median, {end}",
    ]
    gaps = {"a": [None, None, 5.0], "b": ["x"] * 3, "d": [dt.date(2020, 1, 3)] * 3}
    assert warned(encoder, frame(gaps)) == [
        f"'a' has missing values in 2 rows, and had none in the fit: they are replaced by the median, {end}"
    ]
    marked = TableEncoder.fit(frame({"a": [1.0, None, 30.0], "b": ["x", None, "y"]}), missing="impute")
    assert warned(marked, frame({"a": [None, 5.0], "b": [None, "x"]})) == []


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
    with pytest.raises(ValueError, match="no column has any values"):
        TableEncoder.fit(table[["e"]], missing="impute")


def test_an_unknown_policy_is_refused():
    with pytest.raises(ValueError, match="'refuse' or 'impute'"):
        TableEncoder.fit(pd.DataFrame({"a": [1]}), missing="drop")


def test_columns_are_found_by_name(frame):
    encoder = TableEncoder.fit(frame({"a": [1, 2, 3], "b": ["x", "y", "z"]}))
    table = frame({"more": [[1]], "b": ["y"], "a": [7]})
    assert encoder.transform(table).tolist() == [[7, 0, 1, 0]]
    with pytest.raises(ValueError, match="lacks columns of the fit: 'a', 'b'; it has 'c'"):
        encoder.transform(frame({"c": [1]}))
    with pytest.raises(ValueError, match="'b' held text in the fit, but holds dates now"):
        encoder.transform(frame({"a": [1], "b": [dt.date(2020, 1, 1)]}))
    with pytest.raises(ValueError, match="'a' held numbers in the fit, but holds dates now"):
        encoder.transform(frame({"a": [dt.date(2020, 1, 1)], "b": ["x"]}))


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
        with pytest.raises(ValueError, match="not the state of a TableEncoder"):
            TableEncoder.from_state(rubbish)
