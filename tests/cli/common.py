"""What the tests of the command line share."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
from typer.testing import CliRunner

from harmonicgp.cli.commands import app

ROOT = Path(__file__).parents[2]


QUICK = ["--max-steps", "15", "--n-inducing", "16"]


REGRESSION = ["--target", "temperature", "--drop", "id", "--drop", "kind", "--drop", "err", "--drop", "rain"]


def stations(n: int = 240) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "id": np.arange(n),
            "lon": rng.uniform(-180, 180, n).round(2),
            "lat": rng.uniform(-60, 60, n).round(2),
            "err": rng.uniform(0.1, 0.2, n),
        }
    )
    table["temperature"] = 25 - 0.3 * table.lat.abs() + 0.1 * rng.normal(size=n)
    table["rain"] = 0.05 * table.lat + 0.1 * rng.normal(size=n)
    table["kind"] = np.where(table.lat > 0, "north", "south")
    table.loc[[3, 7], "temperature"] = np.nan
    return table


def run(*arguments: object, code: int = 0):
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)  # what is meant for users is shown, not raised
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output
    return result


def complaint(*arguments: object, code: int) -> str:
    """The one line on stderr of a command that fails."""
    line, end = run(*arguments, code=code).stderr.split("\n")
    assert line.startswith("error: ")
    assert end == ""
    return line


def process(*arguments: object, **settings: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "harmonicgp", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **settings)


class FakeRegressor:
    """An estimator whose fit does what a test asks for."""

    then: object = None

    def __init__(self, random_state=0, progress=True, max_steps=None, n_inducing=None, checkpoint_dir=None):
        self.symmetry_ = SimpleNamespace(
            name="one block", reason="", action=None, candidate=SimpleNamespace(warp=False)
        )
        self.n_steps_, self.timings_, self.notes_, self.warnings_ = 1, {"train": 0.1}, [], []
        self.neighbours_ = 0

    def fit(self, X, y, sample_weight=None, noise_std=None):
        FakeRegressor.given = SimpleNamespace(X=X, y=y, sample_weight=sample_weight, noise_std=noise_std)
        if callable(self.then):
            self.then()
        return self

    def save(self, path):
        path.write_text("model")


def journal(n: int = 120) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 12, n), unit="D")
    table = pd.DataFrame(
        {
            "when": days.strftime("%Y-%m-%dT%H:%M"),
            "site": rng.choice(["hill", "lake", "town"], n),
            "wind": rng.uniform(0, 9, n),
        }
    )
    table["room"] = [f"r{k % 30}" for k in range(n)]
    table["depth"] = table.wind.where(table.index % 10 > 0)
    table["warmth"] = table.wind + 0.1 * rng.normal(size=n)
    return table
