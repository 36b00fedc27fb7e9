"""LAPACK's Cholesky factorisation, with and without PyTorch's own."""

from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from harmonicgp.backend.lapack import potrf
from harmonicgp.backend.linalg import cholesky
from tests.backend.common import spd


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("m", [1, 7, 130])
def test_lapack_by_itself(dtype, m):
    routine = potrf(dtype)
    if routine is None:
        pytest.skip("this build of PyTorch does not export the LAPACK routines, so there is none to call by itself")
    K = spd(1, m)[0].to(dtype)
    if dtype.is_complex:
        turn = torch.polar(torch.ones(m, dtype=torch.float64), torch.arange(m, dtype=torch.float64))
        K = turn[:, None] * K * turn.conj()
    L = torch.cat((K.tril(), K.new_full((m, 3), 99.0)), 1)[:, :m]  # rows that lie apart
    assert routine(L) == 0
    assert_close(L.tril(), torch.linalg.cholesky(K), rtol=1e-9, atol=1e-11)
    K[m - 1, m - 1] = -1.0
    assert routine(K.clone()) == m


def test_without_lapack_pytorch_serves(monkeypatch):
    K = spd(3, 150)
    K[1, 140, 140] = -1.0
    with_it = cholesky(K)
    monkeypatch.setenv("HARMONICGP_NATIVE", "0")
    potrf.cache_clear()
    try:
        assert potrf(torch.float64) is None
        without = cholesky(K)
    finally:
        monkeypatch.undo()
        potrf.cache_clear()
    assert with_it[1].tolist() == without[1].tolist() == [0, 141, 0]
    assert_close(with_it[0][[0, 2]], without[0][[0, 2]], rtol=1e-9, atol=1e-11)
