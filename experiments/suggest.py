"""Does the search find the symmetry that data have? Made-up tables of known symmetry, and MNIST flipped and rolled.

Two tables of each kind, with a smooth function of the inputs and noise: negation (inputs that come with their opposites), a
plane of five- or six-fold symmetry among other columns, exchangeable columns, an hour of the day, images flipped and images
rolled at random, and none. `suggest_symmetry` must name the symmetry, or none. medium and paper: also flip-MNIST and
translate-MNIST (4,000 images, needs mnist.npz in the folder that HARMONICGP_DATA names). The searches of the first table of
each kind are drawn.

Sizes: small (2,500 rows, a table of each kind; minutes), medium and paper (4,000 rows, two of each; a quarter of an hour on
two cores).
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from experiments._mnist import load_digits
from experiments._runner import run, so_far
from experiments._training import Row, markdown
from experiments.flip_mnist import flipped
from experiments.translate_mnist import rolled
from harmonicgp.diagnostics import suggest_symmetry
from harmonicgp.io.container import write_text_atomically

Array = np.ndarray[Any, Any]
SIDE = 8
#: Rows, tables of each kind.
SIZES = {"small": (2500, 1), "medium": (4000, 2), "paper": (4000, 2)}


class Known(NamedTuple):
    """A table of known symmetry: how its name begins, None for none."""

    X: Array
    y: Array
    truth: str | None
    arguments: Mapping[str, Any] = MappingProxyType({})


def smooth(X: Array, rng: np.random.Generator, waves: int = 6, reach: float = 1.0) -> Array:
    """A sum of random waves of standardised columns, with a tenth of noise."""
    Z = (X - X.mean(0)) / X.std(0)
    W = rng.normal(size=(X.shape[1], waves)) * (reach / np.sqrt(X.shape[1]))
    f = np.sin(Z @ W + rng.uniform(0, 2 * np.pi, waves)).sum(1)
    return np.asarray(f + 0.1 * f.std() * rng.normal(size=len(f)))


def skewed(rng: np.random.Generator, n: int, d: int) -> Array:
    """Independent columns, no two alike, none symmetric."""
    return np.stack([rng.gamma(0.5 * 3**j, size=n) * (-1) ** j for j in range(d)], 1)


def make(kind: str, n: int, seed: int) -> Known:
    """A table of a kind."""
    rng = np.random.default_rng([seed, sum(map(ord, kind))])
    if kind == "negation":
        X = (skewed(rng, n, 4) + 0.5) * rng.choice([-1, 1], (n, 1))
        return Known(X, smooth(X, rng, reach=3.0), "negation in 1 way")
    if kind == "rotation":
        order = 5 + seed % 2
        start = 0.17 if order == 5 else 0.05  # so that no mirror lies on a diagonal
        angle = 2 * np.pi * (rng.integers(order, size=n) + start + 0.25 * rng.beta(1.2, 3, n)) / order
        radius = 2 + 0.4 * rng.gamma(2.0, size=n)
        X = np.column_stack((radius * np.cos(angle), radius * np.sin(angle), skewed(rng, n, 2)))
        return Known(X, smooth(X, rng, reach=3.0), f"Rotation((0, 1), {order})")
    if kind == "exchange":
        base = rng.gamma(2.0, size=(n, 1))
        X = np.column_stack((base * rng.gamma(3.0, size=(n, 4)), skewed(rng, n, 1)))
        return Known(X, smooth(np.log(np.abs(X)), rng, reach=2.0), "Permutation")
    if kind == "periodic":
        X = np.column_stack((rng.integers(24, size=n), skewed(rng, n, 2)))
        turned = np.column_stack((np.cos(X[:, 0] * np.pi / 12), np.sin(X[:, 0] * np.pi / 12), X[:, 1:]))
        return Known(X, smooth(turned, rng, reach=2.0), "Translation(axis=0, period=24.0")
    if kind in ("flip", "shift"):
        images = blots(rng, n)
        moved = flipped(images, rng) if kind == "flip" else rolled(images, rng)
        X = moved.reshape(n, -1)
        return Known(X, smooth(X, rng, reach=4.0), "Image" + kind.title(), {"columns": ("image", (SIDE, SIDE))})
    X = skewed(rng, n, 4)
    return Known(X, smooth(X, rng, reach=3.0), None)


def blots(rng: np.random.Generator, n: int) -> Array:
    """Images with an asymmetric shape in the upper left: a bar and a blot of random brightness."""
    images = 0.05 * rng.random((n, SIDE, SIDE))
    for k in range(n):
        images[k, 1, 1 : 2 + rng.integers(1, 4)] += rng.uniform(0.5, 1.5)
        images[k, 1 : 2 + rng.integers(1, 5), 1] += rng.uniform(0.2, 1.0)
        images[k, 3, 2 + rng.integers(0, 2)] += rng.uniform(0, 1)
    return images


KINDS = ("negation", "rotation", "exchange", "periodic", "flip", "shift", "none")


def right(suggested: str | None, truth: str | None) -> bool:
    """Whether the name is that of the symmetry."""
    return suggested is None if truth is None else suggested is not None and suggested.startswith(truth)


def experiment(size: str, output: Path) -> Mapping[str, Any]:
    """All tables; what was found; how often it was right."""
    n, count = SIZES[size]
    rows: list[Row] = []
    for kind in KINDS:
        for seed in range(count):
            rows.append(judge(f"{kind} {seed}", make(kind, n, seed), output if seed == 0 else None))
            so_far(output, "suggest", rows=rows)
    if size != "small":
        for name, move in (("ImageFlip", flipped), ("ImageShift", rolled)):
            digits = load_digits(4000, 10, move)
            known = Known(digits.X.numpy(), digits.y.numpy(), name, {"columns": ("image", (28, 28)), "classify": True})
            rows.append(judge(f"{'flip' if name == 'ImageFlip' else 'translate'}-MNIST", known, None))
    found = sum(row["right"] for row in rows)
    text = markdown(rows, {"table": "", "truth": "", "suggested": "", "right": "", "seconds": ".1f"})
    text += f"\n\n{found} of {len(rows)} right."
    write_text_atomically(output / "suggest.md", text + "\n")
    print(text)
    return {"rows": rows, "right": found, "of": len(rows)}


def judge(name: str, known: Known, output: Path | None) -> Row:
    """One search."""
    start = time.perf_counter()
    choice = suggest_symmetry(known.X, known.y, progress=False, **known.arguments)
    row = {
        "table": name, "truth": known.truth or "none", "suggested": choice.suggested or "none",
        "right": right(choice.suggested, known.truth), "seconds": time.perf_counter() - start,
    }  # fmt: skip
    words = "right" if row["right"] else f"WRONG, it is {row['truth']}"
    print(f"{name}: {row['suggested']} ({words}; {row['seconds']:.0f} s)", flush=True)
    if not row["right"]:
        print("\n".join(choice.sentences), flush=True)
    if output is not None:
        choice.plot(output / f"suggest-{name.split()[0]}.png")
    return row


if __name__ == "__main__":
    run("suggest", __doc__, experiment)
