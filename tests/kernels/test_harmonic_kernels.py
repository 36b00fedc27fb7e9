"""The kernels GPyTorch lacks, and the doors of the harmonic ones."""

from __future__ import annotations

import gpytorch.kernels as gk
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from harmonicgp import Cyclic
from harmonicgp.actions import (
    Action,
    ImageFlip,
    Longitude,
    Negation,
    Permutation,
    PrincipalNegation,
    Rotation,
    Translation,
)
from harmonicgp.kernels import ArcCosineKernel, GlobeKernel, HarmonicKernel, harmonic_diagonal, harmonic_gram
from tests import reference as ref


@given(st.integers(0, 2), st.floats(0.1, 5), st.floats(0.01, 3), st.integers(0, 10**6))
def test_arccosine_equals_its_definition(order, lengthscale, bias, seed):
    rng = np.random.default_rng(seed)
    X, Y = rng.normal(size=(4, 3)), rng.normal(size=(5, 3))
    kernel = ArcCosineKernel(order=order).double()
    kernel.lengthscale, kernel.bias_variance = lengthscale, bias
    k = ref.arc_cosine(order, lengthscale, bias)
    ours = kernel(torch.from_numpy(X), torch.from_numpy(Y)).to_dense().detach()
    np.testing.assert_allclose(ours, k(X, Y), rtol=1e-9)
    # the diagonal takes the cosine 1 up to rounding: an angle of 1e-8
    np.testing.assert_allclose(kernel(torch.from_numpy(X), diag=True).detach(), np.diag(k(X, X)), rtol=1e-7)
    assert np.linalg.eigvalsh(kernel(torch.from_numpy(X)).to_dense().detach()).min() > -1e-7


def test_arccosine_equals_the_infinite_network():
    """Order 1 is E[relu(w.x) relu(w.x')] * 2 over Gaussian weights."""
    x, w = torch.randn(2, 3), torch.randn(3, 400_000)
    kernel = ArcCosineKernel(order=1).double()
    kernel.lengthscale, kernel.bias_variance = 1.0, 1e-6
    hidden = torch.relu(x @ w)
    assert_close(kernel(x).to_dense(), 2 * hidden @ hidden.T / w.shape[1], rtol=0.02, atol=0.02)


def test_arccosine_ard_and_batches():
    kernel = ArcCosineKernel(order=1, ard_num_dims=3, batch_shape=torch.Size([2])).double()
    x = torch.randn(2, 4, 3)
    K = kernel(x).to_dense()
    assert K.shape == (2, 4, 4)
    assert kernel(x, diag=True).shape == (2, 4)
    with pytest.raises(ValueError, match="orders 0, 1 and 2"):
        ArcCosineKernel(order=3)
    with pytest.raises(ValueError, match="at least 0"):
        ArcCosineKernel(order=-1)


def test_the_globe_kernel_equals_its_definition():
    rng = np.random.default_rng(0)
    X = np.stack([rng.uniform(-180, 360, 6), rng.uniform(-90, 90, 6)], 1)
    for base, k in [(gk.RBFKernel(), ref.rbf(0.3)), (gk.MaternKernel(nu=1.5), ref.matern(1.5, 0.3))]:
        kernel = GlobeKernel(base).double()
        base.lengthscale = 0.3
        np.testing.assert_allclose(kernel(torch.from_numpy(X)).to_dense().detach(), ref.globe(k)(X, X), atol=1e-7)
        np.testing.assert_allclose(kernel(torch.from_numpy(X), diag=True).detach(), 1.0, atol=1e-7)


def test_the_globe_kernel_with_further_columns():
    kernel = GlobeKernel(gk.RBFKernel(), active_dims=[0, 1]) * gk.MaternKernel(nu=1.5, active_dims=[2])
    x = torch.tensor([[10.0, 20.0, 0.5], [30.0, -40.0, 1.5], [-170.0, 80.0, -0.3]])
    K = harmonic_gram(kernel.double(), Longitude(5) * Negation([2]), x, x)
    assert_close(K.sum(0).real, kernel(x).to_dense())


def test_bad_globe_kernels():
    with pytest.raises(ValueError, match="isotropic"):
        GlobeKernel(gk.RBFKernel(ard_num_dims=3))
    with pytest.raises(TypeError, match="GPyTorch kernel"):
        GlobeKernel("rbf")
    with pytest.raises(ValueError, match="active_dims"):
        GlobeKernel(gk.RBFKernel())(torch.zeros(2, 3)).to_dense()
    with pytest.raises(ValueError, match="swapped"):
        GlobeKernel(gk.RBFKernel())(torch.tensor([[0.0, 100.0]])).to_dense()


def _ard(*lengthscales):
    kernel = gk.MaternKernel(nu=1.5, ard_num_dims=len(lengthscales)).double()
    kernel.lengthscale = torch.tensor(lengthscales)
    return kernel


@pytest.mark.parametrize(
    ("kernel", "action", "words"),
    [
        (_ard(1.0, 2.0), Rotation((0, 1), 4), r"mixes coordinates 0 and 1, whose lengthscales differ \(1 and 2\)"),
        (gk.ScaleKernel(_ard(1.0, 2.0)), Rotation((0, 1), 4), "one lengthscale"),
        (_ard(1.5, 1.5), Rotation((0, 1), 4), r"lengthscales are learned apart \(1.5 and 1.5\)"),
        (_ard(*torch.linspace(1, 10, 784).tolist()), ImageFlip((28, 28)), "lengthscales differ"),
        (_ard(*torch.linspace(0.3, 0.6, 30).tolist()), Permutation([*range(1, 30), 0]), "lengthscales differ"),
        (_ard(1e4, 2e4), Rotation((0, 1), 4), "lengthscales differ"),
        (_ard(1e-4, 2e-4), Rotation((0, 1), 4), "lengthscales differ"),
        (gk.LinearKernel(), Translation(0, 24.0, 3), "does not repeat along coordinate 0"),
        (gk.RBFKernel(), Translation(0, 24.0, 360), "PeriodicKernel"),
        (gk.RBFKernel(), Longitude(12), "GlobeKernel"),
        (gk.LinearKernel(), PrincipalNegation(1).fit(torch.randn(20, 2) + 3), "subtract the mean"),
        (lambda a, b: a.sum(-1).exp()[..., :, None] * b.sum(-1).exp()[..., None, :], Negation(), "another kernel"),
    ],
)  # fmt: skip
def test_a_kernel_that_is_not_invariant_is_refused_with_the_reason(kernel, action, words):
    with pytest.raises(ValueError, match=words) as error:
        HarmonicKernel(kernel, action)
    assert "check=False" in str(error.value)
    assert "not invariant under" in str(error.value)
    HarmonicKernel(kernel, action, check=False)


def test_the_check_passes_invariant_kernels_in_float32():
    x = torch.randn(6, 4, dtype=torch.float32)
    with torch.random.fork_rng():
        for kernel in (gk.MaternKernel(nu=0.5), gk.RBFKernel(ard_num_dims=4)):
            kernel = kernel.float()
            K = harmonic_gram(kernel, Negation.strided(4, 3), x, x)
            assert K.dtype == torch.float32
            assert_close(K.sum(0), kernel(x).to_dense(), atol=1e-3, rtol=0)
            assert {p.dtype for p in kernel.parameters()} == {torch.float32}  # the float64 copy was a copy


def test_the_check_leaves_random_state_alone():
    before = torch.random.get_rng_state()
    HarmonicKernel(gk.RBFKernel(), Rotation((0, 1), 3))
    assert_close(torch.random.get_rng_state(), before)


def test_ard_is_allowed_where_the_action_allows_it():
    x = torch.randn(5, 3)
    harmonic_gram(_ard(0.5, 1.0, 2.0), Negation([[0], [1, 2]]), x, x)
    harmonic_gram(_ard(0.5, 0.5, 2.0), Rotation((0, 1), 3), x, x)


def test_a_kernel_with_computed_parameters_is_checked_as_it_is():
    kernel = gk.RBFKernel().double()
    del kernel.raw_lengthscale
    kernel.raw_lengthscale = torch.zeros(1, 1, requires_grad=True) * 2.0  # not a leaf: cannot be copied
    HarmonicKernel(kernel, Rotation((0, 1), 3))


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"x1": torch.zeros(0, 2)}, ValueError, "empty"),
        ({"x2": torch.full((3, 2), float("nan"))}, ValueError, "x2 has NaN"),
        ({"x1": torch.zeros(3, 2, dtype=torch.complex128)}, TypeError, "complex"),
        ({"x1": torch.zeros(3, 1)}, ValueError, "at least 2 coordinates"),
        ({"x1": torch.zeros(5, 3, 2)}, ValueError, "one set for each of the 2 blocks"),
        ({"x2": torch.zeros(3, 4)}, ValueError, "points of one space"),
        ({"x2": torch.zeros(3, 2, dtype=torch.float32)}, TypeError, "one dtype"),
        ({"kernel": "rbf"}, TypeError, "GPyTorch kernel or a function"),
        ({"kernel": gk.RBFKernel(batch_shape=torch.Size([3]))}, ValueError, "batch of kernels"),
        ({"kernel": gk.MultitaskKernel(gk.RBFKernel(), num_tasks=2)}, ValueError, "one number for each pair"),
        ({"resolution": "half"}, ValueError, "resolution must be one of"),
        ({"action": "rotate"}, TypeError, "must be an action"),
        ({"kernel": lambda a, b: 1.0}, TypeError, "dense tensor"),
        ({"kernel": lambda a, b: torch.zeros(2)}, ValueError, "one number for each pair"),
    ],
)
def test_bad_input(arguments, error, words):
    good = {
        "kernel": gk.RBFKernel().double(),
        "action": Rotation((0, 1), 3),
        "x1": torch.randn(4, 2),
        "x2": torch.randn(4, 2),
    }
    with pytest.raises(error, match=words):
        harmonic_gram(**{**good, **arguments})


def test_one_element_group_is_the_kernel_itself():
    x, kernel = torch.randn(4, 2), gk.RBFKernel().double()
    for resolution in ("full", "complex", "real"):
        K = harmonic_gram(kernel, Rotation((0, 1), 1), x, x, resolution)
        assert_close(K, kernel(x).to_dense()[None])
        assert_close(harmonic_diagonal(kernel, Rotation((0, 1), 1), x, resolution), torch.ones(1, 4))


def test_frozen_equal_lengthscales_may_mix():
    kernel = _ard(0.5, 0.5, 2.0).requires_grad_(False)
    HarmonicKernel(kernel, Rotation((0, 1), 3))


def test_a_function_of_unknown_width_asks_for_dim():
    R = torch.randn(3, 3)
    kernel = lambda a, b: torch.exp(-torch.cdist(a @ R, b @ R))  # noqa: E731
    with pytest.raises(ValueError, match="give dim="):
        HarmonicKernel(kernel, Negation())
    HarmonicKernel(kernel, Negation(), dim=3)


def test_an_action_without_its_order_is_refused():
    class Swap(Action):
        group = Cyclic(2)

        def move(self, x, s):
            return torch.where(s == 1, x.roll(x.shape[-1] // 2, -1), x)

    x = torch.randn(4, 4)
    harmonic_gram(gk.RBFKernel().double(), Swap(), x, x)
    with pytest.raises(ValueError, match="does not have order 2 on points of 5 columns"):
        harmonic_gram(gk.RBFKernel().double(), Swap(), torch.randn(4, 5), torch.randn(4, 5))
