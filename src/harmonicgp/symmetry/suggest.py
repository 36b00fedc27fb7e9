"""Which symmetry do the data have? The search of a fit by itself, with its evidence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from harmonicgp.actions import Action
from harmonicgp.estimators.classifier import HarmonicGPClassifier
from harmonicgp.estimators.regressor import HarmonicGPRegressor
from harmonicgp.symmetry.choice import SymmetryChoice


def suggest_symmetry(
    X: Any, y: Any, candidates: Sequence[Action] | None = None, *, classify: bool = False, **arguments: Any
) -> SymmetryChoice:
    """Compare symmetries of rows X for a target y, by what a fit with these arguments would see; nothing else is fitted.

    For each candidate: whether the inputs look the same after it (a test that does not look at y), the share of the kernel that
    its inducing points leave, and the bound after short fits at equal cost. `suggested` names the symmetry that the inputs have,
    or None, and `suggested_action` is what an estimator takes for it; `advice`, `sentences` and `plot` say it all. With
    `candidates=None` these are what a fit chooses from: negations along columns and principal directions, about the mean, turns
    of planes, exchanges of columns, shifts of periodic columns (also of those that look periodic), flips and shifts of images.
    Else only the actions that are given, on the standardised columns by their numbers.

    Examples:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(600, 1)) * 0.2 + rng.choice([-1, 1], size=(600, 1))
        >>> found = suggest_symmetry(X, np.sin(3 * X[:, 0]), progress=False)
        >>> found.suggested
        'negation in 1 way, columns'
    """
    for name in ("symmetry", "checkpoint_dir"):
        if name in arguments:
            raise TypeError(f"suggest_symmetry takes no {name}: it searches, and keeps nothing.")
    if "kernel" in arguments and not isinstance(arguments["kernel"], str):
        raise TypeError(
            "suggest_symmetry takes kernels by name: a kernel of your own is fitted as it is, without a search."
        )
    estimator: Any = HarmonicGPClassifier if classify else HarmonicGPRegressor
    unknown = sorted(set(arguments) - set(estimator._get_param_names()))
    if unknown:
        raise TypeError(
            f"suggest_symmetry takes the arguments of {estimator.__name__}, which has no {', '.join(unknown)}."
        )
    model = estimator(**arguments)
    model._guessing = True
    if candidates is not None:
        if isinstance(candidates, Action | str) or not isinstance(candidates, Iterable):
            raise TypeError(f"candidates is a list of actions, such as [Negation()]; got {candidates!r}.")
        offered = list(candidates)
        if not offered:
            raise ValueError(
                "candidates is empty: give at least one action, or None for those that a fit chooses from."
            )
        for action in offered:
            if not isinstance(action, Action):
                raise TypeError(f"candidates are actions of harmonicgp.actions; got {action!r}.")
        model._offered = offered
    if classify:
        rows = model._prepare(X, y, None)
        model._settle(rows, rows.y.T, None, model._likelihood, search_small=True)
    else:
        model._settle(*model._prepare(X, y, None, None), model._likelihood, search_small=True)
    choice: SymmetryChoice = model.symmetry_
    return choice
