"""Neighbours "auto" against none: no table on which "auto" predicts worse.

    python -m benchmarks.neighbours --output out [--sets kin40k,long,...] [--budget SECONDS]

Test fold 0 of twelve real tables (they need HARMONICGP_DATA) and five made ones: "smooth" without noise, pure "noise", heavy
"tails", "long" (two million rows), "wide" (sixty columns). Each fit runs in a process of its own; results are kept in
neighbours.jsonl, so that a rerun goes on.

What is fair? `neighbours=0` with its defaults is the first part of the same fit, so it takes fewer seconds. Seconds that are
left can only go into more steps. So "auto" is held against the better one, by the NLL on the test rows, of two models:

- none: `neighbours=0`, else defaults, in the time that it takes;
- none, as long: `neighbours=0` with the seconds of "auto" as its `time_budget`, as many inducing points as "auto" has, no early
  stopping and up to four times the steps. (Up to 2,000 rows the model is exact and has no steps to add: it is left out.)

To choose by test rows favours the side without neighbours. With --budget both sides get this `time_budget`, and nothing else.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

from benchmarks._fits import MADE, REAL, Fit, command, fits_parser, opened, run_fits
from benchmarks._harness import LARGE
from benchmarks._process import Row
from benchmarks._rates import facts, machine_rates, publish, table

TABLES = (*REAL, *MADE)
#: Nats a row by which "auto" may be worse.
SLACK = 0.005
EXACT_ROWS = 2_000
STEPS = 1_600
AUTO, NONE, AS_LONG = "auto", "none", "none, as long"


def first_fits(tables: tuple[str, ...], budget: float | None, quick: bool) -> list[Fit]:
    """With neighbours="auto" and without, on each table."""
    given: Row = {} if budget is None else {"time_budget": budget}
    settings: dict[str, Row] = {AUTO: {"neighbours": "auto"}, NONE: {"neighbours": 0}}
    return [Fit(name, setting, {**given, **options}, quick) for name in tables for setting, options in settings.items()]


def as_long(rows: list[Row]) -> list[Fit]:
    """None with the seconds and the inducing points of "auto", where training can use more seconds."""
    return [
        Fit(
            row["table"],
            AS_LONG,
            {
                "neighbours": 0,
                "time_budget": round(row["details"]["fit_seconds"], 1),
                "n_inducing": row["details"]["inducing"],
                "max_steps": STEPS,
                "early_stopping": False,
            },
            row["quick"],
        )
        for row in rows
        if row["setting"] == AUTO and "error" not in row and row["train_rows"] > EXACT_ROWS
    ]


class Comparison(NamedTuple):
    """A table with "auto", and the better of the fits without neighbours; either may be an error."""

    auto: Row
    best: Row

    @classmethod
    def of(cls, name: str, rows: list[Row]) -> Comparison:
        """From the rows of all tables."""
        auto = next(row for row in rows if (row["table"], row["setting"]) == (name, AUTO))
        others = [row for row in rows if row["table"] == name and row["setting"] != AUTO]
        scored = [row for row in others if "error" not in row]
        return cls(auto, min(scored, key=lambda row: row["nll"]) if scored else others[0])

    @property
    def error(self) -> str | None:
        """Why they cannot be compared."""
        return self.auto.get("error") or self.best.get("error")

    @property
    def difference(self) -> float:
        """NLL of "auto" less that of the other: below zero is better."""
        return float(self.auto["nll"] - self.best["nll"])

    @property
    def worse(self) -> bool:
        """Whether "auto" is worse by more than the slack."""
        return self.difference > SLACK

    def line(self) -> list[str]:
        """A row of the table."""
        if self.error is not None:
            return [self.auto["table"], *["-"] * 7, self.error.replace("|", "/")]

        def pair(form: str, *keys: str) -> str:
            values = []
            for row in self:
                value = row
                for key in keys:
                    value = value[key]
                values.append(format(value, form))
            return " / ".join(values)

        name = f"{self.auto['table']} ({self.auto['train_rows']:,} x {self.auto['columns']})"
        figures = [pair("+.4f", "nll"), f"{self.difference:+.4f}", pair(".4f", "rmse"), pair(".1%", "coverage")]
        seconds, k = pair(".1f", "details", "fit_seconds"), pair("d", "details", "neighbours")
        return [name, *figures, seconds, k, self.best["setting"], "yes" if self.worse else "no"]


def page(tables: tuple[str, ...], rows: list[Row], made_by: str, machine: str) -> str:
    """The table, and how often "auto" is worse."""
    compared = [Comparison.of(name, rows) for name in tables]
    measured = [c for c in compared if c.error is None]
    worse = [f"{c.auto['table']} ({c.difference:+.4f})" for c in measured if c.worse]
    header = ["table", "NLL, auto / none", "difference", "RMSE", "coverage", "seconds of the fit", "neighbours",
              "the other side", f"worse by more than {SLACK}"]  # fmt: skip
    summary = f'"auto" is worse by more than {SLACK} nats on {len(worse)} of {len(measured)} tables'
    summary += (": " + ", ".join(worse) if worse else "") + "."
    summary += f" {len(compared) - len(measured)} could not be compared." if len(measured) < len(compared) else ""
    return (
        f'## Neighbours "auto" against none\n\nMade by `{made_by}`. {machine}.\n\n'
        f"{table(header, [c.line() for c in compared])}\n\n{summary}"
    )


def main(argv: list[str] | None = None) -> int:
    """Measure what is missing and print the table."""
    parser = fits_parser("neighbours", __doc__, TABLES, TABLES + LARGE)
    parser.add_argument("--budget", type=float, help="the time_budget of both sides, in seconds")
    arguments = parser.parse_args(argv)
    with opened("neighbours", arguments) as results:
        rows = run_fits(first_fits(arguments.sets, arguments.budget, arguments.quick), results)
        if arguments.budget is None:
            rows += run_fits(as_long(rows), results)
    made_by = command("neighbours", arguments, TABLES, budget=arguments.budget)
    text = page(arguments.sets, rows, made_by, facts(machine_rates()))
    publish("neighbours", text, rows, arguments.output)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
