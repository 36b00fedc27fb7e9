"""Symmetries as text on the command line: parsed without running code, and written as options."""

from __future__ import annotations

import ast
import inspect
import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from harmonicgp.cli.failures import UsageError
from harmonicgp.cli.words import did_you_mean, listing

#: The actions that a text can name; `Orthogonal` holds a matrix, which it cannot.
ACTIONS = (
    "ImageFlip", "ImageShift", "Longitude", "Negation", "Permutation", "PrincipalNegation", "Rotation", "Translation",
)  # fmt: skip
#: Elements of a group, and characters of the text, at most.
LARGEST, LONGEST = 4096, 20_000
#: Columns of a table or an image, at most.
WIDEST = 100_000


def parse_symmetry(text: str) -> Any:
    """The symmetry of a text: `auto`, `none`, or an action as it prints; `*` makes products.

    Examples:
        >>> parse_symmetry("Rotation((0, 1), 6)"), parse_symmetry("none"), parse_symmetry("auto")
        (Rotation((0, 1), 6), None, 'auto')
        >>> parse_symmetry("Negation([[0, 1]]) * Translation(axis=2, period=24, order=6)").group
        Cyclic(2) * Cyclic(6)
    """
    word = text.strip().lower()
    if word in ("auto", "none"):
        return "auto" if word == "auto" else None
    if len(text) > LONGEST:
        raise UsageError(f"--symmetry is {len(text):,} characters long: an action takes at most {LONGEST:,}.")
    if "#" in text:  # the rest would be a comment
        raise _misread(text)
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise _misread(text) from None
    try:
        factors = [_factor(node, text) for node in _factors(tree)]
        order = math.prod(each.group.order for each in factors)
        width = max(max(each.dim or 0, each.min_dim) for each in factors)
        if order > LARGEST:
            raise UsageError(f"--symmetry {_short(text)} has {order:,} elements: use a group of at most {LARGEST:,}.")
        if width > WIDEST:
            raise UsageError(f"--symmetry {_short(text)} acts on {width:,} columns: a table has at most {WIDEST:,}.")
        from harmonicgp.actions import Product

        action = factors[0] if len(factors) == 1 else Product(*factors)
    except (TypeError, ValueError, ArithmeticError, RecursionError, RuntimeError, MemoryError) as error:
        raise UsageError(f"--symmetry {_short(text)}: {error}") from None
    if order < 2:
        raise UsageError(f"--symmetry {_short(text)} moves nothing: its group has one element.")
    return action


def _factors(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return [*_factors(node.left), node.right]
    return [node]


def _factor(node: ast.expr, text: str) -> Any:
    from harmonicgp import actions

    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        raise _misread(text)
    name, keywords = node.func.id, {keyword.arg: keyword.value for keyword in node.keywords}
    if name not in ACTIONS:
        hint = did_you_mean(name, ACTIONS)
        raise UsageError(f"--symmetry takes auto, none or an action: {listing(ACTIONS)}; got {_short(name)!r}{hint}.")
    numbers = all(_is_number(part) for part in (*node.args, *keywords.values()))
    if None in keywords or len(keywords) < len(node.keywords) or not numbers:
        raise _misread(text)
    kind = getattr(actions, name)
    parameters = inspect.signature(kind)
    try:
        arguments = parameters.bind(
            *map(ast.literal_eval, node.args), **{str(key): ast.literal_eval(value) for key, value in keywords.items()}
        )
    except TypeError as error:
        raise UsageError(
            f"--symmetry: {name}({', '.join(parameters.parameters)}) got other arguments ({error})."
        ) from None
    return kind(*arguments.args, **arguments.kwargs)


def _is_number(node: ast.expr) -> bool:
    """Whether a node is a number, or nested lists of numbers."""
    if isinstance(node, ast.List | ast.Tuple):
        return all(_is_number(part) for part in node.elts)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        node = node.operand
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


def _misread(text: str) -> UsageError:
    return UsageError(
        "--symmetry takes auto, none or an action with numbers of columns, such as 'Negation([[0, 1], [2]])'; got "
        f"{_short(text)!r}."
    )


def as_options(arguments: Mapping[str, Any], names: Sequence[str]) -> str:
    """The options of `harmonicgp fit` for arguments of an estimator; empty if options cannot express them.

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
            if any(mark in key for key in keys for mark in ",=\n") or any(key != key.strip() for key in keys):
                return ""
            kinds = [kind if isinstance(kind, str) else f"periodic:{kind[1]:.15g}" for kind in value.values()]
            text = ",".join(f"{key}={kind}" for key, kind in zip(keys, kinds, strict=True))
        elif name == "symmetry":
            text = repr(value)
            try:
                parse_symmetry(text)
            except UsageError:  # an action that a text cannot express
                return ""
        words += [f"--{name}", shlex.quote(text)]
    return " ".join(words)
