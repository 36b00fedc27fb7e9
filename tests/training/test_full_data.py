"""Natural-gradient steps on all rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from harmonicgp.actions import Negation
from harmonicgp.features import HarmonicFeatures
from harmonicgp.likelihoods import PoissonLikelihood
from harmonicgp.training import Schedule, fit
from tests.inference.common import data, make_kernel


@pytest.mark.parametrize("level", [1.0, 10.0, 50.0, 300.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_counts_of_any_size_converge(level, dtype):
    X, f = data(500, 2)
    rate = level * torch.exp(0.5 * f)
    counts = torch.poisson(rate, generator=torch.Generator().manual_seed(0))
    features = HarmonicFeatures(make_kernel().to(dtype), Negation(), X[:20].to(dtype))
    result = fit(
        features, PoissonLikelihood(), X.to(dtype), counts.to(dtype), schedule=Schedule(max_steps=300, batch_size=128)
    )
    mean, _ = result.predictor().marginals(X.to(dtype))
    correlation = float(torch.corrcoef(torch.stack((mean[0].double(), f)))[0, 1])
    assert correlation > 0.75  # at level 300, from a prior mean of zero, steps are short; a mean= does better
    assert np.isfinite(result.bound)
