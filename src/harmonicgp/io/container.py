"""The file format of models and checkpoints: a safetensors file with a JSON header and a digest. It contains no code.

The metadata of the file has one key, `harmonicgp`, whose text is the JSON object

    {"kind": ..., "version": ..., "library": ..., "digest": ..., "header": {...}}

The digest is a SHA-256 of the other entries and of names, dtypes, shapes and bytes of the tensors. Files are written atomically.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import stat
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from harmonicgp._version import __version__
from harmonicgp.backend.files import replacing
from harmonicgp.io.fields import DTYPES

PathLike: TypeAlias = str | os.PathLike[str]

_KEY = "harmonicgp"
_LARGEST_HEADER = 100_000_000  # bytes; the limit of safetensors
_LARGEST_ARRAY = 10_000  # numbers of an array in the header; larger arrays belong to the tensors
_WORD = re.compile(r"[A-Za-z0-9_.+!-]{1,64}")  # kinds and versions, which messages show
_DTYPES = (*DTYPES.values(), torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)


#: What building an object from the content of a false file may raise.
UNREADABLE = (LookupError, TypeError, AttributeError, ValueError, RuntimeError, ArithmeticError, MemoryError)


class ModelFileError(ValueError):
    """A file cannot be read as the expected kind. The message names the reason in one line."""


class Container(NamedTuple):
    """The contents of a file: its format version, the library version that wrote it, the header and the tensors."""

    version: int
    library: str
    header: dict[str, Any]
    tensors: dict[str, Tensor]


# Writing ------------------------------------------------------------------------------------------------------------


def write_text_atomically(path: PathLike, text: str) -> None:
    """Write a UTF-8 text file atomically: if it fails, an old file stays as it was."""
    with replacing(path) as file:
        file.write(text.encode())


def write_container(
    path: PathLike, kind: str, version: int, header: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> None:
    """Write header and tensors to one file, atomically.

    The header may contain JSON values, NaN and infinities, NumPy scalars and small arrays; tuples and arrays are read as lists.
    Tensors may be views, share memory, be empty, and be on any device.

    Examples:
        >>> import tempfile, torch
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write_container(f"{folder}/a.model", "model", 1, {"rows": 3}, {"mean": torch.zeros(3)})
        ...     read_container(f"{folder}/a.model", "model", newest=1).header
        {'rows': 3}
    """
    if not _WORD.fullmatch(kind) or version < 1:
        raise ValueError(
            f"a container needs a kind of one word and a version of at least 1; got {kind!r}, {version!r}."
        )
    plain = {name: _plain_tensor(name, tensor) for name, tensor in tensors.items()}
    record = {"kind": kind, "version": version, "library": __version__, "header": _encode(dict(header), "header")}
    text = _text({**record, "digest": _digest(record, plain)})
    if len(json.dumps(text)) > _LARGEST_HEADER // 2:  # leaves room for the names and shapes of the tensors
        raise ValueError(f"the header has {len(text)} bytes as JSON, which is too large: put arrays among the tensors.")
    data = save(plain, metadata={_KEY: text})
    if int.from_bytes(data[:8], "little") > _LARGEST_HEADER:
        raise ValueError(f"{len(plain)} tensors are too many for one file: stack them into fewer.")
    with replacing(path) as file:
        file.write(data)


def _plain_tensor(name: str, tensor: Tensor) -> Tensor:
    """A dense copy on the CPU."""
    if not isinstance(name, str) or name == "__metadata__":
        raise TypeError(f"{name!r} cannot be the name of a tensor in a file.")
    if not isinstance(tensor, Tensor):
        raise TypeError(f"tensors[{name!r}] is a {type(tensor).__name__}, not a torch tensor.")
    if tensor.dtype not in _DTYPES or tensor.layout is not torch.strided:
        raise TypeError(
            f"tensors[{name!r}] is {tensor.dtype}, {tensor.layout}: files hold dense real numbers, whole numbers and "
            "booleans (torch.view_as_real, .to_dense())."
        )
    return tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)


# Reading ------------------------------------------------------------------------------------------------------------


def read_container(path: PathLike, kind: str, newest: int) -> Container:
    """Read a file of a kind, in a format version up to `newest`. Raises a `ModelFileError` with the reason if it cannot.

    Tensors are copies on the CPU: the file may be replaced or deleted afterwards.
    """
    name = os.fspath(path)
    _check_readable(name, kind)
    try:
        with safe_open(name, framework="pt") as file:
            record = _record(name, (file.metadata() or {}).get(_KEY), kind, newest)
            # Copies, because the file is memory-mapped.
            tensors = {key: file.get_tensor(key).clone() for key in file.keys()}  # noqa: SIM118 - no mapping
        digest, header = record.pop("digest"), _decode(record["header"])
        if digest != _digest(record, tensors) or any(tensor.dtype not in _DTYPES for tensor in tensors.values()):
            raise ValueError("the contents do not match the digest")
    except ModelFileError:
        raise
    except (SafetensorError, OSError):
        raise ModelFileError(_diagnosis(name, kind)) from None
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        raise ModelFileError(f"{name} was altered or damaged: its contents do not match its digest.") from None
    return Container(record["version"], record["library"], header, tensors)


def kind_of(path: PathLike) -> str | None:
    """The kind that a file declares; None for other files."""
    if not os.path.isfile(path):
        return None
    try:
        with safe_open(os.fspath(path), framework="pt") as file:
            kind = json.loads((file.metadata() or {}).get(_KEY, "null"))["kind"]
    except (OSError, SafetensorError, ValueError, TypeError, KeyError, RecursionError):
        return None
    return kind if isinstance(kind, str) else None


def _check_readable(name: str, kind: str) -> None:
    """Raise a `ModelFileError` unless there is a regular file that is not empty."""
    try:
        status = os.stat(name)
    except FileNotFoundError:
        raise ModelFileError(f"there is no file {name}.") from None
    except (OSError, ValueError) as error:
        raise ModelFileError(f"{name!r} cannot be read: {getattr(error, 'strerror', None) or error}.") from None
    if stat.S_ISDIR(status.st_mode):
        raise ModelFileError(f"{name} is a folder, not a {kind}.")
    if not stat.S_ISREG(status.st_mode):
        raise ModelFileError(f"{name} is a device or a pipe, not a {kind}.")
    if status.st_size == 0:
        raise ModelFileError(f"{name} is empty.")


def _record(name: str, text: str | None, kind: str, newest: int) -> dict[str, Any]:
    """The JSON object of the metadata, checked. Raises a `ModelFileError` for another kind or version, else other errors."""
    if text is None:
        raise ModelFileError(f"{name} is a safetensors file, but not from harmonicgp: it has no header of the library.")
    record: dict[str, Any] = json.loads(text)
    actual, version, library = record["kind"], record["version"], record["library"]
    if not (_WORD.fullmatch(actual) and _WORD.fullmatch(library) and type(version) is int and version >= 1):
        raise ValueError("a kind or version that is never written")
    if actual != kind:
        raise ModelFileError(f"{name} is a {actual}, not a {kind}.")
    if version > newest:
        raise ModelFileError(
            f"{name} was written by harmonicgp {library} in format {version}; this version reads up to {newest}: "
            "upgrade harmonicgp."
        )
    if record.keys() != {"kind", "version", "library", "digest", "header"} or not isinstance(record["header"], dict):
        raise ValueError("a record that is never written")
    if _text(record) != text:  # the digest is of values: different texts may have the same values
        raise ValueError("a text that is never written")
    return record


def _diagnosis(name: str, kind: str) -> str:
    """The reason why safetensors cannot read the file."""
    try:
        with open(name, "rb") as file:
            size, head = os.fstat(file.fileno()).st_size, file.read(9)
            length = int.from_bytes(head[:8], "little")
            header = head[8:] + file.read(length - 1) if 0 < length <= _LARGEST_HEADER else b""
    except OSError as error:
        return f"{name} cannot be read: {error.strerror}."
    if len(head) < 9:
        return f"{name} has {size} bytes only: it is not a safetensors file, or was cut short."
    if head[8:] != b"{":
        reason = "it is not a safetensors file"
        if head[:1] == b"\x80" and head[1:2] <= b"\x05":
            reason = "it looks like a pickle, which can run code and is never opened"
        elif head[:4] == b"PK\x03\x04":
            reason = "it looks like a zip archive, as torch.save writes them"
        return f"{name} is not a {kind} of harmonicgp: {reason}."
    if length > _LARGEST_HEADER:
        return f"{name} was altered or damaged: it claims a header of {length} bytes."
    expected = 8 + length + _data_size(header)
    if size < expected:
        return f"{name} was cut short: it has {size} of at least {expected} bytes."
    return f"{name} was altered or damaged: it is not a valid safetensors file."


def _data_size(header: bytes) -> int:
    """The bytes of tensors according to a safetensors header; 0 if the header cannot be read."""
    try:
        entries = json.loads(header)
        return max(int(entry["data_offsets"][1]) for key, entry in entries.items() if key != "__metadata__")
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError):
        return 0


# The header as JSON, and the digest ----------------------------------------------------------------------------------


def _text(record: Mapping[str, Any]) -> str:
    """The text of the record in a file."""
    return json.dumps(record, separators=(",", ":"))


def _digest(record: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 over the record and over names, dtypes, shapes and bytes of the tensors, in the order of their names."""
    names = sorted(tensors)
    shapes = [[name, str(tensors[name].dtype), list(tensors[name].shape)] for name in names]
    text = json.dumps([record, shapes], sort_keys=True, separators=(",", ":"), allow_nan=False)
    sha = hashlib.sha256(text.encode())
    for name in names:
        sha.update(tensors[name].reshape(-1).view(torch.uint8).numpy().data)
    return sha.hexdigest()


def _encode(value: Any, place: str) -> Any:
    """`value` in the types of JSON: numbers that are not finite as {"$float": "nan"}, and the $ at the start of a key doubled."""
    if isinstance(value, np.ndarray):
        if value.size > _LARGEST_ARRAY:
            raise TypeError(f"{place} is an array of {value.size} numbers: put it among the tensors.")
        value = value.tolist()
    elif isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": str(float(value))}
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, list | tuple):
        return [_encode(item, f"{place}[{i}]") for i, item in enumerate(value)]
    if not isinstance(value, Mapping):
        raise TypeError(f"{place} is a {type(value).__name__}, which a JSON header cannot hold.")
    for key in value:
        if not isinstance(key, str):
            raise TypeError(f"{place} has the key {key!r}, a {type(key).__name__}: keys of a JSON header are text.")
    return {
        f"$${key[1:]}" if key[:1] == "$" else key: _encode(item, f"{place}[{key!r}]") for key, item in value.items()
    }


def _decode(value: Any) -> Any:
    """The inverse of `_encode`."""
    if isinstance(value, list):
        return [_decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.keys() == {"$float"}:
        if value["$float"] not in ("nan", "inf", "-inf"):
            raise ValueError("a number that is never written as text")
        return float(value["$float"])
    if any(key[:1] == "$" and key[:2] != "$$" for key in value):
        raise ValueError("a key that is never written")
    return {key[1:] if key[:1] == "$" else key: _decode(item) for key, item in value.items()}
