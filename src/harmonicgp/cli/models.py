"""Models: made, loaded and scored, and what is new to them; the library is imported when one is."""

from __future__ import annotations

import importlib
import inspect
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harmonicgp.cli.failures import UsageError
from harmonicgp.cli.tables import Problem
from harmonicgp.cli.words import Speaker, listing, warn


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
    """The model of a table in a file."""
    model = load_any(path)
    if not hasattr(model, "predict_components"):
        raise UsageError(
            f"{path.name} is the model of a field on the globe: it predicts on netCDF files, not on tables."
        )
    return model


def load_any(path: Path) -> Any:
    """The model in a file."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no model file {path}.")
    return importlib.import_module("harmonicgp.loading").load_model(path)


def score_rows(model: Any, X: Any, y: Any, report: Path | None, noise_std: Any = None, **words: Any) -> Any:
    """The scores of a model on rows, and a report of them if one is wanted; `words` are for the report alone."""
    if report is not None:
        write_report = importlib.import_module("harmonicgp.report.report").write_report
        return write_report(report, model, X, y, noise_std=noise_std, **words)
    from harmonicgp.report.scores import classification_scores, regression_scores

    if hasattr(model, "classes_"):
        return classification_scores(model, X, y)
    return regression_scores(model, X, y, noise_std=noise_std)


@dataclass
class News:
    """What is new to a model in the rows that it is given, summed over batches and said at the end."""

    rows: int = 0
    beyond: int = 0  #: rows beyond the data of the fit
    columns: set[str] = field(default_factory=set)  #: in which they are
    unseen: dict[Any, Any] = field(default_factory=dict)  #: warnings of what the fit has not seen, by kind and column

    def look(self, model: Any, X: Any) -> None:
        """Take in a batch; what it holds of unseen levels and gaps is from now on said here alone."""
        from harmonicgp.report.case import UNSEEN, rows_beyond, what_is_new

        masks, unseen = what_is_new(model, X)
        for kind in UNSEEN:
            warnings.simplefilter("ignore", kind)
        for message in unseen:
            key = type(message), message.column
            self.unseen[key] = message if key not in self.unseen else self.unseen[key] + message
        self.rows += len(X)
        self.beyond += rows_beyond(masks)
        self.columns |= masks.keys()

    def warn(self) -> None:
        """Say which levels and gaps are new."""
        for message in self.unseen.values():
            warn(str(message))

    def say(self, model: Any, say: Speaker) -> None:
        """Say which levels and gaps are new, and how many rows lie beyond the data."""
        from harmonicgp.report.case import beyond_in_words

        self.warn()
        if self.beyond:
            columns = [name for name in model.encoded_names_ if name in self.columns]
            say("note", beyond_in_words(self.beyond, self.rows, columns, hasattr(model, "classes_")))
