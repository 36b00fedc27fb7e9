"""What the experiments share: arguments, a folder for results, one JSON file of figures."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from harmonicgp import __version__
from harmonicgp._extras import MissingExtraError
from harmonicgp._files import write_text_atomically
from harmonicgp.data import DataNotFoundError

SIZES = ("small", "medium", "paper")


def run(name: str, description: str, experiment: Callable[[str, Path], Mapping[str, Any]]) -> None:
    """Parse `--size` and `--output`, run the experiment, write its figures to NAME.json and print where all is."""
    parser = argparse.ArgumentParser(
        prog=f"python -m experiments.{name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--size", choices=SIZES, default="small", help="how much to compute (default: small)")
    parser.add_argument("--output", type=Path, default=Path("out"), help="folder for results (default: out)")
    arguments = parser.parse_args()
    try:
        arguments.output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"cannot write to --output {arguments.output}: {error.strerror}")
    start = time.perf_counter()
    try:
        results = experiment(arguments.size, arguments.output)
    except (DataNotFoundError, MissingExtraError) as error:
        parser.exit(1, f"{error}\n")
    seconds = round(time.perf_counter() - start, 2)
    record = {"experiment": name, "size": arguments.size, "version": __version__, "seconds": seconds, **results}
    path = arguments.output / f"{name}.json"
    write_text_atomically(path, json.dumps(record, indent=2) + "\n")
    print(f"{seconds} s; figures in {path}")
