"""The training loop on small data: it learns, it is reproducible, it survives bad data."""

from __future__ import annotations

import warnings

import gpytorch
import gpytorch.kernels as gk
import numpy as np
import pytest
import torch
from torch.testing import assert_close

from harmonicgp.actions import Longitude, Negation
from harmonicgp.features import HarmonicFeatures, SparseFeatures
from harmonicgp.kernels import GlobeKernel
from harmonicgp.likelihoods import PoissonLikelihood, RobustMaxLikelihood
from harmonicgp.training import Schedule, fit
from tests.inference.common import data, make_kernel
from tests.training.common import BRIEF, QUICK, make, noisy


@pytest.mark.parametrize("kind", ["sparse", "orthogonal", "harmonic"])
@pytest.mark.parametrize("family", ["block", "joint"])
def test_learns_noise_and_function(kind, family):
    X, y = data(400, 2)
    result = fit(make(kind, X, 16), likelihood := noisy(), X, y, family=family, schedule=QUICK)
    assert 0.005 < float(likelihood.noise.detach()) < 0.12  # truth: 0.04
    x, truth = data(200, 2, seed=5)
    mean, variance = result.predictor().marginals(x)
    assert float((mean[0] - truth).square().mean().sqrt()) < 0.35
    assert len(result.history) == 60
    assert result.history[-1]["bound"] > result.history[0]["bound"]
    covered = (mean[0] - truth).abs() < 1.96 * (variance[0] + likelihood.noise.detach()).sqrt()
    assert 0.85 < float(covered.double().mean()) <= 1.0


@pytest.mark.parametrize("gradient_batch", ["same", "before", "fresh"])
def test_every_choice_of_gradient_batch_runs(gradient_batch):
    X, y = data(200, 2)
    plan = Schedule(max_steps=10, batch_size=50, gradient_batch=gradient_batch)
    assert fit(make("harmonic", X), noisy(), X, y, schedule=plan).bound > -5


@pytest.mark.parametrize("bound", ["elbo", "tight", "predictive"])
def test_every_objective_runs(bound):
    X, y = data(200, 2)
    result = fit(make("harmonic", X), noisy(), X, y, bound=bound, schedule=QUICK)
    mean, _ = result.predictor().marginals(X)
    assert float((mean[0] - y).square().mean()) < 0.2


def test_adam_on_everything_reaches_a_like_bound():
    X, y = data(200, 2)
    plan = Schedule(max_steps=400, batch_size=200, learning_rate=0.03, optimizer="adam", finish=False)
    adam = fit(make("harmonic", X), noisy(), X, y, bound="elbo", schedule=plan)
    plan = Schedule(max_steps=400, batch_size=200, learning_rate=0.03, refine=False)
    natural = fit(make("harmonic", X), noisy(), X, y, bound="elbo", schedule=plan)
    assert adam.history[-1]["bound"] == pytest.approx(natural.bound, abs=0.15)
    assert adam.posterior.means[0].dtype == torch.float64


def test_same_seed_same_result():
    X, y = data(200, 2)
    first, second = (fit(make("harmonic", X), noisy(), X, y, schedule=QUICK) for _ in range(2))
    assert torch.equal(first.posterior.mean_vector(), second.posterior.mean_vector())
    assert first.bound == second.bound


def test_float32_agrees_with_float64():
    """The documented accuracy: means to 1e-2 of a standard deviation of y, after the same steps."""
    X, y = data(300, 2)
    predictions = []
    for dtype in (torch.float32, torch.float64):
        result = fit(make("harmonic", X.to(dtype)), noisy(dtype=dtype), X.to(dtype), y.to(dtype), schedule=QUICK)
        predictions.append(result.predictor().marginals(X[:50].to(dtype)))
    assert_close(predictions[0][0].double(), predictions[1][0], rtol=0, atol=1e-2)
    assert_close(predictions[0][1].double(), predictions[1][1], rtol=0.1, atol=1e-2)


def test_callbacks_see_every_step_and_can_stop():
    X, y = data(100, 2)
    seen = []

    def callback(record):
        seen.append(record["step"])
        return record["step"] == 7

    result = fit(make("sparse", X), noisy(), X, y, schedule=QUICK, callbacks=[callback])
    assert seen == list(range(1, 8))
    assert len(result.history) == 7


def test_a_mean_function_and_known_noise():
    X, y = data(200, 2)
    shifted = y + 5 * X[:, 1] + 3
    learned = gpytorch.means.LinearMean(2).double()
    for mean, plan in (
        (lambda x: 5 * x[:, 1] + 3, QUICK),
        (learned, Schedule(max_steps=300, batch_size=64, learning_rate=0.1)),
    ):
        noise = torch.full((200,), 0.01)
        result = fit(make("sparse", X), noisy(), X, shifted, mean=mean, noise=noise, schedule=plan)
        prediction, _ = result.predictor().marginals(X)
        assert float((prediction[0] - shifted).square().mean()) < 0.2
    assert float(learned.weights[1].detach()) == pytest.approx(5.0, abs=1.0)


def test_several_outputs():
    X, y = data(200, 2)
    result = fit(make("harmonic", X), noisy(), X, torch.stack((y, -y)), schedule=QUICK)
    mean, variance = result.predictor().marginals(X[:9])
    assert mean.shape == variance.shape == (2, 9)
    assert_close(mean[0], -mean[1], rtol=0, atol=1e-6)


@pytest.mark.parametrize("family", ["block", "joint"])
def test_classification_and_counts(family):
    X, y = data(300, 2)
    labels = (X[:, 0] > 0).double() + (X[:, 0] > 1).double()
    plan = Schedule(max_steps=60, batch_size=100)
    counts = torch.poisson(torch.exp(y), generator=torch.Generator().manual_seed(0))
    for likelihood, target, bound in (
        (gpytorch.likelihoods.BernoulliLikelihood(), (y > 0).double(), -0.45),
        (gpytorch.likelihoods.StudentTLikelihood(), y, -1.2),
        (PoissonLikelihood(), counts, -1.8),
        (RobustMaxLikelihood(3), labels, -1.5),
    ):
        result = fit(make("harmonic", X), likelihood.double(), X, target, family=family, schedule=plan)
        assert result.bound > bound, type(likelihood).__name__
        mean, variance = result.predictor().marginals(X)
        assert bool(torch.isfinite(mean).all() & (variance > 0).all())
        if isinstance(likelihood, RobustMaxLikelihood):
            probabilities = likelihood.class_probabilities(mean.mT, variance.mT)
            assert float((probabilities.argmax(-1) == labels).double().mean()) > 0.9


def test_classes_missing_from_a_batch_do_no_harm():
    X, _ = data(200, 2)
    labels = torch.zeros(200)
    labels[:3] = 2.0  # one class rare, one absent
    result = fit(
        make("sparse", X), RobustMaxLikelihood(3).double(), X, labels, schedule=Schedule(max_steps=20, batch_size=16)
    )
    assert bool(torch.isfinite(result.predictor().marginals(X)[0]).all())


# Bad data -------------------------------------------------------------------------------------------------------------------


def test_one_row_constant_targets_duplicate_rows_and_more_points_than_rows():
    for X, y in (
        (torch.randn(1, 2), torch.ones(1)),
        (torch.randn(50, 2), torch.full((50,), 3.0)),
        (torch.randn(5, 2).repeat(20, 1), torch.randn(100)),
    ):
        features = HarmonicFeatures(make_kernel(), Negation(), X[:4])
        result = fit(features, noisy(), X, y, schedule=Schedule(max_steps=20))
        mean, variance = result.predictor().marginals(X)
        assert bool(torch.isfinite(mean).all() & torch.isfinite(variance).all())


def test_duplicate_inducing_inputs_are_survived():
    X, y = data(60, 2)
    for Z in (torch.cat((X[:4], X[:4])), torch.cat((X[:4], -X[:4]))):  # equal, and on one orbit
        features = HarmonicFeatures(make_kernel(), Negation(), Z)
        result = fit(features, noisy(), X, y, schedule=Schedule(max_steps=10))
        assert bool(torch.isfinite(result.predictor().marginals(X)[0]).all())


def test_frozen_scalars_stay_and_constraints_hold():
    X, y = data(400, 2)
    kernel, likelihood = make_kernel(scale=2.0), noisy(0.5)
    kernel.raw_outputscale.requires_grad_(False)
    likelihood.noise_covar.raw_noise.requires_grad_(False)
    fit(SparseFeatures(kernel, X[:10]), likelihood, X, y, schedule=BRIEF)
    assert float(likelihood.noise) == pytest.approx(0.5)
    assert float(kernel.outputscale) == pytest.approx(2.0)
    bounded = gpytorch.likelihoods.GaussianLikelihood(noise_constraint=gpytorch.constraints.Interval(0.2, 0.6)).double()
    fit(SparseFeatures(make_kernel(), X[:10]), bounded, X, y, schedule=BRIEF)
    assert 0.2 <= float(bounded.noise.detach()) <= 0.6


def test_training_over_a_pole():
    longitude, latitude = 360 * torch.rand(300) - 180, 180 * torch.rand(300) - 90
    X = torch.stack((longitude, latitude), 1)
    y = torch.cos(torch.deg2rad(longitude)) * torch.cos(torch.deg2rad(latitude))
    Z = torch.tensor([[0.0, 90.0], [20.0, -90.0], [10.0, 89.99], [-60.0, 20.0], [40.0, -30.0]])
    kernel = gk.ScaleKernel(GlobeKernel(gk.MaternKernel(nu=1.5))).double()
    features = HarmonicFeatures(kernel, Longitude(4), Z)
    result = fit(features, noisy(0.01), X, y, schedule=Schedule(max_steps=60, batch_size=64, learning_rate=0.5))
    assert float(features.Z.detach()[:, 1].abs().max()) <= 90
    mean, _ = result.predictor().marginals(X)
    assert float((mean[0] - y).square().mean().sqrt()) < 0.1


def test_reruns_and_global_state():
    X, y = data(120, 2)
    labels = (y > 0).double() + (y > 0.7).double()
    softmax = [
        gpytorch.likelihoods.SoftmaxLikelihood(num_features=3, num_classes=3, mixing_weights=False) for _ in range(2)
    ]
    before = torch.random.get_rng_state()
    means = [
        fit(
            SparseFeatures(make_kernel(), X[:6]), likelihood.double(), X, labels, schedule=BRIEF
        ).posterior.mean_vector()
        for likelihood in softmax
    ]
    assert torch.equal(*means)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_callbacks_may_answer_with_numpy():
    X, y = data(40, 2)
    result = fit(
        SparseFeatures(make_kernel(), X[:5]),
        noisy(),
        X,
        y,
        schedule=BRIEF,
        callbacks=[lambda r: np.bool_(r["step"] == 2)],
    )
    assert len(result.history) == 2


def test_no_warnings_on_an_ordinary_fit():
    X, y = data(100, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit(SparseFeatures(make_kernel(), X[:5]), noisy(), X.requires_grad_(), y, schedule=BRIEF)
