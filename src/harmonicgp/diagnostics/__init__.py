"""How good is an approximation before any target is seen, and a fitted model after."""

from harmonicgp.diagnostics.nystrom import minimise_trace_error, trace_error
from harmonicgp.diagnostics.report import write_report
from harmonicgp.diagnostics.scores import (
    ClassificationScores,
    Reliability,
    Scores,
    classification_scores,
    coverage,
    pit_histogram,
    regression_scores,
    rmse,
)

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
    "trace_error",
    "write_report",
]
