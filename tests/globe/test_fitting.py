"""Fits of maps and points: groups of slices, closed forms."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from harmonicgp.globe import HarmonicGPGlobe, reading
from harmonicgp.globe.fitting import grid_fields
from harmonicgp.globe.grids import GridAxes
from harmonicgp.kernels.globe import unit_vectors
from tests.globe.common import QUICK, field, holes, xarray


def test_scattered_points_in_batches_give_the_posterior_of_the_grid(monkeypatch):
    data = holes(field(6.0), share=0.5)
    lat, lon = np.meshgrid(data.lat, data.lon, indexing="ij")
    present = np.isfinite(data.values)
    X, y = np.column_stack((lon[present], lat[present])), data.values[present]
    order = np.random.default_rng(3).permutation(len(y))
    known = {"lengthscale": 0.3, "field_std": 2.0, "noise_level": 0.1, "t_max": 9, "n_inducing": 15, "kernel": "rbf",
             "dtype": "float64", "progress": False}  # fmt: skip
    grid = HarmonicGPGlobe(**known).fit(data)
    X = X[order]
    scattered = HarmonicGPGlobe(**known)
    monkeypatch.setattr(reading, "grid_from_points", lambda *_: None)  # as if they were no grid
    scattered.fit(X, y[order])
    assert scattered.axes_ is None
    where = (np.linspace(-180, 170, 36), np.linspace(-85, 85, 18))
    for a, b in zip(grid.predict_f(where, True), scattered.predict_f(where, True), strict=True):
        np.testing.assert_allclose(a.values, b.values, atol=1e-5)
    assert grid.elbo_ == pytest.approx(scattered.elbo_, rel=1e-6)


def test_known_errors_count():
    data = holes(field(noise=0.0))
    rng = np.random.default_rng(5)
    errors = 0 * data.fillna(0.0) + xarray.where(data.lon > 0, 1.0, 0.02)
    noisy = data + errors * rng.normal(size=data.shape)
    gp = HarmonicGPGlobe(kernel="rbf", **QUICK).fit(noisy, noise_std=errors)
    _, std = gp.predict_f(return_std=True)
    assert float(std.where(data.lon > 20).mean()) > 2 * float(std.where(data.lon < -20).mean())


def test_slices_with_the_same_cells_and_errors_are_one_group():
    rng = np.random.default_rng(0)
    axes = GridAxes(np.arange(-75.0, 90, 30), np.arange(0.0, 360, 30), 12)
    values = rng.normal(size=(4, 6, 12))
    values[[0, 2], 1, 3], values[1, 2, 4] = np.nan, np.nan
    cpu = torch.device("cpu")
    groups = grid_fields(axes, values, None, cpu)
    assert [slices for slices, _ in groups] == [[0, 2], [1], [3]]
    for slices, part in groups:
        np.testing.assert_array_equal(part.present, np.isfinite(values[slices[0]]))
        np.testing.assert_allclose(part.values[:, part.present], values[slices][:, part.present], rtol=1e-6)
        assert part.noise is None
    errors = np.full(values.shape, 0.5)
    errors[2] = 0.7
    assert [slices for slices, _ in grid_fields(axes, values, errors, cpu)] == [[0], [1], [2], [3]]
    errors[0, 1, 3] = np.nan  # where there is no value either
    np.testing.assert_array_equal(grid_fields(axes, values, errors, cpu)[0][1].noise[1, 3], 0.0)
    errors[0, 0, 0] = np.nan
    with pytest.raises(ValueError, match="noise_std is missing"):
        grid_fields(axes, values, errors, cpu)
    values[3] = np.nan
    with pytest.raises(ValueError, match="slice 3 has no values"):
        grid_fields(axes, values, None, cpu)


def test_the_posterior_of_a_map_is_that_of_a_dense_gaussian_process():
    """With more features than the kernel has: mean, variance and the evidence, for each value."""
    data = field(30.0)
    given = {"kernel": "rbf", "lengthscale": 1.0, "field_std": 2.0, "noise_level": 0.3, "posterior": "block"}
    gp = HarmonicGPGlobe(**given, t_max=6, n_inducing=18, mean="constant", dtype="float64", progress=False).fit(data)
    lat, lon = np.meshgrid(data.lat, data.lon, indexing="ij")
    X = torch.from_numpy(np.column_stack((lon.ravel(), lat.ravel())))
    y = data.values.ravel() - data.values.mean()
    xyz = unit_vectors(X).numpy()
    K = 4.0 * np.exp(-0.5 * ((xyz[:, None] - xyz) ** 2).sum(-1))
    A = K + 0.09 * np.eye(len(y))
    mean, std = gp.predict_f(return_std=True)
    np.testing.assert_allclose(mean.values.ravel(), K @ np.linalg.solve(A, y) + data.values.mean(), atol=1e-4)
    np.testing.assert_allclose(std.values.ravel() ** 2, np.diag(K - K @ np.linalg.solve(A, K)), atol=1e-4)
    evidence = stats.multivariate_normal(np.zeros(len(y)), A).logpdf(y) / len(y)
    assert gp.elbo_ == pytest.approx(evidence, abs=1e-4)


@pytest.mark.parametrize("kernel", ["rbf", "matern32"])
def test_blocks_of_scattered_points_come_back_from_a_file(kernel, tmp_path):
    rng = np.random.default_rng(0)
    X = np.column_stack((rng.uniform(-180, 180, 200), rng.uniform(-80, 80, 200)))
    y = np.cos(np.deg2rad(X[:, 0])) + 0.1 * rng.normal(size=200)
    gp = HarmonicGPGlobe(kernel=kernel, posterior="block", t_max=4, n_inducing=6, **QUICK).fit(X, y)
    gp.save(tmp_path / "points.hgp")
    again = HarmonicGPGlobe.load(tmp_path / "points.hgp")
    for a, b in zip(gp.predict(X, return_std=True), again.predict(X, return_std=True), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)
