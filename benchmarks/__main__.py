"""The benchmarks by name: `harmonicgp bench`, or `python -m benchmarks`, lists them; with a name it runs one."""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from pathlib import Path

from harmonicgp.cli.failures import UsageError
from harmonicgp.cli.words import did_you_mean, listing


def suites() -> dict[str, str]:
    """The modules with a `main`, and the first line of their docstrings."""
    paths = sorted(Path(__file__).parent.glob("[a-z]*.py"))
    modules = {path.stem: ast.parse(path.read_text(encoding="utf-8")) for path in paths}
    return {
        name: (ast.get_docstring(module) or "").partition("\n")[0]
        for name, module in modules.items()
        if any(isinstance(part, ast.FunctionDef) and part.name == "main" for part in module.body)
    }


def main(argv: list[str]) -> int:
    """Run the benchmark that is named first with the other arguments, or list all; returns the exit code."""
    names = suites()
    if not argv:
        for name, line in names.items():
            print(f"{name:<20}{line}")
        return 0
    name, *arguments = argv
    if name not in names:
        raise UsageError(f"there is no benchmark {name!r}{did_you_mean(name, names)}; there are {listing(names)}.")
    run = importlib.import_module(f"benchmarks.{name}").main
    takes_arguments = bool(inspect.signature(run).parameters)
    if arguments and not takes_arguments:
        raise UsageError(f"the benchmark {name} takes no arguments; got {' '.join(arguments)}.")
    return (run(arguments) if takes_arguments else run()) or 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
