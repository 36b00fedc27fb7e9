"""A fit that is given neighbours: what it decides, and what it leaves."""

from __future__ import annotations

import gpytorch
import pytest
import torch

from harmonicgp.features import SparseFeatures
from harmonicgp.inference.neighbours import NeighbourPredictor
from harmonicgp.likelihoods import observe
from harmonicgp.training import Schedule, fit
from harmonicgp.training.neighbour_finish import absorb_neighbours, fit_neighbours
from harmonicgp.training.neighbour_scores import log_density
from harmonicgp.training.problem import Problem
from tests.inference.common import make_kernel

PLAN = Schedule(max_steps=30, batch_size=256, learning_rate=0.05, progress=False, validation_fraction=0.2)


def rough(n=1200, seed=0, wiggles=12.0):
    """Far more wiggles than a few inducing points can carry."""
    g = torch.Generator().manual_seed(seed)
    X = torch.rand(n, 1, generator=g) * 10
    y = torch.sin(wiggles * X[:, 0]) + 0.05 * torch.randn(n, generator=g)
    return X, y


def first_fit(X, y, counts=None, noise=None, m=8):
    kernel = make_kernel(lengthscale=1.0).float()
    features = SparseFeatures(kernel, X[:m].clone())
    likelihood = gpytorch.likelihoods.GaussianLikelihood(noise_constraint=gpytorch.constraints.GreaterThan(1e-6))
    likelihood.noise = 0.5
    result = fit(features, likelihood, X, y, counts=counts, noise=noise, schedule=PLAN)
    return result, Problem(features, observe(likelihood), X, y[None], None, noise, "tight", counts)


def test_neighbours_carry_what_few_inducing_points_miss():
    X, y = rough()
    result, problem = first_fit(X, y)
    before = {name: p.clone() for name, p in result.features.state_dict().items()}
    ending = fit_neighbours(result, problem, "auto", PLAN)
    assert ending.neighbourhood is not None
    x, truth = rough(300, seed=1)
    errors = [float((model.predictor().means(x)[0] - truth).square().mean().sqrt()) for model in (result, ending)]
    assert errors[0] > 0.5
    assert errors[1] < 0.12
    mean, variance = ending.predictor().marginals(x)
    total = (variance[0] + ending.observation.noise().detach()).sqrt()
    assert 0.88 < float(((mean[0] - truth).abs() < 1.96 * total).double().mean()) < 0.995
    assert all(torch.equal(p, before[name]) for name, p in result.features.state_dict().items())
    assert ending.seconds["neighbours"] > 0


def test_where_they_say_no_more_there_are_none():
    g = torch.Generator().manual_seed(0)
    X = torch.rand(800, 1, generator=g)
    y = torch.randn(800, generator=g)  # noise alone
    result, problem = first_fit(X, y)
    assert fit_neighbours(result, problem, "auto", PLAN).neighbourhood is None


def test_validation_is_of_rows_held_out():
    X, y = rough()
    result, problem = first_fit(X, y)
    ending = fit_neighbours(result, problem, 10, PLAN)
    said = ending.validation
    assert said is not None
    assert torch.equal(said.rows, result.validation.rows)
    held = problem.part(said.rows)
    score, _ = log_density(held, said.mean.double(), said.variance, float(ending.observation.noise().detach()))
    before, _ = log_density(held, result.validation.mean.double(), result.validation.variance, 0.5)
    assert score > before + 1
    assert len(ending.neighbourhood.observed) == len(X)
    assert ending.neighbourhood.k == 10


def test_without_held_out_rows_nothing_is_learned_anew():
    X, y = rough(300)
    result, problem = first_fit(X, y)
    plan = Schedule(max_steps=30, batch_size=256, progress=False, validation_fraction=0.0)
    assert fit_neighbours(result, problem, "auto", plan) is result
    ending = fit_neighbours(result, problem, 5, plan)
    assert ending.neighbourhood.k == 5
    assert ending.validation is None
    for a, b in zip(ending.features.parameters(), result.features.parameters(), strict=True):
        assert torch.equal(a, b)


def test_counts_and_known_noise():
    X, y = rough(900)
    counts = torch.ones(900)
    counts[::5] = 3
    for more in ({"counts": counts}, {"noise": torch.full((900,), 0.01)}):
        result, problem = first_fit(X, y, **more)
        ending = fit_neighbours(result, problem, 8, PLAN)
        mean, variance = ending.predictor().marginals(X[:50])
        assert torch.isfinite(mean).all()
        assert float(variance.min()) > 0
        assert float((mean[0] - y[:50]).abs().mean()) < 0.15


def test_a_time_budget_is_kept_to():
    X, y = rough()
    result, problem = first_fit(X, y)
    plan = Schedule(max_steps=30, batch_size=256, progress=False, validation_fraction=0.2, time_budget=0.01)
    ending = fit_neighbours(result, problem, 10, plan)  # one score and the end, whatever the budget
    assert ending.neighbourhood is not None


def test_new_rows_are_absorbed():
    X, y = rough(1200)
    result, problem = first_fit(X[:600], y[:600])
    ending = fit_neighbours(result, problem, 10, PLAN)
    predictor = ending.predictor()
    assert isinstance(predictor, NeighbourPredictor)
    more = Problem(ending.features, ending.observation, X[600:], y[None, 600:], None, None, "tight")
    grown = absorb_neighbours(predictor, more)
    assert len(grown.neighbourhood.observed) == 1200
    x, truth = rough(300, seed=1)
    before, after = (float((p.means(x)[0] - truth).square().mean()) for p in (predictor, grown))
    assert after < before
    assert float((grown.marginals(x)[1] - predictor.marginals(x)[1]).mean()) < 0


def test_other_noise_is_refused():
    X, y = rough(100)
    result, problem = first_fit(X, y)
    student = observe(gpytorch.likelihoods.StudentTLikelihood())
    wrong = Problem(problem.features, student, X, y[None], None, None, "elbo")
    with pytest.raises(TypeError, match="Gaussian noise"):
        fit_neighbours(result, wrong, 5, PLAN)
