"""Atomic writing of files: a file appears under its name complete, or not at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


@contextlib.contextmanager
def replacing_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary path to write to, which replaces `path` at the end. After an error an old file stays as it was.

    The bytes are on the disk before the name points to them. The permissions of an old file are preserved.
    """
    target = writable(path)
    temporary = target.with_name(f".harmonicgp-{secrets.token_hex(8)}{target.suffix}")
    try:
        yield temporary
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        if target.exists():
            os.chmod(temporary, stat.S_IMODE(target.stat().st_mode))
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    _flush_folder(target.parent)


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A binary file to write to, which replaces `path` at the end; see `replacing_path`.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with replacing(f"{folder}/a.txt") as file:
        ...         _ = file.write(b"text")
        ...     Path(f"{folder}/a.txt").read_text()
        'text'
    """
    with replacing_path(path) as temporary, open(temporary, "xb") as file:
        yield file


def writable(path: str | os.PathLike[str]) -> Path:
    """The file that `open(path, "w")` would write to, with links resolved. Raises an OSError if it cannot be written."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(f"{os.fspath(path)} is a folder: name a file in it.")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {target.parent}: make it first.")
    if target.exists() and not target.is_file():
        raise OSError(f"{os.fspath(path)} is a device or a pipe, which cannot be replaced: name a file.")
    if target.exists() and not os.access(target, os.W_OK):
        raise PermissionError(f"{os.fspath(path)} is write-protected: choose another name, or make it writable.")
    return target


def _flush_folder(folder: Path) -> None:
    """Write the new name to the disk, if the platform can."""
    with contextlib.suppress(OSError):  # Windows cannot open folders, some file systems cannot flush them
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
