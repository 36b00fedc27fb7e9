"""Translate-MNIST: digits rolled leftwards and downwards at random (around the edges), two-way shifts against negations.

RBF kernel, robust-max likelihood, Adam 0.001, batches of 256, pixels centred. HVGP by shifts of 4 pixels, (7, 7)-cyclic, in
its 16 real blocks: 16 x 50 inducing images, each block its own (TRAN) or shared (TRAN-S); HVGP by four-way negations 16 x 50
(NEG), about grey and about the mean image (see `experiments.flip_mnist`); SVGP with 50 and 800. All have equal steps; seconds
are reported. Draws training loss and test accuracy over steps and over seconds.

Sizes: small (2,000 images, 40 steps, 8 inducing images; a minute), medium (60,000 images, 6,000 steps; an hour on two cores),
paper (100,000 steps; 14 hours). Needs mnist.npz in the folder that HARMONICGP_DATA names.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from experiments._mnist import OPTIONS, SHAPE, Array, Digits, Models, compare, load_digits
from experiments._runner import run
from experiments._training import harmonic, sparse
from harmonicgp.actions import ImageShift, Negation

#: Images, test images, inducing images of a block, steps.
SIZES = {"small": (2000, 500, 8, 40), "medium": (60_000, 10_000, 50, 6000), "paper": (60_000, 10_000, 50, 100_000)}


def rolled(images: Array, rng: np.random.Generator) -> Array:
    """Each image [n, h, w] rolled leftwards and downwards by 0 to 27 pixels."""
    n, h, w = images.shape
    down, left = rng.integers(h, size=(n, 1)), rng.integers(w, size=(n, 1))
    rows, columns = (np.arange(h) - down) % h, (np.arange(w) + left) % w
    return images[np.arange(n)[:, None, None], rows[:, :, None], columns[:, None, :]]


def models(data: Digits, grey: Digits, m: int) -> Models:
    """By name, each with its data."""
    shifts, negations = ImageShift(SHAPE, 4), Negation.strided(784, 4)
    return {
        f"TRAN 16 x {m}": (data, lambda k, X: harmonic(k, shifts, X, m, fold=True)),
        f"TRAN-S 16 x {m}": (data, lambda k, X: harmonic(k, shifts, X, m, share=True)),
        f"SVGP {m}": (data, lambda k, X: sparse(k, X, m)),
        f"SVGP {16 * m}": (data, lambda k, X: sparse(k, X, 16 * m)),
        f"NEG 16 x {m}, about grey": (grey, lambda k, X: harmonic(k, negations, X, m)),
        f"NEG 16 x {m}, about the mean": (data, lambda k, X: harmonic(k, negations, X, m)),
    }


def experiment(size: str, output: Path, steps: int | None = None, **options: Any) -> Mapping[str, Any]:
    """The models, compared."""
    n, n_test, m, usual = SIZES[size]
    data, grey = (load_digits(n, n_test, rolled, about_grey) for about_grey in (False, True))
    known = models(data, grey, m)
    return compare("translate_mnist", "Translate-MNIST", known, output, steps or usual, **options)


if __name__ == "__main__":
    run("translate_mnist", __doc__, experiment, OPTIONS)
