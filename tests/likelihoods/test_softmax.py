"""The bound on the softmax, against sampling."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from harmonicgp.likelihoods import SoftmaxBoundLikelihood, observe


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


@given(K=st.integers(2, 5), seed=st.integers(0, 99))
def test_class_probabilities_do_not_depend_on_the_names_of_classes(K, seed):
    generator = torch.Generator().manual_seed(seed)
    mean, variance = torch.randn(4, K, generator=generator), torch.rand(4, K, generator=generator)
    likelihood = SoftmaxBoundLikelihood(K)
    found = likelihood.class_probabilities(mean, variance)
    assert_close(found.sum(-1), torch.ones(4))
    assert bool((found > 0).all())
    order = torch.randperm(K, generator=generator)
    assert_close(likelihood.class_probabilities(mean[:, order], variance[:, order]), found[:, order], rtol=0, atol=0.02)
    assert_close(likelihood.class_probabilities(mean, 0 * variance), torch.softmax(mean, -1))
    assert torch.equal(likelihood.class_probabilities(mean, variance), found)  # the same draws each time
