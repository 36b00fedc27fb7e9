"""Natural-gradient steps: one block in one step, and no divergence of coupled blocks."""

from __future__ import annotations

import gpytorch
import numpy as np
import pytest
import torch
from torch.testing import assert_close

from harmonicgp.features import DenseEvaluation, HarmonicFeatures, IndependentResidual, SparseFeatures
from harmonicgp.inference.closed_form import closed_form
from harmonicgp.inference.natural_gradient import natural_gradient_step
from harmonicgp.inference.posterior import Posterior
from harmonicgp.likelihoods import observe
from tests.inference.common import ACTIONS, data, elbo, gaussian, make_kernel, statistics

# Natural gradients ----------------------------------------------------------------------------------------------------------


def test_one_block_one_step_is_the_closed_form():
    kernel, (X, y), s2 = make_kernel(), data(30, 2), 0.1
    features = SparseFeatures(kernel, torch.randn(5, 2)).requires_grad_(False)
    evaluation = features(X)
    q = Posterior.prior(features.shapes)
    m, v = q.moments(evaluation)
    g, lam = gaussian(s2).sites(y[None], m, v + evaluation.residual.variance)
    q = natural_gradient_step(q, evaluation, g, lam, 1.0, 1.0)
    form = closed_form(statistics(features, X, y), s2, "block")
    assert_close(q.mean_vector(), form.posterior.mean_vector(), rtol=0, atol=1e-8)
    assert_close(q.precisions[0], form.posterior.precisions[0], rtol=0, atol=1e-8)


@pytest.mark.parametrize("rho", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("shift", [0.0, 4.0])
def test_steps_converge_for_every_rho_however_coupled_the_blocks(rho, shift):
    """Inputs far off the symmetry make the blocks almost copies of each other, where block Jacobi diverges."""
    kernel, (X, y), s2 = make_kernel(), data(80, 3), 0.01
    X = X + shift
    features = HarmonicFeatures(kernel, ACTIONS[5], X[:6]).requires_grad_(False)
    evaluation = features(X)
    form = closed_form(statistics(features, X, y), s2, "block", "elbo")
    q, observation, last = Posterior.prior(features.shapes), gaussian(s2), -np.inf
    for _ in range(int(12 / rho) + 8):
        m, v = q.moments(evaluation)
        g, lam = observation.sites(y[None], m, v + evaluation.residual.variance)
        q = natural_gradient_step(q, evaluation, g, lam, 1.0, rho, max_iterations=200, tolerance=1e-10)
        value = elbo(features, q, X, y, s2, "elbo")
        assert value >= last - 1e-6 * abs(last)
        last = value
    assert last == pytest.approx(form.bound, rel=1e-4)


def test_truncated_conjugate_gradients_do_not_diverge():
    kernel, (X, y), s2 = make_kernel(), data(80, 3), 0.01
    X = X + 4.0
    features = HarmonicFeatures(kernel, ACTIONS[5], X[:6]).requires_grad_(False)
    q, observation = Posterior.prior(features.shapes), gaussian(s2)
    generator = torch.Generator().manual_seed(0)
    for _ in range(100):
        rows = torch.randperm(80, generator=generator)[:16]
        evaluation = features(X[rows])
        m, v = q.moments(evaluation)
        g, lam = observation.sites(y[None, rows], m, v + evaluation.residual.variance)
        q = natural_gradient_step(q, evaluation, g, lam, 80 / 16, 0.3, max_iterations=3)
    assert float(q.mean_vector().abs().max()) < 1e3
    assert elbo(features, q, X, y, s2, "elbo") > elbo(features, Posterior.prior(features.shapes), X, y, s2, "elbo")


def test_rho_outside_its_range():
    with pytest.raises(ValueError, match="rho"):
        natural_gradient_step(
            Posterior.prior([(1, 2)]),
            DenseEvaluation((torch.zeros(1, 2, 3),), IndependentResidual(torch.zeros(3))),
            torch.zeros(1, 3),
            torch.ones(1, 3),
            1.0,
            0.0,
        )
    with pytest.raises(ValueError, match="family"):
        Posterior.prior([(1, 2)], "diagonal")


def test_the_appendix_lemma_is_the_fixed_point_for_a_likelihood_that_is_not_gaussian():
    """S* = K (K + K_uf Lambda K_fu)^{-1} K with lambda_n = -2 d e_n / d variance_n, at the converged posterior."""
    (X, y), Z = data(60, 2), torch.randn(6, 2)
    kernel = make_kernel().requires_grad_(False)
    features = SparseFeatures(kernel, Z, learn_inducing=False)
    observation = observe(gpytorch.likelihoods.BernoulliLikelihood().double())
    target = (y > 0).double()[None]
    evaluation = features(X)
    residual = evaluation.residual.variance
    q = Posterior.prior(features.shapes)
    for _ in range(200):
        m, v = q.moments(evaluation)
        g, lam = observation.sites(target, m, v + residual)
        q = natural_gradient_step(q, evaluation, g, lam, 1.0, 0.5)
    m, v = q.moments(evaluation)
    _, lam = observation.sites(target, m, v + residual)
    K, k = kernel(Z).to_dense(), kernel(Z, X).to_dense()
    optimal = K @ torch.linalg.solve(K + (k * lam) @ k.mT, K)
    L = torch.linalg.cholesky(K)
    assert_close(L @ q.covariances()[0][0, 0] @ L.mT, optimal, rtol=0, atol=1e-8)
    # and it is a maximum: the mean's gradient vanishes, K mu-part: g summed through the features equals mu
    g, _ = observation.sites(target, m, v + residual)
    assert_close((evaluation.stacks[0][0] @ g[0]), q.means[0][0, 0], rtol=0, atol=1e-7)
