"""The commands: fit, predict, report, suggest, info, demo, bench."""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from harmonicgp.cli import options as opt
from harmonicgp.cli.failures import GuardedGroup, UsageError
from harmonicgp.cli.fields import fit_field, is_field, predict_field, say_field
from harmonicgp.cli.models import fit_table, load_any, load_fitted, score_rows
from harmonicgp.cli.predictions import predict_table
from harmonicgp.cli.symmetries import as_options
from harmonicgp.cli.tables import TableTask, known_errors, read_rows, target_frame, with_target
from harmonicgp.cli.words import Speaker, count, listing, say_fit, say_novelty, score_words

app = typer.Typer(
    name="harmonicgp",
    cls=GuardedGroup,
    rich_markup_mode=None,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


#: Arguments of `fit` that are not settings of a model, and those of fields only.
_OF_EVERY_FIT = ("table", "target", "output", "test_fraction", "threads", "seed", "quiet", "debug")
_OF_FIELDS = ("by", "t_max", "covariate")
#: Settings of both fields and tables.
_OF_BOTH = ("kernel", "n_inducing", "neighbours")


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line `harmonicgp`: run it with some arguments, by default those of the process, and exit with its code.

    Examples:
        >>> import contextlib
        >>> with contextlib.suppress(SystemExit):
        ...     main(["--version"])
        harmonicgp ...
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # the name of a column must not stop a fit
    try:
        typer.main.get_command(app)(arguments, prog_name="harmonicgp")
    except SystemExit as done:
        if done.code == 130:  # after an interrupted import Python may end with another code
            sys.stderr.flush()
            os._exit(130)
        raise


def _examples(*lines: str) -> str:
    """Examples for the end of a help page, printed without wrapping."""
    return "\b\n" + "\n".join(["Examples:", *(f"  {line}" for line in lines)])


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
    version: opt.VERSION = False,
    debug: opt.DEBUG = False,
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
        "harmonicgp fit mill.csv -t wear -o mill.hgp --symmetry 'Negation([[0, 1]])'",
        "harmonicgp fit sst.nc -t temperature -o sst.hgp --by time",
    ),
)
def fit(
    table: opt.TABLE,
    target: opt.TARGET,
    output: Annotated[Path, Option("--output", "-o", metavar="MODEL", help="Where the model goes, such as model.hgp.")],
    columns: opt.COLUMNS = None,
    drop: opt.DROP = None,
    weight: opt.WEIGHT = None,
    noise_std: opt.NOISE_STD = None,
    classify: opt.CLASSIFY = False,
    missing: opt.MISSING = None,
    target_transform: opt.TRANSFORM = None,
    likelihood: opt.LIKELIHOOD = None,
    calibration: opt.CALIBRATION = None,
    kernel: opt.KERNEL = None,
    symmetry: opt.SYMMETRY = None,
    warp: opt.WARP = None,
    n_inducing: opt.INDUCING = None,
    neighbours: opt.NEIGHBOURS = None,
    t_max: opt.T_MAX = None,
    by: opt.BY = None,
    covariate: opt.COVARIATE = None,
    max_steps: opt.MAX_STEPS = None,
    time_budget: opt.BUDGET = None,
    checkpoint_dir: opt.CHECKPOINTS = None,
    test_fraction: opt.TEST = 0.1,
    report: opt.REPORT = None,
    threads: opt.THREADS = None,
    seed: opt.SEED = 0,
    quiet: opt.QUIET = False,
    debug: opt.DEBUG = False,
) -> None:
    """Fit a model to a table, or to a field of a netCDF file, and save it.

    A numeric target gives a regression, text or yes/no a classification. All other columns are inputs. Rows without a target are
    left out. In a netCDF file the target is a variable with longitudes and latitudes; missing cells are left out, and further
    dimensions, such as time, are inputs (or slices, with --by).
    """
    options = {name: value for name, value in opt.without_defaults(**locals()).items() if name not in _OF_EVERY_FIT}
    opt.check_outputs([output, *([report] if report else [])], inputs=[table])
    of_fields = opt.flags(name for name in options if name in _OF_FIELDS)
    of_tables = opt.flags(name for name in options if name not in (*_OF_FIELDS, *_OF_BOTH))
    field = is_field(table)
    if field and of_tables:
        raise UsageError(f"a fit of a netCDF file takes no {listing(of_tables)}.")
    if not field and of_fields:
        raise UsageError(f"{of_fields[0]} is for netCDF files.")
    if threads is not None:
        importlib.import_module("torch").set_num_threads(threads)
    fit_rows = fit_field if field else fit_table
    fit_rows(table, target, options, output, test_fraction, seed, Speaker(quiet))


@app.command(
    epilog=_examples(
        "harmonicgp predict model.hgp new.csv -o predictions.csv",
        "harmonicgp predict model.hgp new.parquet -o predictions.parquet \\",
        "    --keep id --quantiles 0.025,0.975",
        "harmonicgp predict sst.hgp grid.nc -o filled.nc",
    ),
)
def predict(
    model: opt.MODEL,
    table: opt.TABLE,
    output: Annotated[Path, Option("--output", "-o", metavar="OUT", help="A .csv, .tsv or .parquet file.")],
    keep: Annotated[
        list[str] | None, Option("--keep", metavar="COL", help="Write this column of TABLE, not all; repeatable.")
    ] = None,
    quantiles: Annotated[
        str | None, Option("--quantiles", metavar="Q,...", help="0.025,0.975 adds COL_q2.5 and COL_q97.5.")
    ] = None,
    latent: Annotated[bool, Option("--latent", help="Add the function without noise: COL_f_mean, COL_f_std.")] = False,
    noise_std: opt.NOISE_STD = None,
    quiet: opt.QUIET = False,
    debug: opt.DEBUG = False,
) -> None:
    """Predict the rows of a table, with error bars.

    Writes the table with new columns: COL_mean and COL_std for a target COL; for a classification COL, the class, and
    COL_p_CLASS, the probabilities. Rows keep their order and are read in batches, so that a table need not fit into memory.
    """
    say = Speaker(quiet)
    opt.check_outputs([output], inputs=[table, model])
    if is_field(table):
        if of_tables := opt.flags(opt.without_defaults(keep=keep, quantiles=quantiles, noise_std=noise_std)):
            raise UsageError(f"a prediction of a netCDF file takes no {listing(of_tables)}.")
        predict_field(model, table, output, latent, say)
    else:
        predict_table(model, table, output, say, keep or [], opt.parse_levels(quantiles), latent, noise_std)


@app.command(epilog=_examples("harmonicgp report model.hgp held-out.csv -o report.html"))
def report(
    model: opt.MODEL,
    table: opt.TABLE,
    output: Annotated[Path, Option("--output", "-o", metavar="HTML", help="Where the report goes.")],
    noise_std: opt.NOISE_STD = None,
    quiet: opt.QUIET = False,
    debug: opt.DEBUG = False,
) -> None:
    """Score a model on a table with its target, and write a report."""
    say = Speaker(quiet)
    opt.check_outputs([output], inputs=[table, model])
    fitted = load_fitted(model)
    targets = list(fitted.target_names_)
    per_row = [noise_std, getattr(fitted, "noise_name_", None)]
    names = [*targets, *opt.input_names(fitted), *per_row]
    labels = targets if any(isinstance(label, str) for label in getattr(fitted, "classes_", ())) else []
    data = read_rows(table, say, names, [*fitted.level_names(), *labels])
    features = opt.inputs_of(fitted, data.column_names, model.name, table.name, targets, per_row)
    data = with_target(data, targets, table.name, say)
    errors = known_errors(fitted, noise_std, data, table.name)
    if errors is not None:
        say("noise", errors.name)
    y = target_frame(data, targets)
    scores, novelty = score_rows(fitted, data.select(features), y, output, errors, file=model)
    say("scores", f"on {count(len(data), 'row')}, {score_words(scores)}")
    say("report", str(output))
    say_novelty(novelty, fitted, say)


@app.command(
    epilog=_examples(
        "harmonicgp suggest stations.csv --target temperature",
        "harmonicgp suggest stations.csv -t temperature --picture symmetries.png",
    )
)
def suggest(
    table: opt.TABLE,
    target: opt.TARGET,
    columns: opt.COLUMNS = None,
    drop: opt.DROP = None,
    missing: opt.MISSING = None,
    target_transform: opt.TRANSFORM = None,
    kernel: opt.KERNEL = None,
    classify: opt.CLASSIFY = False,
    time_budget: opt.BUDGET = None,
    picture: opt.PICTURE = None,
    seed: opt.SEED = 0,
    quiet: opt.NAME_ALONE = False,
    debug: opt.DEBUG = False,
) -> None:
    """Find out which symmetry the inputs have, and compare the candidates of a fit.

    Runs the search of a fit only. For each candidate it prints whether the inputs look the same after it, how much of the kernel
    its inducing points leave unexplained (less is better), and its bound on the log likelihood, in nats a row, against one block
    of ordinary inducing points at equal cost. Negations are about the mean of each column. A symmetry of the inputs need not pay.
    """
    from harmonicgp.symmetry.choice import PICTURES
    from harmonicgp.symmetry.suggest import suggest_symmetry

    say, kinds = Speaker(quiet), opt.parse_columns(columns or [])
    if picture is not None:
        opt.check_outputs([picture], inputs=[table])
        if picture.suffix.lower() not in PICTURES:
            raise UsageError(f"--picture draws {listing(PICTURES)} files; got {picture}.")
    opt.check_course(0.0, None, time_budget)
    task = TableTask.read(table, target, kinds, say, drop or [], classify)
    arguments = opt.without_defaults(
        columns=kinds, missing=missing, target_transform=target_transform, kernel=kernel, time_budget=time_budget
    )
    arguments |= {"random_state": seed, "progress": say.progress, "classify": task.classify}
    choice = suggest_symmetry(task.X, task.y, **arguments)
    if quiet:
        typer.echo(choice.suggested or "none")
    say("suggested", choice.label(choice.suggested) if choice.suggested else "none")
    say("", choice.advice)
    new = choice.arguments not in ({}, {"columns": kinds})
    if new and (options := as_options(choice.arguments, choice.encoded_names)):
        say("to use it", f"harmonicgp fit ... {options}", whole=True)
    say("a fit", choice.taken)
    for k, sentence in enumerate(choice.sentences):
        say("" if k else "compared", sentence)
    if not quiet:
        typer.echo("\n" + str(choice).partition("\n")[2])
    if picture is not None:
        choice.plot(picture)
        say("picture", str(picture))


@app.command(epilog=_examples("harmonicgp info model.hgp"))
def info(model: opt.MODEL, debug: opt.DEBUG = False) -> None:
    """Print what a model file holds."""
    fitted, say = load_any(model), Speaker()
    say("model", f"{type(fitted).__name__}, {model.stat().st_size / 1e6:.1f} MB")
    if not hasattr(fitted, "target_names_"):
        say_field(fitted, say)
        return
    say("target", listing(fitted.target_names_))
    if hasattr(fitted, "classes_"):
        say("classes", listing(fitted.classes_))
    names = getattr(fitted, "feature_names_in_", None)
    say("columns", listing(names) if names is not None else f"{fitted.n_features_in_}, without names")
    say_fit(fitted, say)


@app.command(epilog=_examples("harmonicgp demo --size small -o demo"))
def demo(
    size: opt.SIZE = "small",
    output: Annotated[Path, Option("--output", "-o", metavar="DIR", help="Where its files go.")] = Path("demo"),
    debug: opt.DEBUG = False,
) -> None:
    """Show a worked example: the relief of the Earth."""
    importlib.import_module("harmonicgp.cli.demo").main(size, output)


@app.command(
    epilog=_examples("harmonicgp bench", "harmonicgp bench gram"),
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False},
)
def bench(
    ctx: typer.Context,
    suite: Annotated[
        str | None, Argument(metavar="SUITE", help="The name of the benchmark; its own arguments follow.")
    ] = None,
    debug: opt.DEBUG = False,
) -> None:
    """Run a benchmark of this checkout, or list them."""
    for folder in (Path.cwd(), *Path.cwd().parents):
        if (folder / "benchmarks" / "__main__.py").is_file() and (folder / "src" / "harmonicgp").is_dir():
            sys.path.insert(0, str(folder))
            benchmarks = importlib.import_module("benchmarks.__main__")
            raise typer.Exit(benchmarks.main([*([suite] if suite else []), *ctx.args]))
    raise UsageError("benchmarks are part of a checkout of harmonicgp: run this inside one.")
