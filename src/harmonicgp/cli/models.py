"""Models of tables: made, fitted, loaded and scored. The library is imported on first use."""

from __future__ import annotations

import inspect
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harmonicgp.cli.failures import UsageError
from harmonicgp.cli.options import check_course, parse_columns
from harmonicgp.cli.symmetries import parse_symmetry
from harmonicgp.cli.tables import TableTask
from harmonicgp.cli.words import Speaker, listing, say_fit, score_words


def new_estimator(task: TableTask, arguments: dict[str, Any]) -> Any:
    """An estimator that is not fitted yet; arguments that a classification does not have are refused."""
    from harmonicgp import estimators

    kind = getattr(estimators, "HarmonicGPClassifier" if task.classify else "HarmonicGPRegressor")
    unknown = {*arguments} - {*inspect.signature(kind).parameters}
    unknown |= {*task.roles} - {*inspect.signature(kind.fit).parameters}
    if unknown:
        options = listing(f"--{name.removeprefix('sample_').replace('_', '-')}" for name in sorted(unknown))
        raise UsageError(f"a {'classification' if task.classify else 'regression'} takes no {options}.")
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
    from harmonicgp.loading import load_model

    return load_model(path)


def score_rows(model: Any, X: Any, y: Any, report: Path | None, noise_std: Any = None, **settings: Any) -> Any:
    """The scores of a model on rows, and a report if a path is given. `settings` go to `write_report`."""
    if report is not None:
        from harmonicgp.report.document import write_report

        return write_report(report, model, X, y, noise_std=noise_std, **settings)
    from harmonicgp.report.scores import classification_scores, regression_scores

    if hasattr(model, "classes_"):
        return classification_scores(model, X, y)
    return regression_scores(model, X, y, noise_std=noise_std)


@dataclass(frozen=True)
class FitRun:
    """What a run of `fit` writes, sets aside and prints, for tables and for fields."""

    output: Path
    report: Path | None
    test_fraction: float
    seed: int
    say: Speaker


def fit_table(path: Path, targets: list[str], options: dict[str, Any], run: FitRun) -> None:
    """Fit a model to a table, save it, and score it on the rows set aside.

    `options` are those that the user gave: roles of columns, and arguments of the estimator.
    """
    check_course(run.test_fraction, run.report, options.get("time_budget"))
    options = {key: value for key, value in options.items() if key != "report"}
    kinds = parse_columns(options.pop("columns", []))
    names = ("drop", "classify", "weight", "noise_std")
    roles = {name: options.pop(name) for name in names if name in options}
    if "symmetry" in options:
        options["symmetry"] = parse_symmetry(options["symmetry"])
    if options.get("warp") == "none":
        options["warp"] = None
    if kinds:
        options["columns"] = kinds
    say = run.say
    task = TableTask.read(path, targets, kinds, say, **roles)
    model = new_estimator(task, options | {"random_state": run.seed, "progress": say.progress})
    training, testing = task.split(run.test_fraction, run.seed)
    say("rows", f"{len(training):,} to learn from, {len(testing):,} set aside")
    try:
        model.fit(training.X, training.y, **training.per_row)
    except KeyboardInterrupt:
        folder = options.get("checkpoint_dir")
        state = f"the same command goes on from {folder}" if folder else "nothing was written"
        raise KeyboardInterrupt(f"stopped; {state}.") from None
    say_fit(model, say)
    model.save(run.output)
    say("model", str(run.output))
    if len(testing):
        _score(model, testing, run)
    if run.report:
        say("report", str(run.report))


def _score(model: Any, testing: TableTask, run: FitRun) -> None:
    """Score the rows set aside, print the scores, and warn of what the fit has not seen."""
    from harmonicgp.report.novelty import Novelty, ignore_unseen

    novelty = Novelty.of(model, testing.X)
    with ignore_unseen():
        errors = testing.per_row.get("noise_std")
        scores = score_rows(model, testing.X, testing.y, run.report, errors, file=run.output, set_aside=True)
    run.say("scores", f"on the rows set aside, {score_words(scores)}")
    for warning in novelty.unseen:
        warnings.warn(warning, stacklevel=2)
