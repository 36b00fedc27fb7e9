"""Rows on one orbit share their features, with the same answer."""

from __future__ import annotations

import gpytorch
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harmonicgp.actions import Longitude, Negation, Rotation, Translation
from harmonicgp.features import DenseEvaluation, HarmonicFeatures, IndependentResidual
from harmonicgp.features.orbits import by_orbits, find_orbits
from harmonicgp.inference.closed_form import closed_form
from harmonicgp.inference.posterior import Posterior
from harmonicgp.inference.prediction import Predictor
from harmonicgp.inference.statistics import gather_statistics
from harmonicgp.kernels.globe import GlobeKernel
from harmonicgp.likelihoods.observation import GaussianObservation
from harmonicgp.training.finish import Split, finish
from harmonicgp.training.problem import Problem
from harmonicgp.training.schedule import Schedule


def hourly(order, period, d, m, seed, dtype=torch.float64):
    """Features of a periodic column and others, and rows on a lattice of the period."""
    torch.manual_seed(seed)
    periodic = gpytorch.kernels.PeriodicKernel(active_dims=[0]).to(dtype)
    periodic.period_length, periodic.lengthscale = period, 0.05  # so short that every frequency has some energy
    periodic.raw_period_length.requires_grad_(False)
    kernel = periodic
    if d > 1:
        rest = gpytorch.kernels.MaternKernel(nu=1.5, active_dims=list(range(1, d))).to(dtype)
        kernel = gpytorch.kernels.ScaleKernel(periodic * rest).to(dtype)
    Z = torch.randn(m, d, dtype=dtype)
    Z[:, 0] = torch.rand(m, dtype=dtype) * period / order
    return HarmonicFeatures(kernel, Translation(0, period, order), Z)


def lattice(period, n, d, places, seed, dtype=torch.float64, turns=3):
    rng = np.random.default_rng(seed)
    others = rng.normal(size=(places, d - 1))
    hours = np.concatenate([rng.choice(n * turns, n, replace=False) for _ in range(places)]) * (period / n)
    rows = np.column_stack((hours, np.repeat(others, n, 0)))
    return torch.from_numpy(rows[rng.permutation(len(rows))]).to(dtype)


def direct(whitened, x):
    """The features without looking for orbits."""
    return whitened._whitened(whitened.features.grams(x))


@given(
    order=st.integers(2, 12),
    per_step=st.integers(1, 4),
    period=st.sampled_from([1.0, 24.0, 365.25, 0.3]),
    d=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_shared_features_are_those_of_every_row(order, per_step, period, d, seed):
    features = hourly(order, period, d, 3, seed)
    x = lattice(period, order * per_step, d, 4, seed)
    orbits = find_orbits(features.action, x)
    assert orbits is not None
    assert len(orbits.points) <= len(x) // 2
    whitened = features.whiten()
    stacks, squares = whitened.explained(x)
    expected, expected_squares = direct(whitened, x)
    for a, b in zip(stacks, expected, strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(squares, expected_squares, atol=1e-7, rtol=1e-7)


def test_orbits_of_which_few_places_are_seen():
    """Turned row by row, not by every element of the group."""
    features = hourly(12, 24.0, 2, 3, 0)
    x = torch.stack((torch.tensor([0.0, 2.0]).repeat(30), torch.arange(30.0).repeat_interleave(2)), -1)
    orbits = find_orbits(features.action, x)
    assert len(orbits.points) * 12 > 2 * len(x)
    whitened = features.whiten()
    for a, b in zip(whitened.explained(x)[0], direct(whitened, x)[0], strict=True):
        torch.testing.assert_close(a, b, atol=1e-7, rtol=1e-7)


def test_longitudes_and_float32():
    torch.manual_seed(0)
    Z = torch.stack((torch.rand(5) * 20, torch.linspace(-60, 60, 5)), -1)
    kernel = GlobeKernel(gpytorch.kernels.MaternKernel(nu=2.5).float())
    kernel.base_kernel.lengthscale = 0.5
    features = HarmonicFeatures(kernel, Longitude(18), Z.float())
    lon, lat = torch.meshgrid(
        torch.arange(-180.0, 540.0, 10.0), torch.tensor([-90.0, -30.5, 0.0, 44.4, 90.0]), indexing="ij"
    )
    x = torch.stack((lon.ravel(), lat.ravel()), -1).float()
    assert len(find_orbits(features.action, x).points) <= 2 * 3 + 2
    whitened = features.whiten()
    for a, b in zip(whitened.explained(x)[0], direct(whitened, x)[0], strict=True):
        torch.testing.assert_close(a, b, atol=2e-4, rtol=1e-4)


def test_gradients_are_the_same():
    features = hourly(6, 24.0, 2, 4, 0)
    x = lattice(24.0, 24, 2, 3, 0)

    def gradients(evaluate):
        features.zero_grad()
        stacks, squares = evaluate(features.whiten())
        (sum((a * torch.arange(1.0, 1 + len(x))).sum() for a in stacks) + squares.sum()).backward()
        return [p.grad.clone() for p in features.parameters() if p.grad is not None]

    shared = gradients(lambda whitened: whitened.explained(x))
    every = gradients(lambda whitened: direct(whitened, x))
    assert len(shared) >= 3
    for a, b in zip(shared, every, strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("case", ["scattered", "no circle", "real resolution", "wanted gradients", "one row"])
def test_where_nothing_is_shared(case):
    features = hourly(6, 24.0, 2, 4, 0)
    x = lattice(24.0, 24, 2, 3, 0)
    if case == "scattered":
        assert find_orbits(features.action, torch.randn(50, 2)) is None
        assert by_orbits(features.action, torch.randn(50, 2)) is None
    elif case == "no circle":
        assert find_orbits(Rotation((0, 1), 4), x) is None
        assert find_orbits(Negation([0]), x) is None
    elif case == "real resolution":
        real = HarmonicFeatures(features.view.kernel, features.action, features.Z, "real")
        assert real.by_orbits(x) is None
        expected = direct(real.whiten(), x)[0]
        for a, b in zip(real.whiten().explained(x)[0], expected, strict=True):
            torch.testing.assert_close(a, b)
    elif case == "wanted gradients":
        assert find_orbits(features.action, x.requires_grad_()) is None
    else:
        assert find_orbits(features.action, x[:1]) is None


def test_passes_bring_orbits_together(monkeypatch):
    """The closed form of a fit and predictions in chunks evaluate one row of each orbit, and find what they would have found."""
    features = hourly(6, 24.0, 2, 5, 1)
    X = lattice(24.0, 24, 2, 40, 1)  # 960 rows on 160 orbits
    y = torch.sin(X[:, 0] / 24 * 2 * torch.pi) + X[:, 1]
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    problem = Problem(features, GaussianObservation(likelihood), X, y[None], None, None, "tight")
    with torch.no_grad():
        likelihood.noise = 0.1
        whitened = features.whiten()
        expected = closed_form(gather_statistics(_Plain(whitened), features.shapes, X, y[None]), 0.1)
    counted = []
    grams = HarmonicFeatures.grams
    monkeypatch.setattr(
        HarmonicFeatures, "grams", lambda self, x=None: counted.append(0 if x is None else len(x)) or grams(self, x)
    )
    start = Posterior.prior(features.shapes, "block")
    found = finish(problem, start, "block", Split(problem), Schedule(chunk_size=64))
    assert sum(counted) <= 200  # orbits at the ends of chunks are met twice
    assert found.bound * len(X) == pytest.approx(expected.bound, rel=1e-9)
    for a, b in zip(found.posterior.means, expected.posterior.means, strict=True):
        torch.testing.assert_close(a, b, atol=1e-7, rtol=1e-7)
    predictor = Predictor.freeze(features, found.posterior, chunk_size=64)
    counted.clear()
    mean, variance = predictor.marginals(X)
    assert sum(counted) <= 200
    stacks, squares = direct(predictor.whitened, X)
    m, v = found.posterior.moments(DenseEvaluation(stacks, IndependentResidual(squares)))
    torch.testing.assert_close(mean, m, atol=1e-7, rtol=1e-7)
    torch.testing.assert_close(variance, v + (features.view.xx(X) - squares).detach(), atol=1e-6, rtol=1e-6)


class _Plain:
    """Whitened features that do not look for orbits."""

    def __init__(self, whitened):
        self.whitened = whitened

    def dense(self, x):
        stacks, squares = direct(self.whitened, x)
        return DenseEvaluation(stacks, IndependentResidual((self.whitened.view.xx(x) - squares).clamp_min(0.0)))
