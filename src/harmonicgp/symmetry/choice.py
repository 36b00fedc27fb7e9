"""What a search for a symmetry found, in words, numbers and a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import torch

from harmonicgp.actions import Action, Negation, PrincipalNegation
from harmonicgp.actions.negation import strided
from harmonicgp.symmetry.candidates import Candidate
from harmonicgp.tables.inputs import Columns

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: A candidate must beat one block by this many nats a row; less is a tie.
MARGIN = 0.005
#: Files that a picture can be drawn to.
PICTURES = (".png", ".svg", ".pdf")
#: A p-value below which moved inputs are not like the others.
ALPHA = 0.01
#: Where a choice comes from: the user's argument, the user's own kernel, too few rows for a search, or a search.
Origin: TypeAlias = Literal["asked", "kernel", "few rows", "search"]


@dataclass
class SymmetryChoice:
    """The model's symmetry, and the table of candidates it was chosen from. `print(choice)` shows it."""

    candidate: Candidate
    action: Action | None
    table: list[dict[str, Any]] = field(default_factory=list)
    reason: str = ""
    cost: float = 0.0  #: modelled, of the search
    tried: dict[str, Candidate] = field(default_factory=dict, repr=False, compare=False)  #: by name; not kept in files
    columns: Columns | None = field(default=None, repr=False, compare=False)
    encoded_names: Sequence[str] = field(default=(), repr=False, compare=False)
    estimator: str = field(default="HarmonicGPRegressor", repr=False, compare=False)
    declared: Any = field(default=None, repr=False, compare=False)  #: the columns that the user has declared
    cut: bool = field(default=False, repr=False, compare=False)  #: whether time was up before all candidates were tried
    instead: str = field(default="", repr=False, compare=False)  #: what a fit of so few rows takes without a search
    origin: Origin = field(default="search", repr=False, compare=False)

    @property
    def name(self) -> str:
        """In words."""
        searched = self.candidate.ways or self.candidate.declared is not None
        return self.candidate.name if self.action is None or searched else repr(self.action)

    # What was found ---------------------------------------------------------------------------------------------------

    @property
    def ranked(self) -> list[dict[str, Any]]:
        """Each candidate once, as its last round left it: what is suggested, other symmetries of the inputs, the rest.

        Within these the later round and the higher bound come first. `gain` is the bound against the best of one block in the
        same round, `plain_residual` the share of the kernel that this one leaves, and `same` says whether moved inputs were not
        seen to differ from the others (None for one block).
        """
        plain: dict[int, dict[str, Any]] = {}
        for row in self._fitted:
            known = plain.get(row["round"])
            if row["blocks"] == 1 and (known is None or row["bound"] > known["bound"]):
                plain[row["round"]] = row
        last: dict[str, dict[str, Any]] = {}
        for row in self._fitted:
            rival, p, known = plain.get(row["round"]), row.get("p_value"), last.get(row["name"])
            if known is None or (row["round"], row["bound"]) > (known["round"], known["bound"]):
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
        """The symmetry that the inputs have; None where there is none.

        Of several that of the highest bound, and of those that tie with it (within 0.005 nats a row in the last round that both
        were in) the one of most blocks. A fit takes it only where it pays, and may take one that the inputs have not.
        """
        rows = self.ranked
        return str(rows[0]["name"]) if rows and rows[0]["same"] else None

    @property
    def suggested_action(self) -> Action | None:
        """The suggested symmetry as an estimator takes it, `HarmonicGPRegressor(symmetry=...)`; None where there is none.

        Of columns as the estimator encodes them: those of the table, where it has no categories and no dates. A shift also needs
        its column declared, `columns={name: ("periodic", period)}`. Also None where no action says it. `advice` says why, and
        whether it pays.
        """
        return self._use()[0]

    @property
    def pays(self) -> bool:
        """Whether there is a suggestion and its bound is above one block's at equal cost by more than a tie."""
        rows = self.ranked
        return bool(rows and rows[0]["same"]) and (rows[0]["gain"] is None or rows[0]["gain"] > MARGIN)

    @property
    def arguments(self) -> dict[str, Any]:
        """What is advised, as an estimator takes it: `HarmonicGPRegressor(**found.arguments)`.

        Of a symmetry that pays, in a table with rows enough for it to matter: `symmetry`, and `warp` where its bound comes from
        warped columns. `columns` are those that you have declared, and those that gain by being periodic.
        """
        action, found = self.suggested_action, dict[str, Any]()
        periods: tuple[tuple[int, float], ...] = self._circle()[0]
        if action is not None and self.pays:
            row = self.ranked[0]
            periods = self.tried[row["name"]].periods or (periods if self.instead else ())  # those of its short fit
            if not self.instead:
                found["symmetry"] = action
                if row["warp"]:
                    found["warp"] = "quantile"
        if periods:
            found["columns"] = {**(self.declared or {}), **{self._key(j): ("periodic", T) for j, T in periods}}
        elif self.declared:
            found["columns"] = self.declared
        return found

    def _circle(self) -> tuple[tuple[tuple[int, float], ...], float]:
        """Columns that gain by being periodic in one block, without a symmetry, and how much, in nats a row."""
        for last in sorted({row["round"] for row in self._fitted}, reverse=True):
            ones = [
                row for row in self._fitted if row["round"] == last and row["blocks"] == 1 and row["name"] in self.tried
            ]
            round_ = [row for row in ones if self.tried[row["name"]].periods]
            plain = [row["bound"] for row in ones if not self.tried[row["name"]].periods]
            if round_ and plain:
                best = max(round_, key=lambda row: row["bound"])
                gain = best["bound"] - max(plain)
                return (self.tried[best["name"]].periods, gain) if gain > MARGIN else ((), 0.0)
        return (), 0.0

    def _use(self) -> tuple[Action | None, str]:
        """The action to use, or what stands in its way."""
        name = self.suggested
        if name is None or name not in self.tried or self.columns is None:
            return None, ""
        candidate, columns = self.tried[name], self.columns
        if columns.repeats:
            names = ", ".join(self.encoded_names[j] for j in columns.repeats)
            return None, f"to use it, leave out {names}: an action would not move what repeats another column"
        if candidate.declared is not None:
            places = {kind: j for j, kind in candidate.declared.declared_kinds().items()}
            if "longitude" in places and columns.used[places["latitude"]] != columns.used[places["longitude"]] + 1:
                return None, "to use it, put the latitude right after the longitude"
            return renumbered(candidate.declared, columns.used, len(self.encoded_names)), ""
        if candidate.axes == "principal":
            return PrincipalNegation(candidate.ways), ""
        plain = [j for j in columns.used if j not in columns.kinds]
        return Negation([[plain[i] for i in subset] for subset in strided(len(plain), candidate.ways)]), ""

    # Words ------------------------------------------------------------------------------------------------------------

    def label(self, name: str) -> str:
        """A candidate's name, with those of the columns that it moves."""
        candidate = self.tried.get(name)
        if candidate is None or candidate.declared is None or self.columns is None or not self.encoded_names:
            return name
        return with_names(name, candidate.declared, [self.encoded_names[j] for j in self.columns.used])

    @property
    def sentences(self) -> list[str]:
        """What was found of each candidate, in words."""
        found = []
        for row in self.ranked:
            if row["blocks"] == 1:
                continue
            words = self.label(row["name"])
            if row["same"] is None:
                words += ": too few different rows to tell whether the inputs have it"
            else:
                inputs = "moved inputs look like the others" if row["same"] else "moved inputs leave the data"
                words += f": {inputs} (p = {row['p_value']:.2g})"
            parts = [words]
            if row.get("residual") is not None and row["plain_residual"] is not None:
                left, other = (f"{100 * share:.2g} %" for share in (row["residual"], row["plain_residual"]))
                parts.append(
                    f"{row['blocks']} x {row['n_inducing']} points leave {left} of the kernel, one block at equal cost {other}"
                )
            if row["gain"] is not None:
                rounds = max(other["round"] for other in self._fitted)
                when = f" (round {row['round']} of {rounds})" if rounds > 1 else ""
                parts.append(f"its bound is {_against(row['gain'])} one block's{when}")
            if (row["gain"] or 0.0) > MARGIN and (other := self._other_kernel(row["name"])):
                parts.append(f"some of that may be the kernel's, {other}")
            found.append("; ".join(parts) + ".")
        failed = {row["name"]: row["failure"] for row in self.table if row.get("failure")}
        fitted = {row["name"] for row in self._fitted}
        return found + [
            f"{self.label(name)}: could not be fitted. {reason}"
            for name, reason in failed.items()
            if name not in fitted
        ]

    def _other_kernel(self, name: str) -> str:
        """How a candidate's kernel differs from that of one block, if it does."""
        candidate = self.tried.get(name)
        if candidate is None or candidate.declared is None or self.columns is None:
            return ""
        mixes = candidate.declared.mixed_columns(len(self.columns.used))
        return "in which the columns that it mixes share a lengthscale" if mixes else ""

    @property
    def taken(self) -> str:
        """What a fit of these rows takes, in words."""
        if self.instead:
            return f"searches nothing, for rows are few, and is {self.instead}"
        if self.candidate.periods:
            return "has not tried this: the column is not declared periodic"
        return f"would take {self.label(self.name)}" + (f" ({self.reason})" if self.reason else "")

    @property
    def advice(self) -> str:
        """What to do about what is suggested, in a sentence."""
        rows = self.ranked
        if all(row["blocks"] == 1 for row in rows):
            failures = [row["failure"] for row in self.table if row.get("failure")]
            why = failures[0] if failures else "time was up" if self.table else self.reason
            return f"Nothing was compared{f': {why}' if why else ''}".rstrip(".") + "."
        if all(row["same"] is None for row in rows):
            return "Too few different rows to tell whether the inputs have a symmetry."
        if not rows[0]["same"]:
            return "No symmetry of the inputs was found" + (", of those that there was time for." if self.cut else ".")
        circle, more = self._circle()
        names = ", ".join(self.encoded_names[j] for j, _ in circle)
        kernel = f" {names} as periodic gains {more:.3f} nats a row by itself." if circle else ""
        gain = rows[0]["gain"]
        _, obstacle = self._use()
        use = self._python()
        if not self.pays:
            verdict = "makes no difference" if gain >= -MARGIN else "does not pay"
            words = f"The inputs look the same after it, but it {verdict}: its bound is {_against(gain)} one block's."
            return words + kernel + use
        if obstacle:
            return f"The inputs look the same after it; {obstacle}.{kernel}"
        few = f" A fit of so few rows is {self.instead}, which has no need of a symmetry." if self.instead else ""
        return f"The inputs look the same after it.{kernel}{few}{use}"

    def _python(self) -> str:
        """The estimator with what is advised, in a sentence; empty where nothing is."""
        arguments = self.arguments
        action = arguments.get("symmetry")
        if action is None and arguments.get("columns") == self.declared:
            arguments.pop("columns", None)  # the user has said so already
        words = [f"{name}={value!r}" for name, value in arguments.items()]
        if action is not None and not action.repr_parses:
            words = ["**suggest_symmetry(...).arguments"]
        return f" In Python: {self.estimator}({', '.join(words)})." if words else ""

    def _key(self, j: int) -> int | str:
        """What `columns=` takes for the j-th: its name, or its number where it has none."""
        name = self.encoded_names[j]
        return j if name == f"column {j}" else name

    def plot(self, path: str | Path | None = None) -> Figure:
        """A picture of the candidates side by side, as a figure of matplotlib; to a file (.png, .svg, .pdf) if it is named."""
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
            lines.append("  (a few of each round go on to the next, larger one; the last decides)")
        if judged:
            lines.append("  (held out: the density of held-out rows, with neighbours; where it is given, it decides)")
        return "\n".join(lines)


def with_names(words: str, action: Action, names: Sequence[str]) -> str:
    """The words, and the names of the columns that the action moves, if there are few."""
    probe = torch.linspace(0.3, 1.7, len(names), dtype=torch.float64, device="cpu")[None]
    try:
        moved = ((action.orbit(probe) - probe).abs().amax((0, 1)) > 1e-9).tolist()
    except (ValueError, RuntimeError):  # an action of the user's own that fails
        return words
    moving = [name for name, moves in zip(names, moved, strict=True) if moves]
    return f"{words} of {', '.join(moving)}" if 0 < len(moving) <= 6 else words


def _against(gain: float) -> str:
    if abs(gain) < 5e-4:
        return "the same as"
    return f"{abs(gain):.3f} nats a row {'above' if gain > 0 else 'below'}"


def renumbered(action: Action, columns: Sequence[int], width: int) -> Action:
    """An action on the model's columns as one on the table's, of that width."""
    return action if list(columns) == list(range(width)) else action.renumbered(columns, width)
