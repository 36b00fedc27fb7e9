from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from harmonicgp.linalg import NotPositiveDefiniteError, conjugate_gradients, safe_cholesky


def test_factors_in_float64_whatever_the_data():
    A = torch.randn(3, 5, 5, dtype=torch.float32)
    K = A @ A.mT + torch.eye(5, dtype=torch.float32)
    L, jitter = safe_cholesky(K, 1.0)
    assert L.dtype == torch.float64
    assert_close(L @ L.mT, K.double() + 10 * 1.1920929e-07 * torch.eye(5), rtol=0, atol=1e-6)
    assert_close(jitter, torch.full((3,), 10 * 1.1920929e-07))
    C = torch.complex(A, A.flip(0)).to(torch.complex64)
    L, _ = safe_cholesky(C @ C.mH + torch.eye(5), 1.0)
    assert L.dtype == torch.complex128


def test_jitter_rises_for_the_failing_block_only():
    good, bad = torch.eye(4), torch.ones(4, 4) - 1e-9 * torch.eye(4)
    _, jitter = safe_cholesky(torch.stack((good, bad)), 1.0)
    assert float(jitter[0]) == pytest.approx(10 * torch.finfo(torch.float64).eps)
    assert float(jitter[1]) > 1e-9


def test_the_error_names_block_dtype_jitter_cause_and_remedy():
    K = torch.stack((torch.eye(3), -torch.eye(3))).float()
    with pytest.raises(NotPositiveDefiniteError, match=r"block \(1,\).*float32.*jitter up to.*orbit.*fold"):
        safe_cholesky(K, 1.0)
    with pytest.raises(NotPositiveDefiniteError, match="learning rate"):
        safe_cholesky(torch.full((2, 2), float("nan")), 1.0)


def test_conjugate_gradients_solve_several_systems_and_never_get_worse():
    A = torch.randn(20, 20)
    H, b = A @ A.mT + torch.eye(20), torch.randn(3, 20)
    x, iterations = conjugate_gradients(lambda v: v @ H, b, lambda r: r / H.diagonal(), tolerance=1e-10)
    assert_close(x, torch.linalg.solve(H, b.mT).mT)
    assert 1 < iterations <= 60
    x0 = torch.randn(3, 20)

    def energy(x):
        return 0.5 * (x @ H * x).sum(-1) - (b * x).sum(-1)

    last = energy(x0)
    for n in (1, 2, 4, 8):
        x, _ = conjugate_gradients(lambda v: v @ H, b, lambda r: r, x0, max_iterations=n)
        now = energy(x)
        assert bool((now <= last + 1e-9).all())
        last = now
    x, iterations = conjugate_gradients(lambda v: v @ H, torch.zeros(1, 20), lambda r: r)
    assert iterations == 0
    assert_close(x, torch.zeros(1, 20))
