"""Models: made, loaded and scored; the library is imported when one is."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import Any

from harmonicgp.cli.failures import UsageError
from harmonicgp.cli.tables import Problem
from harmonicgp.cli.words import listing


def estimators_module() -> Any:
    """The estimators, imported on first use."""
    return importlib.import_module("harmonicgp.estimators")


def new_estimator(problem: Problem, arguments: dict[str, Any]) -> Any:
    """An estimator that is not fitted yet; arguments that a classification does not have are refused."""
    kind = getattr(estimators_module(), "HarmonicGPClassifier" if problem.classify else "HarmonicGPRegressor")
    unknown = {*arguments} - {*inspect.signature(kind).parameters}
    unknown |= {*problem.roles} - {*inspect.signature(kind.fit).parameters}
    if unknown:
        options = listing(f"--{name.removeprefix('sample_').replace('_', '-')}" for name in sorted(unknown))
        raise UsageError(f"a {'classification' if problem.classify else 'regression'} takes no {options}.")
    return kind(**arguments)


def load_fitted(path: Path) -> Any:
    """The model in a file."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no model file {path}.")
    return estimators_module().load_model(path)


def score_rows(model: Any, X: Any, y: Any, report: Path | None) -> Any:
    """The scores of a model on rows, and a report of them if one is wanted."""
    if report is not None:
        return importlib.import_module("harmonicgp.diagnostics.report").write_report(report, model, X, y)
    from harmonicgp.diagnostics.scores import classification_scores, regression_scores

    return (classification_scores if hasattr(model, "classes_") else regression_scores)(model, X, y)
