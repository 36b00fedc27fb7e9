"""Symmetries as text: read from the command line, and written for it. Nothing that is read is run."""

from __future__ import annotations

import ast
import inspect
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from harmonicgp.cli.failures import UsageError
from harmonicgp.cli.words import did_you_mean, listing

#: What a text may name; `Orthogonal` has a matrix that no text holds.
ACTIONS = (
    "ImageFlip", "ImageShift", "Longitude", "Negation", "Permutation", "PrincipalNegation", "Rotation", "Translation",
)  # fmt: skip
#: Elements of a group that a command line may ask for, and characters that it may take to say so.
LARGEST, LONGEST = 4096, 20_000


def parse_symmetry(text: str | None) -> Any:
    """`auto`, `none`, or an action as it prints itself; products with `*`.

    Examples:
        >>> parse_symmetry("Rotation((0, 1), 6)"), parse_symmetry("none"), parse_symmetry("auto")
        (Rotation((0, 1), 6), None, 'auto')
        >>> parse_symmetry("Negation([[0, 1]]) * Translation(axis=2, period=24, order=6)").group
        Cyclic(2) * Cyclic(6)
    """
    if text is None or text.strip().lower() in ("auto", "none"):
        return None if text is not None and text.strip().lower() == "none" else "auto"
    if len(text) > LONGEST:
        raise UsageError(f"--symmetry is {len(text):,} characters long: an action takes at most {LONGEST:,}.")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise _misread(text) from None
    try:
        action = _action(tree, text)
        order = action.group.order
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"--symmetry {text}: {error}") from None
    if order > LARGEST:
        raise UsageError(f"--symmetry {text} has {order:,} elements: use a group of at most {LARGEST:,}.")
    return action


def _action(node: ast.expr, text: str) -> Any:
    from harmonicgp import actions

    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return actions.Product(_action(node.left, text), _action(node.right, text))
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise _misread(text)
    name = node.func.id
    if name not in ACTIONS:
        hint = did_you_mean(name, ACTIONS)
        raise UsageError(f"--symmetry takes auto, none or an action: {listing(ACTIONS)}; got {name!r}{hint}.")
    kind = getattr(actions, name)
    if any(isinstance(argument, ast.Starred) for argument in node.args) or any(k.arg is None for k in node.keywords):
        raise _misread(text)
    try:
        given = [ast.literal_eval(argument) for argument in node.args]
        named = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in node.keywords}
    except (ValueError, TypeError, SyntaxError, MemoryError):
        raise _misread(text) from None
    try:
        inspect.signature(kind).bind(*given, **named)
    except TypeError as error:
        raise UsageError(f"--symmetry: {name}{inspect.signature(kind)} got other arguments ({error}).") from None
    return kind(*given, **named)


def _misread(text: str) -> UsageError:
    shown = text if len(text) <= 60 else text[:57] + "..."
    return UsageError(
        f"--symmetry takes auto, none or an action with numbers of columns, such as 'Negation([[0, 1], [2]])'; got {shown!r}."
    )


def as_options(arguments: Mapping[str, Any], names: Sequence[str]) -> str:
    """The options of `harmonicgp fit` for arguments of an estimator; empty where they cannot be said.

    Examples:
        >>> as_options({"columns": {0: ("periodic", 24.0), "lon": "longitude"}, "warp": "quantile"}, ["hour", "lon"])
        '--columns hour=periodic:24,lon=longitude --warp quantile'
    """
    words: list[str] = []
    for name, value in arguments.items():
        text = str(value)
        if name == "columns":
            if not isinstance(value, Mapping):  # images
                return ""
            keys = [names[key] if isinstance(key, int) else key for key in value]
            if any(mark in key for key in keys for mark in ",="):
                return ""
            kinds = [kind if isinstance(kind, str) else f"periodic:{kind[1]:.15g}" for kind in value.values()]
            text = ",".join(f"{key}={kind}" for key, kind in zip(keys, kinds, strict=True))
        elif name == "symmetry":
            text = repr(value)
            if "<" in text:  # an action whose parts no text holds
                return ""
        words += [f"--{name}", shlex.quote(text)]
    return " ".join(words)
