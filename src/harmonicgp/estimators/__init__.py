"""Estimators with scikit-learn's interface."""

from harmonicgp.estimators.choice import SymmetryChoice
from harmonicgp.estimators.classifier import HarmonicGPClassifier
from harmonicgp.estimators.globe import HarmonicGPGlobe
from harmonicgp.estimators.regressor import HarmonicGPRegressor
from harmonicgp.estimators.saving import load_model
from harmonicgp.estimators.suggesting import suggest_symmetry

__all__ = [
    "HarmonicGPClassifier",
    "HarmonicGPGlobe",
    "HarmonicGPRegressor",
    "SymmetryChoice",
    "load_model",
    "suggest_symmetry",
]
