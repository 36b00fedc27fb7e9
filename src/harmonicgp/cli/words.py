"""What a command prints: entries on stdout, complaints on stderr, and the words they are made of."""

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
    """What a command says on stdout: lines with a short label, or nothing when it is quiet."""

    quiet: bool = False

    def __call__(self, label: str, text: str, whole: bool = False) -> None:
        """One entry, wrapped to the terminal; or `whole`, in one line to be copied."""
        if self.quiet:
            return
        width = min(100, shutil.get_terminal_size().columns)
        if not whole:
            text = textwrap.fill(text, max(width - 10, 40), break_long_words=False, break_on_hyphens=False)
        try:
            print(f"{label:<10}" + text.replace("\n", "\n" + " " * 10), flush=True)
        except BrokenPipeError:  # the file is the work, the words are not: go on
            mute()

    @property
    def progress(self) -> bool:
        """Whether a progress bar would be seen."""
        return not self.quiet and sys.stderr.isatty()


def complain(message: str, label: str = "error: ") -> None:
    """One line on stderr."""
    print(f"{label}{' '.join(message.split())}", file=sys.stderr, flush=True)


def mute() -> None:
    """Let what is still to be said vanish: nobody listens at the other end of the pipe."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115


def did_you_mean(name: str, options: Iterable[str]) -> str:
    """A hint at the nearest of the options, or nothing."""
    by_lower = {option.lower(): option for option in options}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1)
    return f" (did you mean {by_lower[close[0]]!r}?)" if close else ""


def count(n: int, noun: str) -> str:
    """A number and its noun: 1 row, 2 rows."""
    plural = "es" if noun.endswith("s") else "s"
    return f"{n:,} {noun}{'' if n == 1 else plural}"


def listing(names: Iterable[Any], most: int = 20) -> str:
    """The first names, and how many more there are."""
    words = [str(name) for name in names]
    return ", ".join(words[:most]) + (f" and {len(words) - most:,} more" if len(words) > most else "")


def say_fit(model: Any, say: Speaker) -> None:
    """Print symmetry, steps and seconds of a fitted model, and what was done to the columns. Warnings go to stderr."""
    choice, symmetry = model.symmetry_, model.symmetry_.name
    if choice.action is not None and choice.origin == "asked":
        from harmonicgp.symmetry.choice import with_names

        symmetry = with_names(symmetry, choice.action, model.encoded_names_)
    symmetry += f": {choice.reason}" if choice.reason else ""
    say("symmetry", symmetry + ("; skewed columns made normal" if choice.candidate.warp else ""))
    say_neighbours(model, say)
    say("fitted", f"{count(model.n_steps_, 'step')} in {sum(model.timings_.values()):.1f} s")
    for note in model.notes_:
        say("note", note)
    for warning in model.warnings_:
        warnings.warn(warning, stacklevel=2)


def say_neighbours(model: Any, say: Speaker, rows: str = "training rows") -> None:
    """Print how many neighbours a model has, and that its file then holds the data."""
    if model.neighbours_:
        say("neighbours", f"{model.neighbours_} {rows} correct each prediction; the model file holds the {rows}")


def say_novelty(novelty: Any, model: Any, say: Speaker) -> None:
    """Warn of levels and gaps that the fit has not seen, and print how many rows are out of range."""
    for warning in novelty.unseen:
        warnings.warn(warning, stacklevel=2)
    if sentence := novelty.sentence(model):
        say("note", sentence)


def score_words(scores: Any) -> str:
    """Scores in words."""
    if hasattr(scores, "accuracy"):
        usual = scores.confusion.sum(1).max() / scores.rows
        return (
            f"{scores.accuracy:.1%} right (the commonest class alone: {usual:.1%}), log loss {scores.log_loss:.4g}, "
            f"Brier score {scores.brier:.4g}"
        )
    if scores.targets:
        return "; ".join(f"{each.target}: {score_words(each)}" for each in scores.targets)
    explained = f"{scores.r2:.1%}" if scores.r2 > 0 else "none"
    return (
        f"RMSE {scores.rmse:.4g} ({explained} of the variance explained), mean NLL {scores.nll:.4g}, "
        f"{scores.coverage[0.95]:.1%} of the targets inside their 95% intervals"
    )
