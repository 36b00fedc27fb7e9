"""Estimators in the manner of scikit-learn."""

from harmonicgp.estimators.regressor import HarmonicGPRegressor

__all__ = ["HarmonicGPRegressor"]
