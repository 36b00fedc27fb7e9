"""The probability of the largest function, against sampling."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from harmonicgp.likelihoods import RobustMaxLikelihood, observe


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


def test_bad_input():
    with pytest.raises(ValueError, match="at least 2"):
        RobustMaxLikelihood(1)
    with pytest.raises(ValueError, match="epsilon"):
        RobustMaxLikelihood(3, epsilon=0.0)
    with pytest.raises(ValueError, match="class numbers 0 to 2"):
        observe(RobustMaxLikelihood(3)).expected(torch.tensor([[3.0]]), torch.zeros(3, 1), torch.ones(3, 1))
