"""Writes tables to CSV and Parquet files. A file appears under its name only when it is complete.

CSV cells have quotation marks only where they need them, so that cells copied from another file stay as they are.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from harmonicgp.backend.files import replacing, writable
from harmonicgp.tables.streams import arrow, delimiter_of, is_parquet, plain_errors, suffix_of

if TYPE_CHECKING:
    import pyarrow


class TableWriter:
    """Write tables to one CSV or Parquet file, which appears under its name only when it is complete.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> import pyarrow as pa
        >>> file = Path(tempfile.mkdtemp()) / "out.csv"
        >>> with TableWriter(file) as writer:
        ...     writer.write(pa.table({"x": [1, 2]}))
        ...     writer.write(pa.table({"x": [3]}))
        >>> file.read_text().split()
        ['x', '1', '2', '3']
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.typed = is_parquet(self.path)  #: whether the file keeps the types of its columns; a text file does not
        writable(self.path)
        self._layers = ExitStack()  # closed from the last to the first
        self._sink: Any = None
        self._parquet: Any = None
        self._schema: Any = None

    def __enter__(self) -> TableWriter:
        arrow()  # raises early if the library is missing
        self._sink = self._layers.enter_context(replacing(self.path))
        if suffix_of(self.path) == ".csv.gz":  # Arrow's stream would close the underlying file
            self._sink = self._layers.enter_context(gzip.GzipFile("", "wb", fileobj=self._sink, mtime=0))
        return self

    def write(self, table: pyarrow.Table) -> None:
        """Append rows; all tables must have the columns of the first, in any order."""
        if self._sink is None:
            raise ValueError("a TableWriter can only write inside its `with` block.")
        pa, delimiter = arrow(), delimiter_of(self.path)
        if not self.typed:
            table = _without_dictionaries(table)
        with plain_errors(self.path):
            if self._schema is None:
                self._schema = table.schema
                if self.typed:
                    parquet = arrow("parquet").ParquetWriter(self._sink, table.schema)
                    self._parquet = self._layers.enter_context(parquet)
                else:
                    for field in table.schema:
                        if pa.types.is_nested(field.type):
                            problem = f"column {field.name!r} has type {field.type}, which a CSV file cannot hold."
                            raise pa.ArrowInvalid(problem)
                    self._sink.write(_csv_lines([pa.array([name]) for name in table.column_names], delimiter))
            names = self._schema.names
            if set(table.column_names) != set(names):
                raise ValueError(f"{self.path}: got columns {table.column_names} after rows with columns {names}.")
            table = table.select(names).cast(self._schema)
            if self.typed:
                self._parquet.write_table(table)
            else:
                self._sink.write(_csv_lines(table.columns, delimiter))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:  # fmt: skip
        self._sink = None
        if kind is None and self._schema is None:
            error = ValueError(f"nothing was written to {self.path}: write at least one table, even without rows.")
            self._layers.__exit__(ValueError, error, None)
            raise error
        self._layers.__exit__(kind, error, trace)


def _csv_lines(columns: Sequence[Any], delimiter: str) -> bytes:
    """Lines of text with quotation marks only around cells that need them; Arrow's writer quotes all text.

    Empty text is quoted, a missing value is not.
    """
    compute, cells = arrow("compute"), []
    for column in columns:
        texts = column.cast(arrow().string())
        special = compute.match_substring_regex(texts, rf'^$|[{delimiter}"\r\n]')
        quoted = compute.binary_join_element_wise('"', compute.replace_substring(texts, '"', '""'), '"', "")
        cells.append(compute.if_else(special, quoted, texts))
    lines = compute.binary_join_element_wise(*cells, delimiter, null_handling="replace", null_replacement="")
    return "".join(f"{line}\n" for line in lines.to_pylist()).encode()


def _without_dictionaries(table: pyarrow.Table) -> pyarrow.Table:
    """The table with categories replaced by their values, as CSV has no categories."""
    pa = arrow()
    fields = [
        field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
        for field in table.schema
    ]
    return table.cast(pa.schema(fields))
