"""The command line: fit, predict, report, suggest, info, demo, bench.

What is heavy is imported inside the commands, so that `harmonicgp --help` answers at once. A failure is one line on stderr
and an exit code: 2 for a wrong command line, 1 for bad data, 130 after Ctrl-C; `--debug` shows the traceback.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import inspect
import io
import math
import os
import shutil
import sys
import textwrap
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer
from typer.core import TyperGroup

from harmonicgp._extras import MissingExtraError, require
from harmonicgp._version import __version__

BATCH_ROWS = 65536  #: rows that `predict` holds at a time

Columns: TypeAlias = dict[str, str | tuple[str, float]]


class UsageError(Exception):
    """The command line asks for something that cannot be; the message says what and what to do."""


# Failures: one line, one exit code -----------------------------------------------------------------------------------


class GuardedGroup(TyperGroup):
    """Commands that end in a clear line and an exit code, whatever happens in them."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command line, then leave the process with its exit code."""
        try:
            code = super().main(*args, **{**kwargs, "standalone_mode": False})
        except typer.Abort:  # Ctrl-C while the command line is read
            code = 130
        except Exception as error:
            if not hasattr(error, "format_message"):  # not typer's own: --debug asked for the traceback
                raise
            context = getattr(error, "ctx", None)
            _complain(error.format_message() + (f" See '{context.command_path} --help'." if context else ""))
            code = getattr(error, "exit_code", 2)
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            _mute()
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; warnings become one plain line each, errors one line and a code."""
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            _said.clear()
            try:
                return super().invoke(ctx)
            except (typer.Exit, typer.Abort):
                raise
            except (Exception, KeyboardInterrupt) as error:
                if hasattr(error, "format_message"):
                    raise
                raise typer.Exit(_explain(error, debug=bool(ctx.meta.get("harmonicgp.debug")))) from None


def _explain(error: BaseException, debug: bool) -> int:
    """Say what went wrong and return the exit code; with `debug` let the error through."""
    if isinstance(error, KeyboardInterrupt):
        _complain(str(error) or "stopped.", "")
        return 130
    if isinstance(error, UsageError):
        _complain(str(error))
        return 2
    if isinstance(error, BrokenPipeError):  # | head has what it wanted
        _mute()
        return 1
    if debug:
        raise error
    if isinstance(error, OSError) and error.filename and error.strerror:
        _complain(f"{os.fspath(error.filename)}: {error.strerror.lower()}.")
    elif isinstance(error, ValueError | OSError | MissingExtraError):
        _complain(str(error) or type(error).__name__)
    else:
        _complain(f"{type(error).__name__}: {error} (unexpected: run it again with --debug to see where.)")
    return 1


def _complain(message: str, label: str = "error: ") -> None:
    print(f"{label}{' '.join(message.split())}", file=sys.stderr, flush=True)


_said: set[str] = set()  # warnings of this run: the same words once


def _warn(message: str) -> None:
    if message not in _said:
        _said.add(message)
        _complain(message, "warning: ")


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """`warnings.showwarning` for people: no file, no line."""
    _warn(str(message))


def _mute() -> None:
    """Let what is still to be said vanish: nobody listens at the other end of the pipe."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115


@dataclass(frozen=True)
class Speaker:
    """What a command says on stdout: lines with a short label, or nothing when it is quiet."""

    quiet: bool = False

    def __call__(self, label: str, text: str) -> None:
        """One entry, wrapped to the terminal."""
        if self.quiet:
            return
        width = min(100, shutil.get_terminal_size().columns)
        lines = textwrap.wrap(text, max(width - 10, 40), break_long_words=False, break_on_hyphens=False)
        try:
            print(textwrap.indent("\n".join(lines), " " * 10).replace(" " * 10, f"{label:<10}", 1), flush=True)
        except BrokenPipeError:  # the file is the work, the words are not: go on
            _mute()

    @property
    def progress(self) -> bool:
        """Whether a progress bar would be seen."""
        return not self.quiet and sys.stderr.isatty()


# The command line itself ---------------------------------------------------------------------------------------------

app = typer.Typer(
    name="harmonicgp",
    cls=GuardedGroup,
    rich_markup_mode=None,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def main() -> None:
    """The entry point of the script `harmonicgp`."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a column's name must not end a fit
    typer.main.get_command(app)(prog_name="harmonicgp")


def _set_debug(ctx: typer.Context, value: bool) -> bool:
    if value:
        ctx.meta["harmonicgp.debug"] = True
    return value


def _print_version(value: bool) -> None:
    if value:
        typer.echo(f"harmonicgp {__version__}")
        raise typer.Exit()


# Choices of an option, by their names.
Missing = StrEnum("Missing", ["refuse", "impute"])
Transform = StrEnum("Transform", ["log", "quantile"])
Likelihood = StrEnum("Likelihood", ["gaussian", "student_t"])
Calibration = StrEnum("Calibration", ["conformal"])
Size = StrEnum("Size", ["small", "medium"])


def _argument(metavar: str, help: str) -> Any:
    return typer.Argument(metavar=metavar, help=help, show_default=False)


def _option(*names: str, help: str, metavar: str | None = None, **settings: Any) -> Any:
    return typer.Option(*names, help=help, metavar=metavar, **settings)


def _output(metavar: str, help: str) -> Any:
    return _option("--output", "-o", metavar=metavar, help=help)


def _examples(*lines: str) -> str:
    """An end of a help page that is printed as it stands."""
    return "\b\n" + "\n".join(["Examples:", *(f"  {line}" for line in lines)])


# Options that several commands share.
TABLE = Annotated[Path, _argument("TABLE", "A .csv, .tsv or .parquet file.")]
MODEL = Annotated[Path, _argument("MODEL", "A file that `harmonicgp fit` wrote.")]
TARGET = Annotated[list[str], _option("--target", "-t", metavar="COL", help="What to predict; several if repeated.")]
DROP = Annotated[list[str] | None, _option("--drop", metavar="COL", help="An input to leave out; repeatable.")]
MISSING = Annotated[Missing | None, _option("--missing", help="Missing values of inputs; refused if not given.")]
TRANSFORM = Annotated[Transform | None, _option("--target-transform", help="Model log or quantiles of the target.")]
KERNEL = Annotated[str | None, _option("--kernel", metavar="NAME", help="rbf, matern12, matern32 or matern52.")]
INDUCING = Annotated[int | None, _option("--n-inducing", metavar="M", min=1, help="Inducing points of a block.")]
SEED = Annotated[int, _option("--seed", metavar="N", min=0, help="All that is random follows from it.")]
QUIET = Annotated[bool, _option("--quiet", "-q", help="Say nothing but warnings and errors.")]
DEBUG = Annotated[bool, _option("--debug", help="Show the traceback of an error.", callback=_set_debug)]
COLUMNS = Annotated[
    list[str] | None,
    _option("--columns", metavar="NAME=KIND,...", help="KIND: longitude, latitude (degrees) or periodic:PERIOD."),
]

# Options of `fit` alone.
WEIGHT = Annotated[str | None, _option("--weight", metavar="COL", help="Weights; a 2 counts as two rows.")]
NOISE_STD = Annotated[str | None, _option("--noise-std", metavar="COL", help="Known errors of the target.")]
CLASSIFY = Annotated[bool, _option("--classify", help="Take a numeric target as classes.")]
LIKELIHOOD = Annotated[Likelihood | None, _option("--likelihood", help="The noise; student_t bears outliers.")]
CALIBRATION = Annotated[Calibration | None, _option("--calibration", help="Correct intervals on rows held out.")]
MAX_STEPS = Annotated[int | None, _option("--max-steps", metavar="N", min=1, help="At most so many steps.")]
BUDGET = Annotated[float | None, _option("--time-budget", metavar="SECONDS", help="Be done in about this time.")]
CHECKPOINTS = Annotated[
    Path | None, _option("--checkpoint-dir", metavar="DIR", help="A killed fit goes on from here when run again.")
]
TEST = Annotated[float, _option("--test-fraction", metavar="SHARE", help="Rows set aside, scored at the end.")]
REPORT = Annotated[Path | None, _option("--report", metavar="HTML", help="A report on the rows set aside.")]


@app.callback(
    invoke_without_command=True,
    epilog=_examples(
        "harmonicgp fit stations.csv --target temperature -o model.hgp",
        "harmonicgp predict model.hgp new.csv -o predictions.csv",
        "harmonicgp fit --help",
    ),
)
def root(
    ctx: typer.Context,
    version: Annotated[
        bool, _option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
    debug: DEBUG = False,
) -> None:
    """Gaussian processes for big tables: predictions with error bars."""
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


@app.command(
    epilog=_examples(
        "harmonicgp fit stations.csv --target temperature -o model.hgp",
        "harmonicgp fit stations.csv -t temperature -o model.hgp \\",
        "    --columns lon=longitude,lat=latitude,hour=periodic:24 --drop id",
        "harmonicgp fit homes.parquet -t price -o price.hgp --target-transform log \\",
        "    --time-budget 600 --checkpoint-dir checkpoints --report price.html",
        "harmonicgp fit cells.csv -t kind -o kind.hgp --missing impute",
    ),
)
def fit(
    table: TABLE,
    target: TARGET,
    output: Annotated[Path, _output("MODEL", "Where the model goes, such as model.hgp.")],
    columns: COLUMNS = None,
    drop: DROP = None,
    weight: WEIGHT = None,
    noise_std: NOISE_STD = None,
    classify: CLASSIFY = False,
    missing: MISSING = None,
    target_transform: TRANSFORM = None,
    likelihood: LIKELIHOOD = None,
    calibration: CALIBRATION = None,
    kernel: KERNEL = None,
    n_inducing: INDUCING = None,
    max_steps: MAX_STEPS = None,
    time_budget: BUDGET = None,
    checkpoint_dir: CHECKPOINTS = None,
    test_fraction: TEST = 0.1,
    report: REPORT = None,
    seed: SEED = 0,
    quiet: QUIET = False,
    debug: DEBUG = False,
) -> None:
    """Fit a model to a table and save it.

    A numeric target makes a regression, text or yes/no a classification. All other columns are inputs. Rows without a target are
    left out.
    """
    say = Speaker(quiet)
    _check_outputs([output, *([report] if report else [])], inputs=[table])
    _check_course(test_fraction, report, time_budget)
    kinds = parse_columns(columns or [])
    problem = Problem.read(table, say, target, drop or [], kinds, classify, weight, noise_std)
    arguments = _given(
        columns=kinds,
        missing=missing,
        target_transform=target_transform,
        likelihood=likelihood,
        calibration=calibration,
        kernel=kernel,
        n_inducing=n_inducing,
        max_steps=max_steps,
        time_budget=time_budget,
        checkpoint_dir=checkpoint_dir,
    )
    model = _estimator(problem, {**arguments, "random_state": seed, "progress": say.progress})
    training, testing = problem.split(test_fraction, seed)
    say("rows", f"{len(training):,} to learn from, {len(testing):,} set aside")
    try:
        model.fit(training.X, training.y, **training.per_row)
    except KeyboardInterrupt:
        goes_on = f"the same command goes on from {checkpoint_dir}" if checkpoint_dir else "nothing was written"
        raise KeyboardInterrupt(f"stopped; {goes_on}.") from None
    _say_fit(model, say)
    model.save(output)
    say("model", str(output))
    if len(testing):
        say("scores", f"on the rows set aside, {score_words(_score(model, testing.X, testing.y, report))}")
    if report:
        say("report", str(report))


@app.command(
    epilog=_examples(
        "harmonicgp predict model.hgp new.csv -o predictions.csv",
        "harmonicgp predict model.hgp new.parquet -o predictions.parquet \\",
        "    --keep id --quantiles 0.025,0.975",
    ),
)
def predict(
    model: MODEL,
    table: TABLE,
    output: Annotated[Path, _output("OUT", "A .csv, .tsv or .parquet file.")],
    keep: Annotated[
        list[str] | None, _option("--keep", metavar="COL", help="Write this column of TABLE, not all; repeatable.")
    ] = None,
    quantiles: Annotated[
        str | None, _option("--quantiles", metavar="Q,...", help="0.025,0.975 makes COL_q2.5 and COL_q97.5.")
    ] = None,
    latent: Annotated[bool, _option("--latent", help="The function without the noise: COL_f_mean, COL_f_std.")] = False,
    quiet: QUIET = False,
    debug: DEBUG = False,
) -> None:
    """Predict the rows of a table, with error bars.

    Writes the table and, for a target COL, the columns COL_mean and COL_std; for a classification COL, the class, and
    COL_p_CLASS, the probabilities. Rows keep their order and are read in batches, so that a table need not fit into memory.
    """
    from tqdm import tqdm

    say = Speaker(quiet)
    _check_outputs([output], inputs=[table, model])
    levels = parse_levels(quantiles)
    fitted = _load(model)
    if hasattr(fitted, "classes_") and (levels or latent):
        raise UsageError(f"{model.name} is a classification: it has no {'--quantiles' if levels else '--latent'}.")
    streams = _streams()
    features, rows, added = list(fitted.feature_names_in_), 0, []
    with streams.TableWriter(output) as writer, tqdm(unit=" rows", unit_scale=True, disable=not say.progress) as bar:
        for batch in streams.stream_table(table, batch_rows=BATCH_ROWS):
            if batch.num_rows == 0:
                continue
            _check_features(features, batch.column_names, model.name, table.name)
            _check_names({"--keep": keep or []}, batch.column_names, table.name)
            kept = batch.select(list(dict.fromkeys(keep))) if keep else batch
            new = predicted_columns(fitted, batch.select(features), kept.column_names, levels, latent)
            writer.write(_append(kept, new, table.name))
            rows, added = rows + batch.num_rows, list(new)
            bar.update(batch.num_rows)
        if not rows:
            raise ValueError(f"{table.name} has no rows.")
    say("predicted", f"{_count(rows, 'row')} of {table.name}: {_listing(added)}")
    say("written", str(output))


@app.command(epilog=_examples("harmonicgp report model.hgp held-out.csv -o report.html"))
def report(
    model: MODEL,
    table: TABLE,
    output: Annotated[Path, _output("HTML", "Where the report goes.")],
    quiet: QUIET = False,
    debug: DEBUG = False,
) -> None:
    """Score a model on a table that has its target, and write a report."""
    say = Speaker(quiet)
    _check_outputs([output], inputs=[table, model])
    fitted = _load(model)
    data, targets, features = _read(table, say), list(fitted.target_names_), list(fitted.feature_names_in_)
    _check_features([*targets, *features], data.column_names, model.name, table.name)
    data = _with_target(data, targets, table.name, say)
    scores = _score(fitted, data.select(features), _target_frame(data, targets), output)
    say("scores", f"on {_count(len(data), 'row')}, {score_words(scores)}")
    say("report", str(output))


@app.command(epilog=_examples("harmonicgp suggest stations.csv --target temperature"))
def suggest(
    table: TABLE,
    target: TARGET,
    columns: COLUMNS = None,
    drop: DROP = None,
    missing: MISSING = None,
    target_transform: TRANSFORM = None,
    kernel: KERNEL = None,
    n_inducing: INDUCING = None,
    seed: SEED = 0,
    debug: DEBUG = False,
) -> None:
    """Compare the symmetries that a fit would choose from.

    Runs the search alone and prints its table; nothing is saved.
    """
    say, kinds = Speaker(), parse_columns(columns or [])
    problem = Problem.read(table, say, target, drop or [], kinds)
    if problem.classify:
        raise UsageError(f"suggest compares symmetries for a numeric target; {target[0]!r} is none.")
    arguments = _given(
        columns=kinds, missing=missing, target_transform=target_transform, kernel=kernel, n_inducing=n_inducing
    )
    arguments |= {"random_state": seed, "progress": say.progress}
    typer.echo(str(_estimators().suggest_symmetry(problem.X, problem.y, **arguments)))


@app.command(epilog=_examples("harmonicgp info model.hgp"))
def info(model: MODEL, debug: DEBUG = False) -> None:
    """Say what a model file holds."""
    fitted, say = _load(model), Speaker()
    say("model", f"{type(fitted).__name__}, {model.stat().st_size / 1e6:.1f} MB")
    say("target", _listing(fitted.target_names_))
    if hasattr(fitted, "classes_"):
        say("classes", _listing(fitted.classes_))
    say("columns", _listing(fitted.feature_names_in_))
    _say_fit(fitted, say)


@app.command(epilog=_examples("harmonicgp demo --size small -o demo"))
def demo(
    size: Annotated[Size, _option("--size", help="How much of it.")] = Size.small,
    output: Annotated[Path, _output("DIR", "Where its files go.")] = Path("demo"),
    debug: DEBUG = False,
) -> None:
    """Show a worked example: the relief of the Earth."""
    output.mkdir(parents=True, exist_ok=True)
    importlib.import_module("harmonicgp.demo").main(size.value, output)


@app.command(
    epilog=_examples("harmonicgp bench", "harmonicgp bench gram"),
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False},
)
def bench(
    ctx: typer.Context,
    suite: Annotated[str | None, _argument("SUITE", "Its name; what follows is for the benchmark itself.")] = None,
    debug: DEBUG = False,
) -> None:
    """Run a benchmark of this checkout, or list them."""
    root = _checkout()
    suites = _suites(root / "benchmarks")
    if suite is None:
        for name, line in suites.items():
            typer.echo(f"{name:<20}{line}")
        return
    if suite not in suites:
        raise UsageError(
            f"there is no benchmark {suite!r}{_did_you_mean(suite, suites)}; there are {_listing(suites)}."
        )
    sys.path.insert(0, str(root))
    run = importlib.import_module(f"benchmarks.{suite}").main
    takes_arguments = bool(inspect.signature(run).parameters)
    if ctx.args and not takes_arguments:
        raise UsageError(f"the benchmark {suite} takes no arguments; got {' '.join(ctx.args)}.")
    raise typer.Exit((run(ctx.args) if takes_arguments else run()) or 0)


def _checkout() -> Path:
    """The root of the checkout that the current folder is in."""
    for folder in (Path.cwd(), *Path.cwd().parents):
        if (folder / "benchmarks" / "__init__.py").is_file() and (folder / "src" / "harmonicgp").is_dir():
            return folder
    raise UsageError("benchmarks are part of a checkout of harmonicgp: run this inside one.")


def _suites(folder: Path) -> dict[str, str]:
    """The modules with a `main`, and the first line that each says of itself."""
    suites = {}
    for path in sorted(folder.glob("[a-z]*.py")):
        module = ast.parse(path.read_text(encoding="utf-8"))
        if any(isinstance(part, ast.FunctionDef) and part.name == "main" for part in module.body):
            suites[path.stem] = (ast.get_docstring(module) or "").partition("\n")[0]
    return suites


# Contacts with the library -------------------------------------------------------------------------------------------


def _streams() -> Any:
    return importlib.import_module("harmonicgp.data.streams")


def _estimators() -> Any:
    return importlib.import_module("harmonicgp.estimators")


def _estimator(problem: Problem, arguments: dict[str, Any]) -> Any:
    """An estimator that is not fitted yet; arguments that a classification does not have are refused."""
    kind = getattr(_estimators(), "HarmonicGPClassifier" if problem.classify else "HarmonicGPRegressor")
    unknown = {*arguments} - {*inspect.signature(kind).parameters}
    unknown |= {*problem.roles} - {*inspect.signature(kind.fit).parameters}
    if unknown:
        options = _listing(f"--{name.removeprefix('sample_').replace('_', '-')}" for name in sorted(unknown))
        raise UsageError(f"a {'classification' if problem.classify else 'regression'} takes no {options}.")
    return kind(**arguments)


def _load(path: Path) -> Any:
    if not path.is_file():
        raise FileNotFoundError(f"there is no model file {path}.")
    return _estimators().load_model(path)


def _read(path: Path, say: Speaker) -> Any:
    table = _streams().read_table(path)
    say("read", f"{path.name}: {_count(table.num_rows, 'row')}, {_count(table.num_columns, 'column')}")
    return table


def _score(model: Any, X: Any, y: Any, report: Path | None) -> Any:
    """The scores of a model on rows, and a report of them if one is wanted."""
    if report is not None:
        return importlib.import_module("harmonicgp.diagnostics.report").write_report(report, model, X, y)
    from harmonicgp.diagnostics.scores import classification_scores, regression_scores

    return (classification_scores if hasattr(model, "classes_") else regression_scores)(model, X, y)


def _target_frame(table: Any, targets: Sequence[str]) -> Any:
    """The targets with their names: a Series of one, a frame of several."""
    require("pandas", "tables", "a table's target")
    types = require("pyarrow.types", "tables", "tables")
    for k, field in enumerate(table.schema):
        if field.name in targets and types.is_decimal(field.type):
            table = table.set_column(k, field.name, table[field.name].cast("float64"))
    frame = table.select(list(targets)).to_pandas()
    return frame[targets[0]] if len(targets) == 1 else frame


# Tables taken apart --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Problem:
    """A table as a fit sees it: inputs, target, and what else is known of each row."""

    table: Any  #: the rows that have a target
    inputs: list[str]
    targets: list[str]
    classify: bool
    roles: dict[str, str]  #: argument of fit -> column

    @classmethod
    def read(
        cls,
        path: Path,
        say: Speaker,
        targets: list[str],
        drop: list[str],
        kinds: Columns,
        classify: bool = False,
        weight: str | None = None,
        noise_std: str | None = None,
    ) -> Problem:
        """Read a table and give every column its part; names that are not there or have two parts are refused."""
        table = _read(path, say)
        known = {"--weight": weight, "--noise-std": noise_std}
        parts = {"--target": targets, "--drop": drop, "--columns": list(kinds)}
        parts |= {option: [column] for option, column in known.items() if column is not None}
        _check_names(parts, table.column_names, path.name)
        _check_apart(parts)
        away = {column for option in parts if option != "--columns" for column in parts[option]}
        inputs = [column for column in table.column_names if column not in away]
        if not inputs:
            raise UsageError(f"{path.name} has no column left for the inputs.")
        table = _with_target(table, targets, path.name, say)
        classes = [target for target in targets if _is_class(table, target, classify)]
        if classes and len(targets) > 1:
            raise UsageError(f"several targets must all be numbers; {classes[0]!r} has classes: fit it on its own.")
        for option in parts.keys() & known.keys():
            _check_numbers(table, parts[option][0], option)
        problem = cls(table, inputs, targets, bool(classes), _given(sample_weight=weight, noise_std=noise_std))
        problem.describe(kinds, say)
        return problem

    def describe(self, kinds: Columns, say: Speaker) -> None:
        """Say the part of each column."""
        task = _count(len(self.table[self.targets[0]].unique()), "class") if self.classify else "regression"
        say("target", f"{_listing(self.targets)} ({task})")
        types = self.table.schema
        say("columns", _listing(f"{name} ({_part(kinds.get(name), types.field(name).type)})" for name in self.inputs))
        for argument, column in self.roles.items():
            say("weights" if argument == "sample_weight" else "noise", column)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @property
    def X(self) -> Any:
        """The inputs, an Arrow table."""
        return self.table.select(self.inputs)

    @property
    def y(self) -> Any:
        """The target with its name."""
        return _target_frame(self.table, self.targets)

    @property
    def per_row(self) -> dict[str, Any]:
        """Weights and known errors, as `fit` takes them."""
        return {argument: self.table[column].cast("float64").to_numpy() for argument, column in self.roles.items()}

    def split(self, fraction: float, seed: int) -> tuple[Problem, Problem]:
        """Rows to learn from and rows set aside, both in the order of the table; a seed always sets the same aside."""
        import numpy as np

        n = len(self)
        aside = np.zeros(n, dtype=bool)
        wanted = max(round(fraction * n), int(fraction > 0))
        aside[np.random.default_rng(seed).permutation(n)[: min(wanted, n - 1)]] = True
        if self.classify:  # a class that is not learned cannot be scored
            y = np.asarray(self.y)
            aside &= np.isin(y, np.unique(y[~aside]))
        return self._rows(~aside), self._rows(aside)

    def _rows(self, mask: Any) -> Problem:
        import pyarrow

        return replace(self, table=self.table.filter(pyarrow.array(mask)))


def _with_target(table: Any, targets: Sequence[str], name: str, say: Speaker) -> Any:
    """The rows that have all their targets."""
    compute, types = require("pyarrow.compute", "tables", "tables"), require("pyarrow.types", "tables", "tables")
    rows = table
    for target in targets:
        rows = rows.filter(compute.is_valid(rows[target]))
        if types.is_floating(rows[target].type):
            rows = rows.filter(compute.invert(compute.is_nan(rows[target])))
    if rows.num_rows == 0:
        raise ValueError(f"no row of {name} has a value of {_listing(targets)}.")
    if rows.num_rows < table.num_rows:
        say("left out", f"{_count(table.num_rows - rows.num_rows, 'row')} without a target")
    return rows


def _is_class(table: Any, target: str, classify: bool) -> bool:
    """Whether a target is to be classified."""
    kind = _kind(table.schema.field(target).type)
    if kind not in ("number", "text", "yes/no"):
        raise ValueError(f"the target {target!r} is of type {kind}: make a number or a text of it first.")
    if kind == "text" and not classify:
        values = table[target].unique().to_pylist()
        words = [value for value in values if not _is_number(value)]
        if len(words) <= 0.1 * len(values):
            example = f" (but not {words[0]!r})" if words else ""
            raise ValueError(
                f"the target {target!r} is text, yet reads as numbers{example}: mend the column, or pass --classify."
            )
    return classify or kind != "number"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _kind(arrow_type: Any) -> str:
    """A word for the type of a column."""
    types = require("pyarrow.types", "tables", "tables")
    if types.is_dictionary(arrow_type):
        return _kind(arrow_type.value_type)
    if types.is_integer(arrow_type) or types.is_floating(arrow_type) or types.is_decimal(arrow_type):
        return "number"
    if types.is_boolean(arrow_type):
        return "yes/no"
    return "date" if types.is_temporal(arrow_type) else "text" if "string" in str(arrow_type) else str(arrow_type)


def _part(kind: str | tuple[str, float] | None, arrow_type: Any) -> str:
    if kind is None:
        return _kind(arrow_type)
    return kind if isinstance(kind, str) else f"{kind[0]}, {kind[1]:g}"


def _check_numbers(table: Any, column: str, option: str) -> None:
    kind, holes = _kind(table.schema.field(column).type), table[column].null_count
    if kind != "number":
        raise UsageError(f"{option} needs a column of numbers; {column!r} is of type {kind}.")
    if holes:
        raise ValueError(f"{_count(holes, 'row')} without a value of {column!r} ({option}): fill or drop them first.")


def predicted_columns(
    model: Any, X: Any, taken: Sequence[str], levels: Mapping[str, float], latent: bool
) -> dict[str, Any]:
    """The columns that a prediction adds, by their names."""
    import numpy as np

    names, n = list(model.target_names_), X.num_rows
    columns: dict[str, Any] = {}
    if hasattr(model, "classes_"):
        p, classes = model.predict_proba(X), np.asarray(model.classes_)
        column = names[0] if names[0] not in taken else f"{names[0]}_predicted"  # the truth stays beside it
        return {column: classes[p.argmax(1)]} | {f"{names[0]}_p_{value}": p[:, k] for k, value in enumerate(classes)}
    mean, std = (part.reshape(n, -1) for part in model.predict(X, return_std=True))
    f = [part.reshape(n, -1) for part in model.predict_f(X, return_std=True)] if latent else []
    q = model.predict_quantiles(X, list(levels.values())).reshape(n, len(levels), -1) if levels else None
    for k, name in enumerate(names):
        columns |= {f"{name}_mean": mean[:, k], f"{name}_std": std[:, k]}
        if q is not None:
            columns |= {f"{name}_{end}": q[:, i, k] for i, end in enumerate(levels)}
        if f:
            columns |= {f"{name}_f_mean": f[0][:, k], f"{name}_f_std": f[1][:, k]}
    return columns


def _append(table: Any, new: Mapping[str, Any], name: str) -> Any:
    """A table with columns added; a name that is taken already is refused."""
    import pyarrow

    for column, values in new.items():
        if column in table.column_names:
            raise UsageError(f"{name} has a column {column!r} already: rename it, or name with --keep what to write.")
        table = table.append_column(column, pyarrow.array(values))
    return table


# What a command line says --------------------------------------------------------------------------------------------


def parse_columns(texts: Sequence[str]) -> Columns:
    """The kinds of columns: `lon=longitude,hour=periodic:24` as the estimators take it.

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
        elif word == "periodic" and _is_number(period) and 0 < float(period) < math.inf:
            kinds[name] = (word, float(period))
        elif word == "periodic":
            raise UsageError(f"a periodic column needs its period, such as {name}=periodic:24; got {part!r}.")
        else:
            hint = _did_you_mean(word, ("longitude", "latitude", "periodic"))
            raise UsageError(f"a column can be longitude, latitude or periodic:PERIOD; got {part!r}{hint}.")
    return kinds


def parse_levels(text: str | None) -> dict[str, float]:
    """Quantiles by the ends of their column names.

    Examples:
        >>> parse_levels("0.025,0.5")
        {'q2.5': 0.025, 'q50': 0.5}
    """
    levels: dict[str, float] = {}
    for part in text.split(",") if text is not None else []:
        level = Decimal(part.strip()) if _is_number(part) else Decimal("nan")
        if not (level.is_finite() and 0 < float(level) < 1):
            raise UsageError(f"--quantiles takes numbers between 0 and 1, such as 0.025,0.975; got {part!r}.")
        levels[f"q{(100 * level).normalize():f}"] = float(level)
    return levels


def _given(**arguments: Any) -> dict[str, Any]:
    """The arguments that were given, in plain types: the others keep the library's defaults."""
    plain = {name: value.value if isinstance(value, StrEnum) else value for name, value in arguments.items()}
    return {name: value for name, value in plain.items() if value is not None and value != {}}


def _check_course(test_fraction: float, report: Path | None, time_budget: float | None) -> None:
    """Find out before the work whether it can be done to its end."""
    if not 0 <= test_fraction < 1:
        raise UsageError(f"--test-fraction must be at least 0 and below 1; got {test_fraction:g}.")
    if report is not None and test_fraction == 0:
        raise UsageError("--report needs rows set aside: give a --test-fraction above 0.")
    if report is not None:
        require("matplotlib", "plot", "a report")
    if time_budget is not None and not 0 < time_budget < math.inf:
        raise UsageError(f"--time-budget takes a number of seconds above 0; got {time_budget:g}.")


def _check_outputs(outputs: Sequence[Path], inputs: Sequence[Path]) -> None:
    """Find out before the work whether its result can be written."""
    seen = [path.resolve() for path in inputs]
    for path in outputs:
        folder = path.absolute().parent
        if path.is_dir():
            raise UsageError(f"the output {path} is a folder: give the name of a file.")
        if not folder.is_dir():
            raise UsageError(f"the folder of the output {path} does not exist: make it first.")
        if not os.access(folder, os.W_OK):
            raise UsageError(f"the folder of the output {path} cannot be written to.")
        if path.resolve() in seen:
            raise UsageError(f"the output {path} would overwrite another file of the same command.")
        seen.append(path.resolve())


def _check_names(options: Mapping[str, Iterable[str]], present: Sequence[str], table: str) -> None:
    for option, names in options.items():
        for name in names:
            if name not in present:
                hint = _did_you_mean(name, present)
                raise UsageError(f"{option}: {table} has no column {name!r}{hint}. It has {_listing(present)}.")


def _check_features(features: Sequence[str], present: Sequence[str], model: str, table: str) -> None:
    absent = [name for name in features if name not in present]
    if absent:
        hint = _did_you_mean(absent[0], [name for name in present if name not in features])
        raise ValueError(f"{table} lacks {_listing(absent)}, which {model} needs{hint}. It has {_listing(present)}.")


def _check_apart(options: Mapping[str, Sequence[str]]) -> None:
    """Every column has one part."""
    seen: dict[str, str] = {}
    for option, names in options.items():
        for name in names:
            if name in seen:
                raise UsageError(f"the column {name!r} is given twice: as {seen[name]} and as {option}.")
            seen[name] = option


# Words ---------------------------------------------------------------------------------------------------------------


def _did_you_mean(name: str, options: Iterable[str]) -> str:
    by_lower = {option.lower(): option for option in options}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return f" (did you mean {by_lower[close[0]]!r}?)" if close else ""


def _count(n: int, noun: str) -> str:
    plural = "es" if noun.endswith("s") else "s"
    return f"{n:,} {noun}{'' if n == 1 else plural}"


def _listing(names: Iterable[Any], most: int = 20) -> str:
    words = [str(name) for name in names]
    return ", ".join(words[:most]) + (f" and {len(words) - most:,} more" if len(words) > most else "")


def _say_fit(model: Any, say: Speaker) -> None:
    """Symmetry, steps and seconds of a fitted model; what the user should know goes to stderr."""
    say("symmetry", str(model.symmetry_).partition("\n")[0])
    say("fitted", f"{_count(model.n_steps_, 'step')} in {sum(model.timings_.values()):.1f} s")
    for line in model.warnings_:
        _warn(line)


def score_words(scores: Any) -> str:
    """Scores in words."""
    if hasattr(scores, "accuracy"):
        usual = scores.confusion.sum(1).max() / scores.rows
        return (
            f"{scores.accuracy:.1%} right (the commonest class alone: {usual:.1%}), log loss {scores.log_loss:.4g}, "
            f"Brier score {scores.brier:.4g}"
        )
    if scores.targets:
        return "; ".join(f"{each.target}: {score_words(each)}" for each in scores.targets)
    explained = f"{scores.r2:.1%}" if scores.r2 > 0 else "none"
    return (
        f"RMSE {scores.rmse:.4g} ({explained} of the variance explained), mean NLL {scores.nll:.4g}, "
        f"{scores.coverage[0.95]:.1%} of the targets inside their 95% intervals"
    )


if __name__ == "__main__":
    main()
