"""Failures: one line on stderr, one exit code."""

from __future__ import annotations

import os
import shlex
import sys
import warnings
from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperGroup

from harmonicgp._extras import MissingExtraError
from harmonicgp.cli.words import complain, mute


class UsageError(Exception):
    """The command line asks for something that cannot be; the message says what and what to do."""


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
            message = error.format_message()
            message += "" if message.endswith((".", "?")) else "."
            complain(message + (f" See '{context.command_path} --help'." if context else ""))
            code = getattr(error, "exit_code", 2)
        try:
            sys.stdout.flush()
        except BrokenPipeError:
            mute()
        sys.exit(code if isinstance(code, int) else 0)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; warnings become one plain line each, errors one line and a code."""
        with warnings.catch_warnings():
            warnings.showwarning = _shower()
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
        complain(str(error) or "stopped.", "")
        return 130
    if isinstance(error, UsageError):
        complain(str(error))
        return 2
    if isinstance(error, BrokenPipeError):  # | head has what it wanted
        mute()
        return 1
    if debug:
        raise error
    if isinstance(error, OSError) and error.filename and error.strerror:
        complain(f"{os.fspath(error.filename)}: {error.strerror.lower()}.")
    elif isinstance(error, ValueError | OSError | MissingExtraError):
        complain(_in_words(error))
    else:
        complain(f"{type(error).__name__}: {error} (unexpected: run it again with --debug to see where.)")
    return 1


def _in_words(error: Exception) -> str:
    """What an error of the library says on the command line: where it advises an argument, the option instead."""
    from harmonicgp.cli.symmetries import as_options
    from harmonicgp.tables.notices import IdentifierColumnError, MissingValuesError, UndeclaredColumnsError

    if isinstance(error, MissingValuesError):
        return f"{error.problem}: drop those rows, or fit with --missing impute."
    if isinstance(error, IdentifierColumnError):
        option = drop_option(error.column)
        return f"{error.problem}: drop it if it is an identifier ({option}), or encode it yourself."
    if isinstance(error, UndeclaredColumnsError):
        options = as_options({"columns": error.kinds}, ())
        return f"{str(error).removesuffix('.')} (on the command line {options})." if options else str(error)
    return str(error) or type(error).__name__


def drop_option(column: str) -> str:
    """The option that leaves a column out."""
    return f"--drop {shlex.quote(column)}"


def _shower() -> Callable[..., None]:
    """`warnings.showwarning` for one run: one plain line without file and line number, the same words only once."""
    shown: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        if str(message) not in shown:
            shown.add(str(message))
            complain(str(message), "warning: ")

    return show
