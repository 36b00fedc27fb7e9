"""One block is GPyTorch's SVGP."""

from __future__ import annotations

import gpytorch
import pytest
import torch
from torch.testing import assert_close

from harmonicgp.features import SparseFeatures
from harmonicgp.inference.posterior import Posterior
from harmonicgp.likelihoods import observe
from tests.inference.common import data, make_kernel


class SVGP(gpytorch.models.ApproximateGP):
    def __init__(self, kernel, Z, mean, covariance):
        distribution = gpytorch.variational.CholeskyVariationalDistribution(len(Z))
        strategy = gpytorch.variational.VariationalStrategy(self, Z, distribution, jitter_val=1e-13)
        super().__init__(strategy)
        self.mean_module, self.covar_module = gpytorch.means.ZeroMean(), kernel
        distribution.variational_mean.data.copy_(mean)
        distribution.chol_variational_covar.data.copy_(torch.linalg.cholesky(covariance))
        strategy.variational_params_initialized.fill_(1)

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


@pytest.mark.parametrize("name", ["gaussian", "bernoulli", "student"])
def test_one_block_is_gpytorchs_svgp(name):
    (X, y), Z, N = data(20, 2), torch.randn(5, 2), 100
    make = {
        "gaussian": gpytorch.likelihoods.GaussianLikelihood,
        "bernoulli": gpytorch.likelihoods.BernoulliLikelihood,
        "student": gpytorch.likelihoods.StudentTLikelihood,
    }[name]
    likelihood = make().double()
    target = (y > 0).double() if name == "bernoulli" else y
    R = torch.randn(5, 5)
    mu, Lambda = torch.randn(5), R @ R.mT + torch.eye(5)

    theirs, their_kernel = None, make_kernel()
    theirs = SVGP(their_kernel, Z.clone(), mu, torch.linalg.inv(Lambda))
    theirs.train()
    mll = gpytorch.mlls.VariationalELBO(likelihood, theirs, num_data=N)
    output = theirs(X)
    their_elbo = mll(output, target)
    their_elbo.backward()

    kernel = make_kernel()
    features = SparseFeatures(kernel, Z.clone())
    q = Posterior.from_precisions("block", [mu[None, None]], [Lambda[None, None]])
    evaluation = features(X)
    mean, variance = q.moments(evaluation)
    observation = observe(likelihood)
    terms = observation.terms(target[None], mean, variance, evaluation.residual, "elbo")
    elbo = terms.mean() - q.kl() / N
    elbo.backward()

    assert_close(mean[0], output.mean, rtol=0, atol=1e-7)
    assert_close((variance + evaluation.residual.variance)[0], output.variance, rtol=0, atol=1e-7)
    assert_close(q.kl(), theirs.variational_strategy.kl_divergence(), rtol=0, atol=1e-8)
    assert_close(elbo, their_elbo, rtol=0, atol=1e-7)
    assert_close(features.Z.grad, theirs.variational_strategy.inducing_points.grad, rtol=0, atol=1e-6)
    for (a, ours), (_, other) in zip(kernel.named_parameters(), their_kernel.named_parameters(), strict=True):
        assert_close(ours.grad, other.grad, rtol=0, atol=1e-6, msg=a)
