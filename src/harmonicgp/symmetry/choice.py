"""The result of a search for a symmetry: the choice, the table of candidates, and both in words and as a picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args, get_type_hints

import torch

from harmonicgp.actions import Action, PrincipalNegation
from harmonicgp.io.fields import has_type
from harmonicgp.io.specs import action_spec, build_action
from harmonicgp.symmetry.candidates import Candidate, negation_of
from harmonicgp.tables.inputs import Columns

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: A candidate must beat one block by this many nats a row; less is a tie.
MARGIN = 0.005
#: Files that a picture can be drawn to.
PICTURES = (".png", ".svg", ".pdf")
#: Below this p-value, moved inputs differ from the others.
ALPHA = 0.01
#: Where a choice comes from: the user's argument, the user's own kernel, too few rows for a search, or a search.
Origin: TypeAlias = Literal["asked", "kernel", "few rows", "search"]


@dataclass
class SymmetryChoice:
    """The model's symmetry, and the table of candidates it was chosen from. `print(choice)` shows it.

    Examples:
        >>> import numpy as np
        >>> from harmonicgp import HarmonicGPRegressor
        >>> from harmonicgp.actions import Negation
        >>> X = np.random.default_rng(0).normal(size=(50, 2))
        >>> gp = HarmonicGPRegressor(symmetry=Negation(), max_steps=2, progress=False).fit(X, X[:, 0] ** 2)
        >>> gp.symmetry_.name, gp.symmetry_.origin
        ('Negation()', 'asked')
    """

    candidate: Candidate
    action: Action | None  #: None for one block
    table: list[dict[str, Any]] = field(default_factory=list)  #: a row for each trial of a candidate
    reason: str = ""
    cost: float = 0.0  #: modelled cost of the search
    tried: dict[str, Candidate] = field(
        default_factory=dict, repr=False, compare=False
    )  #: all candidates by name; not in files
    columns: Columns | None = field(default=None, repr=False, compare=False)
    encoded_names: Sequence[str] = field(default=(), repr=False, compare=False)
    estimator: str = field(default="HarmonicGPRegressor", repr=False, compare=False)
    declared: Any = field(default=None, repr=False, compare=False)  #: `columns=` of the user
    cut: bool = field(
        default=False, repr=False, compare=False
    )  #: whether time was up before all candidates were compared
    instead: str = field(default="", repr=False, compare=False)  #: the model of a fit with too few rows for a search
    origin: Origin = field(default="search", repr=False, compare=False)

    @property
    def name(self) -> str:
        """The name of the candidate or, for an action of the user, the action."""
        searched = self.candidate.ways or self.candidate.declared is not None
        return self.candidate.name if self.action is None or searched else repr(self.action)

    # Files ------------------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """A JSON part, for a model file, without `action`."""
        declared = self.candidate.declared
        return {
            "candidate": asdict(self.candidate) | {"declared": None},
            "declared": None if declared is None else action_spec(declared),
            "table": self.table,
            "reason": self.reason,
            "cost": self.cost,
            "origin": self.origin,
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any], action: Action | None) -> SymmetryChoice:
        """The choice with this `state` and action."""
        declared = None if state["declared"] is None else build_action(state["declared"])
        fields = dict(state["candidate"])
        periods = tuple((int(j), float(period)) for j, period in fields.get("periods", ()))
        fields |= {"declared": declared, "periods": periods}
        hints = get_type_hints(Candidate) | {"declared": Any}
        table, reason = list(state["table"]), state["reason"]
        right = has_type(table, list[dict[str, Any]]) and isinstance(reason, str)
        if not (right and all(has_type(value, hints[name]) for name, value in fields.items())):
            raise TypeError("the choice of a symmetry")
        candidate = Candidate(**fields)
        origin: Any = state.get("origin")
        if not origin:  # files of older versions do not hold it
            by_reason = {"as asked": "asked", "a kernel of your own": "kernel"}
            origin = "search" if table else by_reason.get(reason, "few rows")
        if origin not in get_args(Origin):
            raise KeyError(origin)
        return cls(candidate, action, table, reason, state["cost"], origin=origin)

    # Results ----------------------------------------------------------------------------------------------------------

    @property
    def ranked(self) -> list[dict[str, Any]]:
        """Each candidate once, with its last round: the suggested one, other symmetries of the inputs, the rest.

        Within each of these groups, later rounds come first, then higher bounds. Three keys are added to the rows of `table`:

        - `gain`: the bound minus that of the best one-block candidate in the same round;
        - `plain_residual`: the share of the kernel that this one-block candidate does not explain;
        - `same`: whether moved inputs look like the others; None for one block, or if there are too few rows to tell.
        """
        plain: dict[int, dict[str, Any]] = {}
        for row in self._fitted:
            best = plain.get(row["round"])
            if row["blocks"] == 1 and (best is None or row["bound"] > best["bound"]):
                plain[row["round"]] = row
        last: dict[str, dict[str, Any]] = {}
        for row in self._fitted:
            rival, p, earlier = plain.get(row["round"]), row.get("p_value"), last.get(row["name"])
            if earlier is None or (row["round"], row["bound"]) > (earlier["round"], earlier["bound"]):
                last[row["name"]] = row | {
                    "gain": None if rival is None else row["bound"] - rival["bound"],
                    "plain_residual": None if rival is None else rival.get("residual"),
                    "same": None if p is None else p >= ALPHA,
                }
        first = self._suggested(list(last.values()))
        return sorted(
            last.values(),
            key=lambda row: (row["name"] != first, row["same"] is not True, -row["round"], -row["bound"]),
        )

    @property
    def _fitted(self) -> list[dict[str, Any]]:
        return [row for row in self.table if row["bound"] is not None]

    def _suggested(self, rows: list[dict[str, Any]]) -> str | None:
        same = [row for row in rows if row["same"]]
        if not same:
            return None
        best = max(same, key=lambda row: (row["round"], row["bound"]))
        bounds = {row["round"]: row["bound"] for row in self._fitted if row["name"] == best["name"]}
        ties = [row for row in same if bounds.get(row["round"], math.inf) - row["bound"] <= MARGIN]
        return str(max([best, *ties], key=lambda row: (row["blocks"], row["bound"] - bounds[row["round"]]))["name"])

    @property
    def suggested(self) -> str | None:
        """The name of the symmetry that the inputs have; None if they have none.

        Of several symmetries, it is the one with the highest bound. Of those that tie with it (within 0.005 nats a row in the
        last round that both took part in), it is the one with the most blocks. A fit takes it only if it pays, and may take a
        symmetry that the inputs do not have.
        """
        rows = self.ranked
        return str(rows[0]["name"]) if rows and rows[0]["same"] else None

    @property
    def suggested_action(self) -> Action | None:
        """The suggested symmetry as an action for `HarmonicGPRegressor(symmetry=...)`; None if there is none.

        It acts on encoded columns, which are the columns of the table unless there are categories or dates. A shift also needs
        `columns={name: ("periodic", period)}`. It is also None if no action can express the symmetry; `advice` says why, and
        whether the symmetry pays.
        """
        return self._use()[0]

    @property
    def pays(self) -> bool:
        """Whether there is a suggestion whose bound exceeds that of one block at equal cost by more than a tie."""
        rows = self.ranked
        return bool(rows and rows[0]["same"]) and (rows[0]["gain"] is None or rows[0]["gain"] > MARGIN)

    @property
    def arguments(self) -> dict[str, Any]:
        """The advice as arguments of an estimator: `HarmonicGPRegressor(**choice.arguments)`.

        If a symmetry pays and the table has enough rows for it to matter: `symmetry`, and `warp` if the bound comes from warped
        columns. `columns` are those that you declared, and those that gain by being periodic.
        """
        action, arguments = self.suggested_action, dict[str, Any]()
        periods: tuple[tuple[int, float], ...] = self._circle()[0]
        if action is not None and self.pays:
            row = self.ranked[0]
            periods = self.tried[row["name"]].periods or (periods if self.instead else ())  # those of its short fit
            if not self.instead:
                arguments["symmetry"] = action
                if row["warp"]:
                    arguments["warp"] = "quantile"
        if periods:
            arguments["columns"] = {**(self.declared or {}), **{self._key(j): ("periodic", T) for j, T in periods}}
        elif self.declared:
            arguments["columns"] = self.declared
        return arguments

    def _circle(self) -> tuple[tuple[tuple[int, float], ...], float]:
        """Columns that gain by being periodic with one block, as (column, period), and the gain in nats a row."""
        for last in sorted({row["round"] for row in self._fitted}, reverse=True):
            ones = [
                row for row in self._fitted if row["round"] == last and row["blocks"] == 1 and row["name"] in self.tried
            ]
            periodic = [row for row in ones if self.tried[row["name"]].periods]
            plain = [row["bound"] for row in ones if not self.tried[row["name"]].periods]
            if periodic and plain:
                best = max(periodic, key=lambda row: row["bound"])
                gain = best["bound"] - max(plain)
                return (self.tried[best["name"]].periods, gain) if gain > MARGIN else ((), 0.0)
        return (), 0.0

    def _use(self) -> tuple[Action | None, str]:
        """The action to use, or the reason why there is none."""
        name = self.suggested
        if name is None or name not in self.tried or self.columns is None:
            return None, ""
        candidate, columns = self.tried[name], self.columns
        if columns.repeats:
            names = ", ".join(self.encoded_names[j] for j in columns.repeats)
            return None, f"to use it, leave out {names}: an action does not move a column that repeats another"
        if candidate.declared is not None:
            places = {kind: j for j, kind in candidate.declared.declared_kinds().items()}
            if "longitude" in places and columns.used[places["latitude"]] != columns.used[places["longitude"]] + 1:
                return None, "to use it, put the latitude right after the longitude"
            return renumbered(candidate.declared, columns.used, len(self.encoded_names)), ""
        if candidate.axes == "principal":
            return PrincipalNegation(candidate.ways), ""
        return negation_of([j for j in columns.used if j not in columns.kinds], candidate.ways), ""

    # Words ------------------------------------------------------------------------------------------------------------

    def label(self, name: str) -> str:
        """The name of a candidate, with the names of the columns that it moves."""
        candidate = self.tried.get(name)
        if candidate is None or candidate.declared is None or self.columns is None or not self.encoded_names:
            return name
        return with_names(name, candidate.declared, [self.encoded_names[j] for j in self.columns.used])

    @property
    def sentences(self) -> list[str]:
        """The evidence for and against each candidate, a sentence each."""
        sentences = []
        for row in self.ranked:
            if row["blocks"] == 1:
                continue
            words = self.label(row["name"])
            if row["same"] is None:
                words += ": too few different rows to tell whether the inputs have it"
            else:
                inputs = "moved inputs look like the others" if row["same"] else "moved inputs differ from the data"
                words += f": {inputs} (p = {row['p_value']:.2g})"
            parts = [words]
            if row.get("residual") is not None and row["plain_residual"] is not None:
                share, plain_share = (f"{100 * part:.2g} %" for part in (row["residual"], row["plain_residual"]))
                parts.append(
                    f"{row['blocks']} x {row['n_inducing']} points leave {share} of the kernel unexplained, one block at equal "
                    f"cost {plain_share}"
                )
            if row["gain"] is not None:
                rounds = max(other["round"] for other in self._fitted)
                when = f" (round {row['round']} of {rounds})" if rounds > 1 else ""
                parts.append(f"its bound is {_against(row['gain'])} one block's{when}")
            if (row["gain"] or 0.0) > MARGIN and (other := self._other_kernel(row["name"])):
                parts.append(f"part of this gain may come from the kernel, {other}")
            sentences.append("; ".join(parts) + ".")
        failed = {row["name"]: row["failure"] for row in self.table if row.get("failure")}
        fitted = {row["name"] for row in self._fitted}
        return sentences + [
            f"{self.label(name)}: could not be fitted. {reason}"
            for name, reason in failed.items()
            if name not in fitted
        ]

    def _other_kernel(self, name: str) -> str:
        """How a candidate's kernel differs from that of one block; empty if it does not."""
        candidate = self.tried.get(name)
        if candidate is None or candidate.declared is None or self.columns is None:
            return ""
        mixes = candidate.declared.mixed_columns(len(self.columns.used))
        return "in which the columns that it mixes share a lengthscale" if mixes else ""

    @property
    def taken(self) -> str:
        """What a fit to these rows would do, in words."""
        if self.instead:
            return f"runs no search, because there are few rows: it fits {self.instead}"
        if self.candidate.periods:
            return "would not compare this: the column is not declared periodic"
        return f"would take {self.label(self.name)}" + (f" ({self.reason})" if self.reason else "")

    @property
    def advice(self) -> str:
        """What to do with the suggestion, in a sentence or two."""
        rows = self.ranked
        if all(row["blocks"] == 1 for row in rows):
            failures = [row["failure"] for row in self.table if row.get("failure")]
            why = failures[0] if failures else "time was up" if self.table else self.reason
            return f"Nothing was compared{f': {why}' if why else ''}".rstrip(".") + "."
        if all(row["same"] is None for row in rows):
            return "Too few different rows to tell whether the inputs have a symmetry."
        if not rows[0]["same"]:
            return "No symmetry of the inputs was found" + (" in the time that there was." if self.cut else ".")
        circle, more = self._circle()
        names = ", ".join(self.encoded_names[j] for j, _ in circle)
        kernel = f" {names} as periodic gains {more:.3f} nats a row by itself." if circle else ""
        gain = rows[0]["gain"]
        _, obstacle = self._use()
        use = self._python()
        if not self.pays:
            verdict = "makes no difference" if gain >= -MARGIN else "does not pay"
            words = f"The inputs have this symmetry, but it {verdict}: its bound is {_against(gain)} one block's."
            return words + kernel + use
        if obstacle:
            return f"The inputs have this symmetry; {obstacle}.{kernel}"
        few = f" A fit to so few rows is {self.instead}, which needs no symmetry." if self.instead else ""
        return f"The inputs have this symmetry.{kernel}{few}{use}"

    def _python(self) -> str:
        """A sentence with the estimator and its advised arguments; empty if there are none."""
        arguments = self.arguments
        action = arguments.get("symmetry")
        if action is None and arguments.get("columns") == self.declared:
            arguments.pop("columns", None)  # the user gave them
        words = [f"{name}={value!r}" for name, value in arguments.items()]
        if action is not None and not action.repr_parses:
            words = ["**suggest_symmetry(...).arguments"]
        return f" In Python: {self.estimator}({', '.join(words)})." if words else ""

    def _key(self, j: int) -> int | str:
        """The key of encoded column j for `columns=`: its name, or its number if it has none."""
        name = self.encoded_names[j]
        return j if name == f"column {j}" else name

    def plot(self, path: str | Path | None = None) -> Figure:
        """A matplotlib figure that compares the candidates; also written to `path` (.png, .svg, .pdf) if that is given."""
        if path is not None and Path(path).suffix.lower() not in PICTURES:
            raise ValueError(f"a picture is a {', '.join(PICTURES)} file; got {str(path)!r}.")
        from harmonicgp.symmetry.pictures import draw_symmetries

        return draw_symmetries(self, path)

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.reason}" if self.reason else self.name]
        judged = any(row.get("density") is not None for row in self.table)
        width = max((len(row["name"]) for row in self.table), default=0)
        if self.table:
            lines.append(
                f"{'':2}{'candidate':{width}} {'warp':4} {'posterior':9} {'round':>5} {'points':>10} {'bound/row':>10} "
                + (f"{'held out':>10} " if judged else "")
                + f"{'inputs':>8}"
            )
        for row in self.table:
            mark = "*" if row["chosen"] else ""
            points = f"{row['blocks']} x {row['n_inducing']}"
            bound = f"{row['bound']:10.4f}" if row["bound"] is not None else f"{'failed':>10}"
            posterior = row["posterior"] if row["posterior"] == row["finish"] else f"{row['posterior']}*"
            p = f"p={row['p_value']:.2g}" if row.get("p_value") is not None else ""
            if judged:
                bound += f" {row['density']:10.4f}" if row.get("density") is not None else f" {'':>10}"
            lines.append(
                f"{mark:2}{row['name']:{width}} {'yes' if row['warp'] else 'no':4} {posterior:9} "
                f"{row['round']:5d} {points:>10} {bound} {p:>8}"
            )
        if any(row["posterior"] != row["finish"] for row in self.table):
            lines.append("  (block*: trained with independent blocks, finished jointly)")
        if len({row["round"] for row in self.table}) > 1:
            lines.append(
                "  (the best of each round are compared again in the next, larger round; the last round decides)"
            )
        if judged:
            lines.append("  (held out: the density of held-out rows with neighbours, which decides if it is shown)")
        return "\n".join(lines)


def with_names(words: str, action: Action, names: Sequence[str]) -> str:
    """The words, followed by the names of the columns that the action moves if there are at most six."""
    probe = torch.linspace(0.3, 1.7, len(names), dtype=torch.float64, device="cpu")[None]
    try:
        moves = ((action.orbit(probe) - probe).abs().amax((0, 1)) > 1e-9).tolist()
    except (ValueError, RuntimeError):  # a user's action that fails
        return words
    columns = [name for name, column_moves in zip(names, moves, strict=True) if column_moves]
    return f"{words} of {', '.join(columns)}" if 0 < len(columns) <= 6 else words


def _against(gain: float) -> str:
    if abs(gain) < 5e-4:
        return "the same as"
    return f"{abs(gain):.3f} nats a row {'above' if gain > 0 else 'below'}"


def renumbered(action: Action, columns: Sequence[int], width: int) -> Action:
    """An action on the model's columns as an action on the `width` encoded columns."""
    return action if list(columns) == list(range(width)) else action.renumbered(columns, width)
