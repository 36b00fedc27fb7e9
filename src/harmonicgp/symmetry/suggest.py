"""Which symmetry do the data have? The search of a fit on its own, with its evidence."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

from sklearn.base import BaseEstimator

from harmonicgp.actions import Action
from harmonicgp.symmetry.choice import SymmetryChoice
from harmonicgp.symmetry.options import ModelOptions, RegressionOptions, check_options
from harmonicgp.symmetry.search import search_symmetry
from harmonicgp.symmetry.settings import ModelSettings
from harmonicgp.tables.preprocessing import ClassificationPreprocessing, RegressionPreprocessing


def suggest_symmetry(
    X: Any, y: Any, candidates: Sequence[Action] | None = None, *, classify: bool = False, **arguments: Any
) -> SymmetryChoice:
    """Compare symmetries of rows X [N, d] for a target y [N], as a fit with these arguments would.

    Args:
        X: a frame, or an array [N, d].
        y: targets [N] or [N, P]; classes [N] with `classify`.
        candidates: actions to compare, on standardised columns by number. None: the candidates of a fit, which are negations
            along columns and principal directions (about the mean), rotations of planes, permutations of columns, shifts of
            columns that are periodic or look periodic, and flips and shifts of images.
        classify: whether y holds classes.
        **arguments: arguments of the estimator.

    Returns:
        The choice. For each candidate it holds a test of the inputs that does not use y, the share of the kernel that the
        inducing points do not explain, and the bound after short fits at equal cost. `suggested` names the symmetry that the
        inputs have, `suggested_action` is the action for an estimator; `advice`, `sentences` and `plot` explain the result.

    Examples:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(600, 1)) * 0.2 + rng.choice([-1, 1], size=(600, 1))
        >>> choice = suggest_symmetry(X, np.sin(3 * X[:, 0]), progress=False)
        >>> choice.suggested
        'negation in 1 way, columns'
    """
    start = time.perf_counter()
    options = _options(arguments, classify)
    actions = None if candidates is None else _check_candidates(candidates)
    preprocessing: RegressionPreprocessing | ClassificationPreprocessing
    if isinstance(options, RegressionOptions):
        preprocessing, rows = RegressionPreprocessing.fit(
            X, y, BaseEstimator(), columns=options.columns, missing=options.missing, transform=options.target_transform
        )
    else:
        preprocessing, rows = ClassificationPreprocessing.fit(
            X, y, BaseEstimator(), columns=options.columns, missing=options.missing
        )
    data = preprocessing.model_rows(rows)
    settings = ModelSettings.of(options, preprocessing, len(data), start)
    columns = settings.columns_of(data, by_number=actions is not None)
    return search_symmetry(data, columns, settings, actions, suggest=True)


def _options(arguments: dict[str, Any], classify: bool) -> ModelOptions:
    """The arguments as checked options; those that a search cannot use raise an error."""
    for name in ("symmetry", "checkpoint_dir"):
        if name in arguments:
            raise TypeError(f"suggest_symmetry takes no {name}: it only searches, and writes no files.")
    if not isinstance(arguments.get("kernel", ""), str):
        raise TypeError("suggest_symmetry takes kernels by name: with a kernel object a fit runs no search.")
    estimator = "HarmonicGPClassifier" if classify else "HarmonicGPRegressor"
    kind = ModelOptions if classify else RegressionOptions
    unknown = sorted(set(arguments) - {field.name for field in fields(kind)})
    if unknown:
        raise TypeError(f"suggest_symmetry takes the arguments of {estimator}, which has no {', '.join(unknown)}.")
    options = kind(**arguments)
    check_options(options)
    return options


def _check_candidates(candidates: Any) -> list[Action]:
    if isinstance(candidates, Action | str) or not isinstance(candidates, Iterable):
        raise TypeError(f"candidates is a list of actions, such as [Negation()]; got {candidates!r}.")
    actions = list(candidates)
    if not actions:
        raise ValueError("candidates is empty: give at least one action, or None for the candidates of a fit.")
    for action in actions:
        if not isinstance(action, Action):
            raise TypeError(f"candidates are actions of harmonicgp.actions; got {action!r}.")
    return actions
