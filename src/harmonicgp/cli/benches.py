"""The benchmarks of a checkout: which there are, and how one is run."""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from pathlib import Path

from harmonicgp.cli.failures import UsageError
from harmonicgp.cli.words import did_you_mean, listing


def _checkout() -> Path:
    """The root of the checkout that the current folder is in."""
    for folder in (Path.cwd(), *Path.cwd().parents):
        if (folder / "benchmarks" / "__init__.py").is_file() and (folder / "src" / "harmonicgp").is_dir():
            return folder
    raise UsageError("benchmarks are part of a checkout of harmonicgp: run this inside one.")


def suites() -> dict[str, str]:
    """The modules with a `main`, and the first line of their docstrings."""
    modules = {
        path.stem: ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted((_checkout() / "benchmarks").glob("[a-z]*.py"))
    }
    return {
        name: (ast.get_docstring(module) or "").partition("\n")[0]
        for name, module in modules.items()
        if any(isinstance(part, ast.FunctionDef) and part.name == "main" for part in module.body)
    }


def run_suite(name: str, arguments: list[str]) -> int:
    """Run a benchmark and return its exit code."""
    names = suites()
    if name not in names:
        raise UsageError(f"there is no benchmark {name!r}{did_you_mean(name, names)}; there are {listing(names)}.")
    sys.path.insert(0, str(_checkout()))
    main = importlib.import_module(f"benchmarks.{name}").main
    takes_arguments = bool(inspect.signature(main).parameters)
    if arguments and not takes_arguments:
        raise UsageError(f"the benchmark {name} takes no arguments; got {' '.join(arguments)}.")
    return (main(arguments) if takes_arguments else main()) or 0
