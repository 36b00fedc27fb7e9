"""Failures: one line on stderr, one exit code."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

import typer
from typer.core import TyperGroup

from harmonicgp._extras import MissingExtraError
from harmonicgp.cli.words import SAID, complain, for_command_line, mute, warn
from harmonicgp.symmetry.errors import UndeclaredColumnsError


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
            warnings.showwarning = _show_warning
            SAID.clear()
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
        complain(_words(error))
    else:
        complain(f"{type(error).__name__}: {error} (unexpected: run it again with --debug to see where.)")
    return 1


def _words(error: BaseException) -> str:
    """An error of the library, with the options of a command line that do what it advises."""
    text = for_command_line(str(error)) or type(error).__name__
    if not isinstance(error, UndeclaredColumnsError):
        return text
    from harmonicgp.cli.symmetries import as_options

    options = as_options({"columns": error.kinds}, ())
    return f"{text.removesuffix('.')} (on the command line {options})." if options else text


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """`warnings.showwarning` for people: no file, no line."""
    warn(str(message))
