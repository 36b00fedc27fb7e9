"""The exact marginal likelihood of small tables, against its definition and scikit-learn."""

from __future__ import annotations

import math
import time

import gpytorch
import numpy as np
import pytest
import torch
from scipy.stats import multivariate_normal
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from harmonicgp import HarmonicGPRegressor
from harmonicgp.features import SparseFeatures
from harmonicgp.likelihoods.observation import observe
from harmonicgp.training import Schedule
from harmonicgp.training.exact import fit_exact, leave_one_out, log_marginal
from harmonicgp.training.problem import Problem


def problem(N=12, P=2, counts=False, known=False, dtype=torch.float64, nu=1.5):
    g = torch.Generator().manual_seed(3)
    X = torch.randn(N, 2, generator=g, dtype=torch.float64)
    y = torch.stack([torch.sin((1 + p) * X[:, 0]) for p in range(P)])
    y = y + 0.3 * torch.randn(P, N, generator=g, dtype=torch.float64)
    kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(nu=nu, ard_num_dims=2)).to(dtype)
    kernel.outputscale, kernel.base_kernel.lengthscale = 1.7, torch.tensor([[0.6, 1.9]])
    likelihood = gpytorch.likelihoods.GaussianLikelihood().to(dtype)
    likelihood.noise = 0.2
    repeats = torch.arange(N).remainder(3).add(1).to(dtype) if counts else None
    noise = torch.linspace(0, 0.5, N).to(dtype) if known else None
    features = SparseFeatures(kernel, X.to(dtype), learn_inducing=False)
    return Problem(features, observe(likelihood), X.to(dtype), y.to(dtype), None, noise, "tight", repeats)


def dense(p: Problem) -> float:
    """The logarithm of the density of all rows, really repeated."""
    times = torch.ones(p.N).long() if p.counts is None else p.counts.long()
    rows = torch.arange(p.N).repeat_interleave(times)
    K = p.features.view.kernel(p.X[rows]).to_dense().detach()
    s2 = float(p.observation.likelihood.noise.detach())
    D = s2 + (torch.zeros(len(rows)) if p.noise is None else p.noise[rows])
    cov = (K + torch.diag(D)).numpy()
    return sum(multivariate_normal(np.zeros(len(rows)), cov).logpdf(y[rows].numpy()) for y in p.y)


CASES = [(counts, known) for counts in (False, True) for known in (False, True)]


@pytest.mark.parametrize(("counts", "known"), CASES)
@pytest.mark.parametrize("P", [1, 2])
def test_the_value_is_the_density_of_the_rows_really_repeated(counts, known, P):
    p = problem(P=P, counts=counts, known=known)
    assert log_marginal(p) == pytest.approx(dense(p), rel=1e-10)


@pytest.mark.parametrize(("counts", "known"), CASES)
def test_the_gradient_is_that_of_finite_differences(counts, known):
    p = problem(counts=counts, known=known)
    parameters = p.parameters()
    assert len(parameters) == 3  # inducing inputs are the rows, and stay
    value = log_marginal(p, gradient=True)
    assert value == pytest.approx(dense(p), rel=1e-10)
    for parameter in parameters:
        for i in range(parameter.numel()):
            flat, h = parameter.data.view(-1), 1e-5
            flat[i] += h
            up = log_marginal(p)
            flat[i] -= 2 * h
            down = log_marginal(p)
            flat[i] += h
            expected = -(up - down) / (2 * h)  # that of minus the value
            assert float(parameter.grad.view(-1)[i]) == pytest.approx(expected, rel=1e-6, abs=1e-7)


def test_counts_need_not_be_whole():
    """A weight of c is the c-th power of the row's density given f."""
    p = problem(N=1, P=1)
    y, s2, k = float(p.y), 0.2, 1.7
    for c in (0.5, 1.0, 1.5):
        part = Problem(p.features, p.observation, p.X, p.y, None, None, "tight", torch.tensor([c]))
        f = torch.linspace(-40, 40, 400_001)
        log_joint = -0.5 * f**2 / k - 0.5 * math.log(2 * math.pi * k)
        log_joint += c * (-0.5 * (y - f) ** 2 / s2 - 0.5 * math.log(2 * math.pi * s2))
        assert log_marginal(part) == pytest.approx(math.log(torch.trapezoid(log_joint.exp(), f)), abs=1e-8)


def test_a_matrix_without_a_factor_has_no_density():
    p = problem(N=40)
    p.features.view.kernel.base_kernel = gpytorch.kernels.RBFKernel()
    p.observation.likelihood.noise_covar.register_constraint("raw_noise", gpytorch.constraints.Positive())
    p.observation.likelihood.noise = 1e-30
    p.features.view.kernel.base_kernel.lengthscale = 10.0
    assert log_marginal(p) == -math.inf
    assert log_marginal(p, gradient=True) == -math.inf


def test_the_fit_finds_what_scikit_learn_finds():
    p = problem(N=40, P=1)
    p.y.add_(torch.cos(2 * p.X[:, 1]))
    p.features.view.kernel.base_kernel = gpytorch.kernels.RBFKernel(ard_num_dims=2)
    result = fit_exact(p, Schedule(max_steps=200, progress=False))
    reference = GaussianProcessRegressor(
        ConstantKernel(1.0) * RBF([1.0, 1.0], (1e-3, 1e4)) + WhiteKernel(0.1), n_restarts_optimizer=3, random_state=0
    ).fit(p.X.numpy(), p.y[0].numpy())
    assert result.bound * p.N == pytest.approx(reference.log_marginal_likelihood_value_, abs=1e-3)
    mean, _ = result.predictor().marginals(p.X[:5] + 0.1)
    np.testing.assert_allclose(mean[0], reference.predict(p.X[:5].numpy() + 0.1), atol=0.01)


@pytest.mark.parametrize(("counts", "known"), CASES)
def test_the_bound_it_reports_is_the_marginal_likelihood(counts, known):
    p = problem(counts=counts, known=known)
    result = fit_exact(p, Schedule(max_steps=5, progress=False))
    assert result.bound * p.size == pytest.approx(log_marginal(p), rel=1e-8)
    assert result.bound >= max(record["bound"] for record in result.history) - 1e-8
    assert [record["step"] for record in result.history] == list(range(1, len(result.history) + 1))


def test_no_more_evaluations_than_steps_and_callbacks_may_stop():
    assert len(fit_exact(problem(), Schedule(max_steps=4, progress=False)).history) <= 4
    seen = []
    result = fit_exact(
        problem(), Schedule(max_steps=50, progress=False), [lambda record: seen.append(record) or len(seen) == 3]
    )
    assert len(result.history) == len(seen) == 3
    assert fit_exact(problem(), Schedule(max_steps=0, progress=False)).history == []


def test_frozen_parameters_stay():
    p = problem()
    p.observation.likelihood.noise_covar.raw_noise.requires_grad_(False)
    p.features.view.kernel.raw_outputscale.requires_grad_(False)
    fit_exact(p, Schedule(max_steps=10, progress=False))
    assert float(p.observation.likelihood.noise) == pytest.approx(0.2, rel=1e-12)
    assert float(p.features.view.kernel.outputscale) == pytest.approx(1.7, rel=1e-12)
    for parameter in p.parameters():
        parameter.requires_grad_(False)
    fit_exact(p, Schedule(max_steps=10, progress=False))  # nothing to learn: the posterior alone


def test_parameters_on_a_linear_scale_keep_their_start():
    """A period of 365 days is a raw 365: a search confined to +-14 once began at a fortnight."""
    days = torch.linspace(0, 1500, 60)[:, None]
    y = torch.sin(2 * math.pi * days[:, 0] / 365)[None]
    kernel = gpytorch.kernels.PeriodicKernel()
    kernel.period_length, kernel.lengthscale = 365.0, 1.0
    p = Problem(
        SparseFeatures(kernel, days, learn_inducing=False),
        observe(gpytorch.likelihoods.GaussianLikelihood()),
        days,
        y,
        None,
        None,
        "tight",
    )
    fit_exact(p, Schedule(max_steps=30, progress=False))
    assert float(kernel.period_length.detach()) == pytest.approx(365, abs=5)


def test_float32():
    single, double = problem(dtype=torch.float32, counts=True, known=True), problem(counts=True, known=True)
    assert log_marginal(single) == pytest.approx(log_marginal(double), rel=1e-4)
    plan = Schedule(max_steps=20, progress=False)
    assert fit_exact(single, plan).bound == pytest.approx(fit_exact(double, plan).bound, abs=1e-3)


@pytest.mark.parametrize(("counts", "known"), CASES)
def test_each_row_is_predicted_from_all_the_others(counts, known):
    """Against the conditional Gaussian, row by row, of all rows really repeated."""
    p = problem(counts=counts, known=known)
    times = torch.ones(p.N).long() if p.counts is None else p.counts.long()
    rows = torch.arange(p.N).repeat_interleave(times)
    K = p.features.view.kernel(p.X).to_dense().detach().numpy()
    s2 = float(p.observation.likelihood.noise.detach())
    D = s2 + (np.zeros(p.N) if p.noise is None else p.noise.numpy())
    found = leave_one_out(p)
    for i in range(p.N):
        others = rows[rows != i].numpy()
        H = K[np.ix_(others, others)] + np.diag(D[others])
        weights = np.linalg.solve(H, K[others, i])
        np.testing.assert_allclose(found.mean[:, i].numpy(), p.y[:, others].numpy() @ weights, rtol=1e-9, atol=1e-10)
        expected = K[i, i] - K[others, i] @ weights
        np.testing.assert_allclose(found.variance[:, i].numpy(), expected, rtol=1e-8, atol=1e-10)
    assert found.in_turn
    assert (found.counts is None) == (p.counts is None)


def test_rows_in_turn_of_a_matrix_without_factor_are_not_given():
    p = problem(N=4)
    with torch.no_grad():
        p.X[1] = math.nan
    assert leave_one_out(p) is None


def test_a_time_budget_is_kept_and_spent_well():
    """Also where a few steps on all rows would use it up: the first steps are on a part of the rows."""
    g = np.random.default_rng(0)
    X = g.normal(size=(1500, 8))
    y = np.sin(X[:, 0]) * X[:, 1] + 0.1 * g.normal(size=1500)
    clock, budget = time.perf_counter, 0.0
    for options in ({"max_steps": 1}, {"max_steps": 1}, {"max_steps": 4}):
        start = clock()
        HarmonicGPRegressor(progress=False, **options).fit(X, y)
        budget = clock() - start  # that of four steps on this machine
    start = clock()
    gp = HarmonicGPRegressor(progress=False, time_budget=budget).fit(X, y)
    assert clock() - start < 2 * budget + 1
    assert gp.validation_["rmse"] < 0.112


def test_the_likelihood_of_a_part_of_the_rows():
    whole, rows = problem(N=12, counts=True, known=True), slice(0, None, 3)
    X, y, noise, counts = whole.X[rows], whole.y[:, rows], whole.noise[rows], whole.counts[rows]
    part = Problem(whole.features, whole.observation, X, y, None, noise, "tight", counts)
    assert log_marginal(whole, rows=rows) == pytest.approx(log_marginal(part), rel=1e-12)
