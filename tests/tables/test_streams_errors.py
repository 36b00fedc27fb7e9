"""What reading and writing share: errors in plain words."""

from __future__ import annotations

import gzip
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harmonicgp._extras import MissingExtraError
from harmonicgp.tables import read_table, stream_rows, stream_table
from tests.tables.common import a_table, saved


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
        "plain.csv.gz": (b"a\n1\n", "not a complete gzip file"),
        "cut.csv.gz": (gzip.compress(bytes(range(65, 91)) * 99 + b"\n1\n")[:-20], "not a complete gzip file"),
    }
    for name, (content, words) in cases.items():
        path = tmp_path / name
        if content is not None:
            saved(path, content)
        with pytest.raises(ValueError, match=words) as error:
            read(path)
        assert name in str(error.value)
        path.unlink()


def test_without_arrow_one_line_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"needs pyarrow: pip install 'harmonicgp\[tables\]'"):
        read_table(saved(tmp_path / "t.csv", "a\n1\n"))
