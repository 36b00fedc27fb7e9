"""The benchmarks of a checkout: where it is, and which there are."""

from __future__ import annotations

import ast
from pathlib import Path

from harmonicgp.cli.failures import UsageError


def checkout() -> Path:
    """The root of the checkout that the current folder is in."""
    for folder in (Path.cwd(), *Path.cwd().parents):
        if (folder / "benchmarks" / "__init__.py").is_file() and (folder / "src" / "harmonicgp").is_dir():
            return folder
    raise UsageError("benchmarks are part of a checkout of harmonicgp: run this inside one.")


def suites_in(folder: Path) -> dict[str, str]:
    """The modules with a `main`, and the first line that each says of itself."""
    suites = {}
    for path in sorted(folder.glob("[a-z]*.py")):
        module = ast.parse(path.read_text(encoding="utf-8"))
        if any(isinstance(part, ast.FunctionDef) and part.name == "main" for part in module.body):
            suites[path.stem] = (ast.get_docstring(module) or "").partition("\n")[0]
    return suites
