"""The collapsed bound of a field and its gradients, against dense references."""

from __future__ import annotations

import math

import gpytorch
import pytest
import torch

from harmonicgp.features import LongitudeFeatures
from harmonicgp.inference import collapsed_bound
from harmonicgp.inference.collapsed import Passes
from harmonicgp.likelihoods import observe
from tests.features.common import BASES, cells, features_of, fit_field, grid, kernel


def noise_of(s2):
    likelihood = gpytorch.likelihoods.GaussianLikelihood(noise_constraint=gpytorch.constraints.Positive()).double()
    likelihood.noise = s2
    return observe(likelihood)


def bound_of(features, observation, field, bound="tight", tolerance=1e-6):
    """The collapsed bound, with gradients."""
    return collapsed_bound(
        features,
        observation,
        field.grid,
        field.targets,
        bound=bound,
        noise=field.noise,
        gradient=True,
        counts=field.present.double(),
        passes=Passes(tolerance=tolerance),
    )


@pytest.mark.parametrize("noise", [False, True])
@pytest.mark.parametrize("bound", ["elbo", "tight"])
@pytest.mark.parametrize("name", BASES)
def test_gradients_are_the_slopes_of_the_bound(name, bound, noise):
    field, k = grid(noise=noise, fields=2), kernel(name)
    features = features_of(k, t_max=7)
    observation = noise_of(0.3)
    bound_of(features, observation, field, bound, 1e-13)
    base = k.base_kernel.base_kernel

    def value(lengthscale=0.4, scale=1.7, noise_variance=0.3):
        features = features_of(kernel(name, lengthscale, scale), t_max=7)
        return fit_field(features, field, noise_variance, bound, 1e-13).bound

    h, raw_noise = 1e-5, observation.likelihood.raw_noise
    chain = [torch.sigmoid(raw).item() for raw in (base.raw_lengthscale, k.raw_outputscale, raw_noise)]
    expected = -(value(lengthscale=0.4 + h) - value(lengthscale=0.4 - h)) / (2 * h) * chain[0]
    assert float(base.raw_lengthscale.grad) == pytest.approx(expected, rel=2e-6)
    expected = -(value(scale=1.7 + h) - value(scale=1.7 - h)) / (2 * h) * chain[1]
    assert float(k.raw_outputscale.grad) == pytest.approx(expected, rel=2e-6)
    expected = -(value(noise_variance=0.3 + h) - value(noise_variance=0.3 - h)) / (2 * h) * chain[2]
    assert float(raw_noise.grad) == pytest.approx(expected, rel=2e-6)


def dense_block_bound(k, field, latitudes, t_max, order, meridian, s2, jitter):
    """The tight bound with independent blocks over cells, written out densely with its graph: nothing of ours but the kernel."""
    X, y, _ = cells(field)
    turns = torch.arange(order, dtype=torch.float64) * (360 / order)
    Z = torch.stack((torch.full_like(latitudes, meridian), latitudes), -1)
    orbit = torch.stack([Z + torch.tensor([turn, 0.0]) for turn in turns.tolist()])  # [order, m, 2]
    around = torch.stack([k(Z, o).to_dense() for o in orbit])  # k(z, s.z')
    across = torch.stack([k(o, X).to_dense() for o in orbit])  # k(s.z, x)
    blocks = []
    for t in range(t_max + 1):
        phase = torch.exp(2j * math.pi * t * torch.arange(order) / order).to(torch.complex128)
        twice = 1.0 if t == 0 or 2 * t == order else 2.0
        Kzz = twice * torch.einsum("s,sij->ij", phase.conj(), around.to(torch.complex128)).real / order
        Kzx = twice * torch.einsum("s,sij->ij", phase, across.to(torch.complex128)) / order
        L = torch.linalg.cholesky(0.5 * (Kzz + Kzz.mT) + jitter[t] * torch.eye(len(Z), dtype=torch.float64))
        for part in (Kzx.real,) if twice == 1.0 else (Kzx.real, Kzx.imag):
            blocks.append(torch.linalg.solve_triangular(L, part, upper=False))
    A = torch.cat(blocks)
    eye = torch.eye(len(A), dtype=torch.float64)
    mu = torch.linalg.solve(eye + A @ A.mT / s2, A @ y[0] / s2)
    logdet = sum(torch.logdet(torch.eye(len(a), dtype=torch.float64) + a @ a.mT / s2) for a in blocks)
    r = k(X, diag=True) - A.square().sum(0)
    fit = y[0] @ y[0] / s2 - (A @ y[0] / s2) @ mu
    return -0.5 * (fit + logdet + torch.log1p(r / s2).sum() + len(X) * torch.log(2 * math.pi * s2))


@pytest.mark.parametrize("name", ["rbf", "matern32", "matern52"])
def test_bound_and_gradients_are_those_of_a_dense_block_reference(name):
    field, latitudes = grid(), torch.linspace(-75, 75, 6, dtype=torch.float64)
    ours, dense = kernel(name, 0.25), kernel(name, 0.25)
    observation, other = noise_of(0.3), torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    features = LongitudeFeatures(ours, latitudes, 9, 36, -175.0)
    jitter = features.whiten().factor.jitter
    fit = bound_of(features, observation, field, tolerance=1e-14)
    expected = dense_block_bound(dense, field, latitudes, 9, 36, -175.0, other, jitter)
    (-expected).backward()
    assert fit.bound == pytest.approx(float(expected.detach()), rel=1e-9)
    raw = observation.likelihood.raw_noise
    assert float(raw.grad) == pytest.approx(float(other.grad) * torch.sigmoid(raw).item(), rel=1e-8)
    for a, b in zip(ours.parameters(), dense.parameters(), strict=True):
        assert float(a.grad) == pytest.approx(float(b.grad), rel=1e-8)
