"""Any model file, read as the estimator that wrote it."""

from __future__ import annotations

from pathlib import Path

from harmonicgp.estimators.classifier import HarmonicGPClassifier
from harmonicgp.estimators.regressor import HarmonicGPRegressor
from harmonicgp.estimators.saving import read_model
from harmonicgp.globe.estimator import KIND, HarmonicGPGlobe
from harmonicgp.io.container import kind_of


def load_model(path: str | Path) -> HarmonicGPRegressor | HarmonicGPClassifier | HarmonicGPGlobe:
    """The estimator of a file, whichever it is."""
    if kind_of(path) == KIND:
        return HarmonicGPGlobe.load(path)
    file = read_model(path)
    estimator = HarmonicGPRegressor if file.estimator == HarmonicGPRegressor.__name__ else HarmonicGPClassifier
    return estimator.from_file(file)
