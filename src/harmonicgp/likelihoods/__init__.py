"""Likelihoods that GPyTorch does not have, and the interface of all likelihoods for inference."""

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
