"""Negation along axes and along principal directions: where the orbit of a point lies in the distribution of the inputs.

Left, a correlated Gaussian and the paper's picture; right, two columns of a real table (kin40k has independent columns;
elevators has not), each with the orbits of a few points along axes and along principal directions. Below, for every table at
hand, how far images lie from the data: the distance from a moved row to the nearest row, in units of that between
neighbouring rows.

Takes seconds (small: 1,000 rows a table; medium, paper: 5,000). Needs tables in the folder that HARMONICGP_DATA names, or
draws the Gaussian alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.spatial import cKDTree

from benchmarks._data import DataNotFoundError
from experiments._runner import run
from experiments._tables import load_table
from experiments._training import Row, markdown
from harmonicgp._extras import require
from harmonicgp.actions import Negation
from harmonicgp.io.container import write_text_atomically

Array = np.ndarray[Any, Any]
ROWS = {"small": 1000, "medium": 5000, "paper": 5000}
TABLES = ("kin40k", "elevators", "keggdirected", "houseelectric", "pol", "bike")


def standardised(X: Array, n: int) -> Array:
    """Random rows; columns that do not vary are left out."""
    X = X[np.random.default_rng(0).choice(len(X), min(n, len(X)), replace=False)]
    spread = X.std(0)
    return np.asarray((X - X.mean(0))[:, spread > 0] / spread[spread > 0])


def directions(X: Array) -> Array:
    """Principal directions as columns, the largest first."""
    return np.asarray(np.linalg.eigh(X.T @ X)[1][:, ::-1])


def farness(X: Array) -> float:
    """The median distance of an image under three-way negations to the nearest row, in units of that between neighbours."""
    action = Negation.strided(X.shape[1], min(3, X.shape[1]))
    distinct = np.unique(X, axis=0)  # equal rows are no neighbours
    tree = cKDTree(distinct)
    near = np.median(np.asarray(tree.query(distinct, k=2)[0])[:, 1])
    images = action.orbit(torch.from_numpy(X[:300])).numpy()[1:].reshape(-1, X.shape[1])
    return float(np.median(tree.query(images)[0]) / near)


def experiment(size: str, output: Path) -> Mapping[str, Any]:
    """Draw pca.png, and measure."""
    rng = np.random.default_rng(0)
    clouds = {"a correlated Gaussian": rng.multivariate_normal([0, 0], [[1, 0.85], [0.85, 1]], 2000)}
    rows: list[Row] = []
    missing: list[str] = []
    for name in TABLES:
        try:
            X = standardised(load_table(name).X, ROWS[size])
        except DataNotFoundError as error:
            missing.append(name)
            reason = str(error)
            continue
        rows.append({"table": name, "axes": farness(X), "principal": farness(X @ directions(X))})
        if name == "elevators":
            R = np.abs(np.corrcoef(X.T) - np.eye(X.shape[1]))
            i, j = np.unravel_index(np.where(R < 0.98, R, 0).argmax(), R.shape)
            clouds[f"elevators, columns {i} and {j}"] = X[:, [i, j]]
    if missing:
        print(f"without {', '.join(missing)}: {reason}")
    if rows:
        text = "How far images of rows lie from the nearest row, in distances between neighbouring rows (medians).\n\n"
        text += markdown(rows, {"table": "", "axes": ".2f", "principal": ".2f"})
        closer = sum(row["principal"] < row["axes"] for row in rows)
        text += f"\n\nCloser along principal directions on {closer} of {len(rows)} tables."
        write_text_atomically(output / "pca.md", text + "\n")
        print(text)
    draw(output / "pca.png", clouds)
    return {"rows": rows}


def draw(path: Path, clouds: Mapping[str, Array]) -> None:
    """For every cloud, orbits along axes and along principal directions."""
    matplotlib = require("matplotlib", extra="plot", purpose="drawing orbits")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2 * len(clouds), figsize=(8.4 * len(clouds), 4.4), layout="constrained")
    for k, (name, X) in enumerate(clouds.items()):
        for axis, words, V in (
            (axes[2 * k], "axes", np.eye(2)),
            (axes[2 * k + 1], "principal directions", directions(X)),
        ):
            axis.plot(*X[:2000].T, ".", ms=2, color="lightsteelblue", zorder=0)
            for point, colour in zip(_corners(X), ("#d95f0e", "#1b7837", "#6a51a3"), strict=True):
                orbit = Negation([[0], [1]]).orbit(torch.from_numpy(point[None] @ V))[:, 0].numpy() @ V.T
                ring = orbit[[0, 1, 3, 2, 0]]
                axis.plot(*ring.T, "-", lw=1, color=colour, alpha=0.6)
                axis.plot(*orbit[1:].T, "o", mfc="white", mec=colour, ms=7)
                axis.plot(*orbit[0], "o", color=colour, ms=7)
            axis.set_title(f"{name}:\nnegations along {words}", fontsize=10)
            axis.set_xlabel("first column, standard deviations")
            axis.set_ylabel("second column, standard deviations")
            low, high = np.quantile(X, (0.002, 0.998), axis=0)
            reach = 1.1 * float(max(np.abs(low).max(), np.abs(high).max(), 2.0))
            axis.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
            axis.grid(alpha=0.3)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _corners(X: Array) -> list[Array]:
    """Three points of the cloud that lie well apart."""
    scores = X @ directions(X)
    wanted = np.array([[1.5, 0.5], [0.7, 1.2], [-1.0, 0.3]]) * scores.std(0)
    return [X[((scores - w) ** 2 / scores.var(0)).sum(1).argmin()] for w in wanted]


if __name__ == "__main__":
    run("pca", __doc__, experiment)
