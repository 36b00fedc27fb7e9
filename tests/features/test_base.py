"""What all features share: white coordinates, gradients, kernels seen through callables, checks."""

from __future__ import annotations

import gpytorch.kernels as gk
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from harmonicgp.actions import Negation, Rotation
from harmonicgp.features import HarmonicFeatures, OrthogonalFeatures, SparseFeatures
from harmonicgp.features.base import PointKernel
from tests.inference.common import feature_draws, make_kernel


@given(st.data())
def test_white_coordinates(data):
    """E[v v'] = I for the coordinates of the prior: project k(., z) twice, over the points the features are made of."""
    features, kernel, _ = data.draw(feature_draws())
    if isinstance(features, HarmonicFeatures) and features.Z.dim() == 3:
        features = SparseFeatures(kernel, features.Z[0])
    U = features.Z if not isinstance(features, OrthogonalFeatures) else torch.cat((features.Z, features.O))
    if isinstance(features, HarmonicFeatures):
        U = features.action.orbit(features.Z).flatten(0, 1)
    whitened, kernel = features.whiten(), kernel.requires_grad_(False)
    L = torch.linalg.cholesky(kernel(U).to_dense())

    # f(U) = L e for white e; v is linear in f(U), so its covariance is V V' with V the image of L's columns.
    def paths(z):
        return torch.linalg.solve(kernel(U).to_dense(), kernel(U.expand(*z.shape[:-2], -1, -1), z).to_dense()).mT @ L

    V = torch.cat([v.flatten(0, 1) for v in whitened.project(paths)])
    assert_close(V @ V.mT, torch.eye(len(V)), rtol=0, atol=1e-6)


@pytest.mark.parametrize("make", [
    lambda Z: SparseFeatures(make_kernel(), Z),
    lambda Z: OrthogonalFeatures(make_kernel(), Z, Z[:2] + 1),
    lambda Z: HarmonicFeatures(make_kernel(), Rotation((0, 1), 3), Z),
    lambda Z: HarmonicFeatures(make_kernel(), Rotation((0, 1), 3), Z, "real"),
    lambda Z: HarmonicFeatures(make_kernel(), Rotation((0, 1), 4), Z.repeat(3, 1, 1) + torch.randn(3, 3, 2)),
    lambda Z: HarmonicFeatures(make_kernel(), Negation([[0], [1]]), Z, frequencies=[0, 3]),
])  # fmt: skip
def test_gradients_reach_inducing_inputs_and_hyper_parameters(make):
    features, x = make(torch.randn(3, 2) + 1), torch.randn(4, 2)
    names = [name for name, _ in features.named_parameters()]
    kernel_names = [f"view.{name}" for name, _ in features.view.named_parameters()]
    assert set(kernel_names) <= set(names)
    values = [p.detach().clone().requires_grad_() for p in features.parameters()]

    def function(*parameters):
        evaluation = torch.func.functional_call(features, dict(zip(names, parameters, strict=True)), (x,))
        # features have a sign of their own; squares and the residual do not
        return evaluation.residual.variance, *(a.square().sum((0, 1)) for a in evaluation.stacks)

    assert torch.autograd.gradcheck(function, values)


def test_a_kernel_seen_through_callables_may_relate_different_spaces():
    """z are numbers, x are pairs of numbers, f(x) = g(x_1) + g(x_2): as convolutional kernels will be."""
    base = make_kernel().requires_grad_(False)

    class Pairs(PointKernel):
        def zx(self, z, x):
            return sum(self.kernel(z, x[:, i : i + 1]).to_dense() for i in range(2))

        def xx(self, x):
            return torch.stack([self.kernel(x[:, i : i + 1], x[:, j : j + 1], diag=True)
                                for i in range(2) for j in range(2)]).sum(0)  # fmt: skip

    z, x = torch.linspace(0.1, 2, 9)[:, None], torch.randn(6, 2)
    for features in (SparseFeatures(Pairs(base), torch.cat((-z, z))), HarmonicFeatures(Pairs(base), Negation(), z)):
        evaluation = features.requires_grad_(False)(x)
        A = evaluation.flat()
        U = torch.cat((-z, z))
        k = Pairs(base).zx(U, x)
        assert_close(A.mT @ A, k.mT @ torch.linalg.solve(base(U).to_dense(), k), rtol=0, atol=1e-7)
        assert float(evaluation.residual.variance.min()) >= 0


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda k, Z: HarmonicFeatures(k, Rotation((0, 1), 3), Z, "full"), "conjugate pair twice"),
        (lambda k, Z: HarmonicFeatures(k, Rotation((0, 1), 3), Z, frequencies=[5]), "2 blocks"),
        (lambda k, Z: HarmonicFeatures(k, Rotation((0, 1), 3), Z.repeat(4, 1, 1)), "one set for each of the 2 blocks"),
        (lambda k, Z: HarmonicFeatures(k, Rotation((0, 5), 3), Z), "at least 6 coordinates"),
        (lambda k, Z: HarmonicFeatures(gk.RBFKernel(ard_num_dims=2).double(), Rotation((0, 1), 3), Z), "lengthscales"),
        (lambda k, Z: SparseFeatures(k, Z * float("nan")), "Z has NaN"),
        (lambda k, Z: OrthogonalFeatures(k, Z, Z[:0]), "O is empty"),
    ],
)
def test_bad_input(make, words):
    with pytest.raises(ValueError, match=words):
        make(make_kernel(), torch.randn(3, 2))


@pytest.mark.parametrize("change", ["lengthscale", "Z"])
def test_whitened_features_raise_once_their_parameters_have_changed(change):
    kernel, x = make_kernel(), torch.randn(4, 2)
    features = SparseFeatures(kernel, torch.randn(3, 2))
    whitened = features.whiten()
    whitened(x)
    if change == "Z":
        with torch.no_grad():
            features.Z += 0.1
    else:
        kernel.base_kernel.lengthscale = 2.0
    with pytest.raises(RuntimeError, match="whiten"):
        whitened(x)
    features.whiten()(x)
