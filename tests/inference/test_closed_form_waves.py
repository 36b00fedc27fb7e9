"""The closed form of a field through its waves is that of its cells."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from harmonicgp.features import LongitudeFeatures
from harmonicgp.inference.closed_form import closed_form
from harmonicgp.inference.statistics import gather_statistics
from tests.features.common import BASES, cells, features_of, fit_field, grid, kernel
from tests.reference import log_marginal


def precisions(posterior):
    """Of a posterior by roots, [blocks, m, m]."""
    C = torch.linalg.inv(posterior.roots.stacks[0][0].double())
    return C @ C.mT


@pytest.mark.parametrize("noise", [False, True])
@pytest.mark.parametrize("fields", [1, 3])
@pytest.mark.parametrize("name", BASES)
def test_closed_form_is_that_of_the_cells(name, fields, noise):
    field, k, s2 = grid(fields=fields, noise=noise), kernel(name), 0.3
    features = features_of(k, t_max=7)
    X, y, v = cells(field)
    weights = None if v is None else s2 / (s2 + v)
    statistics = gather_statistics(features.whiten(), features.shapes, X, y, weights)
    for bound in ("elbo", "tight"):
        found = fit_field(features, field, s2, bound, tolerance=1e-13)
        expected = closed_form(statistics, s2, "block", bound)
        assert found.bound == pytest.approx(expected.bound, rel=1e-10)
        assert_close(found.posterior.means[0], expected.posterior.means[0], rtol=0, atol=1e-9)
        assert_close(precisions(found.posterior), expected.posterior.precisions[0][0], rtol=1e-8, atol=1e-8)
        assert_close(found.posterior.kl(), expected.posterior.kl(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", BASES)
@pytest.mark.parametrize("lengthscale", [0.05, 0.3, 1.0])
def test_the_bound_is_one(name, lengthscale):
    field, k, s2 = grid(20.0, first=-170.0), kernel(name, lengthscale), 0.3
    X, y, _ = cells(field)
    exact = log_marginal(k(X).to_dense().detach().numpy(), y[0].numpy(), s2)
    for m, t_max in ((2, 0), (5, 3), (9, 9)):
        features = features_of(k, m, t_max, 18, -170.0)
        elbo, tight = (fit_field(features, field, s2, b, 1e-12).bound for b in ("elbo", "tight"))
        assert elbo <= tight + 1e-9
        assert tight <= exact + 1e-9


def test_the_joint_posterior_is_that_of_the_whole_orbit():
    field, k, s2 = grid(), kernel("rbf", 0.12), 0.3
    features = features_of(k, t_max=18, north=40.0)
    X, y, _ = cells(field)
    statistics = gather_statistics(features.whiten(), features.shapes, X, y)
    joint = closed_form(statistics, s2, "joint", "elbo")
    turns = torch.arange(36, dtype=torch.float64) * 10
    orbit = torch.cat([features.Z.detach() + torch.tensor([turn, 0.0]) for turn in turns.tolist()])
    Kzz, Kzx = (a.detach().numpy() for a in (k(orbit).to_dense(), k(orbit, X).to_dense()))
    A = np.linalg.solve(np.linalg.cholesky(Kzz), Kzx)
    Q = A.T @ A
    dense = log_marginal(Q, y[0].numpy(), s2) - (1.7 * len(Q) - np.trace(Q)) / (2 * s2)
    assert joint.bound == pytest.approx(dense, abs=1e-8 * abs(dense))
    mean = Q @ np.linalg.solve(Q + s2 * np.eye(len(Q)), y[0].numpy())
    with torch.no_grad():
        found = joint.posterior.moments(features(X))[0][0]
    assert_close(found.numpy(), mean, rtol=0, atol=1e-8)
    block = fit_field(features, field, s2, "elbo", 1e-13)
    assert block.bound <= joint.bound + 1e-9
    assert_close(block.posterior.mean_vector(), joint.posterior.means[0][:, 0], rtol=0, atol=1e-8)


def test_whole_rows_make_blocks_independent():
    field, k, s2 = grid(hole=False), kernel("rbf"), 0.3
    features = features_of(k, t_max=10)
    assert fit_field(features, field, s2, tolerance=1e-10).iterations <= 1


def test_single_precision_is_near_double():
    field, k, s2 = grid(), kernel("matern32"), 0.3
    latitudes = torch.linspace(-75.0, 75.0, 9, dtype=torch.float64)
    wide, narrow = (
        fit_field(LongitudeFeatures(k, latitudes, 12, 36, -175.0, dtype), field, s2, tolerance=1e-6)
        for dtype in (torch.float64, torch.float32)
    )
    assert narrow.posterior.roots.stacks[0].dtype == torch.float32
    assert narrow.bound == pytest.approx(wide.bound, rel=1e-5)
    assert_close(narrow.posterior.means[0], wide.posterior.means[0], rtol=0, atol=1e-4)


def test_scattered_points_in_batches_have_the_posterior_of_their_grid():
    """A 2-degree grid in random order, nobody told that it is one."""
    field = grid(2.0, hole=False, first=-179.0)
    generator = torch.Generator().manual_seed(0)
    present = torch.rand(field.present.shape, generator=generator) < 0.8
    field = replace(field, present=present, values=field.values.float().double())
    features = LongitudeFeatures(kernel("rbf", 0.2), -90 + (torch.arange(45).double() + 0.5) * 4, 18, None, -179.0)
    on_grid = fit_field(features, field, 0.3, tolerance=1e-10)
    X, y, _ = cells(field)
    order = torch.randperm(len(X), generator=generator)
    statistics = gather_statistics(features.whiten(), features.shapes, X[order], y[:, order], chunk_size=700)
    scattered = closed_form(statistics, 0.3)
    assert scattered.bound == pytest.approx(on_grid.bound, rel=1e-9)
    assert_close(scattered.posterior.means[0], on_grid.posterior.means[0], rtol=0, atol=1e-5)
    assert_close(
        scattered.posterior.covariances()[0][0], torch.linalg.inv(precisions(on_grid.posterior)), rtol=0, atol=1e-5
    )
