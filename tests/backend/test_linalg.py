from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from harmonicgp.backend.linalg import (
    Factor,
    NotPositiveDefiniteError,
    cholesky,
    conjugate_gradients,
    lower_product,
    safe_cholesky,
    symmetric_product,
)
from tests.backend.common import spd


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


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("m", [3, 128, 129, 300])
def test_cholesky_by_panels_is_cholesky(m, dtype):
    K = spd(3, m, dtype)
    L, info = cholesky(K)
    assert not info.any()
    assert_close(L, torch.linalg.cholesky(K), rtol=1e-9, atol=1e-11)
    K[1, m - 1, m - 1] = -1.0
    assert_close(cholesky(K)[1], torch.linalg.cholesky_ex(K)[1])


def test_blocks_side_by_side_do_not_depend_on_threads(two_threads):
    K = spd(5, 200)
    both = cholesky(K)[0]
    torch.set_num_threads(1)
    alone = cholesky(K)[0]
    assert torch.equal(both[:4], alone[:4])  # the fifth had two threads inside
    assert_close(both, alone, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
@pytest.mark.parametrize("m", [6, 140])
def test_whitening_its_squares_and_their_gradients(m, dtype, threads):
    """Against PyTorch's own derivatives through Cholesky and solve, with a block that is left out."""
    torch.manual_seed(m)
    K = spd(3, m).to(dtype)
    B = torch.randn(3, 9, m, dtype=dtype).mH
    alive, weights, g = (
        torch.tensor([True, False, True]),
        torch.randn(9, dtype=torch.float64),
        torch.randn(3, m, 9, dtype=dtype),
    )
    torch.set_num_threads(threads)
    try:
        found = []
        for own in (True, False):
            k, b = K.clone().requires_grad_(), B.clone().requires_grad_()
            if own:
                A, squares = Factor.of(k, 1e-3).whiten(b, alive)
            else:
                L = torch.linalg.cholesky(k + 1e-2 * torch.finfo(torch.float64).eps * torch.eye(m))
                A = torch.linalg.solve_triangular(L, b, upper=False) * alive[:, None, None]
                squares = A.abs().square().sum((0, 1))
            loss = (A * g.conj()).real.sum() + (weights * squares).sum()
            by_k, by_b = torch.autograd.grad(loss, (k, b))
            found.append((A.detach(), squares.detach(), (by_k + by_k.mH) / 2, by_b))
    finally:
        torch.set_num_threads(1)
    for mine, theirs in zip(*found, strict=True):
        assert_close(mine, theirs, rtol=1e-6, atol=1e-7)


def test_squares_or_features_alone_have_gradients():
    K, B = spd(2, 140), torch.randn(2, 140, 5, dtype=torch.float64, requires_grad=True)
    for part in (0, 1):
        (by,) = torch.autograd.grad(Factor.of(K, 1.0).whiten(B)[part].sum(), B)
        A = torch.linalg.solve_triangular(torch.linalg.cholesky(K), B, upper=False)
        (expected,) = torch.autograd.grad((A.sum(), A.square().sum())[part], B)
        assert_close(by, expected, rtol=1e-6, atol=1e-8)


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


@pytest.mark.parametrize("m", [6, 140])
def test_whitening_of_odd_batches(m):
    K = spd(6, m)
    B = torch.randn(3, 2, m, 5, dtype=torch.float64).transpose(0, 1).requires_grad_()
    A, squares = Factor.of(K.view(2, 3, m, m), 1.0).whiten(B)
    L = torch.linalg.cholesky(K).view(2, 3, m, m)
    expected = torch.linalg.solve_triangular(L, B, upper=False)
    assert_close(A, expected, rtol=1e-6, atol=1e-7)
    assert_close(squares, expected.square().sum((0, 1, 2)), rtol=1e-6, atol=1e-7)
    one, b = K[0].clone().requires_grad_(), B.detach()[0].clone().requires_grad_()
    found = torch.autograd.grad(Factor.of(one, 1.0).solve(b).sin().sum(), (one, b))
    plain = torch.linalg.solve_triangular(torch.linalg.cholesky(one), b, upper=False)
    for mine, theirs in zip(found, torch.autograd.grad(plain.sin().sum(), (one, b)), strict=True):
        assert_close((mine + mine.mT) / 2 if mine.shape[-1] == m else mine,
                     (theirs + theirs.mT) / 2 if theirs.shape[-1] == m else theirs, rtol=1e-5, atol=1e-6)  # fmt: skip


def test_real_and_complex_together():
    C = torch.complex(torch.eye(4), 0.1 * torch.ones(4, 4).triu(1)).to(torch.complex128)
    K = C @ C.mH
    B = torch.randn(4, 3, dtype=torch.float64)
    L = torch.linalg.cholesky(K)
    assert_close(
        Factor.of(K, 1.0).solve(B), torch.linalg.solve_triangular(L, B.to(K.dtype), upper=False), rtol=1e-6, atol=1e-7
    )
    with pytest.raises(TypeError, match="real factor"):
        Factor.of(spd(1, 4)[0], 1.0).solve(B.to(torch.complex128))
