"""Tables and models of the tests of the command line."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from harmonicgp import estimators
from tests.cli.common import QUICK, REGRESSION, FakeRegressor, journal, run, stations


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Tables, a regression and a classification, made once."""
    folder = tmp_path_factory.mktemp("cli")
    stations().to_csv(folder / "stations.csv", index=False)
    stations().to_parquet(folder / "stations.parquet")
    made = {
        "fit": run("fit", folder / "stations.csv", *REGRESSION, "-o", folder / "model.hgp", *QUICK),
        "classify": run(
            *("fit", folder / "stations.parquet", "-t", "kind", "-o", folder / "kind.hgp", *QUICK),
            *("--drop", "id", "--drop", "temperature", "--drop", "rain", "--drop", "err"),
        ),
    }
    (folder / "fit.txt").write_text(made["fit"].stdout)
    (folder / "classify.txt").write_text(made["classify"].stdout)
    return folder


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "stations.csv"
    stations(40).to_csv(path, index=False)
    return path


@pytest.fixture
def fake(monkeypatch):
    """The library's estimators replaced, for what only the command line does."""

    def install(then=None):
        monkeypatch.setattr(FakeRegressor, "then", staticmethod(then) if then else None)
        monkeypatch.setattr(estimators, "HarmonicGPRegressor", FakeRegressor)
        return FakeRegressor

    return install


@pytest.fixture(scope="module")
def diary(tmp_path_factory):
    """A model of a journal, and what the fit said."""
    folder = tmp_path_factory.mktemp("diary")
    journal().to_csv(folder / "journal.csv", index=False)
    fit = ["fit", folder / "journal.csv", "-t", "warmth", "-o", folder / "model.hgp", "--missing", "impute", *QUICK]
    return SimpleNamespace(folder=folder, model=folder / "model.hgp", fit=run(*fit))
