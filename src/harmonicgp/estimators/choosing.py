"""Which symmetry a model takes: the user's own, or that of a search."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

import gpytorch
import torch
from tqdm import tqdm

from harmonicgp.actions import Action, PrincipalNegation
from harmonicgp.estimators.reading import Reading
from harmonicgp.inference.posterior import Family
from harmonicgp.likelihoods.observation import Bound
from harmonicgp.symmetry.candidates import Candidate, candidates, generated, guessed
from harmonicgp.symmetry.choice import SymmetryChoice, renumbered
from harmonicgp.symmetry.search import Data, Trials, search
from harmonicgp.tables.inputs import Columns

MakeLikelihood: TypeAlias = Callable[[torch.dtype], gpytorch.likelihoods.Likelihood]


class Choosing(Reading):
    """From numbers to a choice; the fitting is HarmonicGPBase's."""

    #: What `suggest_symmetry` compares with one block; None for all that can be generated.
    _offered: Sequence[Action] | None = None
    #: Whether columns that look periodic are tried as such: a suggestion, never a fit's own choice.
    _guessing = False

    # Set by the fit.
    _small: bool
    _start: float
    _dtype: torch.dtype
    _outputs: int
    _seed: int

    def _bound_name(self) -> Bound | None:
        return None

    def _exact_noise(self) -> bool:
        """Whether noise is Gaussian, so that small tables have an exact model."""
        return False

    def _choose(self, data: Data, likelihood: MakeLikelihood, search_small: bool) -> SymmetryChoice:
        """The candidate to fit: as told, or by a search."""
        warp = {"auto": None, None: False, "quantile": True}[self.warp]
        family: Family | None = None if self.posterior == "auto" else self.posterior  # type: ignore[assignment]
        if isinstance(self.symmetry, Action):
            if isinstance(self.symmetry, PrincipalNegation):
                plain = Candidate("principal", self.symmetry.ways, bool(warp), family or "block")
                self.symmetry.check_dim(data.X.shape[1])
                return SymmetryChoice(plain, None, reason="as asked")
            self._check_declared(self.symmetry)
            if self.symmetry.group.order < 2:
                raise ValueError(f"symmetry={self.symmetry!r} moves nothing: its group has one element.")
            return SymmetryChoice(Candidate("raw", 0, bool(warp), family or "block"), self.symmetry, reason="as asked")
        if isinstance(self.kernel, gpytorch.kernels.Kernel):
            return SymmetryChoice(Candidate("raw", 0, bool(warp), "block"), None, reason="a kernel of your own")
        if self.symmetry is None:
            return SymmetryChoice(Candidate("raw", 0, bool(warp), "block"), None, reason="as asked")
        if self._small and not search_small:
            reason = f"{len(data.X)} rows are few: nothing to gain by a symmetry"
            return SymmetryChoice(Candidate("raw", 0, bool(warp), "block"), None, reason=reason)
        options = list(candidates(data.columns, warp, family))
        warps = sorted({c.warp for c in options})
        if self._offered is None:
            soon = math.inf if self.time_budget is None else self._start + 0.1 * self.time_budget
            options += generated(data.columns, data.X, data.counts, family, self._seed, soon, warps)
            options += guessed(data.columns, data.X, family, warps) if self._guessing else ()
        else:  # by `suggest_symmetry`
            offers = [self._offer(a, data, warped, family or "block") for warped in warps for a in self._offered]
            circles = [replace(c, declared=None) for c in offers if c.periods]  # the kernel without the symmetry
            options = [replace(options[0], warp=warped) for warped in warps] + circles + offers
        options = _told_apart([self._shown(c, data.columns) for c in options])
        trials = Trials(
            self.kernel,
            lambda: likelihood(self._dtype),
            self._outputs,
            self._bound_name(),
            self._dtype,
            self.learning_rate,
            self._seed,
            1000 if self._guessing else 300,  # a fit shows it, a suggestion rests on it
        )
        share = 1.0 if self._guessing else 0.3  # of the budget: a fit has more to do
        until = math.inf if self.time_budget is None else self._start + share * self.time_budget
        # disable=None: quiet where there is no terminal
        with tqdm(desc="search", unit=" fits", disable=None if self.progress else True, leave=False) as bar:

            def tell(name: str) -> None:
                bar.update()
                bar.set_postfix_str(name)

            choice = search(data, options, trials, self.posterior, tell, until)
        choice.encoded_names, choice.estimator = self.encoded_names_, type(self).__name__
        choice.declared = self.columns
        if self._small:
            choice.instead = "an exact model" if self._exact_noise() else "one block"
        return choice

    def _shown(self, candidate: Candidate, columns: Columns) -> Candidate:
        """With the table's numbers and names in its name."""
        if candidate.declared is not None:
            return replace(
                candidate, shown=repr(renumbered(candidate.declared, columns.used, len(self.encoded_names_)))
            )
        if candidate.periods:
            names = ", ".join(f"{self.encoded_names_[j]} of period {period:g}" for j, period in candidate.periods)
            return replace(candidate, shown=f"one block, {names}")
        return candidate

    def _check_declared(self, action: Action) -> None:
        """A shift needs a kernel that repeats, and a kernel by name repeats along declared columns alone."""
        if isinstance(self.kernel, gpytorch.kernels.Kernel):
            return
        names, known = self.encoded_names_, self.column_kinds_
        wanted = action.declared_kinds()
        if all(known.get(j) == kind for j, kind in wanted.items()):
            return
        for j, kind in wanted.items():
            if j in known and known[j] != kind:
                raise ValueError(f"symmetry={action!r} takes {names[j]} as {kind}, but it is declared {known[j]}.")
        elsewhere = [j for j, kind in known.items() if kind == "longitude"]
        if elsewhere and "longitude" in wanted.values():
            raise ValueError(
                f"symmetry={action!r} takes column {min(wanted)} for the longitude, which is column {elsewhere[0]} of those that "
                f"the model sees: give Longitude(..., axis={elsewhere[0]})."
            )
        kinds = {names[j] if self._table is not None else j: kind for j, kind in wanted.items() if j < len(names)}
        around = ", ".join(names[j] for j in action.periods if j < len(names))
        said = ",".join(
            f"{key}={kind if isinstance(kind, str) else f'periodic:{kind[1]:g}'}" for key, kind in kinds.items()
        )
        raise ValueError(
            f"symmetry={action!r} goes around {around or 'columns'}, which the kernel must know: give columns={kinds!r} too"
            + (f" (on the command line --columns {said})." if self._table is not None else ".")
        )

    def _offer(self, action: Action, data: Data, warp: bool, family: Family) -> Candidate:
        """An action of the user's as a candidate."""
        action.check_dim(data.X.shape[1])
        if action.group.order < 2:
            raise ValueError(f"{action!r} moves nothing: its group has one element.")
        if isinstance(action, PrincipalNegation):
            if action.directions is not None:
                raise ValueError(
                    f"give {action!r} as it is, without fit: its directions are found among standardised columns."
                )
            return Candidate("principal", action.ways, warp, family)
        for j, period in action.periods.items():
            kind = data.columns.kinds.get(j)
            if isinstance(kind, tuple) and kind[1] != period:
                raise ValueError(
                    f"{action!r} has a period of {period:g}, but {self.encoded_names_[j]} is declared {kind}."
                )
        circles = tuple((j, T) for j, T in action.periods.items() if j not in data.columns.kinds)
        return Candidate("raw", 0, warp, family, action, circles)


def _told_apart(options: Sequence[Candidate]) -> list[Candidate]:
    """Equal ones once; different ones of equal names numbered."""
    kept: list[Candidate] = []
    known: dict[str, list[Action]] = {}
    for candidate in dict.fromkeys(options):
        if candidate.declared is not None:
            twins = known.setdefault(candidate.name, [])
            if not any(candidate.declared is twin for twin in twins):
                twins.append(candidate.declared)
            number = 1 + next(k for k, twin in enumerate(twins) if twin is candidate.declared)
            candidate = replace(candidate, shown=f"{candidate.name} #{number}") if number > 1 else candidate
        kept.append(candidate)
    return kept
