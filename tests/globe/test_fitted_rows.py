"""Fields of rows with neighbours: predictions, files, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

from harmonicgp import HarmonicGPGlobe
from tests.globe.common import rough_field, xarray


@pytest.fixture(scope="module")
def fitted():
    """A field, which of its cells are hidden, and what was fitted to the others."""
    field = rough_field(50)
    hidden = np.random.default_rng(1).random(field.shape) < 0.15
    hidden[20:30, 12:22] = True
    gp = HarmonicGPGlobe(kernel="matern12", n_inducing=40, neighbours=12, progress=False).fit(field.where(~hidden))
    return field, hidden, gp


def test_neighbours_see_the_cells(fitted):
    field, hidden, gp = fitted
    mean, std = gp.predict(return_std=True)
    assert mean.dims == field.dims
    assert mean.attrs["units"] == "K"
    np.testing.assert_allclose(mean.lon, field.lon)
    assert gp.neighbours_ == 12
    assert gp.n_inducing_ == 40
    assert gp.kernel_ == "matern12"
    assert 0.05 < gp.noise_std_ < 0.2
    assert any("rows with 12 neighbours" in note for note in gp.notes_)
    error, spread = (mean - field).values[hidden], std.values[hidden]
    options = {"kernel": "rbf", "n_inducing": 6, "t_max": 20, "lengthscale": 0.1, "field_std": 1.0, "noise_level": 0.5}
    waves = HarmonicGPGlobe(neighbours=0, progress=False, **options).fit(field.where(~hidden))
    assert waves.neighbours_ == 0
    scores, alone = (each.scores(field.where(hidden)) for each in (gp, waves))
    assert scores["rmse"] < 0.9 * alone["rmse"]
    assert scores["nll"] < alone["nll"]
    assert scores["coverage"] == pytest.approx(np.mean(abs(error) < 1.96 * spread), abs=0.01)
    assert 0.88 < scores["coverage"] < 1.0
    assert std.values[25, 17] > np.median(std.values[~hidden])


def test_predictions_of_all_forms(fitted):
    field, _, gp = fitted
    part = field[3:6, 7:12]
    mean = gp.predict_f(part)
    points = np.array([[float(lon), float(lat)] for lat in part.lat for lon in part.lon])
    np.testing.assert_allclose(gp.predict(points), mean.values.ravel(), atol=1e-5)
    pair = gp.predict((part.lon.values, part.lat.values[::-1]))
    np.testing.assert_allclose(pair.values[::-1], mean.values, atol=1e-5)
    turned = gp.predict(part.assign_coords(lon=part.lon + 360.0).transpose("lon", "lat"))
    np.testing.assert_allclose(turned.values.T, mean.values, atol=1e-4)
    draws = gp.sample(part, n_samples=300)
    assert draws.dims == ("sample", "lat", "lon")
    _, std = gp.predict_f(part, return_std=True)
    np.testing.assert_allclose(draws.mean("sample"), mean, atol=5 * float(std.max()) / np.sqrt(300))
    np.testing.assert_allclose(draws.std("sample"), std, rtol=0.25)
    filled = gp.fill(field.where(field.lon > float(field.lon[3])))
    assert bool(np.isfinite(filled).all())


def test_files(fitted, tmp_path):
    _, _, gp = fitted
    path = tmp_path / "region.hgp"
    gp.save(path)
    again = HarmonicGPGlobe.load(path)
    xarray.testing.assert_allclose(again.predict(), gp.predict())
    for name in ("neighbours_", "kernel_", "kernels_", "lengthscale_", "field_std_", "noise_std_", "notes_", "inputs_"):
        assert getattr(again, name) == getattr(gp, name), name
    gp.plot(tmp_path / "region.png")
    assert [file.name for file in tmp_path.glob("*.png")] == ["region.png"]  # a spectrum is of waves


def test_known_errors_and_a_mean_function():
    field = rough_field(12)
    broken = field.copy(data=field.values.copy())
    broken[:, :3] += 3.0
    errors = xarray.full_like(field, 0.01)
    errors[:, :3] = 10.0
    options = {"kernel": "matern12", "neighbours": 5, "n_inducing": 12, "progress": False}
    gp = HarmonicGPGlobe(mean="linear", **options).fit(field)
    assert float(abs(gp.predict() - field).mean()) < 0.2
    known = HarmonicGPGlobe(mean=xarray.full_like(field, 20.0), **options).fit(broken, noise_std=errors)
    assert float(abs(known.predict() - field)[:, 4:].mean()) < 0.25
    assert float(abs(known.predict() - field)[:, :3].mean()) < 2.0
    with pytest.raises(ValueError, match="missing where"):
        HarmonicGPGlobe(**options).fit(field, noise_std=errors.where(errors < 1))


def test_frequencies_are_of_waves(fitted):
    gp = fitted[-1]
    for call in (gp.components, gp.spectrum):
        with pytest.raises(ValueError, match="neighbours=0 for components"):
            call()
