"""Fields on the globe for the tests of this room."""

from __future__ import annotations

import numpy as np
import pytest

from harmonicgp import HarmonicGPGlobe
from harmonicgp.globe.options import Options

xarray = pytest.importorskip("xarray", reason="the extra geo is not installed")

QUICK = {"max_evaluations": 12, "progress": False}
GIVEN = {"kernel": "rbf", "lengthscale": 0.6, "field_std": 2.0, "noise_level": 0.1, "t_max": 3, "n_inducing": 5}
LAT, LON = np.arange(75.0, -90.0, -30.0), np.arange(-180.0, 180.0, 30.0)
DAYS = np.array(["2020-01-01", "2020-01-03", "2020-01-04", "2020-01-09", "2020-01-15"], "M8[ns]")


def truth(lon, lat):
    """A few waves, smooth over poles and date line."""
    p, q = np.deg2rad(lat), np.deg2rad(lon)
    x, y, z = np.cos(p) * np.cos(q), np.cos(p) * np.sin(q), np.sin(p)
    return 2 * z + 3 * x * y + np.sin(4 * x) * z + 5.0


def field(step=10.0, noise=0.1, seed=0, start=-180.0, name="height"):
    rng = np.random.default_rng(seed)
    lat, lon = np.arange(-90 + step / 2, 90, step), start + np.arange(0, 360, step)
    values = truth(lon[None, :], lat[:, None]) + noise * rng.normal(size=(len(lat), len(lon)))
    return xarray.DataArray(values, {"lat": lat, "lon": lon}, ("lat", "lon"), name=name, attrs={"units": "m"})


def holes(data, seed=1, share=0.3):
    rng = np.random.default_rng(seed)
    masked = data.where(rng.random(data.shape) > share)
    masked[3:6, 5:12] = np.nan
    masked[1] = np.nan
    return masked


def options(**change):
    return Options.of(HarmonicGPGlobe(**{"progress": False, **change}).get_params())


def travelling(noise=0.02, seed=0):
    """A wave that travels eastwards, dimensions in no tidy order."""
    day = (DAYS - DAYS[0]) / np.timedelta64(1, "D")
    values = np.cos(np.deg2rad(LAT))[:, None, None] * np.cos(np.deg2rad(LON) - 0.2 * day[:, None])
    values = 10 + values + noise * np.random.default_rng(seed).normal(size=values.shape)
    field = xarray.DataArray(values, {"lat": LAT, "time": DAYS, "lon": LON}, ("lat", "time", "lon"), name="wave")
    return field.assign_attrs(units="m")


def with_depth(seed=0):
    rng = np.random.default_rng(seed)
    lat, lon = np.arange(-80.0, 90.0, 20.0), np.arange(0.0, 360.0, 20.0)
    depth = xarray.DataArray(rng.normal(size=(9, 18)), {"lat": lat, "lon": lon}, ("lat", "lon"))
    heat = np.sin(np.deg2rad(depth.lat)) + 2 * depth + 0.05 * rng.normal(size=depth.shape)
    data = xarray.Dataset({"heat": heat.transpose("lat", "lon"), "depth": depth.transpose("lon", "lat")})
    data["depth"][0, 0] = np.nan
    return data


def rough_field(n, step=0.02, noise=0.1, seed=0):
    """A region of n x n cells whose covariance falls as exp(-|distance in degrees|), in the middle of 10 E, 45 N."""
    rng = np.random.default_rng(seed)
    axis = step * (np.arange(n) - 0.5 * n)
    lon, lat = 10.0 + axis / np.cos(np.deg2rad(45.0)), 45.0 + axis
    # Two one-dimensional walks would not be isotropic: embed the plane in a torus of twice the size and use its spectrum.
    lag = step * np.minimum(np.arange(4 * n), 4 * n - np.arange(4 * n))
    spectrum = np.fft.fft2(np.exp(-np.hypot(lag[:, None], lag[None, :]))).real.clip(min=0.0)
    white = rng.normal(size=(4 * n, 4 * n)) + 1j * rng.normal(size=(4 * n, 4 * n))
    draw = np.fft.fft2(np.sqrt(spectrum) * white).real[:n, :n] / (4 * n)
    values = 20.0 + draw + noise * rng.normal(size=(n, n))
    return xarray.DataArray(values, {"lat": lat, "lon": lon}, ("lat", "lon"), name="heat", attrs={"units": "K"})
