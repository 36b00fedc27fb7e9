"""Counts: the expectation in closed form, against quadrature."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from harmonicgp.likelihoods import PoissonLikelihood, observe


def test_poisson_in_closed_form():
    m, v = torch.tensor([[0.4]]), torch.tensor([[0.3]])
    ours = float(observe(PoissonLikelihood()).expected(torch.tensor([[4.0]]), m, v))
    value = integrate.quad(lambda f: stats.poisson(np.exp(f)).logpmf(4) * stats.norm(0.4, np.sqrt(0.3)).pdf(f), -6, 6)[
        0
    ]
    assert ours == pytest.approx(value, abs=1e-7)
    with pytest.raises(ValueError, match="whole numbers"):
        observe(PoissonLikelihood()).expected(torch.tensor([[-1.0]]), m, v)


@given(m=st.floats(-2, 2), v=st.floats(0.01, 1.0), y=st.integers(0, 12))
def test_draws_have_the_expected_density_and_mean(m, v, y):
    """E log p(y | f) by Gauss and Hermite's rule, and p(y | f) with the rate exp(f)."""
    likelihood = PoissonLikelihood()
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    f = torch.from_numpy(m + np.sqrt(v) * nodes)
    densities = likelihood(f).log_prob(torch.tensor(float(y))).numpy()
    np.testing.assert_allclose(densities, stats.poisson(np.exp(f.numpy())).logpmf(y), rtol=1e-9, atol=1e-9)
    expected = (weights * densities).sum() / weights.sum()
    found = observe(likelihood).expected(torch.tensor([[float(y)]]), torch.tensor([[m]]), torch.tensor([[v]]))
    assert float(found) == pytest.approx(expected, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("y", [-1.0, 0.5])
def test_targets_are_counts(y):
    with pytest.raises(ValueError, match="whole numbers"):
        observe(PoissonLikelihood()).check_targets(torch.tensor([[1.0, y]]))
    observe(PoissonLikelihood()).check_targets(torch.tensor([[0.0, 3.0]]))
