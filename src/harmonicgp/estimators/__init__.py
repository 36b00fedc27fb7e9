"""Estimators of tables, with scikit-learn's interface."""

from harmonicgp.estimators.classifier import HarmonicGPClassifier
from harmonicgp.estimators.regressor import HarmonicGPRegressor
from harmonicgp.symmetry.choice import SymmetryChoice

__all__ = ["HarmonicGPClassifier", "HarmonicGPRegressor", "SymmetryChoice"]
