"""Likelihoods that GPyTorch lacks, and its own as inference sees them."""

from harmonicgp.likelihoods.observation import GaussianObservation, Observation, observe
from harmonicgp.likelihoods.poisson import PoissonLikelihood
from harmonicgp.likelihoods.robustmax import RobustMaxLikelihood

__all__ = ["GaussianObservation", "Observation", "PoissonLikelihood", "RobustMaxLikelihood", "observe"]
