"""Arguments and options of the commands: their definitions, parsers and checks."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer
from typer import Argument, Option

from harmonicgp._extras import require
from harmonicgp._version import __version__
from harmonicgp.cli.failures import UsageError
from harmonicgp.cli.words import count, did_you_mean, listing

Columns: TypeAlias = dict[str, str | tuple[str, float]]


def choice(name: str, words: str, help: str) -> Any:
    """An option that takes one of the words a|b|c."""
    choices = words.split("|")

    def check(value: str | None) -> str | None:
        if value is not None and value not in choices:
            either = " or ".join(", ".join(map(repr, choices)).rsplit(", ", 1))
            raise UsageError(f"{name} takes {either}; got {value!r}{did_you_mean(value, choices)}.")
        return value

    return Option(name, metavar=f"<{words}>", help=help, callback=check)


def _read_neighbours(value: str | None) -> int | str | None:
    if value is None or value == "auto":
        return value
    if not value.isdecimal():
        raise UsageError(f"--neighbours takes auto or a whole number, 0 for none; got {value!r}.")
    return int(value)


def _set_debug(ctx: typer.Context, value: bool) -> bool:
    if value:
        ctx.meta["harmonicgp.debug"] = True
    return value


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"harmonicgp {__version__}")
        raise typer.Exit()


# Options that several commands share.
TABLE = Annotated[Path, Argument(metavar="TABLE", help="A .csv, .tsv or .parquet file, or a field: .nc.")]
MODEL = Annotated[Path, Argument(metavar="MODEL", help="A file that `harmonicgp fit` wrote.")]
TARGET = Annotated[list[str], Option("--target", "-t", metavar="COL", help="What to predict; repeatable.")]
DROP = Annotated[list[str] | None, Option("--drop", metavar="COL", help="An input to leave out; repeatable.")]
MISSING = Annotated[
    str | None, choice("--missing", "refuse|impute", "Missing values of inputs: an error (default), or imputed.")
]
TRANSFORM = Annotated[str | None, choice("--target-transform", "log|quantile", "Model log or quantiles of the target.")]
KERNEL = Annotated[
    str | None,
    choice(
        "--kernel", "rbf|matern12|matern32|matern52", "The kernel; by default matern32, for a field the best of all."
    ),
]
SYMMETRY = Annotated[
    str | None,
    Option(
        "--symmetry", metavar="ACTION",
        help="auto (compare and choose), none (one block), or an action, such as 'Negation([[0, 1]])'.",
    ),
]  # fmt: skip
WARP = Annotated[
    str | None, choice("--warp", "auto|none|quantile", "Transform skewed columns to normal by their quantiles.")
]
INDUCING = Annotated[int | None, Option("--n-inducing", metavar="M", min=1, help="Inducing points in each block.")]
T_MAX = Annotated[
    int | None, Option("--t-max", metavar="T", min=0, help="For a field: the highest frequency of longitude.")
]
BY = Annotated[
    str | None, Option("--by", metavar="DIM", help="For a field: fit the slices of this dimension, such as time.")
]
COVARIATE = Annotated[
    list[str] | None,
    Option("--covariate", metavar="NAME", help="For a field: a variable that explains it; repeatable."),
]
THREADS = Annotated[int | None, Option("--threads", metavar="N", min=1, help="Processors to use at most.")]
SEED = Annotated[int, Option("--seed", metavar="N", min=0, help="The seed of all random numbers.")]
QUIET = Annotated[bool, Option("--quiet", "-q", help="Print only warnings and errors.")]
NAME_ALONE = Annotated[bool, Option("--quiet", "-q", help="Print only the name of the symmetry, warnings and errors.")]
VERSION = Annotated[bool, Option("--version", help="Print the version.", callback=_print_version, is_eager=True)]
DEBUG = Annotated[bool, Option("--debug", help="Show the traceback of an error.", callback=_set_debug)]
COLUMNS = Annotated[
    list[str] | None,
    Option("--columns", metavar="NAME=KIND,...", help="KIND: longitude, latitude (degrees) or periodic:PERIOD."),
]

PICTURE = Annotated[
    Path | None, Option("--picture", metavar="FILE", help="Draw the comparison, a .png, .svg or .pdf file.")
]

# Options of `fit` alone.
WEIGHT = Annotated[str | None, Option("--weight", metavar="COL", help="Weights of rows; 2 counts as two rows.")]
NOISE_STD = Annotated[str | None, Option("--noise-std", metavar="COL", help="Known standard errors of the target.")]
CLASSIFY = Annotated[bool, Option("--classify", help="Treat a numeric target as classes.")]
LIKELIHOOD = Annotated[
    str | None, choice("--likelihood", "gaussian|student_t", "The noise; student_t is robust to outliers.")
]
CALIBRATION = Annotated[str | None, choice("--calibration", "conformal", "Correct intervals by held-out rows.")]
NEIGHBOURS = Annotated[
    str | None,
    Option(
        "--neighbours",
        metavar="<auto|K>",
        help="Training rows that correct a prediction; with 0 the file holds no training rows. Up to 2,000 rows the model is "
        "exact: it has no neighbours, and its file holds all inputs.",
        callback=_read_neighbours,
    ),
]
MAX_STEPS = Annotated[int | None, Option("--max-steps", metavar="N", min=1, help="Training steps at most.")]
BUDGET = Annotated[float | None, Option("--time-budget", metavar="SECONDS", help="Finish in about this time.")]
CHECKPOINTS = Annotated[
    Path | None,
    Option("--checkpoint-dir", metavar="DIR", help="If a fit is killed, the same command continues from here."),
]
TEST = Annotated[
    float, Option("--test-fraction", metavar="SHARE", help="Share of rows to hold out and score at the end.")
]
REPORT = Annotated[Path | None, Option("--report", metavar="HTML", help="Write a report on the held-out rows.")]


# Options of `demo` alone.
SIZE = Annotated[str, choice("--size", "small|medium", "The size of the example.")]


def parse_columns(texts: Sequence[str]) -> Columns:
    """The kinds of columns, such as `lon=longitude,hour=periodic:24`, as a dict for the estimators.

    Examples:
        >>> parse_columns(["lon=longitude,hour=periodic:24"])
        {'lon': 'longitude', 'hour': ('periodic', 24.0)}
    """
    kinds: Columns = {}
    for part in ",".join(texts).split(",") if texts else []:
        name, _, kind = part.strip().rpartition("=")
        word, _, period = kind.partition(":")
        if not name:
            raise UsageError(f"--columns takes NAME=KIND, such as lon=longitude; got {part!r}.")
        if name in kinds:
            raise UsageError(f"--columns names {name!r} twice.")
        if word in ("longitude", "latitude") and kind == word:
            kinds[name] = word
        elif word == "periodic" and is_number(period) and 0 < float(period) < math.inf:
            kinds[name] = (word, float(period))
        elif word == "periodic":
            raise UsageError(f"a periodic column needs its period, such as {name}=periodic:24; got {part!r}.")
        else:
            hint = did_you_mean(word, ("longitude", "latitude", "periodic"))
            raise UsageError(f"a column can be longitude, latitude or periodic:PERIOD; got {part!r}{hint}.")
    return kinds


def parse_levels(text: str | None) -> dict[str, float]:
    """Quantile levels by the suffix of their column.

    Examples:
        >>> parse_levels("0.025,0.5")
        {'q2.5': 0.025, 'q50': 0.5}
    """
    levels: dict[str, float] = {}
    for part in text.split(",") if text is not None else []:
        level = Decimal(part.strip()) if is_number(part) else Decimal("nan")
        if not (level.is_finite() and 0 < float(level) < 1):
            raise UsageError(f"--quantiles takes numbers between 0 and 1, such as 0.025,0.975; got {part!r}.")
        levels[f"q{(100 * level).normalize():f}"] = float(level)
    return levels


def is_number(text: str) -> bool:
    """Whether a text reads as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def without_defaults(**arguments: Any) -> dict[str, Any]:
    """The arguments that the user gave; the others keep the defaults of the library."""
    return {name: value for name, value in arguments.items() if value not in (None, {}, []) and value is not False}


def flags(names: Iterable[str]) -> list[str]:
    """The options of arguments, as the user types them."""
    return [f"--{name.removeprefix('sample_').replace('_', '-')}" for name in names]


def check_course(test_fraction: float, report: Path | None, time_budget: float | None) -> None:
    """Check before the work that the options of a fit are possible."""
    if not 0 <= test_fraction < 1:
        raise UsageError(f"--test-fraction must be at least 0 and below 1; got {test_fraction:g}.")
    if report is not None and test_fraction == 0:
        raise UsageError("--report needs held-out rows: give a --test-fraction above 0.")
    for module in ("matplotlib", "jinja2") if report is not None else ():
        require(module, "plot", "a report")
    if time_budget is not None and not 0 < time_budget < math.inf:
        raise UsageError(f"--time-budget takes a number of seconds above 0; got {time_budget:g}.")


def check_outputs(outputs: Sequence[Path], inputs: Sequence[Path]) -> None:
    """Check before the work that its results can be written."""
    others = [path.resolve() for path in inputs]
    for path in outputs:
        folder = path.absolute().parent
        if path.is_dir():
            raise UsageError(f"the output {path} is a folder: give the name of a file.")
        if not folder.is_dir():
            raise UsageError(f"the folder of the output {path} does not exist: make it first.")
        if not os.access(folder, os.W_OK):
            raise UsageError(f"the folder of the output {path} cannot be written to.")
        if path.resolve() in others:
            raise UsageError(f"the output {path} would overwrite another file of the same command.")
        others.append(path.resolve())


def check_names(option: str, names: Iterable[str], present: Sequence[str], table: str) -> None:
    """Raise unless the table has every column that an option names."""
    for name in names:
        if name not in present:
            hint = did_you_mean(name, present)
            raise UsageError(f"{option}: {table} has no column {name!r}{hint}. It has {listing(present)}.")


def input_names(fitted: Any) -> list[str]:
    """The columns of the table that a model was fitted to; none for an array."""
    return list(getattr(fitted, "feature_names_in_", ()))


def inputs_of(
    fitted: Any,
    present: Sequence[str],
    model: str,
    table: str,
    targets: Sequence[str] = (),
    per_row: Sequence[str | None] = (),
) -> list[str]:
    """The columns that a model reads. Raises if the table lacks one of them, or a target.

    A model that was fitted to an array knows no names: it reads the columns in their order, without targets and errors.
    """
    names, unused = input_names(fitted), fitted.unused_names()
    inputs = [name for name in names if name in present or name not in unused]
    if not names:
        others = (*targets, *fitted.target_names_, *per_row)
        inputs = [name for name in present if name not in others]
        if len(inputs) != fitted.n_features_in_:
            raise ValueError(
                f"{model} was fitted to an array of {count(fitted.n_features_in_, 'column')} without names, and {table} has "
                f"{len(inputs)}: {listing(inputs)}. Give a table with these inputs alone, in the order of the array."
            )
    absent = [name for name in (*targets, *inputs) if name not in present]
    if absent:
        hint = did_you_mean(absent[0], [name for name in present if name not in (*targets, *inputs)])
        raise ValueError(f"{table} lacks {listing(absent)}, which {model} needs{hint}. It has {listing(present)}.")
    return inputs
