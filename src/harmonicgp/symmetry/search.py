"""The choice of a symmetry: candidates compared by their bounds at equal modelled cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import gpytorch
import numpy as np
import torch
from torch import Tensor

from harmonicgp.features import Features
from harmonicgp.features.nystrom import trace_error
from harmonicgp.inference.statistics import MAX_DENSE
from harmonicgp.likelihoods.observation import Bound
from harmonicgp.symmetry.candidates import (
    Candidate,
    finish_cost,
    inducing_for,
    make_features,
    make_kernel,
    step_cost,
)
from harmonicgp.symmetry.choice import MARGIN, SymmetryChoice
from harmonicgp.symmetry.evidence import ANGLES, Evidence, by_counts, enough_places, invariance_test
from harmonicgp.tables.inputs import Array, Columns, Inputs
from harmonicgp.training import Schedule, fit

#: Different rows that it takes to say anything about their symmetry.
DISTINCT = 20
#: Rows on which the residual of the kernel is measured.
MEASURED = 2000


@dataclass(frozen=True)
class Round:
    """One round of short fits."""

    rows: int
    inducing: int  #: of one block; the others get what costs the same
    steps: int
    batch: int


#: All candidates; the best few; and the best against one block for longer, since early leads do not always last.
ROUNDS = (Round(4_000, 128, 60, 512), Round(8_000, 256, 50, 1024), Round(8_000, 256, 150, 1024))
#: How many go on from the first round.
KEEP = 3


@dataclass(frozen=True)
class Data:
    """Encoded, merged rows and model targets."""

    X: Array  #: [N, d]
    target: Array  #: [P, N]
    noise: Array | None  #: known variances in model units, [N]
    counts: Array | None
    columns: Columns

    def part(self, rows: Array) -> Data:
        """Some of the rows."""
        return Data(
            self.X[rows],
            self.target[:, rows],
            None if self.noise is None else self.noise[rows],
            None if self.counts is None else self.counts[rows],
            self.columns,
        )

    def tensors(self, inputs: Inputs, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        """Model inputs, targets, noise and counts."""

        def tensor(a: Array | None) -> Tensor | None:
            return None if a is None else torch.from_numpy(np.ascontiguousarray(a)).to(dtype)

        return (
            torch.from_numpy(inputs.transform(self.X)).to(dtype),
            torch.from_numpy(np.ascontiguousarray(self.target)).to(dtype),
            tensor(self.noise),
            tensor(self.counts),
        )


@dataclass(frozen=True)
class Trials:
    """What short fits need beside the data and a candidate."""

    kernel: str | gpytorch.kernels.Kernel
    likelihood: Callable[[], gpytorch.likelihoods.Likelihood]
    outputs: int  #: precisions to be learned, as the cost counts them
    bound: Bound | None
    dtype: torch.dtype
    learning_rate: float
    seed: int
    tested: int  #: rows that the test of the inputs takes


def search(
    data: Data,
    options: Sequence[Candidate],
    trials: Trials,
    family: str,
    progress: Callable[[str], object] | None = None,
    until: float = float("inf"),
) -> SymmetryChoice:
    """The best of the options, one block on raw columns among them; `until`, a time, cuts the search short."""
    table: list[dict[str, Any]] = []
    cost, standing, decided = 0.0, list(options), 1
    best: dict[Candidate, float] = {}
    evidence: dict[str, Evidence | None] = {}
    for number, stage in enumerate(ROUNDS, start=1):
        N = len(data.X)
        chosen = np.sort(np.random.default_rng([trials.seed, number]).permutation(N)[: stage.rows])
        part, found = data.part(chosen), dict[Candidate, float]()
        for candidate in standing:
            cut = bool(best or found) and time.perf_counter() > until
            if cut:
                break
            if progress is not None:
                progress(candidate.name)
            row = _trial(part, candidate, trials, stage, family == "auto", evidence)
            row["round"] = number
            cost += row["cost"]
            table.append(row)
            if row["bound"] is not None:
                found[candidate] = row["bound"]
        if cut or not found:
            best = best or found  # a round cut short, or of which nothing came, decides only if it is the first
            break
        best, decided = found, number
        standing = _next(best, family, options[0]) if number == 1 else _finalists(best)
        if len(standing) < 2:
            break
    winner, reason = _winner(best, options[0])
    for row in table:
        row["chosen"] = row["round"] == decided and row["key"] == winner
    for row in table:
        del row["key"]
    inputs = Inputs.fit(data.X[:100], None, data.columns)
    tried = {candidate.name: candidate for candidate in options}
    missed = len(options) > sum(row["round"] == 1 for row in table)
    return SymmetryChoice(winner, winner.action(inputs), table, reason, cost, tried, data.columns, cut=missed)


def _next(best: dict[Candidate, float], family: str, plain: Candidate) -> list[Candidate]:
    """The best few, one block among them; with the posterior open, the best with blocks jointly too."""
    if not best:
        return []
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


def _winner(best: dict[Candidate, float], plain: Candidate) -> tuple[Candidate, str]:
    if not best:
        return plain, "no short fit ended well, so one block was taken"
    first = max(best, key=lambda c: best[c])
    blocks = [c for c in best if c.blocks == 1]
    rival = max(blocks, key=lambda c: best[c]) if blocks else None
    if rival is not None and first.blocks > 1 and best[first] < best[rival] + MARGIN:
        return rival, f"no symmetry beat one block by {MARGIN} nats a row at equal cost"
    if rival is None or first is rival:
        return first, "the highest bound a row at equal cost"
    return first, f"{best[first] - best[rival]:.3f} nats a row above one block at equal cost"


def _trial(
    data: Data,
    candidate: Candidate,
    trials: Trials,
    stage: Round,
    either: bool,
    evidence: dict[str, Evidence | None],
) -> dict[str, Any]:
    """A short fit: its bound per row, and what it cost by the model; `either` lets the finish choose the posterior.

    `evidence` keeps how far moved inputs are from the others, by the names of candidates.
    """
    columns = candidate.columns(data.columns)
    inputs = Inputs.fit(data.X, data.counts, columns, candidate.warp, candidate.axes == "principal")
    action = candidate.action(inputs)
    N = len(data.X)
    batch = min(stage.batch, N)
    allowance = step_cost(None, stage.inducing, batch, "block")
    m = inducing_for(allowance, action, batch, candidate.posterior, trials.outputs, N, MAX_DENSE // 2)
    rows, y, noise, counts = data.tensors(inputs, trials.dtype)
    row: dict[str, Any] = {
        "name": candidate.name,
        "blocks": candidate.blocks,
        "n_inducing": m,
        "warp": candidate.warp,
        "posterior": candidate.posterior,  # in training
        "finish": candidate.posterior,  # at the end
        "steps": stage.steps,
        "cost": stage.steps * step_cost(action, m, batch, candidate.posterior, trials.outputs)
        + finish_cost(action, m, N),
        "bound": None,
        "residual": None,  # share of the kernel that the inducing points leave, at the start
        "distance": None,  # of moved inputs from the others
        "p_value": None,
        "key": candidate,
    }
    schedule = Schedule(
        max_steps=stage.steps,
        batch_size=batch,
        learning_rate=2 * trials.learning_rate,
        refine=False,
        seed=trials.seed,
        progress=False,
        full_passes=1,
    )
    try:
        if action is not None:
            if candidate.name not in evidence:
                # Of the columns as they are: warped ones are symmetric, whatever they were.
                straight = Inputs.fit(data.X, data.counts, columns, False, candidate.axes == "principal")
                rows_ = by_counts(N, data.counts, ANGLES, trials.seed)
                moved = torch.from_numpy(straight.transform(data.X[rows_]))
                known = len(np.unique(moved.numpy(), axis=0)) >= DISTINCT and enough_places(action, moved)
                evidence[candidate.name] = (
                    invariance_test(action, moved, trials.tested, seed=trials.seed, centred=True) if known else None
                )
            row["distance"], row["p_value"] = evidence[candidate.name] or (None, None)
        kernel = make_kernel(trials.kernel, inputs, action, rows, trials.seed)
        features = make_features(kernel, action, rows, m, method="rows", seed=trials.seed)
        row["residual"] = _residual(features, rows[:MEASURED])
        result = fit(
            features,
            trials.likelihood(),
            rows,
            y,
            noise=noise,
            counts=counts,
            family="auto" if either and candidate.posterior == "block" else candidate.posterior,
            bound=trials.bound,
            schedule=schedule,
        )
    except (ValueError, ArithmeticError, RuntimeError) as error:
        return row | {"failure": str(error)}  # a candidate that cannot be fitted is out
    if np.isfinite(result.bound):
        row |= {"bound": result.bound, "finish": result.posterior.family}
    return row


@torch.no_grad()
def _residual(features: Features, rows: Tensor) -> float:
    return trace_error(features, rows) / float(features.view.xx(rows).double().sum())
