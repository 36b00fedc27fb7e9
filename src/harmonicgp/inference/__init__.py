"""Inference on block features: posteriors, bounds, natural gradients, closed forms, prediction."""

from harmonicgp.inference.closed_form import ClosedForm, StreamedPosterior, closed_form, joint_deviations
from harmonicgp.inference.collapsed import collapsed_bound
from harmonicgp.inference.covariances import AdamPosterior, DeviationPosterior, RootPosterior
from harmonicgp.inference.natural_gradient import natural_gradient_step
from harmonicgp.inference.posterior import Posterior, VariationalPosterior
from harmonicgp.inference.prediction import Predictor, SamplePaths
from harmonicgp.inference.statistics import EvaluationStatistics, Statistics, gather_statistics

__all__ = [
    "AdamPosterior",
    "ClosedForm",
    "DeviationPosterior",
    "EvaluationStatistics",
    "Posterior",
    "Predictor",
    "RootPosterior",
    "SamplePaths",
    "Statistics",
    "StreamedPosterior",
    "VariationalPosterior",
    "closed_form",
    "collapsed_bound",
    "gather_statistics",
    "joint_deviations",
    "natural_gradient_step",
]
