"""Gradients are right, and finite where distances vanish: coincident points, fixed points of the action."""

from __future__ import annotations

import gpytorch.kernels as gk
import pytest
import torch

from harmonicgp.actions import Longitude, Negation, Permutation, Rotation, Translation
from harmonicgp.kernels import ArcCosineKernel, GlobeKernel, harmonic_diagonal, harmonic_gram

SMOOTH = {
    "rbf": gk.RBFKernel,
    "matern32": lambda: gk.MaternKernel(nu=1.5),
    "matern52": lambda: gk.MaternKernel(nu=2.5),
    "rq": gk.RQKernel,
    "polynomial": lambda: gk.PolynomialKernel(power=3),
    "linear": gk.LinearKernel,
    "arccosine1": lambda: ArcCosineKernel(order=1),
    "arccosine2": lambda: ArcCosineKernel(order=2),
    "scaled sum": lambda: gk.ScaleKernel(gk.RBFKernel() + gk.MaternKernel(nu=1.5) * gk.RQKernel()),
}
KINKED = {"matern12": lambda: gk.MaternKernel(nu=0.5), "arccosine0": lambda: ArcCosineKernel(order=0)}
ACTIONS = [Rotation((0, 1), 3), Negation([[0], [1]]), Permutation([1, 0, 2]), Rotation((0, 1), 4) * Negation([2])]

# A coincident pair, a fixed point of every action here (the origin), and a point on the axis of the rotations.
Z = [[0.7, -0.3, 0.4], [0.7, -0.3, 0.4], [0.0, 0.0, 0.0], [0.0, 0.0, 0.9]]
X = [[0.7, -0.3, 0.4], [0.0, 0.0, 0.0], [-0.2, 0.5, 0.1]]


class Gram(torch.nn.Module):
    """As a module, so that hyper-parameters can be checked as inputs."""

    def __init__(self, kernel, action, resolution):
        super().__init__()
        self.kernel, self.action, self.resolution = kernel.double(), action, resolution

    def forward(self, z, x):
        K = harmonic_gram(self.kernel, self.action, z, x, self.resolution, check=False)
        return K, harmonic_diagonal(self.kernel, self.action, x, self.resolution, check=False)


def _gradcheck(module, z, x):
    names = [name for name, _ in module.named_parameters()]
    values = [p.detach().clone().requires_grad_() for _, p in module.named_parameters()]

    def function(z, x, *parameters):
        return torch.func.functional_call(module, dict(zip(names, parameters, strict=True)), (z, x))

    return torch.autograd.gradcheck(function, (z, x, *values), atol=2e-5)


@pytest.mark.parametrize("action", ACTIONS, ids=repr)
@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("separate", [False, True])
def test_gradients_with_coincident_and_fixed_points(action, name, separate):
    resolution = "complex"
    z = torch.tensor(Z)
    if separate:
        z = z.repeat(action.group.n_blocks(resolution), 1, 1)
    x = torch.tensor(X)
    assert _gradcheck(Gram(SMOOTH[name](), action, resolution), z.requires_grad_(), x.requires_grad_())


@pytest.mark.parametrize("resolution", ["full", "complex", "real"])
def test_gradients_in_every_resolution(resolution):
    z, x = torch.tensor(Z, requires_grad=True), torch.tensor(X, requires_grad=True)
    assert _gradcheck(Gram(gk.RBFKernel(), Rotation((0, 1), 5), resolution), z, x)


@pytest.mark.parametrize("action", ACTIONS, ids=repr)
@pytest.mark.parametrize("name", KINKED)
def test_gradients_are_finite_at_a_kink(action, name):
    z = torch.tensor(Z, requires_grad=True)
    module = Gram(KINKED[name](), action, "real")
    K, _ = module(z, z)
    K.square().sum().backward()
    assert bool(torch.isfinite(z.grad).all())
    assert all(bool(torch.isfinite(p.grad).all()) for p in module.parameters() if p.grad is not None)


def test_gradients_on_circles_and_globe():
    z = torch.tensor([[10.0, 40.0], [10.0, 40.0], [-170.0, 89.999], [0.0, -90.0]], requires_grad=True)
    for base in (gk.RBFKernel(), gk.MaternKernel(nu=1.5)):
        assert _gradcheck(Gram(GlobeKernel(base), Longitude(5), "complex"), z, z.detach()[:2].clone().requires_grad_())
    kernel = gk.PeriodicKernel()
    kernel.period_length = 24.0
    hours = torch.tensor([[1.0], [1.0], [23.5]], requires_grad=True)
    # period_length itself is fixed by the action: it is no free parameter of an invariant kernel
    kernel.raw_period_length.requires_grad_(False)
    module = Gram(kernel, Translation(0, 24.0, 5), "complex")
    K, _ = module(hours, hours)
    K.abs().square().sum().backward()
    assert bool(torch.isfinite(hours.grad).all())


def test_second_derivatives_of_arccosine():
    x = torch.randn(3, 2, requires_grad=True)
    y, kernel = torch.randn(2, 2), ArcCosineKernel(order=2).double()
    assert torch.autograd.gradgradcheck(lambda x: kernel(x, y).to_dense(), x)
