"""Tables to files."""

from __future__ import annotations

import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harmonicgp.tables import TableWriter, read_table, stream_rows, stream_table
from tests.tables.common import SUFFIXES, a_table, saved


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
