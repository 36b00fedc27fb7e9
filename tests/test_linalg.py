from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from harmonicgp.linalg import (
    Factor,
    NotPositiveDefiniteError,
    cholesky,
    conjugate_gradients,
    lower_product,
    safe_cholesky,
    symmetric_product,
)


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


def spd(batch, m, dtype=torch.float64):
    A = torch.randn(batch, m, m + 5, dtype=dtype)
    return A @ A.mH / m


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("m", [3, 128, 129, 300])
def test_cholesky_by_panels_is_cholesky(m, dtype):
    K = spd(3, m, dtype)
    L, info = cholesky(K)
    assert not info.any()
    assert_close(L, torch.linalg.cholesky(K), rtol=1e-9, atol=1e-11)
    K[1, m - 1, m - 1] = -1.0
    assert_close(cholesky(K)[1], torch.linalg.cholesky_ex(K)[1])


def test_cholesky_does_not_depend_on_threads():
    K = spd(5, 200)
    alone = cholesky(K)[0]
    torch.set_num_threads(2)
    try:
        assert torch.equal(cholesky(K)[0], alone)
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("m", [5, 150])
def test_half_products_are_halves_of_products(m, dtype):
    A, B = torch.randn(2, 3, m, 7, dtype=dtype)
    assert_close(lower_product(A, B).tril(), (A @ B.mH).tril())
    if dtype == torch.float64:
        assert_close(symmetric_product(A), A @ A.mT)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("m", [4, 140])
def test_gradients_of_a_factor_are_those_of_autograd(m, dtype):
    """Two solves with one factor, against Cholesky and solves left to PyTorch."""
    root = torch.randn(2, m, m + 3, dtype=dtype, requires_grad=True)
    B = [torch.randn(2, m, n, dtype=dtype, requires_grad=True) for n in (3, 6)]
    weights = [torch.randn(2, m, n, dtype=dtype) for n in (3, 6)]

    def loss(solve):
        return sum((solve(b) * w).sum().real + solve(b).abs().square().sum() for b, w in zip(B, weights, strict=True))

    K = root @ root.mH / m + torch.eye(m)
    ours = torch.autograd.grad(loss(Factor.of(K, 1e-16).solve), [root, *B])
    K = root @ root.mH / m + torch.eye(m)
    L = torch.linalg.cholesky(K)
    theirs = torch.autograd.grad(loss(lambda b: torch.linalg.solve_triangular(L, b, upper=False)), [root, *B])
    for a, b in zip(ours, theirs, strict=True):
        assert_close(a, b, rtol=1e-8, atol=1e-9)
