"""The demonstration: the relief of the Earth, fitted, scored on places held out, and drawn.

64,800 heights on a grid of one degree (ETOPO5, NOAA, public domain), a fifth of them held out. The kernel is one of the
distance between places; it does not change when the globe is turned, so it splits into harmonics of the longitude.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from harmonicgp._extras import require
from harmonicgp.globe.maps import Panel, draw_maps
from harmonicgp.globe.relief import Relief, load_relief

Array: TypeAlias = np.ndarray[Any, Any]

#: Every how many degrees, turns of the globe, inducing points in a block, steps.
SIZES = {"small": (4, 12, 24, 25), "medium": (1, 36, 90, 80)}


def main(size: str = "medium", output: str | Path = "out") -> dict[str, float]:
    """Fit, print scores, write `relief.hgp`, `report.html` and `map.png` into the folder; returns the scores."""
    from harmonicgp.actions import Longitude
    from harmonicgp.estimators import HarmonicGPRegressor
    from harmonicgp.report.document import write_report
    from harmonicgp.report.scores import Scores

    if size not in SIZES:
        raise ValueError(f"size must be one of {', '.join(SIZES)}; got {size!r}.")
    pandas = require("pandas", "tables", "the demonstration")
    step, turns, points, steps = SIZES[size]
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    grid = _coarse(load_relief(), step)
    X, y = _rows(grid)
    test = np.random.default_rng(0).random(len(y)) < 0.2
    print(f"The relief of the Earth: {len(y):,} heights, {test.sum():,} of them held out.", flush=True)
    gp = HarmonicGPRegressor(
        columns={"longitude": "longitude", "latitude": "latitude"},
        symmetry=Longitude(turns),
        n_inducing=points,
        max_steps=steps,
    )
    start = time.perf_counter()

    def table(rows: Array) -> Any:
        return pandas.DataFrame(rows, columns=["longitude", "latitude"])

    gp.fit(table(X[~test]), pandas.Series(y[~test], name="height"))
    fitted = time.perf_counter() - start
    blocks = len(gp.predict_components(table(X[:1])).labels)
    print(f"Fitted in {fitted:.0f} s: {blocks} harmonics of the longitude, {points} inducing points each.", flush=True)
    scores = write_report(
        folder / "report.html",
        gp,
        table(X[test]),
        y[test],
        title="The relief of the Earth, from four fifths of it",
        set_aside=True,
    )
    assert isinstance(scores, Scores)
    print(
        f"Held-out rows: RMSE {scores.rmse:.3f} km, NLL {scores.nll:.3f}, "
        f"{100 * scores.coverage[0.95]:.1f} % within the 95 % error bars."
    )
    gp.save(folder / "relief.hgp")
    draw_map(folder / "map.png", gp, grid, table)
    for name in ("report.html", "map.png", "relief.hgp"):
        print(f"  {folder / name}")
    return {"rmse": scores.rmse, "nll": scores.nll, "coverage": scores.coverage[0.95], "seconds": fitted}


def _coarse(relief: Relief, step: int) -> Relief:
    """Every `step`-th longitude and latitude."""
    at = slice(step // 2, None, step)
    return Relief(relief.longitude[at], relief.latitude[at], relief.height[at, at])


def _rows(grid: Relief) -> tuple[Array, Array]:
    lon, lat = np.meshgrid(grid.longitude, grid.latitude)
    return np.column_stack((lon.ravel(), lat.ravel())), grid.height.ravel()


def draw_map(path: Path, gp: Any, grid: Relief, table: Any) -> None:
    """The mean, its error bar and a few harmonics on the grid."""
    X, _ = _rows(grid)
    shape = grid.height.shape
    mean, std = (a.reshape(shape) for a in gp.predict_f(table(X), return_std=True))
    parts = gp.predict_components(table(X))
    energy = parts.mean.var(1)
    high = float(np.quantile(np.abs(grid.height), 0.995))
    panels = [
        Panel("The data: height in kilometres", grid.height, limits=(-high, high)),
        Panel("The mean of the model", mean, limits=(-high, high)),
        Panel("Error bar (standard deviation of the latent height)", std, "positive"),
        *(Panel(name, part.reshape(shape)) for name, part in _grouped(parts.mean, len(parts.labels))),
    ]
    share = 100 * energy[0] / energy.sum()
    title = f"The relief of the Earth by harmonics of the longitude ({share:.0f} % of the variance has t = 0)"
    draw_maps(path, grid.longitude, grid.latitude, panels, title)


def _grouped(mean: Array, blocks: int) -> list[tuple[str, Array]]:
    """The zonal part, the long waves, and the rest."""
    middle = min(4, blocks - 1)
    return [
        ("Harmonic t = 0: what no turn of the group changes", mean[0]),
        (f"Harmonics t = 1 to {middle}: long waves", mean[1 : middle + 1].sum(0)),
        (f"Harmonics t > {middle}: short waves", mean[middle + 1 :].sum(0)),
    ]
