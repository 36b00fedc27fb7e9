"""What a time budget buys: NLL and seconds used with 10, 30, 90 and 300 seconds.

    python -m benchmarks.budgets --output out [--sets kin40k,...] [--seconds 10,30]

Test fold 0 of kin40k, pol, keggdirected and houseelectric (logarithm of y; 20,000 of its test rows); needs HARMONICGP_DATA.
Every budget is fitted twice: `HarmonicGPRegressor(time_budget=seconds)`, and the same with `symmetry=None`. Each fit runs in a
process of its own; results are kept in budgets.jsonl, so that a rerun goes on. The table says whether

- the NLL of a larger budget is at most 0.01 above that of the best smaller one;
- a fit uses between 0.6 and 1.05 of its budget, or a note of the fit names its budget and says why it ended early;
- the choice of a symmetry is at most 0.005 above one block in the same time.
"""

from __future__ import annotations

import argparse
import sys

from benchmarks._fits import MADE, REAL, Fit, command, fits_parser, opened, run_fits
from benchmarks._harness import LARGE
from benchmarks._process import Row
from benchmarks._rates import facts, machine_rates, publish, table

TABLES = ("kin40k", "pol", "keggdirected", "houseelectric")
SECONDS = (10.0, 30.0, 90.0, 300.0)
QUICK_SECONDS = (2.0, 4.0)
#: Nats a row by which more seconds, or the choice of a symmetry, may be worse.
RISE, SLACK = 0.01, 0.005
#: The share of a budget that a fit should use.
LEAST, MOST = 0.6, 1.05
AUTO, ONE_BLOCK = "auto", "one block"


def fits(tables: tuple[str, ...], seconds: tuple[float, ...], quick: bool) -> list[Fit]:
    """Every budget on every table, with the choice of a symmetry and without."""
    settings: dict[str, Row] = {AUTO: {"symmetry": "auto"}, ONE_BLOCK: {"symmetry": None}}
    return [
        Fit(name, setting, {"time_budget": budget, **options}, quick)
        for name in tables
        for budget in seconds
        for setting, options in settings.items()
    ]


def reason(row: Row) -> str | None:
    """The note of the fit that speaks of its budget."""
    return next((note for note in row["details"]["notes"] if "budget" in note), None)


def used(row: Row) -> float:
    """The share of the budget that the fit took."""
    return float(row["details"]["fit_seconds"] / row["options"]["time_budget"])


def complaints(rows: list[Row], row: Row) -> list[str]:
    """What the row of a budget does not keep, given all rows of its table."""
    budget, found = row["options"]["time_budget"], []
    scored = [other for other in rows if "error" not in other]
    smaller = [
        other["nll"]
        for other in scored
        if other["setting"] == row["setting"] and other["options"]["time_budget"] < budget
    ]
    if smaller and row["nll"] > min(smaller) + RISE:
        found.append(f"NLL {row['nll'] - min(smaller):+.3f}")
    if used(row) > MOST:
        found.append("too long")
    elif used(row) < LEAST and reason(row) is None:
        found.append("ended early")
    block = [o["nll"] for o in scored if o["setting"] == ONE_BLOCK and o["options"]["time_budget"] == budget]
    if row["setting"] == AUTO and block and row["nll"] > block[0] + SLACK:
        found.append(f"one block is better by {row['nll'] - block[0]:.3f}")
    return found


def page(rows: list[Row], made_by: str, machine: str) -> str:
    """The table, and what was not kept."""
    lines, broken = [], 0
    for row in rows:
        budget = f"{row['options']['time_budget']:g}"
        if "error" in row:
            lines.append([row["table"], budget, row["setting"], *["-"] * 4, row["error"].replace("|", "/"), "-"])
            continue
        bad = complaints([other for other in rows if other["table"] == row["table"]], row)
        broken += bool(bad)
        figures = [f"{row['nll']:+.4f}", f"{row['rmse']:.4f}", f"{used(row):.2f}", str(row["details"]["neighbours"])]
        note = (reason(row) or row["note"]).replace("|", "/")
        lines.append([row["table"], budget, row["setting"], *figures, note, "; ".join(bad) or "yes"])
    header = ["table", "budget, s", "symmetry", "NLL", "RMSE", "used", "neighbours", "note", "as promised"]
    return (
        f"## Time budgets\n\nMade by `{made_by}`. {machine}.\n\n{table(header, lines)}\n\n"
        f"{len(rows) - broken - sum('error' in row for row in rows)} of {len(rows)} fits are as promised."
    )


def main(argv: list[str] | None = None) -> int:
    """Measure what is missing and print the table."""
    parser = fits_parser("budgets", __doc__, TABLES, (*REAL, *LARGE, *MADE))
    parser.add_argument("--seconds", type=_numbers, metavar="A,B", help="these budgets (default: 10,30,90,300)")
    arguments = parser.parse_args(argv)
    seconds = arguments.seconds or (QUICK_SECONDS if arguments.quick else SECONDS)
    with opened("budgets", arguments) as results:
        rows = run_fits(fits(arguments.sets, seconds, arguments.quick), results)
    given = None if arguments.seconds is None else ",".join(f"{s:g}" for s in seconds)
    text = page(rows, command("budgets", arguments, TABLES, seconds=given), facts(machine_rates()))
    publish("budgets", text, rows, arguments.output)
    return 0


def _numbers(text: str) -> tuple[float, ...]:
    try:
        numbers = tuple(float(part) for part in text.split(","))
    except ValueError:
        numbers = ()
    if not numbers or min(numbers) <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} are not seconds such as 10,30")
    return numbers


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
