"""What the experiments share: arguments, a folder for results, one JSON file of figures."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harmonicgp import __version__
from harmonicgp._extras import MissingExtraError
from harmonicgp._files import write_text_atomically
from harmonicgp.data import DataFileError, DataNotFoundError

SIZES = ("small", "medium", "paper")


def run(
    name: str, description: str, experiment: Callable[..., Mapping[str, Any]], tables: Sequence[str] | None = None
) -> None:
    """Parse `--size` and `--output`, run the experiment, write its figures to NAME.json and print where all is.

    An experiment on `tables` has `--tables` too, and gets those that are asked for, or None, as its third argument.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m experiments.{name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--size", choices=SIZES, default="small", help="how much to compute (default: small)")
    parser.add_argument("--output", type=Path, default=Path("out"), help="folder for results (default: out)")
    if tables is not None:
        parser.add_argument(
            "--tables", nargs="+", choices=tables, metavar="NAME", help=f"only these, of {', '.join(tables)}"
        )
    arguments = parser.parse_args()
    try:
        arguments.output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"cannot write to --output {arguments.output}: {error.strerror}")
    before = _written(arguments.output)
    start = time.perf_counter()
    try:
        results = experiment(arguments.size, arguments.output, *([] if tables is None else [arguments.tables]))
    except (DataNotFoundError, DataFileError, MissingExtraError) as error:
        parser.exit(1, f"{error}\n")
    seconds = round(time.perf_counter() - start, 2)
    record = {"experiment": name, "size": arguments.size, "version": __version__, "seconds": seconds, **results}
    path = arguments.output / f"{name}.json"
    write_text_atomically(path, json.dumps(record, indent=2) + "\n")
    new = [file.name for file, when in sorted(_written(arguments.output).items()) if before.get(file) != when]
    print(f"{seconds} s; in {arguments.output}: {', '.join(new)}")


def _written(folder: Path) -> dict[Path, int]:
    return {file: file.stat().st_mtime_ns for file in folder.iterdir() if file.is_file()}
