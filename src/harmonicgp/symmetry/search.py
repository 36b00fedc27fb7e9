"""The search for a symmetry: candidates compared by short fits at equal modelled cost.

The bound of a short fit says which candidates go on. Where the model will have neighbours, which carry much of what the bound
misses, the last rounds compare the density of held-out rows with neighbours instead.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from harmonicgp.actions import Action
from harmonicgp.features import Features
from harmonicgp.features.nystrom import trace_error
from harmonicgp.inference.statistics import MAX_DENSE
from harmonicgp.likelihoods.observation import observe
from harmonicgp.symmetry.candidates import Candidate, candidates, generated, guessed, offered
from harmonicgp.symmetry.choice import MARGIN, SymmetryChoice, renumbered
from harmonicgp.symmetry.cost import finish_cost, inducing_for, step_cost
from harmonicgp.symmetry.evidence import ANGLES, Evidence, by_counts, enough_places, invariance_test
from harmonicgp.symmetry.factories import make_features, make_kernel
from harmonicgp.symmetry.settings import ModelSettings, gradients_enabled
from harmonicgp.tables.inputs import Columns, Inputs
from harmonicgp.tables.rows import ModelRows
from harmonicgp.training import Fit, Schedule, fit
from harmonicgp.training.neighbour_search import held_out_density
from harmonicgp.training.problem import Problem

#: Different rows that it takes to say anything about their symmetry.
DISTINCT = 20
#: Rows on which the residual of the kernel is measured.
MEASURED = 2000
#: Shares of the time budget: of a fit that looks for candidates, and that compares them.
LOOKING_SHARE, SEARCH_SHARE = 0.04, 0.12
#: Rows that the test of the inputs takes: a fit only shows it, a suggestion rests on it.
TEST_ROWS, SUGGESTION_TEST_ROWS = 300, 1000


@dataclass(frozen=True)
class TrialRound:
    """One round of short fits."""

    rows: int
    inducing: int  #: of one block; the others get what costs the same
    steps: int
    batch: int


#: All candidates; the best few; and the best against one block for longer, since early leads do not always last.
ROUNDS = (TrialRound(4_000, 128, 60, 512), TrialRound(8_000, 256, 50, 1024), TrialRound(8_000, 256, 150, 1024))
#: The share of the rows of a round that is held out where those rows decide.
HELD_OUT = 0.2
#: Nats a row by which one block on other columns may be behind in the first round for symmetries of those to be tried.
FAR_BEHIND = 0.1
#: Nats a row on held-out rows by which a symmetry is ahead for good.
CLEAR = 0.05
#: How many go on from the first round.
KEEP = 3


@dataclass(frozen=True)
class TrialSettings:
    """What the short fits of a search have in common."""

    columns: Columns
    model: ModelSettings
    test_rows: int  #: rows that the test of the inputs takes
    neighbours: int = 0  #: those of the model that is searched for; above 0, held-out rows decide
    hurried: bool = False  #: whether symmetries on columns that do badly in one block are left out

    def judges(self, number: int) -> bool:
        """Whether held-out rows decide a round."""
        return self.neighbours > 0 and number > 1


@gradients_enabled()
def search_symmetry(
    data: ModelRows,
    columns: Columns,
    settings: ModelSettings,
    actions: Sequence[Action] | None = None,
    suggest: bool = False,
) -> SymmetryChoice:
    """The best candidate for these rows: of all that can be generated, or of one block and the given `actions`.

    With `suggest` columns that look periodic are tried as such, and the whole time budget is for the search.
    """
    options = settings.options
    given = _generated(data, columns, settings, suggest) if actions is None else _offered(actions, columns, settings)
    shapes = _told_apart([_named(shape, columns, settings.encoding.names) for shape in given])
    k = 0 if suggest else settings.neighbours
    trials = TrialSettings(
        columns, settings, SUGGESTION_TEST_ROWS if suggest else TEST_ROWS, k, not suggest and actions is None
    )
    until = settings.until(1.0 if suggest else SEARCH_SHARE)
    # disable=None: quiet where there is no terminal
    with tqdm(desc="search", unit=" fits", disable=None if options.progress else True, leave=False) as bar:

        def tell(name: str) -> None:
            bar.update()
            bar.set_postfix_str(name)

        choice = compare(data, shapes, trials, tell, until)
    instead = ("an exact model" if settings.is_gaussian else "one block") if settings.small else ""
    return replace(
        choice,
        encoded_names=settings.encoding.names,
        estimator=settings.estimator,
        declared=options.columns,
        instead=instead,
    )


def _generated(data: ModelRows, columns: Columns, settings: ModelSettings, suggest: bool) -> list[Candidate]:
    """All candidates that columns and rows give, one block on raw columns first."""
    family = settings.family
    shapes = list(candidates(columns, settings.warp, family))
    warps = sorted({shape.warp for shape in shapes})
    soon = settings.until(LOOKING_SHARE)
    shapes += generated(columns, data.X, data.counts, family, settings.seed, soon, warps)
    shapes += guessed(columns, data.X, family, warps) if suggest else ()
    return shapes


def _offered(actions: Sequence[Action], columns: Columns, settings: ModelSettings) -> list[Candidate]:
    """One block, and the user's actions; each also without the symmetry where it makes a column periodic."""
    family = settings.family
    plain = list(candidates(columns, settings.warp, family))
    warps = sorted({shape.warp for shape in plain})
    names = settings.encoding.names
    shapes = [offered(action, columns, names, warp, family or "block") for warp in warps for action in actions]
    circles = [replace(shape, declared=None) for shape in shapes if shape.periods]
    return [replace(plain[0], warp=warp) for warp in warps] + circles + shapes


def _named(candidate: Candidate, columns: Columns, names: Sequence[str]) -> Candidate:
    """With the table's numbers and names of columns in its name."""
    if candidate.declared is not None:
        return replace(candidate, shown=repr(renumbered(candidate.declared, columns.used, len(names))))
    if candidate.periods:
        circles = ", ".join(f"{names[j]} of period {period:g}" for j, period in candidate.periods)
        return replace(candidate, shown=f"one block, {circles}")
    return candidate


def _told_apart(shapes: Sequence[Candidate]) -> list[Candidate]:
    """Equal candidates once; different ones of equal names numbered."""
    distinct: list[Candidate] = []
    by_name: dict[str, list[Action]] = {}
    for candidate in dict.fromkeys(shapes):
        if candidate.declared is not None:
            twins = by_name.setdefault(candidate.name, [])
            if not any(candidate.declared is twin for twin in twins):
                twins.append(candidate.declared)
            number = 1 + next(k for k, twin in enumerate(twins) if twin is candidate.declared)
            candidate = replace(candidate, shown=f"{candidate.name} #{number}") if number > 1 else candidate
        distinct.append(candidate)
    return distinct


# --- rounds of short fits -------------------------------------------------------------------------------------------------


def compare(
    data: ModelRows,
    shapes: Sequence[Candidate],
    trials: TrialSettings,
    progress: Callable[[str], object] | None = None,
    until: float = math.inf,
) -> SymmetryChoice:
    """The best of the candidates, of which the first is one block on raw columns; `until`, a time, cuts it short."""
    table: list[dict[str, Any]] = []
    cost, standing, decided, hopeless = 0.0, list(shapes), 1, 0
    best: dict[Candidate, float] = {}
    evidence: dict[str, Evidence | None] = {}
    family = trials.model.options.posterior
    for number, stage in enumerate(ROUNDS, start=1):
        rows = np.random.default_rng([trials.model.seed, number]).permutation(len(data))[: stage.rows]
        part, bounds, cut = data.part(np.sort(rows)), dict[Candidate, float](), False
        for candidate in sorted(standing, key=lambda c: c.blocks > 1):
            if trials.hurried and _hopeless(candidate, bounds):
                hopeless += 1
                continue
            cut = bool(best or bounds) and time.perf_counter() > until
            if cut:
                break
            if progress is not None:
                progress(candidate.name)
            row = run_trial(part, candidate, trials, stage, evidence, trials.judges(number))
            cost += row["cost"]
            table.append(row | {"round": number, "key": candidate})
            value = row["density"] if trials.judges(number) else row["bound"]
            if value is not None:
                bounds[candidate] = value
        if cut or not bounds:
            best = best or bounds  # a round cut short, or of which nothing came, decides only if it is the first
            break
        best, decided = bounds, number
        # With neighbours the last posterior is joint in any case.
        standing = _next(best, "block" if trials.neighbours else family, shapes[0]) if number == 1 else _finalists(best)
        if len(standing) < 2 or (trials.judges(number) and _is_clear(best, standing)):
            break
    winner, reason = _winner(best, shapes[0], "density of held-out rows" if trials.judges(decided) else "bound a row")
    for row in table:
        candidate = row.pop("key")
        row["chosen"] = row["round"] == decided and candidate == winner
    inputs = Inputs.fit(data.X[:100], None, trials.columns)
    tried = {candidate.name: candidate for candidate in shapes}
    missed = len(shapes) > hopeless + sum(row["round"] == 1 for row in table)
    return SymmetryChoice(winner, winner.action(inputs), table, reason, cost, tried, trials.columns, cut=missed)


def _hopeless(candidate: Candidate, bounds: dict[Candidate, float]) -> bool:
    """Whether one block with the columns that this symmetry needs is so far behind that the symmetry cannot make it up."""
    plain = {(c.axes, c.warp): bound for c, bound in bounds.items() if c.blocks == 1 and not c.periods}
    alike = plain.get((candidate.axes, candidate.warp))
    return candidate.blocks > 1 and alike is not None and alike < max(plain.values()) - FAR_BEHIND


def _next(best: dict[Candidate, float], family: str, plain: Candidate) -> list[Candidate]:
    """The best few, one block among them; with the posterior open, the best with blocks jointly too."""
    ranked = sorted(best, key=lambda c: -best[c])
    standing = [replace(c, posterior=plain.posterior) for c in ranked[:KEEP]]
    standing = list(dict.fromkeys([plain, *standing]))
    if family == "auto":
        blocked = [c for c in standing if c.blocks > 1][:1]
        standing += [replace(c, posterior="joint") for c in blocked]
    return standing


def _finalists(best: dict[Candidate, float]) -> list[Candidate]:
    """The best of one block, and the best of all if that is another."""
    ranked = sorted(best, key=lambda c: -best[c])
    return [*[c for c in ranked if c.blocks == 1][:1], *[c for c in ranked[:1] if c.blocks > 1]]


def _is_clear(best: dict[Candidate, float], finalists: list[Candidate]) -> bool:
    """Whether another round would hardly change which of one block and a symmetry is taken."""
    gain = best[finalists[1]] - best[finalists[0]]
    return not MARGIN < gain < CLEAR


def _winner(best: dict[Candidate, float], plain: Candidate, measure: str) -> tuple[Candidate, str]:
    if not best:
        return plain, "no short fit ended well, so one block was taken"
    first = max(best, key=lambda c: best[c])
    blocks = [c for c in best if c.blocks == 1]
    rival = max(blocks, key=lambda c: best[c]) if blocks else None
    if rival is not None and first.blocks > 1 and best[first] < best[rival] + MARGIN:
        return rival, f"no symmetry beat one block by {MARGIN} nats a row at equal cost"
    if len(best) == 1:
        return first, "the only candidate that was compared"
    if rival is None or first is rival:
        return first, f"the highest {measure} at equal cost"
    return first, f"{best[first] - best[rival]:.3f} nats a row above one block at equal cost"


# --- one short fit --------------------------------------------------------------------------------------------------------


def run_trial(
    data: ModelRows,
    candidate: Candidate,
    trials: TrialSettings,
    stage: TrialRound,
    evidence: dict[str, Evidence | None],
    judged: bool = False,
) -> dict[str, Any]:
    """A short fit: a row of the table, with its bound per row, its modelled cost and, if `judged`, what it says of held-out rows.

    `evidence` holds how far moved inputs are from the others, by the names of candidates; new ones are added to it.
    """
    settings, N = trials.model, len(data)
    columns = candidate.columns(trials.columns)
    inputs = Inputs.fit(data.X, data.counts, columns, candidate.warp, candidate.axes == "principal")
    action, batch = candidate.action(inputs), min(stage.batch, N)
    allowance = step_cost(None, stage.inducing, batch, "block")
    m = inducing_for(allowance, action, batch, candidate.posterior, settings.n_precisions, N, MAX_DENSE // 2)
    step = step_cost(action, m, batch, candidate.posterior, settings.n_precisions)
    row: dict[str, Any] = {
        "name": candidate.name,
        "blocks": candidate.blocks,
        "n_inducing": m,
        "warp": candidate.warp,
        "posterior": candidate.posterior,  # in training
        "finish": candidate.posterior,  # at the end
        "steps": stage.steps,
        "cost": stage.steps * step + finish_cost(action, m, N),
        "bound": None,
        "density": None,  # of held-out rows, with neighbours
        "residual": None,  # share of the kernel that the inducing points leave, at the start
        "distance": None,  # of moved inputs from the others
        "p_value": None,
    }
    try:
        if action is not None:
            if candidate.name not in evidence:
                evidence[candidate.name] = _evidence(data, candidate, columns, action, trials)
            row["distance"], row["p_value"] = evidence[candidate.name] or (None, None)
        k = trials.neighbours if judged else 0
        result, row["residual"], row["density"] = _short_fit(data, candidate, settings, stage, inputs, m, k)
    except (ValueError, ArithmeticError, RuntimeError) as error:
        return row | {"failure": str(error)}  # a candidate that cannot be fitted is out
    if np.isfinite(result.bound):
        row |= {"bound": result.bound, "finish": result.posterior.family}
    return row


def _evidence(
    data: ModelRows, candidate: Candidate, columns: Columns, action: Action, trials: TrialSettings
) -> Evidence | None:
    """How far moved inputs are from the others; None where too few different rows tell it."""
    # Of the columns as they are: warped ones are symmetric, whatever they were.
    straight = Inputs.fit(data.X, data.counts, columns, False, candidate.axes == "principal")
    rows = by_counts(len(data), data.counts, ANGLES, trials.model.seed)
    moved = torch.from_numpy(straight.transform(data.X[rows]))
    if len(np.unique(moved.numpy(), axis=0)) < DISTINCT or not enough_places(action, moved):
        return None
    return invariance_test(action, moved, trials.test_rows, seed=trials.model.seed, centred=True)


def _short_fit(
    data: ModelRows, candidate: Candidate, settings: ModelSettings, stage: TrialRound, inputs: Inputs, m: int, k: int
) -> tuple[Fit, float, float | None]:
    """The fit, the share of the kernel that the inducing points leave at its start, and the density with k neighbours."""
    action, options = candidate.action(inputs), settings.options
    X, y, noise, counts = data.tensors(inputs, settings.dtype, settings.device)
    kernel = make_kernel(options.kernel, inputs, action, X, settings.seed)
    features = make_features(kernel, action, X, m, method="rows", seed=settings.seed)
    residual = _residual(features, X[:MEASURED])
    schedule = Schedule(
        max_steps=stage.steps,
        batch_size=min(stage.batch, len(data)),
        learning_rate=2 * options.learning_rate,
        refine=False,
        validation_fraction=HELD_OUT if k else 0.0,
        set_aside=k > 0,
        seed=settings.seed,
        progress=False,
        full_passes=1,
    )
    likelihood = settings.likelihood()
    result = fit(
        features,
        likelihood,
        X,
        y,
        noise=noise,
        counts=counts,
        family="auto" if options.posterior == "auto" and candidate.posterior == "block" else candidate.posterior,
        bound=settings.bound,
        schedule=schedule,
    )
    if k == 0:
        return result, residual, None
    problem = Problem(features, observe(likelihood), X, y, None, noise, settings.bound, counts)
    return result, residual, held_out_density(problem, k, schedule)


@torch.no_grad()
def _residual(features: Features, rows: Tensor) -> float:
    return trace_error(features, rows) / float(features.view.xx(rows).double().sum())
