"""LAPACK's Cholesky factorisation as PyTorch carries it, called without PyTorch's copies, and without Python's lock.

`torch.linalg.cholesky_ex` spends more on what is around the factorisation than on the factorisation. Where PyTorch's library
does not give the routine away, or gives a wrong answer to a question of three rows, there is none and PyTorch's own serves.
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

#: Makes the factor of a matrix [m, m], laid out row by row, of its lower triangle; leaves what is above; gives LAPACK's info.
Routine: TypeAlias = Callable[[Tensor], int]

_LETTERS = {torch.float64: "d", torch.complex128: "z"}


@lru_cache(maxsize=4)
def potrf(dtype: torch.dtype) -> Routine | None:
    """The routine for a dtype, or None."""
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
    symbol.argtypes = [ctypes.c_char_p, *[ctypes.c_void_p] * 4]
    symbol.restype = None

    def run(A: Tensor) -> int:
        # Whole numbers of 64 bits whose upper half is zero: right whether LAPACK reads 32 of them or all.
        n, stride, info = ctypes.c_int64(A.shape[0]), ctypes.c_int64(A.stride(0)), ctypes.c_int64(0)
        # Rows are LAPACK's columns, the lower triangle its upper one.
        symbol(b"U", ctypes.addressof(n), A.data_ptr(), ctypes.addressof(stride), ctypes.addressof(info))
        return info.value

    return run


def _is_right(routine: Routine, dtype: torch.dtype) -> bool:
    """Whether it factorises a small matrix, and says of another which row fails."""
    turn = 1j if dtype.is_complex else 1.0
    L = torch.tensor([[2.0, 0.0, 0.0], [turn, 3.0, 0.0], [0.5, -turn, 1.5]], dtype=dtype, device="cpu")
    A = L @ L.mH
    bad = torch.diag(torch.tensor([1.0, -1.0, 1.0], dtype=dtype, device="cpu"))
    return routine(A) == 0 and torch.allclose(A.tril(), L) and routine(bad) == 2
