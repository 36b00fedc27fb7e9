"""Noise that follows the excesses of the nearest rows."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harmonicgp.inference.local_noise import LocalNoise
from tests.inference.common import make_kernel


def noise_of(n=30, k=5, strength=2.0, scale=1.5, outputs=2):
    g = torch.Generator().manual_seed(0)
    X = torch.randn(n, 3, generator=g, dtype=torch.float64)
    excess = torch.rand(outputs, n, generator=g, dtype=torch.float64)
    return LocalNoise.of(make_kernel(lengthscale=0.7), X, excess, k, strength, scale)


def test_variances_are_the_shrunk_means_of_the_nearest_rows():
    noise = noise_of()
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    near = torch.cdist(x, noise.X).argsort(dim=1)[:, :5]
    for p in range(2):
        for i in range(4):
            total = 2.0 * noise.excess[p].mean() + noise.excess[p, near[i]].sum()
            assert float(noise.variances(x)[p, i]) == pytest.approx(1.5 * float(total) / 7.0, rel=1e-12)


@given(st.floats(0.1, 1e6), st.floats(1e-3, 1e3), st.integers(1, 30))
def test_variances_are_positive_and_within_those_of_single_rows(strength, scale, k):
    noise = noise_of(k=k, strength=strength, scale=scale)
    variances = noise.variances(torch.linspace(-9, 9, 12, dtype=torch.float64).reshape(4, 3)) / scale
    assert bool((variances > 0).all())
    assert bool((variances <= noise.excess.max() * (1 + 1e-9)).all())


def test_much_strength_is_the_average_everywhere():
    noise = noise_of(strength=1e12, scale=1.0)
    expected = noise.excess.mean(1, keepdim=True).expand(2, 3)
    torch.testing.assert_close(noise.variances(torch.randn(3, 3, dtype=torch.float64)), expected)


@pytest.mark.parametrize(
    "changes",
    [{"excess": torch.zeros(1, 4)}, {"excess": -torch.ones(1, 4)}, {"excess": torch.full((1, 4), float("nan"))},
     {"excess": torch.ones(1, 3)}, {"k": 5}, {"k": 0}, {"strength": 0.0}, {"scale": float("inf")}],
)  # fmt: skip
def test_what_does_not_fit_is_refused(changes):
    values = {"X": torch.randn(4, 2), "excess": torch.ones(1, 4), "k": 2, "strength": 1.0, "scale": 1.0} | changes
    with pytest.raises(ValueError, match="local noise"):
        LocalNoise.of(make_kernel(), **values)
