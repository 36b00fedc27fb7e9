"""Tables to CSV and Parquet files, which appear under their names only when all is written.

A CSV file is written with quotation marks only where they are needed: what is passed on from one file to another stays as it is.
"""

from __future__ import annotations

import gzip
import os
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from harmonicgp.backend.files import replacing, writable
from harmonicgp.tables.streams import arrow, delimiter_of, is_parquet, plain_errors, suffix_of

if TYPE_CHECKING:
    import pyarrow


class TableWriter:
    """Write tables to one CSV or Parquet file, which appears under its name only when all is written.

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
        self.typed = is_parquet(self.path)  #: whether the file keeps the types of its columns; else all is text
        writable(self.path)
        self._layers = ExitStack()  # closed from the last to the first
        self._sink: Any = None
        self._writer: Any = None
        self._schema: Any = None

    def __enter__(self) -> TableWriter:
        arrow()  # a missing library shows before the work
        self._sink = self._layers.enter_context(replacing(self.path))
        if suffix_of(self.path) == ".csv.gz":  # Arrow's own stream would close the file below it
            self._sink = self._layers.enter_context(gzip.GzipFile("", "wb", fileobj=self._sink, mtime=0))
        return self

    def write(self, table: pyarrow.Table) -> None:
        """Append rows; all tables must have the columns of the first, which may lie in another order."""
        if self._sink is None:
            raise ValueError("a TableWriter is open inside its `with` block only.")
        if not self.typed:
            table = _without_dictionaries(table)
        if self._writer is None:
            self._schema = table.schema
            with plain_errors(self.path):
                if self.typed:
                    parquet = arrow("parquet").ParquetWriter(self._sink, table.schema)
                    self._writer = self._layers.enter_context(parquet)
                else:
                    self._writer = _CsvWriter(self._sink, table.schema, delimiter_of(self.path))
        schema = self._schema
        if set(table.column_names) != set(schema.names):
            raise ValueError(f"{self.path}: columns {table.column_names} follow rows with columns {schema.names}.")
        with plain_errors(self.path):
            self._writer.write_table(table.select(schema.names).cast(schema))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:  # fmt: skip
        self._sink = None
        if kind is None and self._writer is None:
            error = ValueError(f"nothing was written to {self.path}: write at least one table, even without rows.")
            self._layers.__exit__(ValueError, error, None)
            raise error
        self._layers.__exit__(kind, error, trace)


class _CsvWriter:
    """Lines of text, with quotation marks around those cells alone that need them (Arrow's own puts them around all text)."""

    def __init__(self, sink: Any, schema: pyarrow.Schema, delimiter: str) -> None:
        pa = arrow()
        nested = [field for field in schema if pa.types.is_nested(field.type)]
        if nested:
            raise pa.ArrowInvalid(
                f"column {nested[0].name!r} is of type {nested[0].type}, which has no place in a CSV file."
            )
        self._sink, self._delimiter = sink, delimiter
        self._sink.write((delimiter.join(self._cells(pa.array(schema.names)).to_pylist()) + "\n").encode())

    def write_table(self, table: pyarrow.Table) -> None:
        """Append rows."""
        cells = [self._cells(column.cast(arrow().string())) for column in table.columns]
        lines = arrow("compute").binary_join_element_wise(
            *cells, self._delimiter, null_handling="replace", null_replacement=""
        )
        self._sink.write("".join(f"{line}\n" for line in lines.to_pylist()).encode())

    def _cells(self, texts: Any) -> Any:
        """Texts as cells; an empty one is told from a missing one by its quotation marks."""
        compute = arrow("compute")
        odd = compute.match_substring_regex(texts, rf'^$|[{self._delimiter}"\r\n]')
        quoted = compute.binary_join_element_wise('"', compute.replace_substring(texts, '"', '""'), '"', "")
        return compute.if_else(odd, quoted, texts)


def _without_dictionaries(table: pyarrow.Table) -> pyarrow.Table:
    """Categories as what they stand for: CSV has no other way."""
    pa = arrow()
    fields = [
        field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
        for field in table.schema
    ]
    return table.cast(pa.schema(fields))
