"""The frozen predictor: chunks, covariance, parts, sample paths."""

from __future__ import annotations

import gpytorch
import gpytorch.kernels as gk
import numpy as np
import pytest
import torch
from torch.testing import assert_close

from harmonicgp.actions import Longitude
from harmonicgp.features import HarmonicFeatures, OrthogonalFeatures, SparseFeatures
from harmonicgp.inducing import place
from harmonicgp.inference.closed_form import StreamedPosterior, closed_form
from harmonicgp.inference.prediction import Predictor
from harmonicgp.kernels import GlobeKernel
from tests.inference.common import ACTIONS, data, exact_posterior, make_kernel, statistics


def fitted(family="block", features=None, chunk_size=4):
    kernel, (X, y) = make_kernel(), data(40, 3)
    features = features(kernel) if features else HarmonicFeatures(kernel, ACTIONS[5], torch.randn(4, 3))
    form = closed_form(statistics(features, X, y), 0.1, family)
    return features, form.posterior, Predictor.freeze(features, form.posterior, chunk_size=chunk_size)


@pytest.mark.parametrize("family", ["block", "joint"])
def test_chunks_covariance_and_parts_agree(family):
    features, posterior, predictor = fitted(family)
    x = torch.randn(11, 3)
    mean, variance = predictor.marginals(x)
    evaluation = features(x)
    m, v = posterior.moments(evaluation)
    residual = evaluation.residual.variance
    assert_close(mean, m.detach())
    assert_close(variance, (v + residual).detach())
    mean2, covariance = predictor.covariance(x)
    assert_close(mean2, mean)
    assert_close(covariance.diagonal(dim1=-2, dim2=-1), variance, rtol=0, atol=1e-9)
    assert float(torch.linalg.eigvalsh(covariance).min()) > -1e-9
    means, variances, left = predictor.components(x)
    assert_close(means.sum(1), mean)
    if family == "block":
        assert_close(variances.sum(1) + left, variance)
    assert means.shape[1] == sum(blocks for blocks, _ in features.shapes)


def test_a_predictor_is_frozen():
    features, _, predictor = fitted()
    x = torch.randn(3, 3)
    before = predictor.marginals(x)
    features.view.kernel.base_kernel.lengthscale = 0.1
    features.Z.data.add_(1.0)
    assert_close(predictor.marginals(x), before)


def test_the_mean_function_is_an_argument():
    features, posterior, predictor = fitted()
    mean = gpytorch.means.LinearMean(3).double()
    shifted = Predictor.freeze(features, posterior, mean)
    x = torch.randn(5, 3)
    assert_close(shifted.marginals(x)[0] - predictor.marginals(x)[0], mean(x).detach()[None])
    assert_close(shifted.covariance(x)[0], shifted.marginals(x)[0])
    assert_close(shifted.paths(2, seed=1)(x) - predictor.paths(2, seed=1)(x), mean(x).detach().expand(2, 1, 5))


@pytest.mark.parametrize("streamed", [False, True])
def test_means_alone_are_those_of_the_marginals(streamed):
    features, posterior, _ = fitted()
    mean = gpytorch.means.LinearMean(3).double()
    if streamed:
        posterior = StreamedPosterior.of(posterior, torch.zeros_like, 0.1)
    predictor, x = Predictor.freeze(features, posterior, mean, chunk_size=4), torch.randn(11, 3)
    assert_close(predictor.means(x), predictor.marginals(x)[0])


def test_full_covariance_is_exact_when_z_covers_the_data():
    kernel, (X, y) = make_kernel(), data(25, 3)
    features = SparseFeatures(kernel, X)
    predictor = Predictor.freeze(features, closed_form(statistics(features, X, y), 0.1).posterior)
    x = torch.randn(6, 3)
    _, variance = exact_posterior(kernel, X, y, 0.1, x)
    np.testing.assert_allclose(predictor.covariance(x)[1][0].diagonal(), variance, atol=1e-7)


@pytest.mark.parametrize(
    "make",
    [
        None,
        lambda k: SparseFeatures(k, torch.randn(6, 3)),
        lambda k: OrthogonalFeatures(k, torch.randn(4, 3), torch.randn(3, 3)),
        lambda k: HarmonicFeatures(k, ACTIONS[2], torch.randn(2, 4, 3), "complex"),
        lambda k: HarmonicFeatures(k, ACTIONS[4], torch.randn(3, 3), "real"),
    ],
)
@pytest.mark.parametrize("family", ["block", "joint"])
def test_paths_have_the_posteriors_moments_and_are_consistent(make, family):
    _, _, predictor = fitted(family, make, chunk_size=64)
    x = torch.randn(6, 3)
    paths = predictor.paths(4000, seed=3, n_frequencies=1024)
    f = paths(x)
    assert f.shape == (4000, 1, 6)
    assert_close(paths(x.flip(0)).flip(-1), f, rtol=0, atol=1e-9)  # the same functions, asked again
    mean, covariance = predictor.covariance(x)
    assert_close(f.mean(0)[0], mean[0], rtol=0, atol=0.08)
    assert_close(torch.cov(f[:, 0].T), covariance[0], rtol=0, atol=0.12)


def test_components_come_in_the_order_of_their_frequencies():
    longitude, latitude = 360 * torch.rand(800) - 180, 120 * torch.rand(800) - 60
    X = torch.stack((longitude, latitude), 1)
    kernel = gk.ScaleKernel(GlobeKernel(gk.RBFKernel())).double()
    for resolution in ("complex", "real"):
        for n in (1, 2, 3):
            y = torch.cos(n * torch.deg2rad(longitude)) * torch.cos(torch.deg2rad(latitude)) ** n
            features = HarmonicFeatures(kernel, Longitude(6), place(X, 15, action=Longitude(6)), resolution)
            form = closed_form(statistics(features, X, y), 0.01)
            means, _, _ = Predictor.freeze(features, form.posterior).components(X)
            energy = means[0].square().mean(-1)
            assert int(features.block_frequencies[int(energy.argmax()), 0]) == n
