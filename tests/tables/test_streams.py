"""CSV and Parquet files, read whole or streamed."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harmonicgp.tables import TableWriter, read_table, stream_rows, stream_table, streams
from tests.tables.common import saved


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        ("1", "0.5", pa.float64()),
        ("0.5", "1", pa.float64()),
        ("", "7", pa.int64()),
        ("1", "x", pa.string()),
        ("true", "1", pa.string()),
        ("1", "true", pa.string()),
        ("True", "FALSE", pa.bool_()),
        ("2020-01-01", "2020-01-02 10:00", pa.timestamp("us")),
        ("2020-01-01T00:00:00Z", "2020-01-02T00:00:00+02:00", pa.timestamp("us", "UTC")),
        ("2020-01-01", "2020-01-02T00:00:00Z", pa.string()),
        ("2020-01-01", "3", pa.string()),
        ("0x1F", "0.5", pa.string()),
        ("1", "99999999999999999999", pa.float64()),
        ("NA", "", pa.string()),
        ("12:30", "13:00", pa.string()),
    ],
)
def test_all_rows_settle_the_type(tmp_path, monkeypatch, first, last, expected):
    monkeypatch.setattr(streams, "BLOCK_BYTES", 64)  # many blocks, of which the last disagrees
    path = saved(tmp_path / "t.csv", "k,a\n" + f"1,{first}\n" * 50 + f"1,{last}\n")
    parts = list(stream_table(path, batch_rows=10))
    assert len(parts) == 6
    assert {part.schema.field("a").type for part in parts} == {expected}
    assert read_table(path).equals(pa.concat_tables(parts))


@given(
    st.lists(st.sampled_from(["1", "-2", "0.5", "1e3", "", "nan", "x", "true", "2020-01-01", "0x10", " 1"]), min_size=1)
)
def test_blocks_do_not_change_what_is_read(tmp_path_factory, cells):
    path = saved(tmp_path_factory.mktemp("t") / "t.csv", "k,a\n" + "".join(f"0,{cell}\n" for cell in cells))
    whole = read_table(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "BLOCK_BYTES", 32)
        assert read_table(path).equals(whole)
    assert whole.num_rows == len(cells)


@pytest.mark.filterwarnings("ignore:.*line breaks")
@given(
    st.lists(
        st.lists(
            st.sampled_from(["1.50", "NA", "", "x", "2020-01-01T00:00", " 1", 'q"', "a,b", "n\nl"]),
            min_size=2,
            max_size=2,
        ),
        min_size=1,
    )
)
@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_what_is_passed_on_stays_as_it_is(tmp_path_factory, suffix, cells):
    """Byte for byte, if the file has quotation marks only where they are needed."""
    delimiter = "," if suffix == ".csv" else "\t"
    quoted = [
        [f'"{c.replace(chr(34), 2 * chr(34))}"' if re.search(f'[{delimiter}"\n]', c) else c for c in row]
        for row in cells
    ]
    folder = tmp_path_factory.mktemp("t")
    text = "".join(delimiter.join(["0", *row]) + "\n" for row in [["a b", "c"], *quoted])
    path = saved(folder / f"t{suffix}", text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streams, "BLOCK_BYTES", 64)
        parts = list(stream_rows(path, batch_rows=3))
    with TableWriter(folder / f"out{suffix}") as writer:
        assert not writer.typed
        for _, written in parts:
            writer.write(written)
    assert (folder / f"out{suffix}").read_text() == text
    assert pa.concat_tables([table for table, _ in parts]).equals(read_table(path))


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_streaming_needs_little_memory(tmp_path, monkeypatch, suffix):
    monkeypatch.setattr(streams, "BLOCK_BYTES", 1 << 16)
    n, path = 300_000, tmp_path / f"long{suffix}"
    table = pa.table({f"x{j}": np.random.default_rng(j).normal(size=n) for j in range(6)})
    whole = table.nbytes
    with TableWriter(path) as writer:
        for start in range(0, n, 10_000):
            writer.write(table.slice(start, 10_000))
    del table
    before, most, rows = pa.total_allocated_bytes(), 0, 0
    for part in stream_table(path, batch_rows=10_000):
        rows += part.num_rows
        most = max(most, pa.total_allocated_bytes() - before)
    for part, _ in stream_rows(path, batch_rows=10_000):
        rows += part.num_rows
        most = max(most, pa.total_allocated_bytes() - before)
    assert rows == 2 * n
    assert most < 0.4 * whole


def test_errors_of_the_call_come_at_the_call(tmp_path):
    with pytest.raises(FileNotFoundError):
        stream_table(tmp_path / "none.csv")
    for stream in (stream_table, stream_rows):
        with pytest.raises(ValueError, match="batch_rows"):
            stream(saved(tmp_path / "t.csv", "a\n1\n"), batch_rows=0)


def test_a_byte_order_mark_and_windows_lines_are_no_trouble(tmp_path):
    path = saved(tmp_path / "t.csv", b"\xef\xbb\xbfa,b\r\n1,x\r\n\r\n2,y\r\n")
    assert read_table(path).to_pydict() == {"a": [1, 2], "b": ["x", "y"]}
