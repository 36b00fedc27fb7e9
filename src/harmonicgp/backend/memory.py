"""A context in which free memory is not returned to the operating system.

A training step allocates and frees some hundred megabytes. glibc returns free memory at the top of its heap to the system, and
the next step must wait for new pages. Inside `memory_kept` it does not. On other systems, with other allocators, or if the
environment sets glibc's malloc options, nothing changes.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # the numbers of these options of mallopt
_LARGEST = 32 << 20  # the largest mmap threshold of glibc: larger blocks are mapped one by one
_lock = threading.Lock()
_inside = 0


@lru_cache(maxsize=1)
def _glibc() -> Any:
    """The C library; None if it is not glibc, or if the environment sets its malloc options."""
    if any(name.startswith("MALLOC_") for name in os.environ) or "malloc" in os.environ.get("GLIBC_TUNABLES", ""):
        return None
    try:
        library = ctypes.CDLL(None)
        _ = library.gnu_get_libc_version
        library.mallopt.argtypes = [ctypes.c_int, ctypes.c_int]
        library.malloc_trim.argtypes = [ctypes.c_size_t]
    except (OSError, AttributeError, TypeError):
        return None
    return library


@contextmanager
def memory_kept() -> Iterator[None]:
    """A context in which free memory stays with the process. It is returned at the end of the outermost context."""
    global _inside
    glibc = _glibc()
    if glibc is None:
        yield
        return
    with _lock:
        _inside += 1
        if _inside == 1:
            glibc.mallopt(_MMAP_THRESHOLD, _LARGEST)
            glibc.mallopt(_TRIM_THRESHOLD, 2**31 - 1)
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if _inside == 0:
                glibc.mallopt(_TRIM_THRESHOLD, 2 * _LARGEST)
                glibc.malloc_trim(2 * _LARGEST)
