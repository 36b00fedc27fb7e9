"""The simulated field of Heaton et al. (2019): 150,000 cells of a region, large holes, against thirteen published methods.

The field has an exponential covariance; nothing of it is told to the models. Three ways, one call each: `HarmonicGPField` and
`HarmonicGPGlobe` on the grid of longitudes and latitudes, and `HarmonicGPRegressor` on a plane in metres. All learn from the
training cells, and predict all test cells with error bars. Needs heaton_simulated.npz in the folder that HARMONICGP_DATA names:
`lon`, `lat`, `mask` (the training values, NaN elsewhere) and `true`. small takes a quarter of the cells (every second row and
column) and `HarmonicGPField` alone; medium all cells and `HarmonicGPField` alone; paper all cells and all three ways.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks._data import load_npz
from experiments._runner import run
from harmonicgp import HarmonicGPField, HarmonicGPGlobe, HarmonicGPRegressor
from harmonicgp._extras import require
from harmonicgp.tables.columns import Array

#: Cells of the grid.
SHAPE = (300, 500)
#: A half of the 95 % interval, in standard deviations.
HALF = 1.959963984540054
#: Metres of a degree of latitude.
DEGREE = 111_320.0
#: RMSE of five of the paper's methods on the same test cells, as russellgoebel.com/posts/kriging-competition quotes them.
#: The best MAE of all methods is about 0.61.
PUBLISHED = {
    "SPDE": 0.86,
    "LatticeKrig": 0.87,
    "periodic embedding": 0.91,
    "gapfill": 1.00,
    "local approximate GP": 1.11,
}


class Region(NamedTuple):
    """The grid, its training values (NaN elsewhere) and the truth (NaN where there is none)."""

    longitudes: Array  #: [columns]
    latitudes: Array  #: [rows]
    values: Array  #: [rows, columns]
    truth: Array  #: [rows, columns]

    @property
    def tested(self) -> Array:
        """The test cells, [rows, columns]."""
        return np.isnan(self.values) & np.isfinite(self.truth)


class Prediction(NamedTuple):
    """Mean and standard deviation of a new observation, [rows, columns], and seconds of fit and prediction together."""

    mean: Array
    std: Array
    seconds: float
    words: str


def experiment(size: str, output: Path) -> Mapping[str, Any]:
    """Fit, predict, print the scores, and draw heaton.png."""
    region = load(2 if size == "small" else 1)
    ways = {"HarmonicGPField": in_the_region(region)}
    if size == "paper":
        ways["HarmonicGPGlobe"] = on_the_globe(region)
        ways["HarmonicGPRegressor"] = on_a_plane(region)
    print(f"{int(np.isfinite(region.values).sum()):,} training cells, {int(region.tested.sum()):,} test cells")
    rows = {name: {**scores(each, region), "seconds": each.seconds, "model": each.words} for name, each in ways.items()}
    print(f"{'':24}{'MAE':>7}{'RMSE':>7}{'CRPS':>7}{'interval':>10}{'coverage':>10}{'seconds':>9}")
    for name, row in rows.items():
        numbers = f"{row['mae']:7.3f}{row['rmse']:7.3f}{row['crps']:7.3f}{row['interval']:10.2f}{row['coverage']:10.3f}"
        print(f"{name:24}{numbers}{row['seconds']:9.0f}  {row['model']}")
    if size != "small":
        for name, rmse in PUBLISHED.items():
            print(f"{name + ' (published)':24}{'':7}{rmse:7.2f}")
    draw(region, ways["HarmonicGPField"], output / "heaton.png")
    return {"ways": rows, "published_rmse": PUBLISHED}


def load(step: int) -> Region:
    """Every `step`-th row and column of the data."""
    data = {
        name.lower(): values for name, values in load_npz("heaton_simulated", ("lon", "lat", "mask", "true")).items()
    }
    lon, lat, values, truth = (data[name].reshape(SHAPE)[::step, ::step] for name in ("lon", "lat", "mask", "true"))
    values, truth = (np.where(np.isnan(part), np.nan, part) for part in (values, truth))  # quiet NaN
    return Region(lon[0], lat[:, 0], values, truth)


def in_the_region(region: Region) -> Prediction:
    """The documented call: a DataArray in, DataArrays out."""
    start = time.perf_counter()
    gp = HarmonicGPField().fit(as_dataarray(region))
    mean, std = gp.predict(return_std=True)
    scales = ", ".join(f"{value:.0f} km" for value in gp.lengthscale_.values())
    words = f"{gp.kernel_}, lengthscales {scales}, noise {gp.noise_std_:.3f}"
    return Prediction(mean.values, std.values, time.perf_counter() - start, words)


def on_the_globe(region: Region) -> Prediction:
    """The same on the sphere, with rows of inducing points and neighbours."""
    start = time.perf_counter()
    gp = HarmonicGPGlobe().fit(as_dataarray(region))
    mean, std = gp.predict(return_std=True)
    words = f"{gp.kernel_}, {gp.n_inducing_} inducing points, {gp.neighbours_} neighbours"
    return Prediction(mean.values, std.values, time.perf_counter() - start, words)


def as_dataarray(region: Region) -> Any:
    """The training values with their longitudes and latitudes."""
    xarray = require("xarray", "geo", "fields on a grid")
    coordinates = {"lat": region.latitudes, "lon": region.longitudes}
    return xarray.DataArray(region.values, coordinates, ("lat", "lon"), name="temperature")


def on_a_plane(region: Region) -> Prediction:
    """A table with the columns easting and northing in metres."""
    middle = math.radians(float(region.latitudes.mean()))
    easting = DEGREE * math.cos(middle) * (region.longitudes - region.longitudes.mean())
    northing = DEGREE * (region.latitudes - region.latitudes.mean())
    X = np.stack([part.ravel() for part in np.meshgrid(easting, northing)], 1)
    y = region.values.ravel()
    seen = np.isfinite(y)
    start = time.perf_counter()
    gp = HarmonicGPRegressor(kernel="matern12", symmetry=None, warp=None).fit(X[seen], y[seen])
    mean, std = gp.predict(X, return_std=True)
    words = f"matern12, {gp.model_.n_features} inducing points, {gp.neighbours_} neighbours"
    shape = region.values.shape
    return Prediction(mean.reshape(shape), std.reshape(shape), time.perf_counter() - start, words)


def scores(prediction: Prediction, region: Region) -> dict[str, float]:
    """Of the test cells, as the paper has them: MAE, RMSE, CRPS, the score of 95 % intervals, and their coverage."""
    y, mean, std = (part[region.tested] for part in (region.truth, prediction.mean, prediction.std))
    error, z = y - mean, (y - mean) / std
    cdf = 0.5 * (1 + np.vectorize(math.erf)(z / math.sqrt(2)))
    density = np.exp(-0.5 * z**2) / math.sqrt(2 * math.pi)
    beyond = np.maximum(np.abs(error) - HALF * std, 0.0)
    return {
        "mae": float(np.abs(error).mean()),
        "rmse": float(np.sqrt((error**2).mean())),
        "crps": float((std * (z * (2 * cdf - 1) + 2 * density - 1 / math.sqrt(math.pi))).mean()),
        "interval": float((2 * HALF * std + 2 / 0.05 * beyond).mean()),
        "coverage": float((np.abs(z) <= HALF).mean()),
    }


def draw(region: Region, prediction: Prediction, path: Path) -> None:
    """Four maps: the data, the truth, the mean and the error bar."""
    matplotlib = require("matplotlib", extra="plot", purpose="drawing the region")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    low, high = np.nanquantile(region.truth, (0.005, 0.995))
    values: dict[str, Any] = {"vmin": low, "vmax": high, "cmap": "viridis"}
    error: dict[str, Any] = {"vmin": 0.0, "cmap": "magma"}
    panels = [
        ("training cells", region.values, values),
        ("truth", region.truth, values),
        ("mean", prediction.mean, values),
        ("error bar (standard deviation)", prediction.std, error),
    ]
    figure, axes = plt.subplots(2, 2, figsize=(11, 7), sharex=True, sharey=True, layout="constrained")
    for axis, (title, image, settings) in zip(axes.flat, panels, strict=True):
        mesh = axis.pcolormesh(
            region.longitudes, region.latitudes, image, shading="nearest", rasterized=True, **settings
        )
        axis.set_title(title)
        figure.colorbar(mesh, ax=axis, shrink=0.9)
    for axis in axes[1]:
        axis.set_xlabel("longitude")
    for axis in axes[:, 0]:
        axis.set_ylabel("latitude")
    figure.savefig(path, dpi=80)
    plt.close(figure)


if __name__ == "__main__":
    run("heaton", __doc__, experiment)
