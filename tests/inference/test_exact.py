"""Posteriors and bounds against dense, exact Gaussian processes."""

from __future__ import annotations

import gpytorch
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from harmonicgp.features import (
    DenseEvaluation,
    HarmonicFeatures,
    IndependentResidual,
    OrthogonalFeatures,
    SparseFeatures,
)
from harmonicgp.inference.closed_form import StreamedPosterior, closed_form
from harmonicgp.inference.natural_gradient import natural_gradient_step
from harmonicgp.inference.posterior import Posterior
from harmonicgp.inference.prediction import Predictor
from harmonicgp.inference.statistics import streaming_matvec
from harmonicgp.likelihoods import observe
from tests.inference.common import (
    ACTIONS,
    data,
    exact_log_evidence,
    exact_posterior,
    feature_draws,
    make_kernel,
    statistics,
)

BOUNDS = ("elbo", "tight")
FAMILIES = ("block", "joint")


def gaussian(s2):
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = s2
    return observe(likelihood.requires_grad_(False))


def elbo(features, posterior, X, y, s2, bound, noise=None):
    """The bound as a sum over rows minus KL: the definition."""
    evaluation = features(X)
    mean, variance = posterior.moments(evaluation)
    terms = gaussian(s2).terms(y[None], mean, variance, evaluation.residual, bound, noise)
    return float(terms.detach().sum()) - float(posterior.kl().detach())


@pytest.mark.parametrize("action", ACTIONS, ids=repr)
def test_theorem_4_1(action):
    """Joint, shared Z, complex resolution: the same q(f) and the same bound as an SVGP on the whole orbit, to 1e-8."""
    kernel, (X, y), s2 = make_kernel(), data(40, 3), 0.1
    Z, x = torch.randn(3, 3) + 0.4, torch.randn(9, 3)
    orbit = action.orbit(Z).flatten(0, 1)
    found = []
    for features in (HarmonicFeatures(kernel, action, Z), SparseFeatures(kernel, orbit)):
        form = closed_form(statistics(features, X, y), s2, "joint", "tight")
        mean, covariance = Predictor.freeze(features, form.posterior).covariance(x)
        found.append((mean, covariance, form.bound))
    (mean1, covariance1, bound1), (mean2, covariance2, bound2) = found
    assert_close(mean1, mean2, rtol=0, atol=1e-8)
    assert_close(covariance1, covariance2, rtol=0, atol=1e-8)
    assert abs(bound1 - bound2) < 1e-7


def test_solve_gp_joint_is_sgpr_on_the_union():
    kernel, (X, y), s2 = make_kernel(), data(40, 2), 0.1
    Z, O, x = torch.randn(4, 2), torch.randn(3, 2), torch.randn(9, 2)  # noqa: E741
    a = closed_form(statistics(OrthogonalFeatures(kernel, Z, O), X, y), s2, "joint", "elbo")
    b = closed_form(statistics(SparseFeatures(kernel, torch.cat((Z, O))), X, y), s2, "joint", "elbo")
    assert a.bound == pytest.approx(b.bound, abs=1e-8)
    p, q = (
        Predictor.freeze(f, form.posterior).marginals(x)
        for f, form in ((OrthogonalFeatures(kernel, Z, O), a), (SparseFeatures(kernel, torch.cat((Z, O))), b))
    )
    assert_close(p, q, rtol=0, atol=1e-8)
    # Titsias's bound, dense
    K, k = kernel(torch.cat((Z, O))).to_dense(), kernel(torch.cat((Z, O)), X).to_dense()
    Q = (k.mT @ torch.linalg.solve(K, k)).detach().numpy()
    from scipy.stats import multivariate_normal

    dense = multivariate_normal(np.zeros(40), Q + s2 * np.eye(40)).logpdf(y.numpy())
    dense -= (float(kernel(X, diag=True).detach().sum()) - np.trace(Q)) / (2 * s2)
    assert b.bound == pytest.approx(dense, abs=1e-7)


@given(st.data())
def test_order_of_the_bounds(draw):
    """elbo <= tight <= exact, block <= joint, and the collapsed bound is the ELBO at the closed-form optimum."""
    features, kernel, d = draw.draw(feature_draws())
    features.requires_grad_(False)
    X, y = data(draw.draw(st.integers(2, 30)), d, draw.draw(st.integers(0, 99)))
    s2 = draw.draw(st.floats(0.01, 2.0))
    exact = exact_log_evidence(kernel, X, y, s2)
    values = {}
    stats = statistics(features, X, y)
    for family in FAMILIES:
        for bound in BOUNDS:
            form = closed_form(stats, s2, family, bound)
            values[family, bound] = form.bound
            assert form.bound == pytest.approx(elbo(features, form.posterior, X, y, s2, bound), rel=1e-8, abs=1e-6)
        assert values[family, "elbo"] <= values[family, "tight"] + 1e-8
        assert values[family, "tight"] <= exact + 1e-6
    for bound in BOUNDS:
        assert values["block", bound] <= values["joint", bound] + 1e-8


@given(st.data())
def test_the_closed_form_is_the_optimum(draw):
    """No other mean or covariance of the family has a higher bound."""
    features, _, d = draw.draw(feature_draws())
    features.requires_grad_(False)
    (X, y), s2 = data(20, d, draw.draw(st.integers(0, 99))), 0.1
    for family in FAMILIES:
        form = closed_form(statistics(features, X, y), s2, family, "elbo")
        q = form.posterior
        for step in (0.05, -0.05):
            means = [mu + step * torch.randn_like(mu) for mu in q.means]
            worse = Posterior(family, tuple(means), q.precisions, q.factors)
            assert elbo(features, worse, X, y, s2, "elbo") <= form.bound + 1e-8
            worse = Posterior.from_precisions(family, q.means, [(1 + step) * Lambda for Lambda in q.precisions])
            assert elbo(features, worse, X, y, s2, "elbo") <= form.bound + 1e-8


def test_more_inducing_points_reach_the_exact_value_and_blocks_stay_below():
    kernel, (X, y), s2 = make_kernel(), data(30, 2), 0.1
    exact, x = exact_log_evidence(kernel, X, y, s2), torch.randn(8, 2)
    mean, variance = exact_posterior(kernel, X, y, s2, x)
    for features in (
        SparseFeatures(kernel, X),
        HarmonicFeatures(kernel, ACTIONS[0], X),
        HarmonicFeatures(kernel, ACTIONS[2], X),
    ):
        joint = closed_form(statistics(features, X, y), s2, "joint", "tight")
        assert joint.bound == pytest.approx(exact, abs=1e-6)
        m, v = Predictor.freeze(features, joint.posterior).marginals(x)
        np.testing.assert_allclose(m[0], mean, atol=1e-7)
        np.testing.assert_allclose(v[0], variance, atol=1e-7)
        block = closed_form(statistics(features, X, y), s2, "block", "tight")
        m, _ = Predictor.freeze(features, block.posterior).marginals(x)
        np.testing.assert_allclose(m[0], mean, atol=1e-7)  # the mean is joint in both families
        if len(features.shapes) > 1 or features.shapes[0][0] > 1:
            assert block.bound < exact - 0.1


def test_known_noise_and_weights():
    kernel, (X, y), s2 = make_kernel(), data(25, 2), 0.05
    noise = torch.rand(25)
    stats = statistics(SparseFeatures(kernel, X), X, y, s2 / (s2 + noise))
    for bound in BOUNDS:
        form = closed_form(stats, s2, "joint", bound)
        assert form.bound == pytest.approx(exact_log_evidence(kernel, X, y, s2 + noise.numpy()), abs=1e-6)
    features = SparseFeatures(kernel, X[:5])
    form = closed_form(statistics(features, X, y, s2 / (s2 + noise)), s2, "block", "tight")
    assert form.bound == pytest.approx(elbo(features, form.posterior, X, y, s2, "tight", noise), abs=1e-8)
    assert form.bound < exact_log_evidence(kernel, X, y, s2 + noise.numpy())


def test_several_outputs_share_features():
    kernel, (X, y), s2 = make_kernel(), data(25, 2), 0.1
    Y = torch.stack((y, y.flip(0), torch.cos(X[:, 0])))
    features = HarmonicFeatures(kernel, ACTIONS[2], torch.randn(4, 2))
    together = closed_form(statistics(features, X, Y), s2, "block", "tight")
    alone = [closed_form(statistics(features, X, target), s2, "block", "tight") for target in Y]
    assert together.bound == pytest.approx(sum(form.bound for form in alone), abs=1e-8)
    x = torch.randn(5, 2)
    mean, variance = Predictor.freeze(features, together.posterior).marginals(x)
    for p, form in enumerate(alone):
        m, v = Predictor.freeze(features, form.posterior).marginals(x)
        assert_close(mean[p], m[0])
        assert_close(variance[p], v[0])


def test_scaling_the_kernel_without_a_pass():
    kernel, (X, y), s2 = make_kernel(), data(30, 2), 0.1
    features = HarmonicFeatures(kernel, ACTIONS[2], torch.randn(4, 2))
    for family in FAMILIES:
        scaled = closed_form(statistics(features, X, y), s2, family, "tight", scale=2.5)
        kernel.outputscale = 1.3 * 2.5
        direct = closed_form(statistics(features, X, y), s2, family, "tight")
        kernel.outputscale = 1.3
        assert scaled.bound == pytest.approx(direct.bound, rel=1e-9)
        assert_close(scaled.posterior.mean_vector(), direct.posterior.mean_vector(), rtol=0, atol=1e-8)


def test_streaming_without_the_dense_matrix():
    kernel, (X, y), s2 = make_kernel(), data(60, 2), 0.1
    features = HarmonicFeatures(kernel, ACTIONS[2], torch.randn(4, 2))
    whitened, x = features.whiten(), torch.randn(7, 2)
    dense = statistics(features, X, y, chunk_size=17)
    sparse = statistics(features, X, y, chunk_size=17, dense=False)
    assert sparse.S is None
    for cache in (0.0, 1e9):
        matvec = streaming_matvec(whitened, X, chunk_size=17, cache_bytes=cache)
        streamed = closed_form(sparse, s2, "block", "tight", matvec=matvec, tolerance=1e-12)
        direct = closed_form(dense, s2, "block", "tight")
        assert streamed.bound == pytest.approx(direct.bound, rel=1e-9)
        assert streamed.iterations > 0
        assert_close(streamed.posterior.mean_vector(), direct.posterior.mean_vector(), rtol=0, atol=1e-8)
        # the joint posterior's variances without its matrix
        joint = closed_form(dense, s2, "joint", "tight").posterior
        iterative = StreamedPosterior.of(streamed.posterior, matvec, s2)
        evaluation = whitened(x)
        for a, b in zip(iterative.moments(evaluation), joint.moments(evaluation), strict=True):
            assert_close(a, b, rtol=0, atol=1e-5)
    with pytest.raises(ValueError, match="streaming matvec"):
        closed_form(sparse, s2, "joint")


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
