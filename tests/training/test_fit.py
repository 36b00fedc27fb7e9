"""The training loop on small data: it learns, it is reproducible, it survives bad data."""

from __future__ import annotations

import gpytorch
import pytest
import torch
from torch.testing import assert_close

from harmonicgp.actions import Negation, Rotation
from harmonicgp.features import HarmonicFeatures, OrthogonalFeatures, SparseFeatures
from harmonicgp.inference.closed_form import closed_form
from harmonicgp.likelihoods import PoissonLikelihood, RobustMaxLikelihood
from harmonicgp.training import Schedule, fit
from tests.inference.common import data, make_kernel, statistics


def noisy(s2=0.5, dtype=torch.float64):
    likelihood = gpytorch.likelihoods.GaussianLikelihood().to(dtype)
    likelihood.noise = s2
    return likelihood


def make(kind, X, m=8):
    kernel = make_kernel().to(X.dtype)
    if kind == "sparse":
        return SparseFeatures(kernel, X[:m])
    if kind == "orthogonal":
        return OrthogonalFeatures(kernel, X[:m], X[m : 2 * m])
    return HarmonicFeatures(kernel, Rotation((0, 1), 3), X[:m])


QUICK = Schedule(max_steps=60, batch_size=64)


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


def test_the_finish_is_the_closed_form_and_the_bound_is_its():
    X, y = data(300, 2)
    features = make("harmonic", X)
    likelihood = noisy()
    result = fit(features, likelihood, X, y, schedule=Schedule(max_steps=20, batch_size=64, refine=False))
    form = closed_form(statistics(features, X, y), float(likelihood.noise.detach()), "block", "tight")
    assert result.bound == pytest.approx(form.bound / 300, abs=1e-9)
    assert_close(result.posterior.mean_vector(), form.posterior.mean_vector())


def test_refinement_is_never_worse_and_can_be_turned_off():
    X, y = data(500, 2)
    result = fit(make("harmonic", X), noisy(), X, y, schedule=QUICK)
    assert result.refinement is not None
    assert result.refinement.after >= result.refinement.before
    off = fit(make("harmonic", X), noisy(), X, y, schedule=Schedule(max_steps=5, refine=False))
    assert off.refinement is None


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


@pytest.mark.parametrize(
    ("X", "y", "words"),
    [
        (torch.randn(5, 2), torch.tensor([0.0, float("nan"), 0, 0, 0]), "y has NaN or infinite values, first in row 1"),
        (torch.randn(5, 2), torch.tensor([0.0, 0, 0, float("inf"), 0]), "first in row 3"),
        (torch.randn(5, 2) * float("nan"), torch.zeros(5), "X has NaN"),
        (torch.randn(5, 2), torch.zeros(4), "the rows of X"),
        (torch.randn(0, 2), torch.zeros(0), "empty"),
    ],
)
def test_bad_data_are_refused(X, y, words):
    with pytest.raises(ValueError, match=words):
        fit(SparseFeatures(make_kernel(), torch.randn(3, 2)), noisy(), X.double(), y.double())


def test_bad_noise_and_types():
    X, y = data(5, 2)
    features = SparseFeatures(make_kernel(), X)
    for noise in (torch.ones(4), -torch.ones(5), torch.full((5,), float("nan"))):
        with pytest.raises(ValueError, match="finite variances"):
            fit(features, noisy(), X, y, noise=noise)
    with pytest.raises(TypeError, match="torch tensor"):
        fit(features, noisy(), X, [1.0] * 5)
    with pytest.raises(TypeError, match="GPyTorch likelihood"):
        fit(features, "gaussian", X, y)
