"""Memory that a loop will want again, kept from going back to the system.

A training step takes and gives back some hundred megabytes. glibc returns what is free at the top of its heap to the system, so
that the next step has every page of it made anew, which takes time. In here it does not; elsewhere (other
systems, other allocators, or where the environment sets glibc's own switches) nothing is changed.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

# mallopt's numbers; and the values that glibc comes to by itself in a process that uses large blocks
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_LARGEST = 32 << 20  # the largest threshold that glibc takes: larger blocks are mapped one by one
_lock = threading.Lock()
_inside = 0


@lru_cache(maxsize=1)
def _glibc() -> Any:
    """The C library, if it is glibc and nobody else has set its switches."""
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
    """Within, free memory stays with the process; after the last of those inside one another, it goes back."""
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
