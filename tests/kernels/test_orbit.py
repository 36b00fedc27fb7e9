"""The orbit sum as its formula says: one dense sum over all elements."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from harmonicgp import Cyclic
from harmonicgp.backend import native
from harmonicgp.kernels import orbit
from harmonicgp.kernels.orbit import Plan, orbit_sum
from harmonicgp.kernels.profiles import MATERN32, RATIONAL_QUADRATIC, RBF, profile_value

GROUPS = {"3": Cyclic(3), "4": Cyclic(4), "6 x 2": Cyclic(6) * Cyclic(2), "2 x 2": Cyclic(2) ** 2, "70": Cyclic(70)}


def make_plan(group, resolution, profile, ends):
    """Parts that elements weigh in any way, and all blocks."""
    weights = group.weights(resolution)
    own_conjugate = weights.imag.abs().amax(-1) < 1e-12 if weights.is_complex() else torch.ones(len(weights)) > 0
    reals, pairs = ([i for i, real in enumerate(own_conjugate.tolist()) if real is kind] for kind in (True, False))
    C = torch.randn(group.order, len(ends), generator=torch.Generator().manual_seed(group.order))
    return Plan(group, resolution, tuple(reals), tuple(pairs), ends, C, False, False, profile)


def dense(plan, a, b, U, V, scale, parameter):
    """scale sum_s conj(w_ts) f(a_i + b_j + sum_k C_sk u_i^(k) . v_j^(k)), all of it at once."""
    pieces = zip((0, *plan.ends), plan.ends, strict=False)
    products = torch.stack([U[:, start:end] @ V[start:end] for start, end in pieces])
    t = (a[:, None] + b + torch.einsum("sk,kij->sij", plan.C, products)).clamp_min(0.0)
    f = scale * profile_value(plan.profile, t, parameter)
    weights = plan.group.weights(plan.resolution).conj()
    K = torch.einsum("ts,sij->tij", weights, f.to(weights.dtype))
    return torch.view_as_real(K) if K.is_complex() else torch.stack((K, torch.zeros_like(K)), -1)


def inputs(m, n, width, seed):
    generator = torch.Generator().manual_seed(seed)
    a, b = (3.0 + torch.rand(size, generator=generator) for size in (m, n))  # squared distances stay above zero
    U, V = (torch.randn(shape, generator=generator) / width**0.25 for shape in ((m, width), (width, n)))
    return [t.requires_grad_() for t in (a, b, 0.3 * U, V, torch.tensor(1.7), torch.tensor(0.9))]


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "PyTorch"])
@given(
    name=st.sampled_from(sorted(GROUPS)),
    resolution=st.sampled_from(["complex", "real"]),
    profile=st.sampled_from([RBF, MATERN32, RATIONAL_QUADRATIC]),
    ends=st.sampled_from([(2,), (1, 3), (2, 4, 5), (30, 60)]),
    tile=st.sampled_from([1, 1 << 20]),
    seed=st.integers(0, 99),
)
def test_values_and_gradients_are_those_of_the_formula(compiled, name, resolution, profile, ends, tile, seed):
    if compiled and not native.available():
        pytest.skip(f"the C code could not be compiled on this machine, so only PyTorch is tested ({native.status()})")
    plan, arguments = make_plan(GROUPS[name], resolution, profile, ends), inputs(3, 5, ends[-1], seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(orbit, "_TILE", tile)
        patch.setattr(native, "available", lambda: compiled)
        real, paired = orbit_sum(plan, *arguments)
        found = torch.zeros(len(real) + len(paired), 3, 5, 2)
        found[list(plan.reals), ..., 0] = real
        found[list(plan.pairs)] = torch.view_as_real(paired)
        expected = dense(plan, *arguments)
        assert_close(found, expected, rtol=1e-9, atol=1e-12)
        weights = torch.randn(expected.shape, generator=torch.Generator().manual_seed(1))
        weights[list(plan.reals), ..., 1] = 0.0
        ours = torch.autograd.grad((found * weights).sum(), arguments, allow_unused=True)
    theirs = torch.autograd.grad((expected * weights).sum(), arguments, allow_unused=True)
    for one, other in zip(ours, theirs, strict=True):
        assert_close(one, torch.zeros_like(one) if other is None else other, rtol=1e-7, atol=1e-9)


def test_precisions_are_brought_to_the_widest_and_half_ones_refused():
    plan = make_plan(Cyclic(3), "real", RBF, (2,))
    a, b, U, V, scale, parameter = (t.detach() for t in inputs(3, 5, 2, 0))
    real, _ = orbit_sum(plan, a.float(), b, U.float(), V, scale, parameter)
    assert real.dtype == torch.float64
    assert_close(real, orbit_sum(plan, a, b, U, V, scale, parameter)[0], rtol=1e-5, atol=1e-6)
    with pytest.raises(TypeError, match="float32 or float64"):
        orbit_sum(plan, *(t.half() for t in (a, b, U, V)), scale, parameter)
