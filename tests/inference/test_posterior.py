"""The posterior as an object: moments, KL, conversions, parts; against dense formulas."""

from __future__ import annotations

import pytest
import torch
from torch.distributions import MultivariateNormal, kl_divergence
from torch.testing import assert_close

from harmonicgp.features import DenseEvaluation, IndependentResidual
from harmonicgp.inference.posterior import Posterior


def random_posterior(family, shapes, P=2, seed=0):
    g = torch.Generator().manual_seed(seed)
    if family == "joint":
        shapes = [(1, sum(n * f for n, f in shapes))]
    means = [torch.randn(P, n, f, generator=g) for n, f in shapes]
    roots = [torch.randn(P, n, f, f, generator=g) for n, f in shapes]
    return Posterior.from_precisions(family, means, [R @ R.mT + torch.eye(R.shape[-1]) for R in roots])


SHAPES = [(2, 3), (1, 4)]


def evaluated():
    return DenseEvaluation((torch.randn(2, 3, 5), torch.randn(1, 4, 5)), IndependentResidual(torch.zeros(5)))


@pytest.mark.parametrize("family", ["block", "joint"])
def test_moments_and_kl_equal_dense_formulas(family):
    q = random_posterior(family, SHAPES)
    evaluation = evaluated()
    A = evaluation.flat()
    mean, variance = q.moments(evaluation)
    total = torch.zeros(())
    for p in range(2):
        blocks = [block for S in q.covariances() for block in S[p]]
        S = torch.block_diag(*blocks)
        mu = q.mean_vector()[p]
        assert_close(mean[p], A.mT @ mu)
        assert_close(variance[p], (A.mT @ S @ A).diagonal())
        total = total + kl_divergence(MultivariateNormal(mu, S), MultivariateNormal(torch.zeros(10), torch.eye(10)))
        means, variances = q.components(evaluation)
        assert means.shape == (2, 3, 5)
        assert_close(means[p].sum(0), mean[p])
        if family == "block":
            assert_close(variances[p].sum(0), variance[p])
        places = [slice(0, 3), slice(3, 6), slice(6, 10)]
        for b, i in enumerate(places):
            assert_close(variances[p, b], (A[i].mT @ S[i, i] @ A[i]).diagonal())
    assert_close(q.kl(), total)


def test_shared_precisions_stand_for_every_output():
    q = random_posterior("block", SHAPES, P=1)
    means = tuple(torch.randn(3, *mu.shape[1:]) for mu in q.means)
    shared = Posterior("block", means, q.precisions, q.factors)
    full = Posterior.from_precisions("block", means, [Lambda.repeat(3, 1, 1, 1) for Lambda in q.precisions])
    evaluation = evaluated()
    assert_close(shared.moments(evaluation), full.moments(evaluation))
    assert_close(shared.kl(), full.kl())
    assert shared.sample(4).shape == full.sample(4).shape == (4, 3, 10)


def test_natural_parameters():
    q = random_posterior("block", SHAPES)
    theta, Lambda = q.natural()
    for t, L, mu, S in zip(theta, Lambda, q.means, q.covariances(), strict=True):
        assert_close((S @ t[..., None])[..., 0], mu)
        assert_close(L @ S, torch.eye(L.shape[-1]).expand_as(L))


def test_samples_have_the_right_moments():
    q = random_posterior("block", SHAPES, P=1)
    v = q.sample(200_000, torch.Generator().manual_seed(0))[:, 0]
    S = torch.block_diag(*[block for S in q.covariances() for block in S[0]])
    assert_close(v.mean(0), q.mean_vector()[0], rtol=0, atol=0.01)
    assert_close(torch.cov(v.T), S, rtol=0, atol=0.02)


def test_the_prior_has_no_divergence():
    for family in ("block", "joint"):
        assert float(Posterior.prior(SHAPES, family, 2).kl()) == pytest.approx(0.0, abs=1e-12)


def test_a_settled_posterior_does_not_remember_how_its_factors_lay_in_memory():
    generator = torch.Generator().manual_seed(3)
    A = torch.randn(1, 2, 9, 9, generator=generator, dtype=torch.float64)
    one = Posterior.from_precisions("block", [torch.zeros(1, 2, 9)], [torch.eye(9) + A @ A.mT])
    other = Posterior(
        "block", one.means, tuple(L.mT for L in one.precisions), tuple(C.contiguous() for C in one.factors)
    )
    assert other.factors[0].stride() != one.factors[0].stride()
    for factors in zip(one.factors, other.settled().factors, strict=True):
        assert_close(*factors)
        assert factors[0].stride() == factors[1].stride()
