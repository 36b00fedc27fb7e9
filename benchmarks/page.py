"""Put the pages of the timing suites together.

    python -m benchmarks.page --output DIR

Reads the pages of the suites, such as gram.md, where the suites have written them, and writes benchmarks.md beside them.
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks._rates import output_of
from harmonicgp.io.container import write_text_atomically

SUITES = ("gram", "step", "images", "quality", "growth", "memory", "prediction", "neighbours", "budgets")


def main(argv: list[str] | None = None) -> int:
    """Write the page; 1 where there is nothing to put together."""
    folder = output_of("page", __doc__, argv) or Path("out")
    parts = [path.read_text("utf-8").strip() for name in SUITES if (path := folder / f"{name}.md").exists()]
    if not parts:
        print(f"{folder} holds no results: run python -m benchmarks.gram --output {folder} first.", file=sys.stderr)
        return 1
    made = "Made by `make bench` and `python -m benchmarks.quality`; ratios are of one run, warm, medians with their range."
    write_text_atomically(folder / "benchmarks.md", "\n\n".join(["# Benchmarks", made, *parts]) + "\n")
    print(f"written: {folder / 'benchmarks.md'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
