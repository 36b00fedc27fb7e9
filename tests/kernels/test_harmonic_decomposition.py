"""The paper's section 3 as tests: against dense numpy sums, over hypothesis-drawn groups, actions, kernels, points.

T = 3 and two-way groups are always among the motions (`FIXED_MOTIONS`): negations hide conjugation bugs.
"""

from __future__ import annotations

import gpytorch.kernels as gk
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from harmonicgp import Cyclic
from harmonicgp.actions import ImageShift, Negation, Rotation, Translation
from harmonicgp.kernels import HarmonicKernel, harmonic_diagonal, harmonic_gram
from harmonicgp.testing import assert_decomposition
from tests import reference as ref
from tests.cases import FIXED_MOTIONS, Case, cases, points

each_motion = pytest.mark.parametrize("motion", [*FIXED_MOTIONS, None], ids=lambda m: repr(m.action) if m else "drawn")
RESOLUTIONS = ("full", "complex", "real")


def full(case: Case, X, Y) -> np.ndarray:
    """Ours, all |G| kernels: [|G|, n, m]."""
    K = harmonic_gram(case.kernel, case.action, torch.as_tensor(X), torch.as_tensor(Y), "full", check=False)
    return K.detach().to(torch.complex128).numpy()


def scale(case: Case) -> float:
    return 1.0 + float(np.abs(case.k(case.x, case.x)).max())


@each_motion
@given(data=st.data())
def test_equals_the_definition_in_every_resolution(motion, data):
    case = data.draw(cases(motion))
    other = data.draw(points(case.motion))
    tolerance = 1e-7 * scale(case)  # Matern 1/2 takes the square root of a rounded distance
    group = case.action.group
    for t, k_t in zip(ref.elements(case.orders), full(case, case.x, other), strict=True):
        dense = ref.harmonic_kernel(case.k, case.motion.move, case.orders, t, case.x, other)
        np.testing.assert_allclose(k_t, dense, atol=tolerance, rtol=0)
    x, y = case.points, torch.from_numpy(other)
    complex_blocks = harmonic_gram(case.kernel, case.action, x, y, "complex").detach().numpy()
    for (t, minus_t), k_t in zip(group.conjugate_pairs, complex_blocks, strict=True):
        s = tuple(group.elements()[t].tolist())
        dense = ref.harmonic_kernel(case.k, case.motion.move, case.orders, s, case.x, other)
        np.testing.assert_allclose(k_t, dense * (1 + (t != minus_t)), atol=tolerance, rtol=0)
    real_blocks = harmonic_gram(case.kernel, case.action, x, y, "real").detach().numpy()
    assert not np.iscomplexobj(real_blocks)
    for t, k_t in zip(group.folded_frequencies, real_blocks, strict=True):
        dense = ref.folded_kernel(case.k, case.motion.move, case.orders, t, case.x, other)
        np.testing.assert_allclose(k_t, dense, atol=tolerance, rtol=0)


@each_motion
@given(data=st.data())
def test_shift_property_on_both_sides(motion, data):
    case = data.draw(cases(motion))
    K = full(case, case.x, case.x)
    tolerance = 1e-7 * scale(case)
    for place, s in enumerate(ref.elements(case.orders)):
        chi = case.action.group.characters()[:, place, None, None].numpy()
        moved = case.motion.move(case.x, s).copy()
        np.testing.assert_allclose(full(case, case.x, moved), chi * K, atol=tolerance, rtol=0)
        np.testing.assert_allclose(full(case, moved, case.x), chi.conj() * K, atol=tolerance, rtol=0)


@each_motion
@given(data=st.data())
def test_the_blocks_add_up_to_k(motion, data):
    case = data.draw(cases(motion))
    K = case.k(case.x, case.x)
    for resolution in RESOLUTIONS:
        total = harmonic_gram(case.kernel, case.action, case.points, case.points, resolution).sum(0).detach().numpy()
        if resolution == "full":
            np.testing.assert_allclose(total.imag, 0, atol=1e-9 * scale(case))
        np.testing.assert_allclose(total.real, K, atol=1e-7 * scale(case), rtol=0)


@each_motion
@given(data=st.data())
def test_every_block_is_hermitian_positive_semidefinite(motion, data):
    case = data.draw(cases(motion))
    for resolution in RESOLUTIONS:
        for k_t in harmonic_gram(case.kernel, case.action, case.points, case.points, resolution).detach().numpy():
            np.testing.assert_allclose(k_t, k_t.conj().T, atol=1e-7 * scale(case), rtol=0)
            assert np.linalg.eigvalsh(k_t).min() > -1e-7 * scale(case) * len(case.x)


@each_motion
@given(data=st.data())
def test_the_diagonal_is_that_of_the_gram_matrix(motion, data):
    case = data.draw(cases(motion))
    for resolution in RESOLUTIONS:
        K = harmonic_gram(case.kernel, case.action, case.points, case.points, resolution)
        diagonal = harmonic_diagonal(case.kernel, case.action, case.points, resolution)
        assert not diagonal.is_complex()
        assert_close(diagonal, K.diagonal(dim1=-2, dim2=-1).real, rtol=0, atol=1e-7 * scale(case))


@each_motion
@given(data=st.data())
def test_separate_inducing_inputs_equal_shared_ones_block_by_block(motion, data):
    case = data.draw(cases(motion, n=3))
    x = torch.from_numpy(data.draw(points(case.motion, 4)))
    for resolution in RESOLUTIONS:
        kernel = HarmonicKernel(case.kernel, case.action, resolution, dim=case.motion.d)
        Z = torch.stack([case.points + 0.01 * t for t in range(kernel.n_blocks)])
        K_zx, K_zz, K_xz, k_z = kernel.gram(Z, x), kernel.gram(Z, Z), kernel.gram(x, Z), kernel.diagonal(Z)
        for t in range(kernel.n_blocks):
            atol = {"rtol": 0, "atol": 1e-7 * scale(case)}
            assert_close(K_zx[t], kernel.gram(Z[t], x)[t], **atol)
            assert_close(K_zz[t], kernel.gram(Z[t], Z[t])[t], **atol)
            assert_close(K_xz[t], kernel.gram(x, Z[t])[t], **atol)
            assert_close(k_z[t], kernel.diagonal(Z[t])[t], **atol)


@each_motion
@given(data=st.data())
def test_the_conformance_tool_agrees(motion, data):
    case = data.draw(cases(motion))
    assert_decomposition(case.kernel, case.action, case.points, tolerance=1e-6)


# A kernel that is not invariant still adds up, and is caught --------------------------------------------------------


def test_a_kernel_that_is_not_invariant_breaks_hermitian_and_psd_but_not_the_sum():
    kernel = gk.RBFKernel(ard_num_dims=2).double()
    kernel.lengthscale = torch.tensor([0.5, 2.0])
    action, x = Rotation((0, 1), 3), torch.randn(8, 2)
    K = harmonic_gram(kernel, action, x, x, "full", check=False).detach()
    assert_close(K.sum(0).real, kernel(x).to_dense().detach())
    broken = [float((k_t - k_t.mH).abs().max()) > 1e-3 for k_t in K]
    least = [float(torch.linalg.eigvalsh((k_t + k_t.mH) / 2).min()) for k_t in K]
    assert all(broken)
    assert min(least) < -1e-3
    with pytest.raises(AssertionError, match="not Hermitian at the pair"):
        assert_decomposition(kernel, action, x)


# The paper's examples -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("T", [3, 4, 5, 8])
def test_the_opening_example(T):
    """k = exp(-i(a - b)) + exp(-2i(a - b)) on the circle: k_1 and k_2 are its two terms, the other kernels zero."""

    def term(n):
        return lambda a, b: torch.exp(-1j * n * (a - b.mT))

    theta = 2 * np.pi * torch.rand(6, 1)
    action = Translation(0, 2 * np.pi, T)
    K = harmonic_gram(lambda a, b: term(1)(a, b) + term(2)(a, b), action, theta, theta, "full")
    for t in range(T):
        expected = term(t)(theta, theta) if t in (1, 2) else torch.zeros(6, 6, dtype=torch.complex128)
        assert_close(K[t], expected, rtol=0, atol=1e-12)
    assert_decomposition(lambda a, b: term(1)(a, b) + term(2)(a, b), action, theta)
    with pytest.raises(ValueError, match="full"):
        harmonic_gram(term(1), action, theta, theta, "complex")
    with pytest.raises(ValueError, match="full"):
        harmonic_gram(term(1), action, theta.expand(T // 2 + 1, 6, 1), theta, "real")


@pytest.mark.parametrize("T", [3, 4, 7, 16])
def test_the_link_to_structured_interpolation(T):
    """On a 1-d periodic grid the Gram matrix is circulant, and T k_t are its eigenvalues."""
    kernel = gk.PeriodicKernel().double()
    kernel.period_length = 1.0
    action, x = Translation(0, 1.0, T), torch.tensor([[0.3]])
    grid = action.orbit(x)[:, 0]
    C = kernel(grid).to_dense().detach().numpy()
    eigenvalues = np.linalg.eigvalsh(C)
    K = harmonic_gram(kernel, action, x, x, "full")[:, 0, 0].detach().numpy()
    np.testing.assert_allclose(np.sort(T * K.real), eigenvalues, atol=1e-10)
    # and with two different points, C is circulant but not symmetric
    y = torch.tensor([[0.4371]])
    C = kernel(grid, action.orbit(y)[:, 0]).to_dense().detach().numpy()
    K = harmonic_gram(kernel, action, x, y, "full")[:, 0, 0].detach().numpy()
    F = np.array([[np.exp(-2j * np.pi * t * s / T) for s in range(T)] for t in range(T)])
    np.testing.assert_allclose(np.linalg.inv(F) @ np.diag(F @ C[0]) @ F, C.T, atol=1e-10)
    np.testing.assert_allclose(F @ C[0] / T, K, atol=1e-12)


def test_image_shifts_fold_to_sixteen_kernels():
    x = torch.randn(2, 784)
    K = harmonic_gram(gk.RBFKernel().double(), ImageShift((28, 28), 4), x, x, "real")
    assert K.shape == (16, 2, 2)


def test_two_negations_of_the_plane_make_four_kernels():
    x = torch.randn(5, 2)
    K = harmonic_gram(gk.RBFKernel().double(), Negation([[0], [1]]), x, x)
    assert K.shape == (4, 5, 5)
    assert not K.is_complex()


@pytest.mark.parametrize("T", [1, 2, 3, 4, 7, 8])
def test_real_folding_is_the_cosine_formula(T):
    """(k_t + k_{T-t}) = 2/T sum_s cos(2 pi t s / T) k(x, G^s x'), floor(T/2) + 1 kernels."""
    kernel, action, x = gk.RBFKernel().double(), Rotation((0, 1), T), torch.randn(4, 2)
    K, folded = (harmonic_gram(kernel, action, x, x, r) for r in ("full", "real"))
    assert len(folded) == T // 2 + 1 == Cyclic(T).n_blocks("real")
    for t in range(T // 2 + 1):
        pair = K[t] if 2 * t % T == 0 else K[t] + K[T - t]
        assert_close(folded[t], pair.real, rtol=0, atol=1e-12)


@pytest.mark.parametrize("resolution", RESOLUTIONS)
def test_the_two_way_decomposition_is_nested_one_way_ones(resolution):
    kernel, x = gk.MaternKernel(nu=1.5).double(), torch.randn(4, 4)
    first, second = Rotation((0, 1), 3), Rotation((2, 3), 4)
    both = harmonic_gram(kernel, first * second, x, x, "full").reshape(3, 4, 4, 4)

    for t1 in range(3):
        # k_{t1} of the first action is itself a kernel, invariant under the second: decompose it again.
        def k_t1(a, b, t1=t1):
            images = torch.stack([kernel(a, first.apply(b, s)).to_dense() for s in range(3)])
            return torch.tensordot(Cyclic(3).characters()[t1].conj() / 3, images.to(torch.complex128), 1)

        nested = harmonic_gram(k_t1, second, x, x, "full")
        assert_close(both[t1], nested, rtol=0, atol=1e-12)
