"""Fields on the globe against dense references: features, posterior, bound and gradients."""

from __future__ import annotations

import math
from dataclasses import replace

import gpytorch
import numpy as np
import pytest
import torch
from torch.testing import assert_close

from harmonicgp.features import LongitudeFeatures
from harmonicgp.globe import closed_form as module
from harmonicgp.globe.closed_form import coupling, field_bound, field_closed_form, joint_draws
from harmonicgp.globe.fields import Field, FieldPosterior, Parallels
from harmonicgp.globe.points import Points, points_statistics
from harmonicgp.globe.prediction import FieldPredictor
from harmonicgp.inference.closed_form import closed_form, gather_statistics
from harmonicgp.inference.posterior import Posterior
from harmonicgp.kernels.globe import GlobeKernel
from tests.reference import log_marginal

BASES = {
    "rbf": gpytorch.kernels.RBFKernel,
    "matern32": lambda: gpytorch.kernels.MaternKernel(nu=1.5),
    "matern52": lambda: gpytorch.kernels.MaternKernel(nu=2.5),
}


def kernel(name="rbf", lengthscale=0.4, scale=1.7):
    globe = gpytorch.kernels.ScaleKernel(GlobeKernel(BASES[name]())).double()
    globe.base_kernel.base_kernel.lengthscale = lengthscale
    globe.outputscale = scale
    return globe


def grid(step=10.0, hole=True, seed=0, fields=1, first=-175.0, noise=False):
    """A field with a hole, on a grid of cell centres."""
    generator = torch.Generator().manual_seed(seed)
    latitudes = torch.arange(-90 + step / 2, 90, step, dtype=torch.float64)
    longitudes = first + torch.arange(0, 360, step, dtype=torch.float64)
    values = torch.randn(fields, len(latitudes), len(longitudes), dtype=torch.float64, generator=generator)
    values += torch.sin(latitudes / 30)[:, None] + torch.cos(3 * longitudes / 57.3)
    present = torch.rand(len(latitudes), len(longitudes), generator=generator) < (0.8 if hole else 2.0)
    if hole:
        present[4:8, 10:17] = False
        present[2] = False
    known = 0.3 * torch.rand(present.shape, dtype=torch.float64, generator=generator) if noise else None
    return Field(latitudes, longitudes, values, present, known)


def cells(field):
    """Points [N, 2], values [P, N] and noise of the cells that are present."""
    lat, lon = torch.meshgrid(field.latitudes, field.longitudes, indexing="ij")
    X = torch.stack((lon, lat), -1)[field.present]
    return X, field.values[:, field.present], None if field.noise is None else field.noise[field.present]


def features_of(k, m=6, t_max=18, order=36, meridian=-175.0, north=75.0):
    return LongitudeFeatures(k, torch.linspace(-north, north, m, dtype=torch.float64), t_max, order, meridian)


def as_blocks(posterior, features):
    """A field's posterior as one of blocks."""
    n, M = features.n_sines, posterior.M.double()
    M = torch.cat((M[0], M[1, 1 : n + 1]))
    mean = torch.cat((posterior.mean[:, 0], posterior.mean[:, 1, 1 : n + 1]), 1)
    C = torch.linalg.inv(M)
    return Posterior("block", (mean,), ((C @ C.mT)[None],), (C[None],))


@pytest.mark.parametrize("name", BASES)
@pytest.mark.parametrize("order", [36, 9])
def test_all_frequencies_explain_what_the_whole_orbit_does(name, order):
    k = kernel(name, 0.12)  # short, and away from the poles: a dense factor needs no jitter
    features = features_of(k, t_max=order // 2, order=order, north=40.0)
    X = cells(grid())[0]
    X = torch.cat((X, X + torch.tensor([3.3, 1.7])))  # on the lattice, and off it
    with torch.no_grad():
        (a,), residual = features(X)
    turns = torch.arange(order, dtype=torch.float64) * (360 / order)
    orbit = torch.cat([features.Z.detach() + torch.tensor([turn, 0.0]) for turn in turns.tolist()])
    Kzz, Kzx = k(orbit).to_dense().detach(), k(orbit, X).to_dense().detach()
    A = torch.linalg.solve_triangular(torch.linalg.cholesky(Kzz), Kzx, upper=False)
    assert_close(torch.einsum("bfn,bfk->nk", a, a), A.mT @ A, rtol=0, atol=2e-8)
    assert_close(residual, (1.7 - A.square().sum(0)).clamp_min(0), rtol=0, atol=2e-8)


def test_the_circle_group_has_the_phases_of_any_longitude():
    k = kernel("rbf", 0.12)
    features = features_of(k, 6, 20, None, 12.3, 40.0)
    fine = features_of(k, 6, 20, 400, 12.3, 40.0)
    X = torch.rand(50, 2, dtype=torch.float64) * torch.tensor([700.0, 170.0]) - torch.tensor([350.0, 85.0])
    with torch.no_grad():
        (a,), r = features(X)
        (b,), s = fine(X)
    assert_close(a, b, rtol=0, atol=1e-9)
    assert_close(r, s, rtol=0, atol=1e-9)


@pytest.mark.parametrize("noise", [False, True])
@pytest.mark.parametrize("fields", [1, 3])
@pytest.mark.parametrize("name", BASES)
def test_closed_form_is_that_of_the_cells(name, fields, noise):
    field, k, s2 = grid(fields=fields, noise=noise), kernel(name), 0.3
    features = features_of(k, t_max=7)
    whitened = features.whiten()
    parallels = Parallels.of(whitened, field.latitudes, torch.float64)
    X, y, v = cells(field)
    weights = None if v is None else s2 / (s2 + v)
    statistics = gather_statistics(whitened, features.shapes, X, y, weights)
    for bound in ("elbo", "tight"):
        found = field_closed_form(parallels, field, s2, bound, tolerance=1e-13)
        expected = closed_form(statistics, s2, "block", bound)
        assert found.bound == pytest.approx(expected.bound, rel=1e-10)
        block = as_blocks(found.posterior, features)
        assert_close(block.means[0], expected.posterior.means[0], rtol=0, atol=1e-9)
        assert_close(block.precisions[0], expected.posterior.precisions[0], rtol=1e-8, atol=1e-8)
        again = FieldPosterior.of_blocks(block, features)
        assert_close(again.mean, found.posterior.mean, rtol=0, atol=1e-12)
        assert_close(again.M, found.posterior.M, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", BASES)
@pytest.mark.parametrize("lengthscale", [0.05, 0.3, 1.0])
def test_the_bound_is_one(name, lengthscale):
    field, k, s2 = grid(20.0, first=-170.0), kernel(name, lengthscale), 0.3
    X, y, _ = cells(field)
    exact = log_marginal(k(X).to_dense().detach().numpy(), y[0].numpy(), s2)
    for m, t_max in ((2, 0), (5, 3), (9, 9)):
        features = features_of(k, m, t_max, 18, -170.0)
        parallels = Parallels.of(features.whiten(), field.latitudes, torch.float64)
        elbo, tight = (field_closed_form(parallels, field, s2, b, 1e-12).bound for b in ("elbo", "tight"))
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
        found = joint.posterior.moments(features(X).stacks)[0][0]
    assert_close(found.numpy(), mean, rtol=0, atol=1e-8)
    parallels = Parallels.of(features.whiten(), field.latitudes, torch.float64)
    block = field_closed_form(parallels, field, s2, "elbo", 1e-13)
    assert block.bound <= joint.bound + 1e-9
    assert_close(
        as_blocks(block.posterior, features).means[0].flatten(1), joint.posterior.means[0][:, 0], rtol=0, atol=1e-8
    )


@pytest.mark.parametrize("noise", [False, True])
@pytest.mark.parametrize("bound", ["elbo", "tight"])
@pytest.mark.parametrize("name", BASES)
def test_gradients_are_the_slopes_of_the_bound(name, bound, noise):
    field, k = grid(noise=noise, fields=2), kernel(name)
    features = features_of(k, t_max=7)
    s2 = torch.tensor(0.3, dtype=torch.float64, requires_grad=True)
    field_bound(features, field, s2, bound, torch.float64, 1e-13)
    base = k.base_kernel.base_kernel

    def value(lengthscale=0.4, scale=1.7, noise_variance=0.3):
        features = features_of(kernel(name, lengthscale, scale), t_max=7)
        parallels = Parallels.of(features.whiten(), field.latitudes, torch.float64)
        return field_closed_form(parallels, field, noise_variance, bound, 1e-13).bound

    h = 1e-5
    chain = torch.sigmoid(base.raw_lengthscale).item(), torch.sigmoid(k.raw_outputscale).item()
    expected = -(value(lengthscale=0.4 + h) - value(lengthscale=0.4 - h)) / (2 * h) * chain[0]
    assert float(base.raw_lengthscale.grad) == pytest.approx(expected, rel=2e-6)
    expected = -(value(scale=1.7 + h) - value(scale=1.7 - h)) / (2 * h) * chain[1]
    assert float(k.raw_outputscale.grad) == pytest.approx(expected, rel=2e-6)
    expected = -(value(noise_variance=0.3 + h) - value(noise_variance=0.3 - h)) / (2 * h)
    assert float(s2.grad) == pytest.approx(expected, rel=2e-6)


def test_whole_rows_make_blocks_independent():
    field, k, s2 = grid(hole=False), kernel("rbf"), 0.3
    features = features_of(k, t_max=10)
    parallels = Parallels.of(features.whiten(), field.latitudes, torch.float64)
    assert field_closed_form(parallels, field, s2, tolerance=1e-10).iterations <= 1


def test_single_precision_is_near_double():
    field, k, s2 = grid(), kernel("matern32"), 0.3
    features = features_of(k, t_max=12, m=9)
    whitened = features.whiten()
    wide, narrow = (
        field_closed_form(Parallels.of(whitened, field.latitudes, dtype), field, s2, tolerance=1e-6)
        for dtype in (torch.float64, torch.float32)
    )
    assert narrow.bound == pytest.approx(wide.bound, rel=1e-5)
    assert_close(narrow.posterior.mean, wide.posterior.mean, rtol=0, atol=1e-4)


def test_what_the_features_refuse():
    with pytest.raises(ValueError, match="circle group"):
        LongitudeFeatures(kernel("matern32"), torch.zeros(1), 3)
    with pytest.raises(ValueError, match="frequencies 0 to 4"):
        LongitudeFeatures(kernel(), torch.zeros(1), 5, 8)
    with pytest.raises(ValueError, match="latitude of 95"):
        LongitudeFeatures(kernel(), torch.tensor([95.0]), 3)
    with pytest.raises(ValueError, match="finite"):
        LongitudeFeatures(kernel(), torch.tensor([math.nan]), 3)
    with pytest.raises(TypeError, match="GlobeKernel"):
        LongitudeFeatures(gpytorch.kernels.RBFKernel(), torch.zeros(1), 3)
    features = features_of(kernel(), t_max=3)
    field = grid(first=-174.0)
    parallels = Parallels.of(features.whiten(), field.latitudes, torch.float64)
    with pytest.raises(ValueError, match="off the lattice"):
        field_closed_form(parallels, field, 0.1)


@pytest.mark.parametrize("exact", [True, False])
def test_joint_draws_have_the_joint_covariance(exact, monkeypatch):
    field, k, s2 = grid(), kernel("matern32"), 0.3
    features = features_of(k, t_max=7)
    parallels = Parallels.of(features.whiten(), field.latitudes, torch.float64)
    fit = field_closed_form(parallels, field, s2, tolerance=1e-10)
    if not exact:
        monkeypatch.setattr(module, "MAX_EXACT_DRAWS", 0)
    draws = joint_draws(parallels, fit, 4000, tolerance=1e-8)
    X, y, _ = cells(field)
    joint = closed_form(gather_statistics(features.whiten(), features.shapes, X, y), s2, "joint")
    expected = torch.linalg.inv(joint.posterior.precisions[0][0, 0])
    flat = torch.cat((draws[:, 0], draws[:, 1, 1:8]), 1).flatten(1)
    found = flat.mT @ flat / len(flat)
    if exact:
        assert_close(found, expected, rtol=0, atol=1e-10)
    else:
        scale = expected.diagonal().sqrt()
        assert float(((found - expected) / (scale[:, None] * scale)).abs().max()) < 0.12


@pytest.mark.parametrize("name", ["rbf", "matern52"])
def test_joint_error_bars_on_grids_and_at_points(name):
    field, k, s2 = grid(), kernel(name, 0.3), 0.3
    features = features_of(k, t_max=9)
    whitened = features.whiten()
    parallels = Parallels.of(whitened, field.latitudes, torch.float64)
    fit = field_closed_form(parallels, field, s2, tolerance=1e-11)
    predictor = FieldPredictor(whitened, replace(fit.posterior, draws=joint_draws(parallels, fit)))
    X, y, _ = cells(field)
    joint = closed_form(gather_statistics(whitened, features.shapes, X, y), s2, "joint")
    latitudes, longitudes = torch.linspace(-80, 80, 5).double(), torch.tensor([-175.0, -171.3, 0.0, 5.0, 94.4]).double()
    mean, variance = predictor.grid(latitudes, longitudes)
    lat, lon = torch.meshgrid(latitudes, longitudes, indexing="ij")
    with torch.no_grad():
        stacks, residual = whitened(torch.stack((lon.flatten(), lat.flatten()), -1))
    m, v = joint.posterior.moments(stacks)
    assert_close(mean.flatten(), m[0], rtol=0, atol=1e-7)
    assert_close(variance.flatten(), v[0] + residual, rtol=0, atol=1e-7)
    at_points = predictor.points(lon.flatten(), lat.flatten())
    assert_close(at_points[0], mean.flatten(1), rtol=0, atol=1e-10)
    assert_close(at_points[1], variance.flatten(), rtol=0, atol=1e-10)


def test_coupling_tells_holes_from_scattered_gaps():
    even, holed = grid(2.0, hole=False), grid(2.0, hole=False)
    generator = torch.Generator().manual_seed(0)
    even.present[:] = torch.rand(even.present.shape, generator=generator) < 0.7
    holed.present[20:60, 30:90] = False
    assert coupling(even.precision(0.3, torch.float64), even.longitudes) < 0.1
    assert coupling(holed.precision(0.3, torch.float64), holed.longitudes) > 0.1


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
    s2, other = (torch.tensor(0.3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    features = LongitudeFeatures(ours, latitudes, 9, 36, -175.0)
    jitter = features.whiten().factor.jitter
    fit = field_bound(features, field, s2, "tight", torch.float64, 1e-14)
    expected = dense_block_bound(dense, field, latitudes, 9, 36, -175.0, other, jitter)
    (-expected).backward()
    assert fit.bound == pytest.approx(float(expected.detach()), rel=1e-9)
    pairs = [(s2, other), *zip(ours.parameters(), dense.parameters(), strict=True)]
    for a, b in pairs:
        assert float(a.grad) == pytest.approx(float(b.grad), rel=1e-8)


def test_scattered_points_in_batches_have_the_posterior_of_their_grid():
    """A 2-degree grid in random order, nobody told that it is one."""
    field = grid(2.0, hole=False, first=-179.0)
    generator = torch.Generator().manual_seed(0)
    present = torch.rand(field.present.shape, generator=generator) < 0.8
    field = replace(field, present=present, values=field.values.float().double())
    features = LongitudeFeatures(kernel("rbf", 0.2), -90 + (torch.arange(45).double() + 0.5) * 4, 18, None, -179.0)
    whitened = features.whiten()
    on_grid = field_closed_form(Parallels.of(whitened, field.latitudes, torch.float64), field, 0.3, tolerance=1e-10)
    X, y, _ = cells(field)
    order = torch.randperm(len(X), generator=generator)
    points = Points(X[order], y[0, order])
    form, _ = points_statistics(features, whitened, points, 0.3)
    scattered = FieldPosterior.of_blocks(form.posterior, features)
    assert form.bound == pytest.approx(on_grid.bound, rel=1e-9)
    assert_close(scattered.mean, on_grid.posterior.mean, rtol=0, atol=1e-5)
    assert_close(scattered.M, on_grid.posterior.M, rtol=0, atol=1e-5)


def test_features_say_that_they_have_no_gradient():
    features = features_of(kernel(), t_max=3)
    with pytest.raises(RuntimeError, match="no gradient"):
        features(torch.zeros(1, 2, dtype=torch.float64))
