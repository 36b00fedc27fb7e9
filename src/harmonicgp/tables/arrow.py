"""What reading and writing tables share: Arrow on first use, kinds of files, errors in plain words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from harmonicgp._extras import require

SUFFIXES = (".csv", ".csv.gz", ".tsv", ".parquet", ".pq")
BLOCK_BYTES = 1 << 20  #: of text that is parsed at a time; no row may be longer; Arrow reads up to 32 of them ahead
_RAGGED = re.compile(r"Row #(\d+): Expected (\d+) columns, got (\d+): (.*)", re.DOTALL)


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
