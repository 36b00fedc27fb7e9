"""How good is an approximation before any target is seen, and a fitted model after."""

from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from harmonicgp.estimators.suggesting import suggest_symmetry

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


def __getattr__(name: str) -> Any:
    """`suggest_symmetry` lives with the estimators, which need these diagnostics themselves."""
    if name == "suggest_symmetry":
        from harmonicgp.estimators.suggesting import suggest_symmetry

        return suggest_symmetry
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
