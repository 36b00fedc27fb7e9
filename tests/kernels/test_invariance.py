"""Kernels that are invariant pass, others are refused with the reason and a way out."""

from __future__ import annotations

import gpytorch.kernels as gk
import pytest
import torch
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
from harmonicgp.kernels import HarmonicKernel, check_invariant, harmonic_gram


def _ard(*lengthscales):
    kernel = gk.MaternKernel(nu=1.5, ard_num_dims=len(lengthscales)).double()
    kernel.lengthscale = torch.tensor(lengthscales)
    return kernel


@pytest.mark.parametrize(
    ("kernel", "action", "words"),
    [
        (_ard(1.0, 2.0), Rotation((0, 1), 4), r"mixes coordinates 0 and 1, whose lengthscales differ \(1 and 2\)"),
        (gk.ScaleKernel(_ard(1.0, 2.0)), Rotation((0, 1), 4), "one lengthscale"),
        (_ard(1.5, 1.5), Rotation((0, 1), 4), r"lengthscales are learned separately \(1.5 and 1.5\)"),
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


def test_frozen_equal_lengthscales_may_mix():
    kernel = _ard(0.5, 0.5, 2.0).requires_grad_(False)
    HarmonicKernel(kernel, Rotation((0, 1), 3))


class TwoScales(gk.Kernel):
    """A kernel of one's own with a scale for each column, equal at first."""

    def __init__(self, *shape, raw=0.0):
        super().__init__()
        self.scales = torch.nn.ParameterList([torch.full(shape, raw) for _ in range(2 if not shape else 1)])

    def forward(self, x1, x2, **params):
        scale = torch.cat([s.reshape(-1) for s in self.scales]).exp()
        return torch.exp(-torch.cdist(x1 * scale, x2 * scale).square())


class OwnPeriod(gk.Kernel):
    """A periodic kernel of one's own."""

    def __init__(self, period):
        super().__init__()
        self.period = torch.nn.Parameter(torch.tensor(period, dtype=torch.float64))

    def forward(self, x1, x2, **params):
        return torch.cos(2 * torch.pi * (x1[..., :, None, 0] - x2[..., None, :, 0]) / self.period)


@pytest.mark.parametrize("raw", [0.0, 1e-8, -3.0, 2.0])
@pytest.mark.parametrize("shape", [(), (2,), (1, 2)])
def test_scales_of_your_own_that_are_learned_apart_are_refused(shape, raw):
    kernel = TwoScales(*shape, raw=raw)
    before = {name: value.clone() for name, value in kernel.state_dict().items()}
    for whole in (kernel, gk.ScaleKernel(kernel), kernel + gk.ConstantKernel()):
        with pytest.raises(
            ValueError, match=r"is invariant now, but no longer when training.*scales\.0.*one parameter"
        ):
            HarmonicKernel(whole, Rotation((0, 1), 4))
    HarmonicKernel(kernel, Negation(), dim=2)  # which they do not disturb
    check_invariant(kernel, Rotation((0, 1), 4))  # nothing is learned
    HarmonicKernel(kernel.requires_grad_(False), Rotation((0, 1), 4))
    for name, value in kernel.state_dict().items():
        assert_close(value, before[name], atol=0, rtol=0)


def test_variances_of_columns_that_are_learned_apart_are_refused():
    kernel = gk.LinearKernel(ard_num_dims=2)
    with pytest.raises(ValueError, match="is invariant now, but no longer"):
        HarmonicKernel(kernel, Rotation((0, 1), 4))
    HarmonicKernel(kernel, Negation([[0], [1]]))


def test_a_period_of_your_own_that_is_learned_is_refused():
    kernel, action = OwnPeriod(24.0), Translation(0, 24.0, 3)
    with pytest.raises(
        ValueError, match=r"learned parameters \(period\).*such as a period, with requires_grad_\(False\)"
    ):
        HarmonicKernel(kernel, action)
    HarmonicKernel(kernel.requires_grad_(False), action)
    with pytest.raises(ValueError, match="does not repeat along coordinate 0 after a period of 12"):
        HarmonicKernel(kernel, Translation(0, 12.0, 3))


@pytest.mark.parametrize("dim", [None, 3])
def test_lengthscales_of_another_number_of_columns_are_named(dim):
    for kernel in (gk.RBFKernel(ard_num_dims=2), gk.ScaleKernel(gk.RBFKernel(ard_num_dims=2))):
        with pytest.raises(
            ValueError, match=r"RBFKernel has lengthscales for 2 columns .* and the points have 3: give it"
        ):
            HarmonicKernel(kernel, Rotation((0, 2), 4), dim=dim)
    with pytest.raises(ValueError, match="its active_dims name 1: give it ard_num_dims=1"):
        HarmonicKernel(gk.RBFKernel(ard_num_dims=2, active_dims=[1]), Negation(), dim=dim)


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
