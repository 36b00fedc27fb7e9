"""Preprocessing as a value: fitted without an estimator of ours, used on new rows, saved and read."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.base import BaseEstimator

from harmonicgp.tables.preprocessing import (
    ClassificationPreprocessing,
    ColumnEncoding,
    RegressionPreprocessing,
    image_size,
)


def frame(n=12):
    pd = pytest.importorskip("pandas")
    i = np.arange(n)
    return pd.DataFrame({"a": i / 3.0, "colour": np.array(["red", "blue", "green"])[i % 3], "hour": i % 24.0})


def test_columns_of_a_table():
    validator = BaseEstimator()
    encoding, rows = ColumnEncoding.fit(frame(), validator, {"hour": ("periodic", 24)})
    assert encoding.names == ["a", "colour=blue", "colour=green", "colour=red", "hour"]
    assert rows.shape == (12, 5)
    assert encoding.kinds == {4: ("periodic", 24.0)}
    assert encoding.level_names() == ["colour"]
    assert encoding.unused_names([0, 2]) == ["hour"]
    assert validator.feature_names_in_.tolist() == ["a", "colour", "hour"]
    np.testing.assert_array_equal(encoding.encode(frame(), validator), rows)
    with pytest.raises(ValueError, match="text, dates or gaps"):
        encoding.encode(rows, validator)


def test_columns_of_an_array():
    validator, X = BaseEstimator(), np.arange(12.0).reshape(6, 2)
    encoding, rows = ColumnEncoding.fit(X, validator, {1: ("periodic", 5.0)})
    assert (encoding.encoder, encoding.names, encoding.kinds) == (
        None,
        ["column 0", "column 1"],
        {1: ("periodic", 5.0)},
    )
    np.testing.assert_array_equal(rows, X)
    assert encoding.level_names() == encoding.unused_names([]) == encoding.notes == encoding.warnings == []
    with pytest.raises(ValueError, match="expecting 2 features"):
        encoding.encode(X[:, :1], validator)
    with pytest.raises(ValueError, match=r"^column 1 is declared a latitude, but reaches"):
        ColumnEncoding.fit(100 * X, BaseEstimator(), {0: "longitude", 1: "latitude"})
    with pytest.raises(ValueError, match="2 x 2 need 4 columns"):
        ColumnEncoding.fit(X, BaseEstimator(), ("image", (2, 2)))


def test_an_encoding_is_read_as_it_was_saved():
    encoding, rows = ColumnEncoding.fit(frame(), BaseEstimator(), {"hour": ("periodic", 24)})
    again = ColumnEncoding.from_state(json.loads(json.dumps(encoding.state())), None)
    assert again == encoding
    validator = BaseEstimator()
    ColumnEncoding.fit(frame(), validator)
    np.testing.assert_array_equal(again.encode(frame(), validator), rows)


def test_regression_to_model_rows_and_back():
    X, y = np.repeat(np.arange(4.0), 2)[:, None], np.repeat([1.0, 3.0, 5.0, 7.0], 2)
    errors = np.full(8, 0.5)
    preprocessing, rows = RegressionPreprocessing.fit(X, y, BaseEstimator(), noise_std=errors)
    assert len(rows.X) == 4  # equal rows are one
    assert rows.counts.tolist() == [2.0] * 4
    data = preprocessing.model_rows(rows)
    assert data.target.shape == (1, 4)
    assert abs(data.target.mean()) < 1e-12
    np.testing.assert_allclose(data.noise, (0.5 / preprocessing.target.scale[0]) ** 2)
    np.testing.assert_allclose(preprocessing.target.inverse(data.target)[0], rows.y[:, 0])
    np.testing.assert_allclose(preprocessing.noise_variances([0.5]), data.noise[0])
    assert (preprocessing.flat, preprocessing.target_names, preprocessing.noise_name) == (True, ["y"], "noise_std")
    assert preprocessing.shape(np.zeros((3, 1))).shape == (3,)
    with pytest.raises(ValueError, match="must have 1 targets"):
        preprocessing.targets(np.zeros((3, 2)))
    part = data.part(np.array([0, 2]))
    assert (len(part), part.target.shape, part.noise.shape, part.counts.tolist()) == (2, (1, 2), (2,), [2.0, 2.0])


def test_new_rows_of_a_regression():
    X, y, validator = np.arange(8.0)[:, None], np.arange(8.0) + 1, BaseEstimator()
    preprocessing, _ = RegressionPreprocessing.fit(X, y, validator, transform="log")
    same, rows = preprocessing.read(X, y, validator, (), np.arange(8) % 2, None)
    assert same is preprocessing
    assert len(rows.X) == 4  # those of weight zero are not there
    _, bad = preprocessing.read(X, -y, validator, (), None, None)
    with pytest.raises(ValueError, match="outside the domain of target_transform='log'"):
        preprocessing.model_rows(bad)
    with pytest.raises(ValueError, match="one target"):
        RegressionPreprocessing.fit(X, np.column_stack((y, y)), BaseEstimator(), noise_std=y)


def test_classes():
    X, y, validator = np.arange(8.0)[:, None], np.array(["b", "a"] * 4), BaseEstimator()
    preprocessing, rows = ClassificationPreprocessing.fit(X, y, validator)
    assert preprocessing.classes.tolist() == ["a", "b"]
    assert preprocessing.flat
    data = preprocessing.model_rows(rows)
    assert {(float(x), float(t)) for x, t in zip(data.X[:, 0], data.target[0], strict=True)} == {
        (float(i), 1.0 - i % 2) for i in range(8)
    }
    with pytest.raises(ValueError, match=r"not in the fit: \['c'\]"):
        preprocessing.read(X, np.array(["c"] * 8), validator, (), None)
    with pytest.raises(ValueError, match="one class"):
        ClassificationPreprocessing.fit(X, np.zeros(8), BaseEstimator())


def test_image_sizes():
    assert image_size(("image", [2, 3])) == (2, 3)
    assert image_size(None) is image_size({"a": "longitude"}) is None


def test_undeclared_places_have_a_note():
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"lat": [1.0, 2.0, 5.0], "lon": [1.0, 3.0, 2.0]})
    notes = ColumnEncoding.fit(table, BaseEstimator())[0].notes
    assert any("look like longitude and latitude" in note for note in notes)
    assert not ColumnEncoding.fit(table, BaseEstimator(), {"lon": "longitude", "lat": "latitude"})[0].notes
