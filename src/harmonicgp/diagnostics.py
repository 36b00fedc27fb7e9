"""Public names for judging a model: scores, reports, the Nystrom residual and the search for a symmetry."""

from harmonicgp.features.nystrom import minimise_trace_error, trace_error
from harmonicgp.report.document import write_report
from harmonicgp.report.scores import (
    ClassificationScores,
    Reliability,
    Scores,
    classification_scores,
    coverage,
    pit_histogram,
    regression_scores,
    rmse,
)
from harmonicgp.symmetry.suggest import suggest_symmetry

__all__ = [
    "ClassificationScores",
    "Reliability",
    "Scores",
    "classification_scores",
    "coverage",
    "minimise_trace_error",
    "pit_histogram",
    "regression_scores",
    "rmse",
    "suggest_symmetry",
    "trace_error",
    "write_report",
]
