"""Inputs that once gave a silent wrong answer, a false alarm, or an error that taught nothing."""

from __future__ import annotations

import itertools
import math

import gpytorch.kernels as gk
import pytest
import torch
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
from harmonicgp.kernels import (
    ArcCosineKernel,
    GlobeKernel,
    HarmonicKernel,
    harmonic_diagonal,
    harmonic_gram,
    interdomain_cross_covariance,
    longitude_spectrum,
    scaled_bessel,
)
from harmonicgp.testing import assert_commuting, assert_cyclic, assert_decomposition


def with_lengthscale(kernel, lengthscale):
    kernel = kernel.double()
    kernel.lengthscale = torch.as_tensor(lengthscale)
    return kernel


# Kernels with columns of their own -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kernel",
    [
        gk.ScaleKernel(gk.RBFKernel(active_dims=[1])),
        gk.ScaleKernel(with_lengthscale(gk.RBFKernel(active_dims=[2, 0, 1], ard_num_dims=3), [0.3, 1.0, 3.0])),
        gk.ScaleKernel(gk.RBFKernel(active_dims=[1])) + gk.ScaleKernel(gk.MaternKernel(nu=1.5, active_dims=[2])),
        gk.ScaleKernel(gk.ScaleKernel(gk.RBFKernel(active_dims=[1, 2]))),
        gk.ScaleKernel(gk.RBFKernel() + gk.LinearKernel()),
    ],
)
def test_scaled_kernels_of_some_columns(kernel):
    kernel, x = kernel.double(), torch.randn(5, 3)
    assert_close(harmonic_gram(kernel, Negation([0]), x, x).sum(0), kernel(x).to_dense())
    assert_close(harmonic_diagonal(kernel, Negation([0]), x).sum(0), kernel(x, diag=True))


def test_a_globe_in_other_columns():
    kernel = gk.ScaleKernel(GlobeKernel(gk.RBFKernel(), active_dims=[1, 2])).double()
    x = torch.tensor([[0.3, 10.0, 20.0], [0.1, -170.0, 60.0]])
    K = harmonic_gram(kernel, Longitude(3, axis=1), x, x)
    assert_close(K.sum(0).real, kernel(x).to_dense())


# The invariance check ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "action"),
    [
        (
            GlobeKernel(gk.RBFKernel(), active_dims=[0, 1]) * with_lengthscale(gk.RBFKernel(active_dims=[2]), 365.0),
            Longitude(6),
        ),
        (GlobeKernel(with_lengthscale(gk.RBFKernel(), 1e3)), Longitude(6)),
        (GlobeKernel(with_lengthscale(gk.RBFKernel(), 1e-4)), Longitude(6)),
        (with_lengthscale(gk.RBFKernel(), 1e-6), Rotation((0, 1), 5)),
        (with_lengthscale(gk.MaternKernel(nu=0.5), 1e-7), Rotation((0, 1), 5)),
        (with_lengthscale(gk.MaternKernel(nu=1.5), 1e7), Rotation((0, 1), 5)),
        (gk.RBFKernel(), PrincipalNegation(1).fit(torch.randn(50, 2) + 1e6)),
        (gk.PolynomialKernel(power=8), Rotation((0, 1), 5)),
    ],
)
def test_invariant_kernels_of_any_scale_are_let_through(kernel, action):
    HarmonicKernel(kernel.double(), action)


@pytest.mark.parametrize(
    ("kernel", "action"),
    [
        (GlobeKernel(gk.RBFKernel()), Rotation((0, 1), 4)),
        (with_lengthscale(gk.RBFKernel(ard_num_dims=3), [1e-3, 1e3, 1.0]), Rotation((0, 1), 4)),
        (with_lengthscale(gk.RBFKernel(ard_num_dims=3), [1e-4, 2e-4, 1e2]), Rotation((0, 1), 4)),
    ],
)
def test_kernels_that_slipped_through_are_refused(kernel, action):
    with pytest.raises(ValueError, match=r"not invariant|cannot be evaluated"):
        HarmonicKernel(kernel, action)


def test_the_points_of_both_inputs_are_tried():
    def kernel(a, b):
        def bump(z):
            return 1 + (z[..., :1] - 4).clamp_min(0)

        return torch.exp(-0.5 * torch.cdist(a, b) ** 2) * bump(a) * bump(b).mT

    x = torch.randn(6, 2)
    with pytest.raises(ValueError, match="not invariant"):
        harmonic_gram(kernel, Negation(), x, x + 8)


def test_a_kernel_that_overflows_is_called_so():
    x = 1e200 * torch.randn(4, 2)
    with pytest.raises(ValueError, match="not finite"):
        harmonic_gram(gk.LinearKernel().double(), Negation(), x, x)


# Shapes and dtypes ---------------------------------------------------------------------------------------------------------


def test_a_function_that_ignores_leading_axes_is_refused():
    x = torch.randn(3, 2)
    for kernel in (
        lambda a, b: torch.ones(a.shape[-2], b.shape[-2]),
        lambda a, b: torch.ones(2, *a.shape[:-2], a.shape[-2], b.shape[-2]),
        lambda a, b: torch.ones(*torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-2]) > 0,
    ):
        with pytest.raises((ValueError, TypeError), match="a kernel must"):
            harmonic_gram(kernel, Negation(), x[:2], x, check=False)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.bool, torch.float16])
def test_transforms_take_real_or_complex_numbers_only(dtype):
    with pytest.raises(TypeError, match="float32, float64 or complex"):
        Cyclic(2).fourier(torch.ones(2, dtype=dtype))


def test_more_transforms_that_cannot_be():
    with pytest.raises(TypeError, match="torch tensor"):
        Cyclic(2).fourier([1.0, 2.0])
    with pytest.raises(ValueError, match="nothing to work on"):
        Cyclic(3).fourier(torch.zeros(3, 0))
    with pytest.raises(TypeError, match="floating point"):
        scaled_bessel(torch.tensor([0, 1]), torch.tensor([1, 2]))
    with pytest.raises(TypeError, match="sparse"):
        Negation().orbit(torch.eye(3).to_sparse())
    with pytest.raises(TypeError, match="GPyTorch kernel or a function"):
        HarmonicKernel(gk.RBFKernel, Negation())
    with pytest.raises(TypeError, match="whole number"):
        HarmonicKernel(gk.RBFKernel(), Negation(), dim=2.0)
    with pytest.raises(ValueError, match="points"):
        interdomain_cross_covariance(gk.RBFKernel(), Negation(), torch.zeros(1, 2, 2), torch.zeros(2, 2))
    with pytest.raises(ValueError, match="too large"):
        Rotation((0, 1), 8).orbit(torch.full((1, 2), 1.7e308))


# Folding -------------------------------------------------------------------------------------------------------------------


def assert_folds(action, x):
    folded = action.fold(x)
    assert_close(action.fold(folded), folded, rtol=0, atol=1e-9)
    images = action.fold(action.orbit(x))
    assert_close(images, folded.expand_as(images), rtol=0, atol=1e-9)


def test_folding_binary_and_integer_data():
    bits = torch.tensor(list(itertools.product([0.0, 1.0], repeat=9)))
    assert_folds(ImageFlip((3, 3)), bits)
    assert_folds(ImageShift((3, 3), 1), bits)
    assert_folds(Permutation([1, 2, 3, 4, 5, 6, 7, 8, 0]), bits)
    grid = torch.cartesian_prod(*[torch.arange(-2.0, 3.0)] * 4)
    assert_folds(Permutation([1, 2, 3, 0]), grid)
    assert_folds(Negation(), grid)
    assert_folds(Negation([[0, 1], [2, 3]]), grid)
    images = (torch.rand(2000, 16) < 0.5).double()
    assert_folds(ImageShift((4, 4), 1), images)
    assert_folds(ImageShift((4, 4), 2), images)


@pytest.mark.parametrize(
    ("action", "x"),
    [
        (Translation(0, 2 * math.pi, 8), torch.arange(16, dtype=torch.float64) * math.pi / 8),
        (Translation(0, 0.1, 7), torch.arange(20, dtype=torch.float64) * 0.05),
        (Translation(0, 1.0, 1000), torch.arange(200, dtype=torch.float64) * 0.0055),
        (Translation(0, 1.0, 12, start=2000.0), 2000 + torch.arange(60, dtype=torch.float64) / 12),
    ],
)
def test_folding_lands_in_the_first_step(action, x):
    folded = action.fold(action.orbit(x.double()[:, None]))
    step = action.period / action.order
    assert float(folded.min()) >= action.start - 1e-9
    assert float(folded.max()) < action.start + step
    spread = folded.amax(0) - folded.amin(0)
    assert float(spread.max()) < 1e-3 * step


def test_times_too_large_for_their_dtype_are_refused():
    with pytest.raises(ValueError, match="cannot tell apart steps"):
        Translation(0, 86400.0, 24).fold(torch.tensor([[1.6e9], [1.6e9 + 3600]], dtype=torch.float32))
    with pytest.raises(ValueError, match="cannot tell apart steps"):
        Translation(0, 24.0, 5).orbit(torch.tensor([[1e30]]))
    days = Translation(0, 86400.0, 24).fold(torch.tensor([[1.6e9], [1.6e9 + 3600]], dtype=torch.float64))
    assert_close(days[0], days[1])


# Large groups and matrices ---------------------------------------------------------------------------------------------------


def test_single_moves_of_large_groups_are_cheap():
    x = torch.randn(2, 25)
    action = Negation.strided(25, 25)  # 2^25 elements
    assert_close(action.apply(x, [1] * 25), -x)
    assert action.inverse([1] * 25) == (1,) * 25
    cycles, start = [], 0
    for p in (2, 3, 5, 7, 11, 13, 17, 19, 23):
        cycles += [start + (i + 1) % p for i in range(p)]
        start += p
    permutation = Permutation(cycles)  # order 223092870
    y = torch.randn(1, start)
    assert_close(permutation.apply(permutation.apply(y, 1234567), -1234567), y)


def test_rotation_matrices_in_float32():
    for T in (2, 39, 48, 360):
        a = 2 * math.pi / T
        R = torch.tensor([[math.cos(a), -math.sin(a)], [math.sin(a), math.cos(a)]], dtype=torch.float32)
        assert Orthogonal(R, T).group == Cyclic(T)
    a = 1e-7
    with pytest.raises(ValueError, match="moves nothing"):
        Orthogonal(torch.tensor([[math.cos(a), -math.sin(a)], [math.sin(a), math.cos(a)]]))


def test_subsets_from_tensors_and_generators():
    assert Negation(torch.tensor([0, 1])).subsets == ((0, 1),)
    assert Negation(i for i in [0, 1]).subsets == ((0, 1),)
    assert_close(PrincipalNegation(1).fit(1e200 * torch.randn(9, 2)).directions.norm(dim=0), torch.ones(2))


# The conformance tools ---------------------------------------------------------------------------------------------------------


class Custom(Action):
    def __init__(self, group, move):
        self.group, self.move = group, move

    def move(self, x, s):
        return self.move(x, s)


def test_conformance_tools_catch_more():
    x = torch.randn(6, 2)
    nan = Custom(Cyclic(2), lambda x, s: x * float("nan"))
    with pytest.raises(AssertionError):
        assert_commuting(nan, Negation([0]), x)
    twice = Custom(Cyclic(2) ** 2, lambda x, s: x * (1 - 2 * (s.sum(-1, keepdim=True) % 2)))
    with pytest.raises(AssertionError, match="moves none of these points"):
        assert_cyclic(twice, x)
    first = Custom(Cyclic(2), lambda x, s: x * (1 - 2 * s.reshape(-1)[0]) if s.dim() < 3 else x * (1 - 2 * s))
    with pytest.raises(AssertionError, match="its own element"):
        assert_cyclic(first, x)
    cut = Custom(Cyclic(2), lambda x, s: (x * (1 - 2 * s)).detach())
    with pytest.raises(AssertionError, match="gradient"):
        assert_cyclic(cut, x)
    with pytest.raises(AssertionError, match="NaN"):
        assert_decomposition(lambda a, b: torch.cdist(a, b) * float("nan"), Negation(), x)


# Spectra and the arc-cosine kernel --------------------------------------------------------------------------------------


def test_the_closed_form_spectrum_is_for_plain_rbf_kernels_only():
    latitudes = torch.tensor([10.0, 10.01])
    along_axis = GlobeKernel(gk.RBFKernel(active_dims=[2])).double()
    c = longitude_spectrum(along_axis, latitudes, latitudes, 3)
    assert_close(c[1:], torch.zeros(2, 2, 2), rtol=0, atol=1e-9)
    with pytest.raises(ValueError, match="batch of kernels"):
        longitude_spectrum(
            GlobeKernel(gk.ScaleKernel(gk.RBFKernel(), batch_shape=torch.Size([2]))), latitudes, latitudes, 3
        )
    with pytest.raises(ValueError, match="latitude"):
        longitude_spectrum(along_axis, torch.tensor([float("nan")]), latitudes, 3)


def test_nearby_latitudes_do_not_cancel():
    latitudes = 30 + torch.arange(3) * 0.05
    for dtype, lengthscale, tolerance in ((torch.float32, 1e-3, 2e-3), (torch.float64, 1e-6, 1e-7)):
        kernel = GlobeKernel(gk.RBFKernel()).to(dtype)
        kernel.base_kernel.lengthscale = lengthscale
        step = latitudes * (lengthscale / 1e-3)
        c = longitude_spectrum(kernel, step.to(dtype), step.to(dtype), 1)[0].double()
        p = torch.deg2rad(step.to(dtype).double())
        exact = torch.exp(-2 * torch.sin((p[:, None] - p) / 2) ** 2 / lengthscale**2)
        share = c / (c.diagonal()[:, None] * c.diagonal()).sqrt()
        assert_close(share, exact, rtol=0, atol=tolerance)


def test_arccosine_far_out_and_at_the_origin():
    for order in (0, 1, 2):
        kernel = ArcCosineKernel(order=order).float()
        x = torch.tensor([[0.0, 0.0], [1e8, 1e8], [1.0, 2.0]], dtype=torch.float32)
        assert bool(torch.isfinite(kernel(x).to_dense()).all())
    x = torch.randn(50, 3, dtype=torch.float32)
    with torch.no_grad():
        assert_close(ArcCosineKernel(order=0).float()(x, diag=True), torch.ones(50, dtype=torch.float32))
    with pytest.raises(ValueError, match="positive"):
        ArcCosineKernel(order=1).bias_variance = 0.0
