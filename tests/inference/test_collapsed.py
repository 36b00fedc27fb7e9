"""The collapsed bound's gradient, by the envelope theorem, against finite differences."""

from __future__ import annotations

import gpytorch
import pytest
import torch
from torch.testing import assert_close

from harmonicgp.features import HarmonicFeatures, OrthogonalFeatures, SparseFeatures
from harmonicgp.inference.collapsed import Passes, collapsed_bound
from harmonicgp.likelihoods import observe
from tests.inference.common import ACTIONS, data, make_kernel


@pytest.mark.parametrize("family", ["block", "joint"])
@pytest.mark.parametrize("bound", ["elbo", "tight"])
@pytest.mark.parametrize("kind", ["sparse", "orthogonal", "harmonic"])
def test_gradients_by_the_envelope_theorem(family, bound, kind):
    kernel, (X, y) = make_kernel(), data(40, 2)
    features = {
        "sparse": lambda: SparseFeatures(kernel, X[:4]),
        "orthogonal": lambda: OrthogonalFeatures(kernel, X[:4], X[5:8]),
        "harmonic": lambda: HarmonicFeatures(kernel, ACTIONS[2], X[:4]),
    }[kind]()
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = 0.1
    observation = observe(likelihood)
    noise = torch.rand(40) if kind == "sparse" else None

    def value():
        return collapsed_bound(features, observation, X, y[None], family, bound, noise, passes=Passes(17)).bound

    collapsed_bound(features, observation, X, y[None], family, bound, noise, gradient=True, passes=Passes(17))
    for parameter in [*features.parameters(), *likelihood.parameters()]:
        flat = parameter.data.view(-1)
        for i in range(min(3, len(flat))):
            h = 1e-5
            flat[i] += h
            up = value()
            flat[i] -= 2 * h
            down = value()
            flat[i] += h
            assert float(parameter.grad.view(-1)[i]) == pytest.approx(-(up - down) / (2 * h), rel=1e-4, abs=1e-4)


def test_without_the_dense_matrix_the_same():
    kernel, (X, y) = make_kernel(), data(50, 2)
    observation = observe(gpytorch.likelihoods.GaussianLikelihood().double())
    found = []
    for dense in (True, False):
        features = HarmonicFeatures(kernel, ACTIONS[2], X[:4])
        form = collapsed_bound(features, observation, X, y[None], gradient=True, passes=Passes(20, dense))
        found.append((form.bound, features.Z.grad))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-8)
    assert_close(found[0][1], found[1][1], rtol=0, atol=1e-5)
