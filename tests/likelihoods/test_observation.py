from __future__ import annotations

import gpytorch
import numpy as np
import pytest
import torch
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


def test_bad_input():
    with pytest.raises(TypeError, match="GPyTorch likelihood"):
        observe("gaussian")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "likelihood",
    [
        gpytorch.likelihoods.BernoulliLikelihood(),
        gpytorch.likelihoods.StudentTLikelihood(),
        gpytorch.likelihoods.LaplaceLikelihood(),
        SoftmaxBoundLikelihood(3),
        RobustMaxLikelihood(3),
    ],
    ids=lambda likelihood: type(likelihood).__name__,
)
def test_variances_at_rounding_level_give_no_warning_and_keep_their_gradient(likelihood, dtype):
    observation = observe(likelihood.to(dtype))
    P = observation.n_latent(1)
    variance = torch.tensor([1.0, 1e-7, 0.0, -1e-8], dtype=dtype).repeat(P, 1)
    mean, y = torch.linspace(-1, 1, 4 * P, dtype=dtype).reshape(P, 4), torch.ones(1, 4, dtype=dtype)
    g, lambda_ = observation.sites(y, mean, variance)  # a warning would be an error here
    assert torch.isfinite(g).all()
    if isinstance(likelihood, gpytorch.likelihoods.BernoulliLikelihood | SoftmaxBoundLikelihood):
        assert (lambda_.sum(0)[2:] > 0).all()
