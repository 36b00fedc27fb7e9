"""Targets, weights and errors as users give them, as arrays."""

from __future__ import annotations

from datetime import date

import numpy as np
import pytest

from harmonicgp.tables.arrays import is_missing, known_errors, numbers, plain_array, target_names, weights_of

pandas = pytest.importorskip("pandas", reason="pandas is not installed")
pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")

VALUES = [1.5, -2.0, 0.25]
FORMS = {
    "list": VALUES,
    "array": np.array(VALUES),
    "objects": np.array(VALUES, dtype=object),
    "words": ["1.5", "-2", "0.25"],
    "series": pandas.Series(VALUES, index=[7, 8, 9]),
    "arrow": pyarrow.array(VALUES),
    "chunks": pyarrow.chunked_array([VALUES[:1], VALUES[1:]]),
}


@pytest.mark.parametrize("form", FORMS)
def test_numbers_of_any_library(form):
    found = numbers(FORMS[form])
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, VALUES)


def test_frames_become_matrices_and_keep_their_names():
    columns = {"a": VALUES, "b": VALUES[::-1]}
    expected = np.column_stack(list(columns.values()))
    for frame in (pandas.DataFrame(columns), pyarrow.table(columns)):
        np.testing.assert_array_equal(plain_array(frame), expected)
        assert target_names(frame) == ["a", "b"]
    assert target_names(pandas.Series(VALUES, name="height")) == ["height"]
    assert target_names(pandas.Series(VALUES)) == target_names(expected) == []


@pytest.mark.parametrize(
    ("y", "words"),
    [
        ([1.0, None], "missing values, first in row 1"),
        (pandas.Series([pandas.NA, 1], dtype=object), "missing values, first in row 0"),
        (np.array([[1.0, 2.0], [3.0, np.nan]], dtype=object), "missing values, first in row 1"),
        (np.array(["2020-01-01"], "M8[D]"), "y holds dates"),
        ([date(2020, 1, 1), date(2020, 1, 2)], "y holds dates"),
        (["1", "a cat"], "'a cat' in row 1, which is not a number: for classes use HarmonicGPClassifier"),
    ],
)
def test_what_is_no_number_is_refused_with_a_way_out(y, words):
    with pytest.raises(ValueError, match=words):
        numbers(y)


def test_missing_values_of_every_kind():
    for value in (None, float("nan"), np.float32("nan"), pandas.NA, pandas.NaT):
        assert is_missing(value)
    for value in (0, "", "nan", False, np.inf):
        assert not is_missing(value)


def test_weights_are_one_a_row_and_some_positive():
    X = np.zeros((3, 2))
    assert weights_of(None, X) is None
    np.testing.assert_array_equal(weights_of(pandas.Series([0, 1, 2]), pyarrow.table({"a": VALUES})), [0.0, 1.0, 2.0])
    for weights, words in (
        ([0.0, 0.0, 0.0], "weight zero|non-zero"),
        ([1.0, -1.0, 1.0], "[Nn]egative"),
        ([1.0, 1.0], "shape"),
    ):
        with pytest.raises(ValueError, match=words):
            weights_of(weights, X)


def test_known_errors_are_one_a_row_and_none_negative():
    np.testing.assert_array_equal(known_errors(pandas.DataFrame({"e": VALUES}).abs(), 3), np.abs(VALUES))
    for errors in (VALUES, [1.0, 2.0], [1.0, np.nan, 1.0], [1.0, np.inf, 1.0]):
        with pytest.raises(ValueError, match="noise_std must be 3 finite numbers"):
            known_errors(errors, 3)
