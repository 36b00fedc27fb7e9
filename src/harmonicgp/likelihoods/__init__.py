"""Likelihoods that GPyTorch lacks, and its own as inference sees them."""

from harmonicgp.likelihoods.observation import GaussianObservation, Observation, observe, register_likelihood
from harmonicgp.likelihoods.poisson import PoissonLikelihood
from harmonicgp.likelihoods.robustmax import RobustMaxLikelihood
from harmonicgp.likelihoods.softmax import SoftmaxBoundLikelihood

__all__ = [
    "GaussianObservation",
    "Observation",
    "PoissonLikelihood",
    "RobustMaxLikelihood",
    "SoftmaxBoundLikelihood",
    "observe",
    "register_likelihood",
]
