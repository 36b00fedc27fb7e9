"""CSV and Parquet: types settled by all rows, bounded memory, files that appear whole or not at all."""

from __future__ import annotations

import datetime as dt
import gzip
import os
import re
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harmonicgp._extras import MissingExtraError
from harmonicgp.tables import TableWriter, read_table, stream_rows, stream_table, streams

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


@pytest.mark.filterwarnings("ignore:.*line breaks")
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_is_written_is_read(tmp_path, suffix):
    path, table = tmp_path / f"table{suffix}", a_table()
    with TableWriter(path) as writer:
        for start in (0, 300, 600):
            writer.write(table.slice(start, 300 if start < 600 else None))
    assert read_table(path).equals(table)
    parts = list(stream_table(str(path), batch_rows=64))
    assert [part.num_rows for part in parts] == [64] * 15 + [40]
    assert pa.concat_tables(parts).equals(table)
    assert os.listdir(tmp_path) == [path.name]


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


def test_rows_of_parquet_are_written_as_they_are(tmp_path):
    pq.write_table(a_table(10), tmp_path / "t.parquet")
    for table, written in stream_rows(tmp_path / "t.parquet", batch_rows=4):
        assert table.equals(written)
    assert TableWriter(tmp_path / "t.parquet").typed


def test_empty_text_is_not_missing_text(tmp_path):
    path = saved(tmp_path / "t.csv", 'a,b\n"",1\n,2\n')
    ((table, written),) = stream_rows(path)
    assert written["a"].to_pylist() == ["", None]
    assert table["a"].to_pylist() == [None, None]
    with TableWriter(tmp_path / "out.csv") as writer:
        writer.write(written)
    assert (tmp_path / "out.csv").read_text() == path.read_text()


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


# Files that cannot be read


@pytest.mark.parametrize(
    "read", [read_table, lambda path: list(stream_table(path)), lambda path: list(stream_rows(path))]
)
def test_files_that_cannot_be_read(tmp_path, read):
    with pytest.raises(FileNotFoundError, match=r"there is no file .*none\.csv"):
        read(tmp_path / "none.csv")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        read(tmp_path)
    empty = pa.table({"a": pa.array([], pa.int64())})
    pq.write_table(empty, tmp_path / "no_rows.parquet")
    damaged = tmp_path / "damaged.parquet"
    pq.write_table(a_table(), damaged)
    content = damaged.read_bytes()
    cases = {
        "table.txt": (b"a\n1\n", r"must end in \.csv, .*\.parquet"),
        "empty.csv": (b"", "is empty"),
        "empty.parquet": (b"", "is empty"),
        "header.csv": (b"a,b\n", "no rows below its header"),
        "no_rows.parquet": (None, "has no rows"),
        "text.parquet": (b"a,b\n1,2\n", "not a Parquet file"),
        "cut.parquet": (content[:-100], "not a Parquet file"),
        "damaged.parquet": (content[:4] + bytes(2000) + content[2004:], "damaged.parquet: "),
        "short.csv": (b"a,b\n1,2\n3\n", "row 3 has 1 cells where the header has 2.*'3'"),
        "long.csv": (b"a,b\n" + b"1,2\n" * 2_000_000 + b"1,2,3\n", "row 2000002 has 3 cells where the header has 2"),
        "latin.csv": ("name\nJosé\n".encode("latin-1"), "not UTF-8 text: save it as UTF-8"),
        "header_latin.csv": ("José\n1\n".encode("latin-1"), "not UTF-8 text: save it as UTF-8"),
        "utf16.csv": ("a,b\n1,2\n".encode("utf-16"), "not UTF-8 text: save it as UTF-8"),
        "twice.csv": (b"a,b,a\n1,2,3\n", "same name: 'a'"),
        "semicolons.csv": (b"a;b\n1;2\n", "separated by ';'"),
        "decimals.csv": (
            b"a;b;c\n1,5;2,5;3\n1,5;2,5;3\n",
            "separated by ';'.* Save it with commas .*or with tabs as .tsv",
        ),
        "quote.csv": (b'a,b\n"1,2\n' + b"1,2\n" * 2_000_000, "longer than 1 MB: is a quotation mark"),
        "quote_early.csv": (b'a,b\n"1,2\n1,2\n', "row 2 .* Is a quotation mark left open"),
        "plain.csv.gz": (b"a\n1\n", "not a whole gzip file"),
        "cut.csv.gz": (gzip.compress(bytes(range(65, 91)) * 99 + b"\n1\n")[:-20], "not a whole gzip file"),
    }
    for name, (content, words) in cases.items():
        path = tmp_path / name
        if content is not None:
            saved(path, content)
        with pytest.raises(ValueError, match=words) as error:
            read(path)
        assert name in str(error.value)
        path.unlink()


def test_errors_of_the_call_come_at_the_call(tmp_path):
    with pytest.raises(FileNotFoundError):
        stream_table(tmp_path / "none.csv")
    for stream in (stream_table, stream_rows):
        with pytest.raises(ValueError, match="batch_rows"):
            stream(saved(tmp_path / "t.csv", "a\n1\n"), batch_rows=0)


def test_a_byte_order_mark_and_windows_lines_are_no_trouble(tmp_path):
    path = saved(tmp_path / "t.csv", b"\xef\xbb\xbfa,b\r\n1,x\r\n\r\n2,y\r\n")
    assert read_table(path).to_pydict() == {"a": [1, 2], "b": ["x", "y"]}


# Writing


def write_and_fail(path):
    with TableWriter(path) as writer:
        writer.write(a_table(10))
        assert path.read_text() == "old"
        raise KeyError("mine")


def written(path, *several):
    with TableWriter(path) as writer:
        for table in several:
            writer.write(table)


def test_an_error_leaves_the_old_file_and_nothing_else(tmp_path):
    for suffix in SUFFIXES:
        path = saved(tmp_path / f"old{suffix}", "old")
        with pytest.raises(KeyError, match="mine"):
            write_and_fail(path)
        assert path.read_text() == "old"
        path.unlink()
        assert os.listdir(tmp_path) == []


def test_tables_that_do_not_fit_leave_nothing(tmp_path):
    path = tmp_path / "t.csv"
    first = pa.table({"a": [1], "b": [2]})
    for second in (pa.table({"a": [1]}), pa.table({"a": [1], "c": [2]}), pa.table({"a": ["x"], "b": [1]})):
        with pytest.raises(ValueError, match=r"t\.csv"):
            written(path, first, second)
    with pytest.raises(ValueError, match=r"t\.csv"):
        written(path, pa.table({"a": [[1, 2]]}))
    with pytest.raises(ValueError, match="nothing was written"):
        written(path)
    assert os.listdir(tmp_path) == []


def test_columns_may_come_in_another_order_and_categories_are_written_out(tmp_path):
    path = tmp_path / "t.csv"
    with TableWriter(path) as writer:
        writer.write(pa.table({"a": [1], "b": pa.array(["x"]).dictionary_encode()}))
        writer.write(pa.table({"b": pa.array(["y"]).dictionary_encode(), "a": [2]}))
    assert read_table(path).to_pydict() == {"a": [1, 2], "b": ["x", "y"]}


def test_floats_survive_a_csv_file(tmp_path):
    path, x = tmp_path / "t.csv", np.random.default_rng(0).normal(size=1000) * 10.0 ** np.arange(-300, 300, 0.6)
    with TableWriter(path) as writer:
        writer.write(pa.table({"x": x}))
    assert (read_table(path)["x"].to_numpy() == x).all()


def test_a_writer_says_early_what_is_wrong(tmp_path):
    with pytest.raises(ValueError, match="must end in"):
        TableWriter(tmp_path / "t.xlsx")
    with pytest.raises(FileNotFoundError, match="no folder"):
        TableWriter(tmp_path / "none" / "t.csv")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(IsADirectoryError, match="is a folder"):
        TableWriter(tmp_path / "folder.csv")
    with pytest.raises(ValueError, match="inside its `with` block"):
        TableWriter(tmp_path / "t.csv").write(a_table(1))


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_a_new_file_has_the_usual_permissions(tmp_path):
    with TableWriter(tmp_path / "t.csv") as writer:
        writer.write(a_table(1))
    usual = saved(tmp_path / "usual", "").stat().st_mode
    assert (tmp_path / "t.csv").stat().st_mode == usual


def test_without_arrow_one_line_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"needs pyarrow: pip install 'harmonicgp\[tables\]'"):
        read_table(saved(tmp_path / "t.csv", "a\n1\n"))
