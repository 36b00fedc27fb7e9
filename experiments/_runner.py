"""What the experiments share: arguments, a folder for results, one JSON file of figures."""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from benchmarks._data import DataFileError, DataNotFoundError
from harmonicgp import __version__
from harmonicgp._extras import MissingExtraError
from harmonicgp.io.container import write_text_atomically

SIZES = ("small", "medium", "paper")


class UsageError(ValueError):
    """Arguments that name nothing the experiment has."""


def run(
    name: str,
    description: str,
    experiment: Callable[..., Mapping[str, Any]],
    options: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> None:
    """Parse `--size` and `--output`, run the experiment, write its figures to NAME.json and print where all is.

    `options` are further arguments, as argparse takes them; those that are given reach the experiment by name, and the JSON.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m experiments.{name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--size", choices=SIZES, default="small", help="how much to compute (default: small)")
    parser.add_argument("--output", type=Path, default=Path("out"), help="folder for results (default: out)")
    for option, settings in options.items():
        parser.add_argument(f"--{option}", **settings)
    arguments = parser.parse_args()
    try:
        arguments.output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"cannot write to --output {arguments.output}: {error.strerror}")
    chosen = {option: value for option in options if (value := getattr(arguments, option)) is not None}
    _ASKED.clear()
    _ASKED.update(size=arguments.size, **chosen)
    before = _written(arguments.output)
    start = time.perf_counter()
    try:
        results = experiment(arguments.size, arguments.output, **chosen)
    except UsageError as error:
        parser.error(str(error))
    except (DataNotFoundError, DataFileError, MissingExtraError) as error:
        parser.exit(1, f"{error}\n")
    seconds = round(time.perf_counter() - start, 2)
    _write(arguments.output, name, {"complete": True, "seconds": seconds, **results})
    new = [file.name for file, when in sorted(_written(arguments.output).items()) if before.get(file) != when]
    print(f"{seconds} s; in {arguments.output}: {', '.join(new)}")


#: What was asked for, of the experiment that runs.
_ASKED: dict[str, Any] = {}


def so_far(output: Path, name: str, **results: Any) -> None:
    """Write what there is to NAME.json before all is done: an experiment that is ended early loses nothing."""
    _write(output, name, {"complete": False, **results})


def _write(output: Path, name: str, record: Mapping[str, Any]) -> None:
    record = {"experiment": name, "version": __version__, **_ASKED, **record}
    write_text_atomically(output / f"{name}.json", json.dumps(_plain(record), indent=2, allow_nan=False) + "\n")


def _plain(value: Any) -> Any:
    """As JSON has it: numbers of NumPy and PyTorch as Python's, what is not finite as null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def some_of(names: Sequence[str]) -> dict[str, Any]:
    """An option that takes some of these names."""
    return {"nargs": "+", "choices": names, "metavar": "NAME", "help": f"only these, of {', '.join(names)}"}


def positive(text: str) -> float:
    """A number above zero, as an argument."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not above zero")
    return value


def whole(text: str) -> int:
    """A whole number from one on, as an argument."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not 1 or more")
    return value


def _written(folder: Path) -> dict[Path, int]:
    return {file: file.stat().st_mtime_ns for file in folder.iterdir() if file.is_file()}
