"""Fields on the globe against dense references: features, posterior, bound and gradients."""

from __future__ import annotations

import math
import sys
from dataclasses import replace

import gpytorch
import numpy as np
import pytest
import torch
from torch.testing import assert_close

from harmonicgp.features import GlobeGrid, LongitudeFeatures
from harmonicgp.features.evaluation import Roots
from harmonicgp.globe.fields import Field, coupling
from harmonicgp.inference import Predictor, collapsed_bound, joint_deviations
from harmonicgp.inference.closed_form import closed_form
from harmonicgp.inference.collapsed import Passes
from harmonicgp.inference.statistics import EvaluationStatistics, gather_statistics
from harmonicgp.kernels.globe import GlobeKernel
from harmonicgp.likelihoods import observe
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


def sums(features, field, s2):
    """The statistics of a field through its waves."""
    weights = None if field.noise is None else s2 / (s2 + field.noise)
    with torch.no_grad():
        evaluation = features(field.grid)
    return EvaluationStatistics.of(evaluation, field.targets, weights, field.present.double())


def fit_field(features, field, s2, bound="tight", tolerance=1e-6):
    return closed_form(sums(features, field, s2), s2, "block", bound, tolerance=tolerance)


def precisions(posterior):
    """Of a posterior by roots, [blocks, m, m]."""
    C = torch.linalg.inv(posterior.roots.stacks[0][0].double())
    return C @ C.mT


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


@pytest.mark.parametrize("name", BASES)
@pytest.mark.parametrize("order", [36, 9])
def test_all_frequencies_explain_what_the_whole_orbit_does(name, order):
    k = kernel(name, 0.12)  # short, and away from the poles: a dense factor needs no jitter
    features = features_of(k, t_max=order // 2, order=order, north=40.0)
    X = cells(grid())[0]
    X = torch.cat((X, X + torch.tensor([3.3, 1.7])))  # on the lattice, and off it
    with torch.no_grad():
        evaluation = features(X).dense()
    (a,), residual = evaluation.stacks, evaluation.residual.variance
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
        one, other = features(X).dense(), fine(X).dense()
    (a,), (b,), r, s = one.stacks, other.stacks, one.residual.variance, other.residual.variance
    assert_close(a, b, rtol=0, atol=1e-9)
    assert_close(r, s, rtol=0, atol=1e-9)


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


def collected(evaluation, weights):
    """All Gram matrices of one stack, [blocks, m, m]."""
    (shape,) = evaluation.shapes
    out = torch.zeros(shape[0], shape[1], shape[1])

    def work(stack, b, gram):
        out[b] = gram

    evaluation.grams(weights, work)
    return out


def test_waves_are_the_operator_that_dense_features_are():
    """Products, sums, Gram matrices, moments and parts, on grids and at points, on the lattice and off it."""
    field, k = grid(), kernel("matern32", 0.3)
    features = features_of(k, t_max=18).requires_grad_(False)
    posterior = fit_field(features, field, 0.3, tolerance=1e-12).posterior
    off = GlobeGrid(field.latitudes[::3], field.longitudes[::4] + 3.3)
    points = torch.cat((cells(field)[0][::7], off.points().flatten(0, 1)))
    for x in (field.grid, off, cells(field)[0][::5], points):
        waves = features(x)
        dense = waves.dense()
        u, w, chosen = torch.randn(2, features.n_features), torch.rand(waves.cells), [0, 5, 18, 20, 30]
        assert_close(waves.project(u).flatten(1), dense.project(u), rtol=0, atol=1e-9)
        for a, b in zip(posterior.moments(waves), posterior.moments(dense), strict=True):
            assert_close(a.flatten(1), b, rtol=0, atol=1e-9)
        assert_close(waves.parts(u, chosen).flatten(2), dense.parts(u, chosen), rtol=0, atol=1e-9)
        if waves.A.is_complex():
            with pytest.raises(ValueError, match="lattice"):
                waves.accumulate(w[None])
            continue
        assert_close(waves.accumulate(w[None]), dense.accumulate(w.flatten()[None]), rtol=0, atol=1e-9)
        assert_close(collected(waves, w), collected(dense, w.flatten()), rtol=0, atol=1e-8)


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
    with pytest.raises(ValueError, match="lattice"):
        fit_field(features, field, 0.1)
    mixed = GlobeGrid(field.latitudes, torch.cat((field.longitudes[:3], field.longitudes[:3] - 1.0)))
    with pytest.raises(ValueError, match="off the lattice"):
        features(mixed)


@pytest.mark.parametrize("exact", [True, False])
def test_joint_draws_have_the_joint_covariance(exact, monkeypatch):
    field, k, s2 = grid(), kernel("matern32"), 0.3
    features = features_of(k, t_max=7)
    fit, statistics = fit_field(features, field, s2, tolerance=1e-10), sums(features, field, s2)
    if not exact:
        monkeypatch.setattr(sys.modules["harmonicgp.inference.closed_form"], "MAX_EXACT_DEVIATIONS", 0)
    flat = joint_deviations(statistics, s2, fit.posterior.mean_vector(), 4000, tolerance=1e-8).deviations
    X, y, _ = cells(field)
    joint = closed_form(gather_statistics(features.whiten(), features.shapes, X, y), s2, "joint")
    expected = torch.linalg.inv(joint.posterior.precisions[0][0, 0])
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
    fit, statistics = fit_field(features, field, s2, tolerance=1e-11), sums(features, field, s2)
    predictor = Predictor.freeze(features, joint_deviations(statistics, s2, fit.posterior.mean_vector()))
    X, y, _ = cells(field)
    joint = closed_form(gather_statistics(features.whiten(), features.shapes, X, y), s2, "joint")
    latitudes, longitudes = torch.linspace(-80, 80, 5).double(), torch.tensor([-175.0, -171.3, 0.0, 5.0, 94.4]).double()
    mean, variance = predictor.marginals(GlobeGrid(latitudes, longitudes))
    lat, lon = torch.meshgrid(latitudes, longitudes, indexing="ij")
    points = torch.stack((lon.flatten(), lat.flatten()), -1)
    with torch.no_grad():
        evaluation = features(points).dense()
    m, v = joint.posterior.moments(evaluation)
    assert_close(mean.flatten(1), m, rtol=0, atol=1e-7)
    assert_close(variance.flatten(), v[0] + evaluation.residual.variance, rtol=0, atol=1e-7)
    at_points = predictor.marginals(points)
    assert_close(at_points[0], mean.flatten(1), rtol=0, atol=1e-10)
    assert_close(at_points[1], variance.flatten(1), rtol=0, atol=1e-10)


def test_coupling_tells_holes_from_scattered_gaps():
    even, holed = grid(2.0, hole=False), grid(2.0, hole=False)
    generator = torch.Generator().manual_seed(0)
    even.present[:] = torch.rand(even.present.shape, generator=generator) < 0.7
    holed.present[20:60, 30:90] = False
    assert coupling(even.precision(0.3), even.longitudes) < 0.1
    assert coupling(holed.precision(0.3), holed.longitudes) > 0.1


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


@pytest.mark.parametrize("points", [False, True])
def test_features_of_grids_and_points_have_gradients(points):
    """Of the residual and of moments, by finite differences of the raw parameters."""
    field, mu = grid(20.0, first=-170.0), torch.randn(1, 9, 5)

    def value(raw_lengthscale, raw_scale):
        k = kernel()
        k.base_kernel.base_kernel.raw_lengthscale.data.fill_(float(raw_lengthscale))
        k.raw_outputscale.data.fill_(float(raw_scale))
        features = features_of(k, 5, 4, 18, -170.0)
        evaluation = features(cells(field)[0] if points else field.grid)
        roots = Roots((torch.eye(5).repeat(1, 9, 1, 1) + 0.1 * torch.ones(5, 5).tril(),))
        mean, variance = evaluation.moments((mu,), roots)
        w = torch.linspace(0.5, 1.5, mean.numel()).reshape(mean.shape)
        total = (w * mean).sum() + (w * variance).sum() + (w * evaluation.residual.variance).sum()
        total.backward()
        return (
            float(total.detach()),
            float(k.base_kernel.base_kernel.raw_lengthscale.grad),
            float(k.raw_outputscale.grad),
        )

    raw, h = (-0.3, 0.6), 1e-5
    _, by_lengthscale, by_scale = value(*raw)
    up, down = (value(raw[0] + sign * h, raw[1])[0] for sign in (1, -1))
    assert by_lengthscale == pytest.approx((up - down) / (2 * h), rel=1e-5)
    up, down = (value(raw[0], raw[1] + sign * h)[0] for sign in (1, -1))
    assert by_scale == pytest.approx((up - down) / (2 * h), rel=1e-5)
