"""The marginal likelihood of patches, against a dense reference."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harmonicgp.globe.fields import Points
from harmonicgp.globe.learning import ALL, NEIGHBOURS, log_likelihood, maximise, patches, patches_evidence
from harmonicgp.globe.model import GlobeModel
from harmonicgp.globe.options import KERNELS
from harmonicgp.kernels.globe import unit_vectors


@given(
    kernel=st.sampled_from(KERNELS),
    lengthscale=st.floats(0.05, 2.0),
    scale=st.floats(0.1, 10.0),
    s2=st.floats(0.01, 2.0),
    known=st.booleans(),
    seed=st.integers(0, 50),
)
def test_value_and_slopes(kernel, lengthscale, scale, s2, known, seed):
    rng = np.random.default_rng(seed)
    X = torch.from_numpy(np.column_stack((rng.uniform(-180, 180, 12), rng.uniform(-90, 90, 12))))
    X[1] = X[0]  # a place seen twice
    noise = torch.from_numpy(rng.gamma(1.0, size=12)) if known else None
    values = torch.from_numpy(rng.normal(size=(2, 12)))
    (part,) = patches(Points(X, values, noise))
    model = GlobeModel(kernel, lengthscale, scale, s2, 3, 2, None, 0.0)
    K = model.globe_kernel()(X).to_dense().detach() + torch.diag(s2 + (torch.zeros(12) if noise is None else noise))
    normal = torch.distributions.MultivariateNormal(torch.zeros(12, dtype=torch.float64), K)
    value, slopes = log_likelihood(part, model)
    assert value == pytest.approx(float(normal.log_prob(values).sum()), rel=1e-6, abs=1e-6)
    theta, h = np.log([lengthscale, scale, s2]), 1e-5
    for i in range(3):
        step = h * np.eye(3)[i]
        up, down = (log_likelihood(part, model.with_logarithms(theta + sign * step))[0] for sign in (1, -1))
        assert slopes[i] == pytest.approx((up - down) / (2 * h), rel=1e-4, abs=1e-4)


def test_many_places_make_several_patches():
    rng = np.random.default_rng(0)
    X = torch.from_numpy(np.column_stack((rng.uniform(-180, 180, 3000), rng.uniform(-90, 90, 3000))))
    parts = patches(Points(X, torch.zeros(1, 3000)))
    assert [len(part.X) for part in parts[:4]] == [NEIGHBOURS] * 4
    near, far = (torch.pdist(unit_vectors(part.X)).max() for part in (parts[0], parts[-1]))
    assert float(near) < float(far)
    assert len(patches(Points(X[:ALL], torch.zeros(1, ALL)))) == 1


def test_what_is_given_is_kept():
    rng = np.random.default_rng(0)
    X = torch.from_numpy(np.column_stack((rng.uniform(-180, 180, 80), rng.uniform(-90, 90, 80))))
    evidence = patches_evidence(patches(Points(X, torch.from_numpy(rng.normal(size=(1, 80))))))
    model = GlobeModel("rbf", 0.3, 1.0, 0.1, 3, 2, None, 0.0)
    found = maximise(model, evidence, (True, False, False), 10)
    assert found.model.lengthscale == pytest.approx(0.3)
    assert found.model.s2 != pytest.approx(0.1)
    assert found.bound >= found.history[0]["bound"]
    assert maximise(model, evidence, (True, True, True), 10).model == model
