"""The end of a fit: the closed form at the final hyper-parameters, refined on held-out rows."""

from __future__ import annotations

import importlib

import gpytorch
import gpytorch.kernels as gk
import numpy as np
import pytest
import torch
from torch.testing import assert_close

from harmonicgp.actions import Negation, Rotation
from harmonicgp.features import HarmonicFeatures, SparseFeatures
from harmonicgp.inference.closed_form import StreamedPosterior, closed_form
from harmonicgp.likelihoods import observe
from harmonicgp.training import Schedule, fit
from tests.inference.common import data, make_kernel, statistics
from tests.training.common import BRIEF, QUICK, make, noisy


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


@pytest.mark.parametrize("family", ["block", "joint"])
def test_the_final_posterior_is_the_closed_form_at_the_final_hyper_parameters(family):
    """Held-out rows once got features of the refined kernel with factors of the old one."""
    X, y = data(600, 2)
    features, likelihood = HarmonicFeatures(make_kernel(scale=3.0), Rotation((0, 1), 3), X[:10]), noisy()
    result = fit(features, likelihood, X, y, family=family, schedule=BRIEF)
    assert result.refinement is not None
    assert abs(np.log(result.refinement.scale)) > 1e-3  # the case that matters
    form = closed_form(statistics(features, X, y), float(likelihood.noise.detach()), family)
    assert_close(result.posterior.mean_vector(), form.posterior.mean_vector(), rtol=0, atol=1e-6)
    assert_close(result.posterior.precisions[0], form.posterior.precisions[0], rtol=1e-6, atol=1e-6)


def test_refinement_reaches_past_its_first_range():
    X, y = data(800, 2)
    y = y + 20 * torch.randn(800)  # noise variance 400, started at 0.5
    likelihood = noisy()
    fit(SparseFeatures(make_kernel(), X[:10]), likelihood, X, y, schedule=BRIEF)
    assert float(likelihood.noise.detach()) > 100


def test_the_bound_of_a_likelihood_that_is_not_gaussian_is_the_elbo_at_the_final_posterior():
    X, y = data(300, 2)
    likelihood, target = gpytorch.likelihoods.BernoulliLikelihood().double(), (y > 0).double()
    for passes in (0, 2):
        features = SparseFeatures(make_kernel(), X[:10])
        result = fit(
            features, likelihood, X, target, schedule=Schedule(max_steps=30, batch_size=64, full_passes=passes)
        )
        evaluation = features(X)
        m, v = result.posterior.moments(evaluation)
        residual = evaluation.residual.variance
        value = float(observe(likelihood).expected(target[None], m, v + residual).detach().sum()) - float(
            result.posterior.kl()
        )
        assert result.bound == pytest.approx(value / 300, abs=1e-9)


def test_many_features_are_fitted_without_their_matrix(monkeypatch):
    """The path above MAX_DENSE, with the limit brought down."""
    for module in ("inference.statistics", "training.fit", "training.finish"):
        monkeypatch.setattr(importlib.import_module(f"harmonicgp.{module}"), "MAX_DENSE", 10)
    X, y = data(200, 2)
    found = {}
    for family in ("block", "joint"):
        features = HarmonicFeatures(make_kernel(), Negation(), X[:10])
        result = fit(features, noisy(), X, y, family=family, schedule=BRIEF)
        assert result.iterations > 0
        assert isinstance(result.posterior, StreamedPosterior) == (family == "joint")
        found[family] = result.predictor().marginals(X[:5])
    assert_close(found["block"][0], found["joint"][0], rtol=0, atol=1e-5)
    labels = (y > 0).double()
    plan = Schedule(max_steps=20, batch_size=100)
    features, bernoulli = (
        HarmonicFeatures(make_kernel(), Negation(), X[:10]),
        gpytorch.likelihoods.BernoulliLikelihood(),
    )
    result = fit(features, bernoulli.double(), X, labels, schedule=plan)
    assert -0.7 < result.bound < 0


def test_small_noise_in_float32():
    X = torch.randn(5000, 2, dtype=torch.float32)
    y = torch.sin(X[:, 0])
    features = HarmonicFeatures(gk.ScaleKernel(gk.RBFKernel()).float(), Negation.strided(2, 2), X[:60].abs())
    for s2 in (1e-4, 1e-6):
        assert np.isfinite(closed_form(statistics(features, X, y), s2, "joint").bound)
    likelihood = gpytorch.likelihoods.GaussianLikelihood(
        noise_constraint=gpytorch.constraints.GreaterThan(1e-7)
    ).float()
    likelihood.noise = 1e-5
    result = fit(features, likelihood, X, y, schedule=BRIEF)
    assert bool(torch.isfinite(result.predictor().marginals(X)[0]).all())
