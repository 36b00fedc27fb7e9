"""The output of commands: entries on stdout, errors and warnings on stderr, and helpers for their text."""

from __future__ import annotations

import difflib
import os
import shutil
import sys
import textwrap
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Speaker:
    """Prints entries with a short label on stdout, or nothing if it is quiet."""

    quiet: bool = False

    def __call__(self, label: str, text: str, whole: bool = False) -> None:
        """Print one entry, wrapped to the width of the terminal, or with `whole` in one line."""
        if self.quiet:
            return
        width = min(100, shutil.get_terminal_size().columns)
        if not whole:
            text = textwrap.fill(text, max(width - 10, 40), break_long_words=False, break_on_hyphens=False)
        try:
            print(f"{label:<9} " + text.replace("\n", "\n" + " " * 10), flush=True)
        except BrokenPipeError:  # continue: the output file matters, not the text
            mute()

    @property
    def progress(self) -> bool:
        """Whether to show a progress bar."""
        return not self.quiet and sys.stderr.isatty()


def complain(message: str, label: str = "error: ") -> None:
    """Print one line on stderr."""
    print(f"{label}{' '.join(message.split())}", file=sys.stderr, flush=True)


def mute() -> None:
    """Discard all further output on stdout, after its pipe was closed."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115


def did_you_mean(name: str, options: Iterable[str]) -> str:
    """A hint at the most similar option; empty if there is none."""
    by_lower = {option.lower(): option for option in options}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return f" (did you mean {by_lower[close[0]]!r}?)" if close else ""


def count(n: int, noun: str) -> str:
    """A number and its noun: 1 row, 2 rows."""
    plural = "es" if noun.endswith("s") else "s"
    return f"{n:,} {noun}{'' if n == 1 else plural}"


def listing(names: Iterable[Any], most: int = 20) -> str:
    """The first names, and the number of the others."""
    words = [str(name) for name in names]
    return ", ".join(words[:most]) + (f" and {len(words) - most:,} more" if len(words) > most else "")


def say_fit(model: Any, say: Speaker) -> None:
    """Print symmetry, steps, seconds and notes of a fitted model; its warnings go to stderr."""
    choice, symmetry = model.symmetry_, model.symmetry_.name
    if choice.action is not None and choice.origin == "asked":
        from harmonicgp.symmetry.choice import with_names

        symmetry = with_names(symmetry, choice.action, model.encoded_names_)
    symmetry += f": {choice.reason}" if choice.reason else ""
    say("symmetry", symmetry + ("; skewed columns transformed to normal" if choice.candidate.warp else ""))
    say_rows(model, say)
    say("fitted", f"{count(model.n_steps_, 'step')} in {sum(model.timings_.values()):.1f} s")
    for note in model.notes_:
        say("note", note)
    for warning in model.warnings_:
        warnings.warn(warning, stacklevel=2)


def say_rows(model: Any, say: Speaker) -> None:
    """Print whether the file of the model holds training rows."""
    from harmonicgp.report.case import is_exact

    if model.neighbours_:
        words = f"holds all training rows: the nearest {model.neighbours_} correct each prediction (neighbours)"
    elif is_exact(model):
        words = (
            "holds the inputs of all training rows: an exact model has an inducing point at each row. The targets are not "
            "stored, but the posterior depends on them"
        )
    else:
        words = "holds no training rows, but inducing inputs, which may be close to some of them"
    say("file", words)


def say_novelty(novelty: Any, model: Any, say: Speaker) -> None:
    """Warn about new levels and new missing values, and print how many rows are out of range."""
    for warning in novelty.unseen:
        warnings.warn(warning, stacklevel=2)
    if sentence := novelty.sentence(model):
        say("note", sentence)


def score_words(scores: Any) -> str:
    """Scores as text."""
    if hasattr(scores, "accuracy"):
        usual = scores.confusion.sum(1).max() / scores.rows
        return (
            f"{scores.accuracy:.1%} correct (the most frequent class alone: {usual:.1%}), log loss {scores.log_loss:.4g}, "
            f"Brier score {scores.brier:.4g}"
        )
    if scores.targets:
        return "; ".join(f"{each.target}: {score_words(each)}" for each in scores.targets)
    explained = f"{scores.r2:.1%}" if scores.r2 > 0 else "none"
    return (
        f"RMSE {scores.rmse:.4g} ({explained} of the variance explained), mean NLL {scores.nll:.4g}, "
        f"{scores.coverage[0.95]:.1%} of the targets inside their 95% intervals"
    )
