"""Fitted fields against dense exact Gaussian processes: mean, variance, evidence and samples."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gpytorch.kernels import ScaleKernel

from harmonicgp.kernels.profiles import log_scale, named_kernel
from harmonicgp.planes import fitted
from harmonicgp.planes.fitted import ExactField, GridField, ScatteredField, field_from, fit_places
from harmonicgp.planes.places import FieldData, FieldModel, Places
from tests.planes.reference import covariance, exact, points

#: shape, steps, nu, lengthscales, variance, share of cells that are missing
CASES = {
    "1-d": ((40,), (0.5,), 1.5, (3.0,), 2.0, 0.3),
    "2-d": ((9, 8), (1.0, 1.0), 0.5, (4.0, 4.0), 1.0, 0.3),
    "3-d": ((5, 4, 4), (1.0, 1.0, 1.0), 2.5, (2.0, 2.0, 2.0), 1.0, 0.3),
    "anisotropy": ((10, 8), (1.0, 0.1), 1.5, (6.0, 0.15), 1.0, 0.4),
    "one row": ((1, 30), (1.0, 2.0), 0.5, (1.0, 7.0), 1.0, 0.3),
    "all but one missing": ((6, 5), (1.0, 1.0), 1.5, (2.0, 3.0), 1.0, None),
    "none missing": ((7, 6), (1.0, 1.0), None, (2.0, 2.0), 1.0, 0.0),
    "units far from one": ((9, 8), (1e5, 3e-4), 0.5, (4e5, 1e-3), 1e-12, 0.3),
}
#: A linear mean needs observed places that span the axes; those of these do not.
NARROW = ("one row", "all but one missing")


def case(name, linear=False):
    shape, steps, nu, lengthscales, variance, share = CASES[name]
    rng = np.random.default_rng(7)
    X, n = points(shape, steps), int(np.prod(shape))
    present = np.arange(n) == n // 2 if share is None else rng.random(n) >= share
    y = np.sqrt(variance) * (np.sin(np.arange(n) / 3) + 0.3 * rng.normal(size=n) + 5)
    H = (
        np.ones((n, 1))
        if not linear
        else np.column_stack((np.ones(n), (X - X.mean(0)) / np.maximum(np.ptp(X, 0), 1e-300)))
    )
    name = {None: "rbf", 0.5: "matern12", 1.5: "matern32", 2.5: "matern52"}[nu]
    base = named_kernel(name, ard_num_dims=len(shape), lengthscale_constraint=log_scale())
    kernel = ScaleKernel(base, outputscale_constraint=log_scale()).double()
    kernel.outputscale, base.lengthscale = (torch.tensor(v, dtype=torch.float64) for v in (variance, lengthscales))
    model = FieldModel(kernel.requires_grad_(False), 0.1 * variance)
    values = torch.from_numpy(np.where(present, y, np.nan))[None]
    data = FieldData(Places(torch.from_numpy(X), torch.from_numpy(H), shape, steps), values)
    noise = np.full(present.sum(), 0.1 * variance)
    k = covariance(nu, lengthscales, variance)
    return data, model, exact(k, X[present], y[present], noise, H[present], X, H), variance


@pytest.fixture
def precise(monkeypatch):
    """Conjugate gradients to rounding."""
    plain = fitted.Kriging.of
    monkeypatch.setattr(fitted.Kriging, "of", staticmethod(lambda system, H: plain(system, H, 1e-13)))


@pytest.mark.parametrize(
    ("name", "linear"),
    [(name, linear) for name in CASES for linear in (False, True) if not (linear and name in NARROW)],
)
def test_few_values_are_exact(name, linear):
    data, model, (mean, cov, evidence), variance = case(name, linear)
    found = fit_places(data, model, 16, 0)
    assert isinstance(found, ExactField)
    m, v = found.moments(None)
    np.testing.assert_allclose(m[0].numpy(), mean, atol=1e-8 * np.sqrt(variance))
    np.testing.assert_allclose(v[0].numpy(), np.diag(cov), atol=1e-8 * variance)
    np.testing.assert_allclose(float(found.log_evidence()[0]), evidence, atol=1e-8 * max(1, abs(evidence)))
    draws = found.samples(None, 4000, 1)[:, 0].numpy()
    np.testing.assert_allclose(draws.mean(0), mean, atol=5 * np.sqrt(np.diag(cov).max() / 4000))
    np.testing.assert_allclose(np.cov(draws.T), cov, atol=6 * np.diag(cov).max() * np.sqrt(2 / 4000))


@pytest.mark.parametrize("name", CASES)
def test_waves_give_the_exact_mean_and_variances_within_their_error(name, precise):
    data, model, (mean, cov, _), variance = case(name, linear=name not in ("all but one missing", "one row"))
    n = 600
    found = GridField.of(data, model, n, 0)
    m, v = found.moments(None)
    np.testing.assert_allclose(m[0].numpy(), mean, atol=1e-8 * np.sqrt(variance))
    ratio = np.sqrt(v[0].numpy() / np.diag(cov)) - 1
    assert np.sqrt(np.mean(ratio**2)) < 2 * max(found.error, 1e-3)
    assert np.abs(ratio).max() < 0.2
    draws = found.samples(None, n, 1)[:, 0].numpy()
    np.testing.assert_allclose(draws.mean(0), mean, atol=5 * np.sqrt(np.diag(cov).max() / n))
    np.testing.assert_allclose(np.cov(draws.T), cov, atol=6 * np.diag(cov).max() * np.sqrt(2 / n))


def test_the_stated_error_is_the_error_of_standard_deviations():
    data, model, (_, cov, _), _ = case("2-d")
    ratios, stated = [], []
    for seed in range(12):
        found = GridField.of(data, model, 16, seed)
        ratios.append(found.variance[0].numpy() / np.diag(cov))
        stated.append(found.error)
    actual = np.sqrt(np.mean((np.sqrt(ratios) - 1) ** 2))
    assert actual < 1.6 * np.mean(stated) < 3 * actual
    assert np.mean(stated) < 0.8 * np.sqrt(1 / 32)  # better than plain draws


def test_known_errors_and_fields_with_holes_of_their_own(precise):
    data, model, _, _variance = case("2-d")
    g = np.random.default_rng(0)
    y = torch.from_numpy(g.normal(size=(3, 72)))
    y[:, :9] = float("nan")
    y[2, 20:30] = float("nan")
    noise = torch.from_numpy(g.random((1, 72))).expand(3, -1)
    data = FieldData(data.places, y, noise)
    assert [fields.tolist() for fields, _, _ in data.patterns()] == [[0, 1], [2]]
    k = covariance(0.5, (4.0, 4.0), 1.0)
    for found in (ExactField.of(data, model), GridField.of(data, model, 300, 0)):
        m, v = found.moments(None)
        for p in range(3):
            rows = np.isfinite(y[p].numpy())
            X, H = data.places.X.numpy(), data.places.H.numpy()
            mean, cov, _ = exact(k, X[rows], y[p].numpy()[rows], noise[p].numpy()[rows] + model.s2, H[rows], X, H)
            np.testing.assert_allclose(m[p].numpy(), mean, atol=1e-8)
            np.testing.assert_allclose(v[p].numpy(), np.diag(cov), rtol=1e-7 if isinstance(found, ExactField) else 0.3)


@pytest.mark.parametrize("name", ["2-d", "anisotropy"])
def test_new_places_of_a_grid_are_near_the_exact_prediction(name):
    data, model, _, _variance = case(name)
    present = torch.isfinite(data.y[0])
    X, steps = data.places.X, np.array(data.places.steps)
    at = X[::3].numpy() + 0.4 * steps
    new = Places(torch.from_numpy(at), torch.ones(len(at), 1).double())
    mean, var = ExactField.of(data, model).moments(new)
    found = GridField.of(data, model, 200, 0)
    m, v = found.moments(new)
    assert float((m - mean).abs().max()) < 0.2 * float(var.sqrt().mean())
    assert float((v / var).min()) > 0.9
    assert float((v / var).max()) < 1.5
    same, v_same = found.moments(data.places.part(torch.arange(5)))
    torch.testing.assert_close(same, found.mean[:, :5])
    torch.testing.assert_close(v_same, found.variance[:, :5], rtol=1e-4, atol=1e-8)
    draws = found.samples(new, 400, 3)[:, 0]
    assert float((draws.mean(0) - m[0]).abs().max()) < 5 * float((v.max() / 400).sqrt())
    assert bool(present.any())


def test_scattered_points_with_all_values_as_neighbours_are_exact(monkeypatch):
    monkeypatch.setattr(fitted, "SCATTERED", 100)
    monkeypatch.setattr(fitted, "LOCAL", 100)
    rng = np.random.default_rng(0)
    X, at = rng.uniform(0, 5, (60, 2)), rng.uniform(0, 5, (20, 2))
    y = np.sin(X[:, 0]) + 0.1 * rng.normal(size=60)
    _, model, _, _ = case("2-d")
    H, Hs = (np.column_stack((np.ones(len(Z)), Z)) for Z in (X, at))
    data = FieldData(Places(torch.from_numpy(X), torch.from_numpy(H)), torch.from_numpy(y)[None])
    mean, cov, _ = exact(covariance(0.5, (4.0, 4.0), 1.0), X, y, np.full(60, model.s2), H, at, Hs)
    found, new = ScatteredField.of(data, model, 0), Places(torch.from_numpy(at), torch.from_numpy(Hs))
    m, v = found.moments(new)
    np.testing.assert_allclose(m[0].numpy(), mean, atol=1e-7)
    np.testing.assert_allclose(v[0].numpy(), np.diag(cov), atol=1e-7)
    draws = found.samples(new, 4000, 0)[:, 0].numpy()
    np.testing.assert_allclose(draws.mean(0), mean, atol=0.06)
    np.testing.assert_allclose(np.cov(draws.T), cov, atol=0.12 * np.diag(cov).max())


def test_files_refuse_what_is_not_a_field():
    data, model, _, _ = case("2-d")
    with pytest.raises(ValueError, match="not known"):
        field_from("other", data, model, {})
    bad = torch.full_like(data.y, float("nan"))
    with pytest.raises(ValueError, match="does not fit"):
        field_from("grid", data, model, {"mean": bad, "variance": bad, "beta": bad[:, :1]})
