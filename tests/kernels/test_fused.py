"""The fused path against the generic one: values and gradients, compiled and in PyTorch."""

from __future__ import annotations

from dataclasses import dataclass

import gpytorch.kernels as gk
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from harmonicgp import Cyclic
from harmonicgp.actions import (
    Action,
    ImageFlip,
    ImageShift,
    Longitude,
    Negation,
    Orthogonal,
    Permutation,
    PrincipalNegation,
    Rotation,
    Translation,
)
from harmonicgp.backend import native
from harmonicgp.features import HarmonicFeatures, SparseFeatures
from harmonicgp.kernels import ArcCosineKernel, GlobeKernel, HarmonicKernel
from harmonicgp.kernels import orbit as orbit_module
from harmonicgp.kernels.functions import kernel_matrix
from harmonicgp.kernels.fused import FusedGram
from harmonicgp.kernels.harmonic import HarmonicTransform

KERNELS = {
    "rbf": lambda: gk.RBFKernel(),
    "matern12": lambda: gk.ScaleKernel(gk.MaternKernel(nu=0.5)),
    "matern32": lambda: gk.ScaleKernel(gk.MaternKernel(nu=1.5)),
    "matern52": lambda: gk.ScaleKernel(gk.ScaleKernel(gk.MaternKernel(nu=2.5))),
    "rational quadratic": lambda: gk.ScaleKernel(gk.RQKernel()),
    "polynomial 3": lambda: gk.ScaleKernel(gk.PolynomialKernel(power=3)),
    "arc-cosine 0": lambda: gk.ScaleKernel(ArcCosineKernel(order=0)),
    "arc-cosine 1": lambda: ArcCosineKernel(order=1),
    "arc-cosine 2": lambda: gk.ScaleKernel(ArcCosineKernel(order=2)),
}
KINKED = ("matern12", "arc-cosine 0")  # their slope has no limit at coincident points
_TURN = torch.linalg.qr(torch.randn(6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(3))).Q
_FOUR = torch.block_diag(torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64), -torch.eye(1), torch.eye(3)).to(
    torch.float64
)
ACTIONS = {
    "one negation": Negation([[0, 2]]),
    "all negated": Negation(),
    "two": Negation([[0], [1, 2]]),
    "three": Negation.strided(6, 3),
    "four": Negation.strided(6, 4),
    "plane of 5": Rotation((0, 1), 5),
    "plane of 8": Rotation((1, 3), 8),
    "plane of 70": Rotation((1, 3), 70),  # more elements than compiled code weighs densely
    "cycle": Permutation([1, 2, 3, 4, 5, 0]),
    "uneven cycles": Permutation([1, 2, 0, 4, 3, 5]),
    "matrix": Orthogonal(_TURN @ _FOUR @ _TURN.mT),
    "product": Negation([[5]]) * Rotation((0, 1), 3),
    "flips": ImageFlip((2, 3)),
    "rolls": ImageShift((2, 3), 1),
    "channels": ImageShift((2, 1, 3), (1, 1)),
    "principal": PrincipalNegation(2).fit(torch.randn(40, 6, dtype=torch.float64)),
}


def generic(kernel, action, z, x, resolution):
    return HarmonicTransform(action, resolution)(lambda moved: kernel_matrix(kernel, moved, x), z, False)


def fused(kernel, action, z, x, resolution):
    harmonic = HarmonicKernel(kernel, action, resolution, check=False)
    assert harmonic._fused(z.shape[-1]) is not None
    return harmonic.gram(z, x)


def value_and_gradients(function, kernel, action, z, x, resolution):
    z, x = z.clone().requires_grad_(), x.clone().requires_grad_()
    for parameter in kernel.parameters():
        parameter.grad = None
    K = function(kernel, action, z, x, resolution)
    weights = torch.randn(2, *K.shape, dtype=z.dtype, generator=torch.Generator().manual_seed(1))
    total = (K.real * weights[0]).sum() + ((K.imag * weights[1]).sum() if K.is_complex() else 0.0)
    total.backward()
    return K.detach(), [z.grad, x.grad, *(p.grad.clone() for p in kernel.parameters() if p.grad is not None)]


@pytest.fixture(params=["compiled", "PyTorch"])
def path(request, monkeypatch):
    if request.param == "PyTorch":
        monkeypatch.setattr(orbit_module.native, "available", lambda: False)
    elif not native.available():
        pytest.skip(f"the C code could not be compiled on this machine, so only PyTorch is tested ({native.status()})")
    return request.param


@st.composite
def problems(draw):
    name, action = draw(st.sampled_from(sorted(KERNELS))), ACTIONS[draw(st.sampled_from(sorted(ACTIONS)))]
    m, n, seed = draw(st.integers(1, 9)), draw(st.sampled_from([1, 2, 7, 130, 257])), draw(st.integers(0, 999))
    resolution = draw(st.sampled_from(["complex", "real"]))
    rng = torch.Generator().manual_seed(seed)
    z = torch.randn(m, 6, dtype=torch.float64, generator=rng)
    x = torch.randn(n, 12, dtype=torch.float64, generator=rng)[:, ::2]  # not contiguous
    if draw(st.booleans()) and name not in KINKED:  # coincident points, and images of each other
        x[: min(m, n)] = action.apply(z[: min(m, n)], tuple(-1 for _ in action.group.orders))
        x[:1] = z[:1]
    length = draw(st.sampled_from([0.3, 1.0, 8.0]))
    return name, action, z, x, resolution, length


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@given(problem=problems())
def test_paths_agree_in_value_and_gradient(dtype, problem):
    name, action, z, x, resolution, length = problem
    if isinstance(action, PrincipalNegation) and name.startswith(("poly", "arc")):
        return  # not invariant: the origin is not the mean
    kernel = KERNELS[name]().to(dtype)
    for part in kernel.modules():
        if isinstance(part, gk.Kernel) and part.has_lengthscale:
            part.lengthscale = length
    z, x = z.to(dtype), x.to(dtype)
    expected, by_generic = value_and_gradients(generic, kernel, action, z, x, resolution)
    tolerance = 1e-7 if dtype == torch.float64 else 2e-3 if name in KINKED else 3e-4
    scale = float(expected.abs().max()) + 1e-30
    for available in {native.available(), False}:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(orbit_module.native, "available", lambda a=available: a)
            K, by_fused = value_and_gradients(fused, kernel, action, z, x, resolution)
        assert K.dtype == expected.dtype
        assert float((K - expected).abs().max()) <= tolerance * max(scale, 1.0 if "poly" not in name else scale)
        for ours, theirs in zip(by_fused, by_generic, strict=True):
            assert torch.isfinite(ours).all()
            largest = float(max(t.abs().max() for t in by_generic))
            assert float((ours - theirs).abs().max()) <= 30 * tolerance * max(largest, scale)


@pytest.mark.parametrize("name", sorted(KERNELS))
@pytest.mark.parametrize("action", [Negation.strided(6, 3), Rotation((0, 1), 3), None], ids=str)
def test_coincident_points_have_finite_gradients_and_exact_values(name, action, path):
    kernel = KERNELS[name]()
    z = torch.randn(5, 6, requires_grad=True)
    shape = FusedGram.of(kernel, action, "real", 6, range(1 if action is None else action.group.n_blocks("real")))
    real, _ = shape(z, z)
    real.sum().backward()
    assert torch.isfinite(z.grad).all()
    dense = kernel_matrix(kernel, z, z).detach()
    assert_close(real.sum(0).detach(), dense, rtol=1e-7, atol=1e-7)
    if name.startswith(("rbf", "matern", "rational")):  # a point is at no distance from itself
        scale = float(dense.diagonal().max())
        assert_close(real.sum(0).diagonal().detach(), torch.full((5,), scale), rtol=1e-14, atol=0)


def test_images_of_many_pixels_take_matrix_products(path):
    action, kernel = ImageShift((28, 28), 4), gk.ScaleKernel(gk.RBFKernel())
    kernel.base_kernel.lengthscale = 20.0
    z, x = torch.randn(3, 784), torch.randn(5, 784)
    for resolution in ("complex", "real"):
        expected, theirs = value_and_gradients(generic, kernel, action, z, x, resolution)
        K, ours = value_and_gradients(fused, kernel, action, z, x, resolution)
        assert_close(K, expected, rtol=1e-9, atol=1e-12)
        for a, b in zip(ours, theirs, strict=True):
            assert_close(a, b, rtol=1e-6, atol=1e-10)


@pytest.mark.parametrize("order", [6, 100])
def test_the_globe(order, path):
    kernel, action = gk.ScaleKernel(GlobeKernel(gk.MaternKernel(nu=1.5))), Longitude(order)
    kernel.base_kernel.base_kernel.lengthscale = 0.4
    z, x = (torch.rand(n, 2) * torch.tensor([360.0, 180.0]) - torch.tensor([180.0, 90.0]) for n in (4, 6))
    expected, theirs = value_and_gradients(generic, kernel, action, z, x, "complex")
    K, ours = value_and_gradients(fused, kernel, action, z, x, "complex")
    assert_close(K, expected, rtol=1e-9, atol=1e-12)
    for a, b in zip(ours, theirs, strict=True):
        assert_close(a, b, rtol=1e-6, atol=1e-10)
    with pytest.raises(ValueError, match="latitude"):
        fused(kernel, action, torch.tensor([[10.0, 95.0]]), x, "complex")


def test_what_is_not_of_the_kind_takes_the_generic_path():
    class Mine(gk.RBFKernel):
        pass

    turned = Rotation((0, 1), 3)
    for kernel in (
        Mine(),
        gk.RBFKernel(active_dims=[0, 1]),
        gk.RBFKernel() + gk.RBFKernel(),
        gk.RBFKernel() * gk.MaternKernel(),
        gk.PeriodicKernel(),
        gk.PolynomialKernel(power=20),
        gk.PolynomialKernel(power=2.5),
        lambda a, b: a @ b.mT,
    ):
        assert FusedGram.of(kernel, turned, "real", 3, [0, 1]) is None
    assert FusedGram.of(gk.RBFKernel(), Translation(0, 24.0, 4), "complex", 2, [0]) is None
    assert FusedGram.of(GlobeKernel(gk.RBFKernel()), Negation(), "complex", 2, [0, 1]) is None
    # about its mean an inner product is another kernel
    principal = PrincipalNegation(1).fit(torch.randn(9, 3) + 5.0)
    assert FusedGram.of(gk.PolynomialKernel(power=2), principal, "complex", 3, [0, 1]) is None


def test_nan_is_never_swallowed(path):
    z, x = torch.randn(4, 3), torch.randn(200, 3)
    for name in sorted(KERNELS):
        for action in (Negation.strided(3, 2), Rotation((0, 1), 5)):
            gram = FusedGram.of(KERNELS[name](), action, "real", 3, range(action.group.n_blocks("real")))
            bad = z.clone()
            bad[2, 1] = float("nan")
            K, _ = gram(bad, x)
            assert torch.isnan(K[:, 2]).all()
            assert torch.isfinite(K[:, [0, 1, 3]]).all()


def test_extreme_scales_stay_finite(path):
    for factor in (1e-18, 1e-6, 1e6, 1e15):
        for dtype in (torch.float32, torch.float64):
            z, x = factor * torch.randn(4, 3, dtype=dtype), factor * torch.randn(9, 3, dtype=dtype)
            for name in ("rbf", "matern12", "matern32", "matern52", "rational quadratic"):
                K, gradients = value_and_gradients(
                    fused, KERNELS[name]().to(dtype), Negation.strided(3, 2), z, x, "real"
                )
                assert torch.isfinite(K).all()
                assert float(K.abs().max()) < 2.1  # each block is at most the kernel, whose scales are softplus(0)
                assert all(torch.isfinite(g).all() for g in gradients)


def test_threads_do_not_change_values():
    kernel, action = gk.ScaleKernel(gk.MaternKernel(nu=1.5)).float(), Negation.strided(6, 3)
    z, x = torch.randn(300, 6, dtype=torch.float32), torch.randn(400, 6, dtype=torch.float32)
    K1, g1 = value_and_gradients(fused, kernel, action, z, x, "real")
    torch.set_num_threads(3)
    try:
        K3, g3 = value_and_gradients(fused, kernel, action, z, x, "real")
        again, g4 = value_and_gradients(fused, kernel, action, z, x, "real")
    finally:
        torch.set_num_threads(1)
    assert torch.equal(K1, K3)  # every number is made by one thread
    assert torch.equal(K3, again)
    assert all(torch.equal(a, b) for a, b in zip(g3, g4, strict=True))
    for a, b in zip(g1, g3, strict=True):
        assert_close(a, b, rtol=1e-4, atol=1e-4 * float(b.abs().max()))


def test_features_are_the_same_by_both_paths(monkeypatch):
    X, action = torch.randn(30, 4), Rotation((0, 1), 4)
    for Z in (torch.randn(5, 4), torch.randn(3, 5, 4)):
        found = []
        for off in (False, True):
            if off:
                monkeypatch.setattr(FusedGram, "of", classmethod(lambda cls, *a, **k: None))
            features = HarmonicFeatures(gk.ScaleKernel(gk.MaternKernel(nu=2.5)), action, Z)
            evaluation = features(X)
            stacks, residual = evaluation.stacks, evaluation.residual.variance
            (sum((s * s.detach().cos()).sum() for s in stacks) + residual.sum()).backward()
            found.append([*(s.detach() for s in stacks), residual.detach(), *(p.grad for p in features.parameters())])
        monkeypatch.undo()
        for a, b in zip(*found, strict=True):
            assert_close(a, b, rtol=1e-6, atol=1e-8)


def test_one_block_is_the_kernel_itself(path):
    for name, make in KERNELS.items():
        kernel, X, Z = make(), torch.randn(20, 3) + 100.0 * (name[0] not in "ap"), torch.randn(6, 3)
        features = SparseFeatures(kernel, Z + 100.0 * (name[0] not in "ap"))
        assert_close(features.view.zx(features.Z, X), kernel_matrix(kernel, features.Z, X), rtol=1e-8, atol=1e-8)


def test_precisions_are_never_mixed_in_compiled_code():
    z, x = torch.randn(5, 3, dtype=torch.float32), torch.randn(7, 3, dtype=torch.float32)
    for kernel in (gk.PolynomialKernel(power=2), gk.MaternKernel(nu=1.5), gk.RBFKernel()):
        kernel = kernel.double()
        K = fused(kernel, Negation.strided(3, 2), z, x, "real")
        assert K.dtype == torch.float64
        assert_close(K, generic(kernel, Negation.strided(3, 2), z.double(), x.double(), "real"), rtol=1e-5, atol=1e-6)
        features = HarmonicFeatures(kernel.float(), Negation.strided(3, 2), z)
        assert_close(
            features.grams(x.double())[0].float(), features.grams(x)[0], rtol=1e-4, atol=1e-5, check_stride=False
        )
        with pytest.raises(TypeError, match="float32 or float64"):
            features.bfloat16().grams(x.bfloat16())


def test_autocast_does_not_reach_it():
    kernel, z, x = gk.RBFKernel().float(), torch.randn(5, 3).float(), torch.randn(7, 3).float()
    expected = fused(kernel, Negation(), z, x, "real")
    with torch.autocast("cpu"):
        assert torch.equal(fused(kernel, Negation(), z, x, "real"), expected)


def test_columns_that_stay_may_be_far_from_zero(path):
    kernel = gk.RBFKernel().float()
    kernel.lengthscale = 1.0
    z, x = torch.randn(30, 2).float(), torch.randn(40, 2).float()
    z[:, 1], x[:, 1] = z[:, 1] + 2000, x[:, 1] + 2000
    action = Negation([0])
    expected = generic(gk.RBFKernel().double(), action, z.double(), x.double(), "real").float()
    kernel.lengthscale = gk.RBFKernel().lengthscale.item()
    assert_close(fused(kernel, action, z, x, "real"), expected, rtol=0, atol=2e-5)


def test_an_action_of_ones_own_that_has_no_hash_and_changes():
    @dataclass
    class Mirror(Action):
        axis: int

        def __post_init__(self):
            self.group, self.min_dim = Cyclic(2), self.axis + 1

        def move(self, x, s):
            flips = torch.ones(x.shape[-1], dtype=x.dtype)
            flips[self.axis] = -1.0
            return torch.where(s == 1, x * flips, x)

    action, kernel, z = Mirror(0), gk.RBFKernel(), torch.randn(4, 3)
    for axis in (0, 2):
        action.axis = axis
        assert_close(fused(kernel, action, z, z, "real"), generic(kernel, Negation([axis]), z, z, "real"))


def test_first_used_without_gradients_then_trained():
    action, kernel, z = Rotation((0, 1), 5), gk.RBFKernel(), torch.randn(4, 3)
    with torch.inference_mode():
        fused(kernel, action, z, z, "real")
    value_and_gradients(fused, kernel, action, z, z, "real")


def test_second_derivatives_are_refused_not_wrong():
    z = torch.randn(3, 2, requires_grad=True)
    K = fused(gk.RBFKernel(), Negation(), z, torch.randn(4, 2), "real")
    with pytest.raises(RuntimeError, match="first derivatives only"):
        torch.autograd.grad(K.sum(), z, create_graph=True)
