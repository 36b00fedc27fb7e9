"""The variance that features leave is never negative."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.inference.common import feature_draws


@given(st.data())
def test_residuals_are_never_negative_and_shapes_are_as_promised(data):
    features, kernel, d = data.draw(feature_draws())
    x = torch.randn(6, d)
    evaluation = features.requires_grad_(False)(x)
    stacks, residual = evaluation.stacks, evaluation.residual.variance
    assert tuple((a.shape[0], a.shape[1]) for a in stacks) == features.shapes
    assert float(residual.min()) >= 0
    raw = kernel(x, diag=True) - evaluation.flat().square().sum(0)
    assert float(raw.min()) > -1e-9  # before the clamp, too
    assert features.n_features == sum(a[..., 0].numel() for a in stacks)
