"""Makes, fits, loads and scores models of tables. The library is imported on first use."""

from __future__ import annotations

import inspect
import warnings
from pathlib import Path
from typing import Any

from harmonicgp.cli.failures import UsageError
from harmonicgp.cli.options import check_course, flags, parse_columns
from harmonicgp.cli.symmetries import parse_symmetry
from harmonicgp.cli.tables import TableTask
from harmonicgp.cli.words import Speaker, listing, say_fit, score_words


def new_estimator(task: TableTask, arguments: dict[str, Any]) -> Any:
    """An estimator that is not fitted yet. Raises for arguments that a classification does not have."""
    from harmonicgp import estimators

    kind = getattr(estimators, "HarmonicGPClassifier" if task.classify else "HarmonicGPRegressor")
    unknown = {*arguments} - {*inspect.signature(kind).parameters}
    unknown |= {*task.per_row} - {*inspect.signature(kind.fit).parameters}
    if unknown:
        task_name = "classification" if task.classify else "regression"
        raise UsageError(f"a {task_name} takes no {listing(flags(sorted(unknown)))}.")
    return kind(**arguments)


def load_fitted(path: Path) -> Any:
    """The model of a table in a file."""
    model = load_any(path)
    if not hasattr(model, "predict_components"):
        raise UsageError(f"{path.name} is a model of a field: it predicts netCDF files, not tables.")
    return model


def load_any(path: Path) -> Any:
    """The model in a file."""
    if not path.is_file():
        raise FileNotFoundError(f"there is no model file {path}.")
    from harmonicgp.loading import load_model

    return load_model(path)


def score_rows(model: Any, X: Any, y: Any, page: Path | None, noise_std: Any, **settings: Any) -> tuple[Any, Any]:
    """The scores of a model on rows, and what is new in them; with `page`, also a report, which takes `settings`."""
    from harmonicgp.report import document, scores
    from harmonicgp.report.novelty import Novelty, ignore_unseen

    novelty = Novelty.of(model, X)
    with ignore_unseen():
        if page is None:
            return scores.score_rows(model, X, y, noise_std), novelty
        return document.write_report(page, model, X, y, noise_std=noise_std, **settings), novelty


def fit_table(
    path: Path, targets: list[str], options: dict[str, Any], output: Path, test_fraction: float, seed: int, say: Speaker
) -> None:
    """Fit a model to a table, save it, and score it on held-out rows.

    `options` are the options of the user: roles of columns, arguments of the estimator, and the report.
    """
    page = options.pop("report", None)
    check_course(test_fraction, page, options.get("time_budget"))
    kinds = parse_columns(options.pop("columns", []))
    names = ("drop", "classify", "weight", "noise_std")
    roles = {name: options.pop(name) for name in names if name in options}
    if "symmetry" in options:
        options["symmetry"] = parse_symmetry(options["symmetry"])
    if options.get("warp") == "none":
        options["warp"] = None
    if kinds:
        options["columns"] = kinds
    task = TableTask.read(path, targets, kinds, say, **roles)
    model = new_estimator(task, options | {"random_state": seed, "progress": say.progress})
    training, testing = task.split(test_fraction, seed)
    say("rows", f"{len(training):,} for the fit, {len(testing):,} held out")
    try:
        model.fit(training.X, training.y, **training.per_row)
    except KeyboardInterrupt:
        folder = options.get("checkpoint_dir")
        state = f"the same command continues from {folder}" if folder else "nothing was written"
        raise KeyboardInterrupt(f"stopped; {state}.") from None
    say_fit(model, say)
    model.save(output)
    say("model", str(output))
    if len(testing):
        errors = testing.per_row.get("noise_std")
        scores, novelty = score_rows(model, testing.X, testing.y, page, errors, file=output, set_aside=True)
        say("scores", f"on the held-out rows, {score_words(scores)}")
        for warning in novelty.unseen:
            warnings.warn(warning, stacklevel=2)
    if page:
        say("report", str(page))
