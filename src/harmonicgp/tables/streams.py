"""CSV and Parquet files through Arrow: read whole, or streamed in batches of bounded memory.

The types of a CSV file are settled by all of its rows, in a first pass: a column of integers whose last row is 0.5 is a
column of numbers from its first batch on, and `read_table` and `stream_table` agree. `stream_rows` has the cells as they are
written beside them.
"""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from harmonicgp._extras import require
from harmonicgp._validation import whole_number

if TYPE_CHECKING:
    import pyarrow

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".parquet", ".pq")
BLOCK_BYTES = 1 << 20  #: of text that is parsed at a time; no row may be longer; Arrow reads up to 32 of them ahead
_RAGGED = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+): (.*)", re.DOTALL)


def read_table(path: str | os.PathLike[str]) -> pyarrow.Table:
    """A whole CSV or Parquet file."""
    return arrow().concat_tables(stream_table(path))


def stream_table(path: str | os.PathLike[str], batch_rows: int = 65536) -> Iterator[pyarrow.Table]:
    """The rows of a CSV or Parquet file in their order, `batch_rows` at a time (fewer in the last table)."""
    return (table for table, _ in stream_rows(path, batch_rows))


def stream_rows(path: str | os.PathLike[str], batch_rows: int = 65536) -> Iterator[tuple[pyarrow.Table, pyarrow.Table]]:
    r"""Like `stream_table`, each table with the same rows as they are written: cells of a CSV file as text, blank ones as nulls.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> file = Path(tempfile.mkdtemp()) / "small.csv"
        >>> _ = file.write_text("x,y\n1.50,NA\n2,b\n")
        >>> [(table.to_pydict(), written.to_pydict()) for table, written in stream_rows(file)]
        [({'x': [1.5, 2.0], 'y': [None, 'b']}, {'x': ['1.50', '2'], 'y': ['NA', 'b']})]
    """
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: name a file in it.")
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}.")
    parquet = is_parquet(path)
    if path.stat().st_size == 0:
        raise ValueError(f"{path} is empty.")
    whole_number(batch_rows, "batch_rows", 1)
    if parquet:
        return ((table, table) for table in _regrouped(_parquet_tables(path, batch_rows), batch_rows))
    return _csv_rows(path, batch_rows)


def index_columns(schema: pyarrow.Schema) -> list[str]:
    """The columns that are the index of the pandas table which was written, not columns of it.

    Examples:
        >>> import pyarrow as pa
        >>> index_columns(pa.schema([("x", pa.int64()), ("__index_level_0__", pa.int64())]))
        ['__index_level_0__']
    """
    try:
        named = json.loads((schema.metadata or {}).get(b"pandas", b"{}")).get("index_columns", [])
    except (ValueError, AttributeError):  # not what pandas writes
        named = []
    return [name for name in schema.names if name in named or re.fullmatch(r"__index_level_\d+__", name)]


def _parquet_tables(path: Path, batch_rows: int) -> Iterator[pyarrow.Table]:
    settings = {"buffer_size": 1 << 20, "pre_buffer": False}  # columns are not read whole
    with plain_errors(path), arrow("parquet").ParquetFile(path, **settings) as file:
        if not file.metadata.num_rows:
            raise ValueError(f"{path} has no rows.")
        for batch in file.iter_batches(batch_size=batch_rows):
            yield arrow().Table.from_batches([batch])


def _csv_rows(path: Path, batch_rows: int) -> Iterator[tuple[pyarrow.Table, pyarrow.Table]]:
    """The rows of a CSV file, with the types that fit all of them and as they are written."""
    schema = _csv_schema(path)
    for written in _regrouped(
        _csv_blocks(path, schema.names, null_values=[""], quoted_strings_can_be_null=False), batch_rows
    ):
        with plain_errors(path):
            table = _with_nulls(written).cast(schema)
        yield table, written


def _csv_schema(path: Path) -> pyarrow.Schema:
    """The columns of a CSV file, and the narrowest type of each that fits all of its rows."""
    pa, compute = arrow(), arrow("compute")
    types = [pa.int64(), pa.float64(), pa.bool_(), pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")]
    fitting = dict.fromkeys(_header(path), types)
    rows = broken = 0
    last = ""
    for block in _csv_blocks(path, list(fitting)):
        rows += block.num_rows
        for name, column in zip(block.column_names, block.columns, strict=True):
            fitting[name] = [type_ for type_ in fitting[name] if _fits(column, type_)]
            if not fitting[name]:
                broken += compute.sum(compute.match_substring(column, "\n")).as_py() or 0
        last = str(block.columns[-1][-1]) if block.num_rows else last
    if not rows:
        raise ValueError(f"{path} has no rows below its header.")
    # Before the last column it would leave cells missing, which is refused anyway.
    if "\n" in last and suffix_of(path) != ".csv.gz" and not _ends_quoted(path):
        raise ValueError(
            f"{path} ends inside a quotation mark that is never closed: its last cell holds many lines. Close it."
        )
    if broken:
        cells = "cell holds" if broken == 1 else "cells hold"
        warnings.warn(
            f"{broken} {cells} line breaks in {path.name}: if rows are missing, look for a stray quotation mark.",
            stacklevel=2,
        )
    # A column without values fits all types.
    return pa.schema([(name, some[0] if 0 < len(some) < len(types) else pa.string()) for name, some in fitting.items()])


def _ends_quoted(path: Path) -> bool:
    """Whether the last cell of a file ends with a quotation mark."""
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - 4096, 0))
        return file.read().rstrip().endswith(b'"')


def _header(path: Path) -> list[str]:
    """The names of the columns, in the first row."""
    with path.open("rb") as file:
        if file.read(2) in (b"\xff\xfe", b"\xfe\xff"):  # UTF-16, as spreadsheets write it
            raise ValueError(f"{path} is not UTF-8 text: save it as UTF-8.")
    options = _csv_options(path, [])
    # Whoever reads the rows says what is wrong with them.
    options["parse_options"].invalid_row_handler = lambda _: "skip"
    with plain_errors(path), arrow("csv").open_csv(path, **options) as reader:
        names: list[str] = list(reader.schema.names)
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{path} has columns of the same name: {', '.join(map(repr, twice))}; rename or drop one.")
    if len(names) == 1 and (other := re.search(r"[;\t|]", names[0])):
        raise ValueError(f"{path} has one column, {names[0]!r}: is it separated by {other[0]!r}? "
                         "Save it with commas (and decimal points), or with tabs as .tsv.")  # fmt: skip
    return names


def _csv_blocks(path: Path, names: list[str], **nulls: Any) -> Iterator[pyarrow.Table]:
    """The file as text, block by block; blank cells and the usual words for missing values as nulls, unless told otherwise."""
    with plain_errors(path), arrow("csv").open_csv(path, **_csv_options(path, names, **nulls)) as reader:
        for batch in reader:
            yield arrow().Table.from_batches([batch])


def _csv_options(path: Path, names: list[str], **nulls: Any) -> dict[str, Any]:
    csv, texts = arrow("csv"), dict.fromkeys(names, arrow().string())
    return {
        "read_options": csv.ReadOptions(use_threads=False, block_size=BLOCK_BYTES),  # one thread knows its row
        "parse_options": csv.ParseOptions(delimiter=delimiter_of(path), newlines_in_values=True),
        "convert_options": csv.ConvertOptions(column_types=texts, strings_can_be_null=True, **nulls),
    }


def _with_nulls(table: pyarrow.Table) -> pyarrow.Table:
    """Text with the usual words for missing values as nulls."""
    pa, csv, compute = arrow(), arrow("csv"), arrow("compute")
    words = pa.array(csv.ConvertOptions().null_values)
    gone = pa.scalar(None, pa.string())
    columns = [compute.if_else(compute.is_in(column, words), gone, column) for column in table.columns]
    return pa.table(columns, names=table.column_names)


def _fits(column: pyarrow.ChunkedArray, type_: Any) -> bool:
    pa, compute = arrow(), arrow("compute")
    if type_ == pa.bool_():  # Arrow would take 0 and 1 too
        words = compute.utf8_lower(column.drop_null())
        if not compute.all(compute.is_in(words, pa.array(["true", "false"])), min_count=0).as_py():
            return False
    try:
        if type_ == pa.int64():
            column.cast(pa.float64())  # what counts as whole must also be a number: 0x1F does not
        column.cast(type_)
    except pa.ArrowInvalid:
        return False
    return True


def _regrouped(tables: Iterator[pyarrow.Table], rows: int) -> Iterator[pyarrow.Table]:
    """The same rows in tables of `rows` rows."""
    waiting: Any = None
    for table in tables:
        waiting = table if waiting is None else arrow().concat_tables([waiting, table])
        while waiting.num_rows >= rows:
            yield waiting.slice(0, rows)
            waiting = waiting.slice(rows)
    if waiting:
        yield waiting


# What reading and writing share ---------------------------------------------------------------------------------------


def arrow(module: str | None = None) -> ModuleType:
    """Arrow, or a module of it."""
    return require("pyarrow" if module is None else f"pyarrow.{module}", "tables", "reading and writing tables")


def suffix_of(path: Path) -> str:
    """The end of a name, which says what is in the file."""
    for suffix in SUFFIXES:
        if path.name.lower().endswith(suffix):
            return suffix
    raise ValueError(f"{path}: the name must end in {', '.join(SUFFIXES)}.")


def is_parquet(path: Path) -> bool:
    """Whether a file is Parquet, not text."""
    return suffix_of(path) in (".parquet", ".pq")


def delimiter_of(path: Path) -> str:
    """What lies between cells of text."""
    return "\t" if suffix_of(path) == ".tsv" else ","


@contextmanager
def plain_errors(path: Path) -> Iterator[None]:
    """Arrow's errors as a `ValueError` that names the file and says what to do."""
    pa = arrow()
    try:
        yield
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8 text: save it as UTF-8.") from None
    except (pa.ArrowException, OSError, EOFError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the disk's own errors say enough
        raise ValueError(f"{path}: {_explained(str(error))}") from None


def _explained(message: str) -> str:
    if "UTF8" in message or "UTF-8" in message:
        return "this is not UTF-8 text: save it as UTF-8."
    if ragged := _RAGGED.search(message):
        row, expected, actual, text = ragged.groups()
        hint = " Is a quotation mark left open?" if '"' in text else ""
        return (
            f"row {row} has {actual} cells where the header has {expected} (the header is row 1, blank lines do not count): "
            f"{text.strip()[:60]!r}.{hint}"
        )
    if "straddl" in message:
        return f"a row is longer than {BLOCK_BYTES >> 20} MB: is a quotation mark left open?"
    if "zlib" in message or "compressed stream" in message:
        return f"this is not a whole gzip file ({message})."
    if "Parquet magic bytes" in message or "Parquet file size" in message:
        return "this is not a Parquet file, or a part of one is missing."
    return message
