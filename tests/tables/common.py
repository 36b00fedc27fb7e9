"""What the tests of tables share."""

from __future__ import annotations

import datetime as dt
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

from harmonicgp.tables import (
    TableEncoder,
    UnseenGapsWarning,
    UnseenLevelsWarning,
)

LIBRARIES = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "pyarrow": pa.table}


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


SUFFIXES = [".csv", ".csv.gz", ".tsv", ".parquet", ".pq", ".CSV"]


def saved(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def a_table(n=1000):
    rng = np.random.default_rng(0)
    return pa.table(
        {
            "x": rng.normal(size=n),
            "count": rng.integers(-5, 5, n),
            "colour": rng.choice(["red", 'qu"ote', "com,ma", "new\nline", "é"], n),
            "yes": rng.random(n) < 0.5,
            "day": [dt.date(2020, 1, 1) + dt.timedelta(days=i) for i in range(n)],
            "when": [dt.datetime(2020, 1, 1, 1, 2, 3, 500000) + dt.timedelta(hours=i) for i in range(n)],
            "gaps": [None if i % 3 else i / 7 for i in range(n)],
        }
    )


def warned(encoder, table):
    """The warnings of unseen levels and gaps, in words."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        encoder.transform(table)
    assert all(issubclass(each.category, (UnseenLevelsWarning, UnseenGapsWarning)) for each in caught)
    return [str(each.message) for each in caught]
