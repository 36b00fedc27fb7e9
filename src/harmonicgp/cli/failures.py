"""Failures: one line on stderr, and an exit code."""

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
    """The command line is wrong; the message says why and what to do."""


class GuardedGroup(TyperGroup):
    """Commands that turn every error into one clear line and an exit code."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run a command line, then exit with its code."""
        try:
            code = super().main(*args, **{**kwargs, "standalone_mode": False})
        except typer.Abort:  # Ctrl-C while the command line is parsed
            code = 130
        except Exception as error:
            if not hasattr(error, "format_message"):  # not an error of typer: --debug shows the traceback
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
        """Run the command; each warning becomes one line, an error one line and an exit code."""
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
    """Print the error and return the exit code; with `debug` raise the error."""
    if isinstance(error, KeyboardInterrupt):
        complain(str(error) or "stopped.", "")
        return 130
    if isinstance(error, UsageError):
        complain(str(error))
        return 2
    if isinstance(error, BrokenPipeError):  # as with `| head`
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
    """The message of an error of the library, with options of the command line in place of arguments."""
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
    """The option that drops a column."""
    return f"--drop {shlex.quote(column)}"


def _shower() -> Callable[..., None]:
    """A `warnings.showwarning` that prints one line without file and line number, and each message only once."""
    shown: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        if str(message) not in shown:
            shown.add(str(message))
            complain(str(message), "warning: ")

    return show
