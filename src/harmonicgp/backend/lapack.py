"""The Cholesky factorisation of the LAPACK in PyTorch, called directly: without PyTorch's copies and without Python's lock.

`torch.linalg.cholesky_ex` takes longer for its overhead than for the factorisation. If PyTorch's library does not export the
routine, or if the routine fails a test with three rows, `torch.linalg.cholesky_ex` is used.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

import torch
from torch import Tensor

#: Overwrites the lower triangle of a row-major matrix [m, m] with its Cholesky factor, and returns LAPACK's info.
Routine: TypeAlias = Callable[[Tensor], int]

_LETTERS = {torch.float64: "d", torch.complex128: "z"}


@lru_cache(maxsize=4)
def potrf(dtype: torch.dtype) -> Routine | None:
    """The routine for a dtype; None if there is none."""
    if os.environ.get("HARMONICGP_NATIVE", "1") == "0" or dtype not in _LETTERS:
        return None
    name = f"{_LETTERS[dtype]}potrf"
    for file in sorted((Path(torch.__file__).parent / "lib").glob("libtorch_cpu.*")):
        try:
            library = ctypes.CDLL(str(file))
        except OSError:
            continue
        for spelling in (name.upper(), f"{name}_"):
            symbol = getattr(library, spelling, None)
            if symbol is not None and _is_right(routine := _routine(symbol), dtype):
                return routine
    return None


def _routine(symbol: ctypes._FuncPointer) -> Routine:
    """The routine from a symbol of the library."""
    symbol.argtypes = [ctypes.c_char_p, *[ctypes.c_void_p] * 4]
    symbol.restype = None

    def run(A: Tensor) -> int:
        # Integers of 64 bits whose upper half is zero are right for a LAPACK with 32-bit and with 64-bit integers.
        n, stride, info = ctypes.c_int64(A.shape[0]), ctypes.c_int64(A.stride(0)), ctypes.c_int64(0)
        # LAPACK is column-major: the lower triangle is its upper one.
        symbol(b"U", ctypes.addressof(n), A.data_ptr(), ctypes.addressof(stride), ctypes.addressof(info))
        return info.value

    return run


def _is_right(routine: Routine, dtype: torch.dtype) -> bool:
    """Whether a routine factorises a small matrix, and reports the row where another matrix is not positive definite."""
    unit = 1j if dtype.is_complex else 1.0
    L = torch.tensor([[2.0, 0.0, 0.0], [unit, 3.0, 0.0], [0.5, -unit, 1.5]], dtype=dtype, device="cpu")
    A = L @ L.mH
    bad = torch.diag(torch.tensor([1.0, -1.0, 1.0], dtype=dtype, device="cpu"))
    return routine(A) == 0 and torch.allclose(A.tril(), L) and routine(bad) == 2
