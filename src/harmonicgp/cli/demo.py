"""The demonstration: the relief of the Earth, fitted, scored on held-out places, and drawn.

64,800 heights on a grid of one degree (ETOPO5, NOAA, public domain); a fifth of them are held out. The kernel depends on the
distance between places only, so it is invariant under rotations of the globe and splits into harmonics of the longitude.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from harmonicgp._extras import require
from harmonicgp.actions import Longitude
from harmonicgp.estimators import HarmonicGPRegressor
from harmonicgp.globe.maps import Panel, draw_maps
from harmonicgp.globe.relief import Relief, load_relief
from harmonicgp.report.document import write_report
from harmonicgp.report.scores import Scores
from harmonicgp.tables.columns import Array

#: The spacing of the grid in degrees, the order of the rotation, inducing points in a block, steps.
SIZES = {"small": (4, 12, 24, 25), "medium": (1, 36, 90, 80)}


def main(size: str, folder: Path) -> None:
    """Fit, print scores, and write `relief.hgp`, `report.html` and `map.png` into the folder."""
    pandas = require("pandas", "tables", "the demonstration")
    step, order, points, steps = SIZES[size]
    folder.mkdir(parents=True, exist_ok=True)
    grid = _coarse(load_relief(), step)
    lon, lat = np.meshgrid(grid.longitude, grid.latitude)
    X = pandas.DataFrame({"longitude": lon.ravel(), "latitude": lat.ravel()})
    y = pandas.Series(grid.height.ravel(), name="height")
    test = np.random.default_rng(0).random(len(y)) < 0.2
    print(f"The relief of the Earth: {len(y):,} heights, {test.sum():,} of them held out.", flush=True)
    kinds: Any = {"longitude": "longitude", "latitude": "latitude"}
    gp = HarmonicGPRegressor(columns=kinds, symmetry=Longitude(order), n_inducing=points, max_steps=steps)
    start = time.perf_counter()
    gp.fit(X[~test], y[~test])
    seconds = time.perf_counter() - start
    parts = gp.predict_components(X)
    blocks = len(parts.labels)
    print(f"Fitted in {seconds:.0f} s: {blocks} harmonics of the longitude, {points} inducing points each.", flush=True)
    title = "The relief of the Earth, from four fifths of it"
    scores = write_report(folder / "report.html", gp, X[test], y[test], title=title, set_aside=True)
    assert isinstance(scores, Scores)
    print(
        f"Held-out rows: RMSE {scores.rmse:.3f} km, NLL {scores.nll:.3f}, "
        f"{100 * scores.coverage[0.95]:.1f} % within the 95 % error bars."
    )
    gp.save(folder / "relief.hgp")
    mean, std = gp.predict_f(X, return_std=True)
    _draw_map(folder / "map.png", grid, mean, std, parts.mean)
    for name in ("report.html", "map.png", "relief.hgp"):
        print(f"  {folder / name}")


def _coarse(relief: Relief, step: int) -> Relief:
    """Every `step`-th longitude and latitude."""
    at = slice(step // 2, None, step)
    return Relief(relief.longitude[at], relief.latitude[at], relief.height[at, at])


def _draw_map(path: Path, grid: Relief, mean: Array, std: Array, parts: Array) -> None:
    """The mean [n], its error bar [n] and a few harmonics [T, n] on the grid."""
    shape = grid.height.shape
    energy = parts.var(1)
    high = float(np.quantile(np.abs(grid.height), 0.995))
    panels = [
        Panel("The data: height in kilometres", grid.height, limits=(-high, high)),
        Panel("The mean of the model", mean.reshape(shape), limits=(-high, high)),
        Panel("Error bar (standard deviation of the latent height)", std.reshape(shape), "positive"),
        *(Panel(name, part.reshape(shape)) for name, part in _grouped(parts)),
    ]
    share = 100 * energy[0] / energy.sum()
    title = f"The relief of the Earth by harmonics of the longitude ({share:.0f} % of the variance has t = 0)"
    draw_maps(path, grid.longitude, grid.latitude, panels, title)


def _grouped(parts: Array) -> list[tuple[str, Array]]:
    """The zonal part, the long waves, and the short waves."""
    middle = min(4, len(parts) - 1)
    return [
        ("Harmonic t = 0: invariant under the rotations", parts[0]),
        (f"Harmonics t = 1 to {middle}: long waves", parts[1 : middle + 1].sum(0)),
        (f"Harmonics t > {middle}: short waves", parts[middle + 1 :].sum(0)),
    ]
