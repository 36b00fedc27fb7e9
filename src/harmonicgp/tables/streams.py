"""Reads CSV and Parquet files through Arrow, whole or in batches of bounded memory.

A first pass over a CSV file determines the types of its columns from all rows. So a column of integers whose last row is 0.5
holds floats from its first batch on, and `read_table` and `stream_table` agree. `stream_rows` also gives the original cells.
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
BLOCK_BYTES = 1 << 20  #: bytes of text that are parsed at a time, at least one row; Arrow reads up to 32 blocks ahead
_RAGGED = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+): (.*)", re.DOTALL)


def read_table(path: str | os.PathLike[str]) -> pyarrow.Table:
    r"""A whole CSV or Parquet file as an Arrow table.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> file = Path(tempfile.mkdtemp()) / "small.csv"
        >>> _ = file.write_text("x,y\n1.50,a\n2,b\n")
        >>> read_table(file).to_pydict()
        {'x': [1.5, 2.0], 'y': ['a', 'b']}
    """
    return arrow().concat_tables(stream_table(path))


def stream_table(path: str | os.PathLike[str], batch_rows: int = 65536) -> Iterator[pyarrow.Table]:
    r"""The rows of a CSV or Parquet file in their order, `batch_rows` at a time (fewer in the last table).

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> file = Path(tempfile.mkdtemp()) / "small.csv"
        >>> _ = file.write_text("x\n1\n2\n3\n")
        >>> [table.num_rows for table in stream_table(file, batch_rows=2)]
        [2, 1]
    """
    return (table for table, _ in stream_rows(path, batch_rows))


def stream_rows(path: str | os.PathLike[str], batch_rows: int = 65536) -> Iterator[tuple[pyarrow.Table, pyarrow.Table]]:
    r"""Like `stream_table`, each table with a second one that holds the original cells of a CSV file as text, blank ones as null.

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
        raise IsADirectoryError(f"{path} is a folder, not a file.")
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
    """The columns of a schema that hold the index of a pandas table.

    Examples:
        >>> import pyarrow as pa
        >>> index_columns(pa.schema([("x", pa.int64()), ("__index_level_0__", pa.int64())]))
        ['__index_level_0__']
    """
    try:
        declared = json.loads((schema.metadata or {}).get(b"pandas", b"{}")).get("index_columns", [])
    except (ValueError, AttributeError):  # not written by pandas
        declared = []
    return [name for name in schema.names if name in declared or re.fullmatch(r"__index_level_\d+__", name)]


def _parquet_tables(path: Path, batch_rows: int) -> Iterator[pyarrow.Table]:
    settings = {"buffer_size": 1 << 20, "pre_buffer": False}  # does not read whole columns
    with plain_errors(path), arrow("parquet").ParquetFile(path, **settings) as file:
        if not file.metadata.num_rows:
            raise ValueError(f"{path} has no rows.")
        for batch in file.iter_batches(batch_size=batch_rows):
            yield arrow().Table.from_batches([batch])


def _csv_rows(path: Path, batch_rows: int) -> Iterator[tuple[pyarrow.Table, pyarrow.Table]]:
    """The rows of a CSV file, with the types that fit all rows, and with the original cells."""
    schema = _csv_schema(path)
    for written in _regrouped(
        _csv_blocks(path, schema.names, null_values=[""], quoted_strings_can_be_null=False), batch_rows
    ):
        with plain_errors(path):
            table = _with_nulls(written).cast(schema)
        yield table, written


def _csv_schema(path: Path) -> pyarrow.Schema:
    """The columns of a CSV file, each with the narrowest type that fits all rows."""
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
    # In an earlier column an open quotation mark gives rows with too few cells, which raise an error.
    if "\n" in last and suffix_of(path) != ".csv.gz" and not _ends_quoted(path):
        raise ValueError(
            f"{path} ends inside an open quotation mark, so that its last cell holds several lines: close the quotation mark."
        )
    if broken:
        cells = "cell holds" if broken == 1 else "cells hold"
        warnings.warn(
            f"{broken} {cells} line breaks in {path.name}: if rows are missing, look for an open quotation mark.",
            stacklevel=2,
        )
    # A column without values fits all types.
    narrowest = {name: fits[0] if 0 < len(fits) < len(types) else pa.string() for name, fits in fitting.items()}
    return pa.schema(list(narrowest.items()))


def _ends_quoted(path: Path) -> bool:
    """Whether the last cell of a file ends with a quotation mark."""
    with path.open("rb") as file:
        file.seek(max(path.stat().st_size - 4096, 0))
        return file.read().rstrip().endswith(b'"')


def _header(path: Path) -> list[str]:
    """The names of the columns, from the first row."""
    with path.open("rb") as file:
        if file.read(2) in (b"\xff\xfe", b"\xfe\xff"):  # UTF-16, as written by spreadsheets
            raise ValueError(f"{path} is not UTF-8 text: save it as UTF-8.")
    options = _csv_options(path, [])
    # Bad rows raise an error later, when they are read.
    options["parse_options"].invalid_row_handler = lambda _: "skip"
    with plain_errors(path), arrow("csv").open_csv(path, **options) as reader:
        names: list[str] = list(reader.schema.names)
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ValueError(f"{path} has columns of the same name: {', '.join(map(repr, repeated))}; rename or drop one.")
    if len(names) == 1 and (separator := re.search(r"[;\t|]", names[0])):
        raise ValueError(f"{path} has one column, {names[0]!r}: is it separated by {separator[0]!r}? "
                         "Save it with commas (and decimal points), or with tabs as .tsv.")  # fmt: skip
    return names


def _csv_blocks(path: Path, names: list[str], **nulls: Any) -> Iterator[pyarrow.Table]:
    """The file as text, block by block; `nulls` are options on which cells are null, by default blank ones, NA and the like."""
    with plain_errors(path), arrow("csv").open_csv(path, **_csv_options(path, names, **nulls)) as reader:
        for batch in reader:
            yield arrow().Table.from_batches([batch])


def _csv_options(path: Path, names: list[str], **nulls: Any) -> dict[str, Any]:
    csv, texts = arrow("csv"), dict.fromkeys(names, arrow().string())
    return {
        "read_options": csv.ReadOptions(
            use_threads=False, block_size=BLOCK_BYTES
        ),  # one thread, so that errors have row numbers
        "parse_options": csv.ParseOptions(delimiter=delimiter_of(path), newlines_in_values=True),
        "convert_options": csv.ConvertOptions(column_types=texts, strings_can_be_null=True, **nulls),
    }


def _with_nulls(table: pyarrow.Table) -> pyarrow.Table:
    """Text with the usual words for missing values replaced by null."""
    pa, csv, compute = arrow(), arrow("csv"), arrow("compute")
    words = pa.array(csv.ConvertOptions().null_values)
    null = pa.scalar(None, pa.string())
    columns = [compute.if_else(compute.is_in(column, words), null, column) for column in table.columns]
    return pa.table(columns, names=table.column_names)


def _fits(column: pyarrow.ChunkedArray, type_: Any) -> bool:
    pa, compute = arrow(), arrow("compute")
    if type_ == pa.bool_():  # Arrow also reads 0 and 1
        words = compute.utf8_lower(column.drop_null())
        if not compute.all(compute.is_in(words, pa.array(["true", "false"])), min_count=0).as_py():
            return False
    try:
        if type_ == pa.int64():
            column.cast(pa.float64())  # Arrow reads 0x1F as an integer, but not as a number
        column.cast(type_)
    except pa.ArrowInvalid:
        return False
    return True


def _regrouped(tables: Iterator[pyarrow.Table], rows: int) -> Iterator[pyarrow.Table]:
    """The same rows in tables of `rows` rows."""
    remainder: Any = None
    for table in tables:
        remainder = table if remainder is None else arrow().concat_tables([remainder, table])
        while remainder.num_rows >= rows:
            yield remainder.slice(0, rows)
            remainder = remainder.slice(rows)
    if remainder:
        yield remainder


# Shared by reading and writing ----------------------------------------------------------------------------------------


def arrow(module: str | None = None) -> ModuleType:
    """The package pyarrow, or a module of it."""
    return require("pyarrow" if module is None else f"pyarrow.{module}", "tables", "reading and writing tables")


def suffix_of(path: Path) -> str:
    """The suffix of a file name, which determines the format."""
    for suffix in SUFFIXES:
        if path.name.lower().endswith(suffix):
            return suffix
    raise ValueError(f"{path}: the name must end in {', '.join(SUFFIXES)}.")


def is_parquet(path: Path) -> bool:
    """Whether a file is Parquet, by its name."""
    return suffix_of(path) in (".parquet", ".pq")


def delimiter_of(path: Path) -> str:
    """The character between cells of a text file."""
    return "\t" if suffix_of(path) == ".tsv" else ","


@contextmanager
def plain_errors(path: Path) -> Iterator[None]:
    """Turns Arrow's errors into a `ValueError` that names the file and says what to do."""
    pa = arrow()
    try:
        yield
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8 text: save it as UTF-8.") from None
    except (pa.ArrowException, OSError, EOFError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # an error of the operating system, which is clear
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
        return f"this is not a complete gzip file ({message})."
    if "Parquet magic bytes" in message or "Parquet file size" in message:
        return "this is not a Parquet file, or it is incomplete."
    return message
