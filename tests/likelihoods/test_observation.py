from __future__ import annotations

import gpytorch
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats
from torch.testing import assert_close

from harmonicgp.features import IndependentResidual
from harmonicgp.likelihoods import PoissonLikelihood, RobustMaxLikelihood, SoftmaxBoundLikelihood, observe


def test_gaussian_terms_are_in_order_and_right():
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = 0.3
    observation = observe(likelihood.requires_grad_(False))
    y, m, v, r = torch.randn(2, 9), torch.randn(2, 9), torch.rand(2, 9), torch.rand(9)
    elbo, tight = (observation.terms(y, m, v, IndependentResidual(r), bound) for bound in ("elbo", "tight"))
    assert bool((elbo <= tight).all())
    # by quadrature over f ~ N(m, v + r)
    Y, M, V = y.numpy(), m.numpy(), (v + r).numpy()

    def integrand(f, p, n):
        return stats.norm(f, np.sqrt(0.3)).logpdf(Y[p, n]) * stats.norm(M[p, n], np.sqrt(V[p, n])).pdf(f)

    for n in range(3):
        value = sum(integrate.quad(integrand, -15, 15, args=(p, n))[0] for p in range(2))
        assert float(elbo[n]) == pytest.approx(value, abs=1e-6)
    predictive = observation.terms(y, m, v, IndependentResidual(r), "predictive")
    exact = stats.norm(M, np.sqrt(V + 0.3)).logpdf(Y).sum(0)
    np.testing.assert_allclose(predictive, exact, rtol=1e-9)
    with pytest.raises(ValueError, match="bound must be one of"):
        observation.terms(y, m, v, IndependentResidual(r), "loose")


@pytest.mark.parametrize(
    ("likelihood", "y"),
    [
        (gpytorch.likelihoods.BernoulliLikelihood(), torch.tensor([[0.0, 1.0, 1.0]])),
        (PoissonLikelihood(), torch.tensor([[0.0, 3.0, 7.0]])),
        (gpytorch.likelihoods.StudentTLikelihood(), torch.tensor([[0.1, -3.0, 0.7]])),
    ],
)
def test_sites_are_the_derivatives(likelihood, y):
    observation = observe(likelihood.double())
    y = y.double()
    m, v = torch.tensor([[0.2, -0.5, 1.0]]), torch.tensor([[0.3, 0.5, 0.1]])
    g, lam = observation.sites(y, m, v)
    h = 1e-5
    dm = (observation.expected(y, m + h, v) - observation.expected(y, m - h, v)).detach() / (2 * h)
    dv = (observation.expected(y, m, v + h) - observation.expected(y, m, v - h)).detach() / (2 * h)
    assert_close(g[0], dm, rtol=2e-3, atol=1e-5)  # GPyTorch's log of the normal cdf has an approximate derivative
    assert_close(lam[0], (-2 * dv).clamp_min(0), rtol=5e-3, atol=1e-4)
    assert float(lam.min()) >= 0
    with pytest.raises(ValueError, match='use bound="elbo"'):
        observation.terms(y, m, v, IndependentResidual(torch.zeros(3)), "tight")


def test_poisson_in_closed_form():
    m, v = torch.tensor([[0.4]]), torch.tensor([[0.3]])
    ours = float(observe(PoissonLikelihood()).expected(torch.tensor([[4.0]]), m, v))
    value = integrate.quad(lambda f: stats.poisson(np.exp(f)).logpmf(4) * stats.norm(0.4, np.sqrt(0.3)).pdf(f), -6, 6)[
        0
    ]
    assert ours == pytest.approx(value, abs=1e-7)
    with pytest.raises(ValueError, match="whole numbers"):
        observe(PoissonLikelihood()).expected(torch.tensor([[-1.0]]), m, v)


@given(st.integers(2, 5), st.integers(0, 10**6))
def test_robust_max_against_sampling(K, seed):
    rng = np.random.default_rng(seed)
    mean, variance = rng.normal(size=(2, K)), rng.uniform(0.2, 1.5, size=(2, K))
    likelihood = RobustMaxLikelihood(K, points=40)
    m, v = torch.from_numpy(mean), torch.from_numpy(variance)
    P = torch.stack([likelihood.probability_of_largest(torch.full((2,), k), m, v) for k in range(K)], -1)
    assert_close(P.sum(-1), torch.ones(2), rtol=0, atol=2e-3)
    samples = rng.normal(mean, np.sqrt(variance), size=(40_000, 2, K)).argmax(-1)
    share = np.stack([(samples == k).mean(0) for k in range(K)], -1)
    np.testing.assert_allclose(P, share, atol=0.02)
    probabilities = likelihood.class_probabilities(m, v)
    assert_close(probabilities.sum(-1), torch.ones(2))
    observation = observe(likelihood)
    y = torch.tensor([[0.0, K - 1.0]])
    e = observation.expected(y, m.mT, v.mT)
    place = [0, K - 1]
    expected = [
        share[i, k] * np.log(1 - 1e-3) + (1 - share[i, k]) * np.log(1e-3 / (K - 1)) for i, k in enumerate(place)
    ]
    np.testing.assert_allclose(e, expected, atol=0.2)
    g, lam = observation.sites(y, m.mT, v.mT)
    assert g.shape == lam.shape == (K, 2)
    assert bool(torch.isfinite(g).all() & torch.isfinite(lam).all())


def test_robust_max_extremes_stay_finite():
    likelihood = RobustMaxLikelihood(3)
    for scale in (1e-8, 1e12):
        m = torch.tensor([[5.0, -5.0, 0.0]], requires_grad=True)
        e = observe(likelihood).expected(torch.tensor([[1.0]]), m.mT, torch.full((3, 1), scale))
        e.sum().backward()
        assert bool(torch.isfinite(e).all())
        assert bool(torch.isfinite(m.grad).all())


def test_softmax_through_gpytorchs_interface():
    likelihood = gpytorch.likelihoods.SoftmaxLikelihood(num_features=3, num_classes=3, mixing_weights=False).double()
    observation = observe(likelihood)
    assert observation.n_latent(1) == 3
    y = torch.tensor([[0.0, 2.0]])
    m, v = torch.randn(3, 2), torch.rand(3, 2)
    with gpytorch.settings.num_likelihood_samples(4000):
        e = observation.expected(y.long(), m, v)
        g, lam = observation.sites(y.long(), m, v)
    f = m[..., None] + v.sqrt()[..., None] * torch.randn(3, 2, 100_000)
    logp = torch.log_softmax(f, 0)
    assert_close(e, torch.stack([logp[0, 0].mean(), logp[2, 1].mean()]), rtol=0, atol=0.05)
    assert g.shape == lam.shape == (3, 2)


def test_the_bound_of_the_softmax_is_one_and_tight_where_nothing_varies():
    likelihood = SoftmaxBoundLikelihood(3)
    observation = observe(likelihood)
    assert observation.n_latent(1) == 3
    y, m, v = torch.tensor([[0.0, 2.0, 1.0]]), torch.randn(3, 3), torch.rand(3, 3)
    f = m[..., None] + v.sqrt()[..., None] * torch.randn(3, 3, 200_000)
    exact = torch.log_softmax(f, 0).mean(-1)[y[0].long(), torch.arange(3)]
    bound = observation.expected(y, m, v)
    assert bool((bound < exact + 0.01).all())
    assert_close(observation.expected(y, m, 1e-9 * (1 + v)), torch.log_softmax(m, 0)[y[0].long(), torch.arange(3)])
    g, lam = observation.sites(y, m, v)
    assert g.shape == lam.shape == (3, 3)
    assert bool((lam > 0).all())
    assert_close(likelihood.class_probabilities(m.mT, v.mT), torch.softmax(f, 0).mean(-1).mT, rtol=0, atol=0.01)


def test_bad_input():
    with pytest.raises(ValueError, match="at least 2"):
        RobustMaxLikelihood(1)
    with pytest.raises(ValueError, match="epsilon"):
        RobustMaxLikelihood(3, epsilon=0.0)
    with pytest.raises(ValueError, match="class numbers 0 to 2"):
        observe(RobustMaxLikelihood(3)).expected(torch.tensor([[3.0]]), torch.zeros(3, 1), torch.ones(3, 1))
    with pytest.raises(TypeError, match="GPyTorch likelihood"):
        observe("gaussian")
