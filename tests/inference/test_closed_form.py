"""The closed form against exact Gaussian processes: theorem 4.1, the order of the bounds, the optimum."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from harmonicgp.features import HarmonicFeatures, OrthogonalFeatures, SparseFeatures
from harmonicgp.inference.closed_form import closed_form
from harmonicgp.inference.collapsed import collapsed_bound
from harmonicgp.inference.posterior import Posterior
from harmonicgp.inference.prediction import Predictor
from harmonicgp.likelihoods import PoissonLikelihood, observe
from tests.inference.common import (
    ACTIONS,
    FAMILIES,
    data,
    elbo,
    exact_log_evidence,
    exact_posterior,
    feature_draws,
    make_kernel,
    statistics,
)

BOUNDS = ("elbo", "tight")


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


def test_doors_of_the_closed_form_and_the_predictor():
    X, y = data(40, 2)
    features = SparseFeatures(make_kernel(), X[:5])
    stats = statistics(features, X, y)
    for wrong in ({"s2": 0.0}, {"s2": -1.0}, {"s2": float("nan")}, {"s2": 0.1, "scale": 0.0}, {"s2": 0.1, "family": "x"},
                  {"s2": 0.1, "bound": "predictive"}):  # fmt: skip
        with pytest.raises(ValueError, match=r"must be|closed form"):
            closed_form(stats, **wrong)
    with pytest.raises(TypeError, match="Gaussian noise"):
        collapsed_bound(features, observe(PoissonLikelihood()), X, y)
    predictor = Predictor.freeze(features, closed_form(stats, 0.1).posterior)
    for method in (predictor.marginals, predictor.covariance, predictor.components, predictor.paths(1)):
        for x, error, words in (
            (torch.randn(3, 3), ValueError, "3 columns"),
            (torch.randn(0, 2), ValueError, "empty"),
            (torch.full((3, 2), float("nan")), ValueError, "NaN"),
            (np.zeros((3, 2)), TypeError, "torch tensor"),
            (torch.randn(3, 2, dtype=torch.float32), TypeError, "fitted in"),
        ):
            with pytest.raises(error, match=words):
                method(x)
    with pytest.raises(ValueError, match="chunk_size"):
        Predictor.freeze(features, closed_form(stats, 0.1).posterior, chunk_size=0)
