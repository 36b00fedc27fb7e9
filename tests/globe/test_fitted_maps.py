"""Fitted maps: predictions, slices, samples, components and spectra."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from harmonicgp import HarmonicGPGlobe
from harmonicgp.globe.fitted_maps import FittedMaps
from harmonicgp.globe.fitting import fit_maps
from harmonicgp.globe.reading import read
from tests.globe.common import GIVEN, QUICK, field, holes, options, truth, xarray


@pytest.mark.parametrize("kernel", ["matern32", "matern52"])
def test_places_off_the_lattice_get_features_of_their_own(kernel):
    gp = HarmonicGPGlobe(kernel=kernel, posterior="block", **QUICK).fit(holes(field()))
    lat, lon = np.linspace(-80, 80, 9), np.linspace(-179, 178, 13)
    mean, std = gp.predict_f((lon, lat), return_std=True)
    assert float(np.abs(mean - truth(lon[None, :], lat[:, None])).max()) < 0.5
    X = np.column_stack([a.ravel() for a in np.meshgrid(lon, lat)])
    predictor = gp.field_.groups[0].predictor
    with torch.no_grad():
        evaluation = predictor.whitened(torch.from_numpy(X)).dense()
        m, v = predictor.posterior.moments(evaluation)
    residual = evaluation.residual.variance
    offset, scale = gp.field_.mean(X[:, 1], X[:, 0]), gp.field_.scale
    np.testing.assert_allclose(mean.values.ravel(), m[0].numpy() * scale + offset, atol=1e-8)
    np.testing.assert_allclose(std.values.ravel() ** 2, (v[0] + residual).numpy() * scale**2, atol=1e-8)


def test_slices_share_hyper_parameters_and_have_masks_of_their_own():
    maps = [holes(field(seed=k), seed=10 + k) for k in range(3)] + [holes(field(seed=5), seed=10)]
    data = xarray.concat(maps, "time").assign_coords(time=np.arange(4))
    gp = HarmonicGPGlobe(kernel="rbf", by="time", **QUICK).fit(data)
    assert [group.slices for group in gp.field_.groups] == [[0, 3], [1], [2]]
    mean = gp.predict()
    assert mean.dims == data.dims
    assert (mean.time == data.time).all()
    assert float(np.abs(mean - truth(data.lon.values[None, :], data.lat.values[:, None])).max()) < 0.4
    alone = HarmonicGPGlobe(kernel="rbf", lengthscale=gp.lengthscale_, field_std=gp.field_std_, noise_level=gp.noise_std_,
                            n_inducing=gp.n_inducing_, t_max=gp.t_max_, progress=False).fit(data[1])  # fmt: skip
    np.testing.assert_allclose(alone.predict().values, mean[1].values, atol=5e-2)


def test_samples_vary_as_the_error_bars_say(fitted):
    where = (np.linspace(-180, 160, 18), np.linspace(-80, 80, 9))
    draws = fitted.sample(where, 300, random_state=1)
    assert draws.dims == ("sample", "lat", "lon")
    mean, std = fitted.predict_f(where, return_std=True)
    z = (draws.mean("sample") - mean) / (std / np.sqrt(300))
    assert float(np.abs(z).max()) < 5
    ratio = draws.std("sample") / std
    assert 0.75 < float(ratio.min()) < float(ratio.max()) < 1.3


def test_components_add_up(fitted):
    parts = fitted.components(frequencies=range(fitted.t_max_ + 1))
    total = parts.sum("frequency") + fitted.field_.mean.coefficients[0]
    np.testing.assert_allclose(total.values, fitted.predict().values, atol=1e-5)
    assert fitted.components().sizes["frequency"] == min(8, fitted.t_max_) + 1
    with pytest.raises(ValueError, match="frequencies"):
        fitted.components(frequencies=[fitted.t_max_ + 1])


def test_a_known_spectrum_and_noise_are_recovered():
    """A sum of harmonics with noise and a mask of land: the power at each frequency within a tenth, the noise within 5 %."""
    rng = np.random.default_rng(2)
    step, noise = 3.0, 0.3
    lat, lon = np.arange(-90 + step / 2, 90, step), np.arange(0, 360, step)
    p, q = np.deg2rad(lat)[:, None], np.deg2rad(lon)[None, :]
    powers = {1: 1.0, 3: 0.8, 6: 0.5}
    clean = sum(a * np.cos(p) ** t * np.cos(t * q + t) for t, a in powers.items())
    data = xarray.DataArray(clean + noise * rng.normal(size=clean.shape), {"lat": lat, "lon": lon}, ("lat", "lon"))
    land = np.sin(7 * q) * np.cos(3 * p) > 0.5
    gp = HarmonicGPGlobe(progress=False, max_evaluations=25).fit(data.where(~land))
    assert gp.noise_std_ == pytest.approx(noise, rel=0.05)
    found = gp.spectrum(lat)
    area = np.cos(p[:, 0]) / np.cos(p[:, 0]).sum()
    for t, a in powers.items():
        expected = 0.5 * a**2 * (area * np.cos(p[:, 0]) ** (2 * t)).sum()
        assert found[t] == pytest.approx(expected, rel=0.1)
    others = [t for t in range(gp.t_max_ + 1) if t not in powers]
    assert found[others].sum() < 0.05 * found.sum()


def test_a_fitted_field_works_without_the_estimator():
    data = field(30.0)
    maps, attributes = fit_maps(read(data, None, None, None), options(**GIVEN))
    assert attributes.keys() == {"history_", "kernels_", "residual_share_", "elbo_", "notes_"}
    place = maps.place(None)
    mean, variance = maps.on_grid(place, True)
    gp = HarmonicGPGlobe(**GIVEN, progress=False).fit(data)
    expected, std = gp.predict_f(return_std=True)
    np.testing.assert_array_equal(mean[0], expected)
    np.testing.assert_array_equal(np.sqrt(variance[0]), std)
    header, tensors = maps.state()
    again = FittedMaps.from_state(header, tensors, options(**GIVEN))
    np.testing.assert_allclose(again.on_grid(place, False)[0], mean, atol=1e-12)
