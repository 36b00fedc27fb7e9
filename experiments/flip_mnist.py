"""Flip-MNIST: digits flipped up-down and left-right at random; the symmetry of the data against one that is not.

RBF kernel, robust-max likelihood, Adam 0.001, batches of 256, pixels centred. HVGP by flips (4 x 100 inducing images, each
block its own, and shared), HVGP by negations of two groups of pixels (4 x 100), SVGP with 100 and 400. Where pixels are
centred is nothing to an RBF kernel and much to a negation: about grey it takes images out of the data, about the mean image
it leaves their means and variances as they are; so there are two of it. All have equal steps; seconds are reported. Draws
training loss and test accuracy over steps and over seconds.

A digit is the same digit after a flip, so only the first block of the flips, with a quarter of the inducing images, can tell
digits apart. `--classes flips` learns which of the four flips it was instead, on the digits 2, 4, 5, 6 and 7: that is in the
other three blocks.

Sizes: small (2,000 images, 60 steps, seconds), medium (60,000 images, 10,000 steps; 40 minutes on two cores), paper (100,000
steps; seven hours). Needs mnist.npz in the folder that HARMONICGP_DATA names.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from experiments._mnist import OPTIONS, SHAPE, Array, Digits, Models, compare, load_digits
from experiments._runner import run
from experiments._training import harmonic, sparse
from harmonicgp.actions import ImageFlip, Negation

#: Digits that look like no flip of themselves.
LOPSIDED = (2, 4, 5, 6, 7)
#: Images, test images, inducing images of a block, steps.
SIZES = {"small": (2000, 500, 20, 60), "medium": (60_000, 10_000, 100, 10_000), "paper": (60_000, 10_000, 100, 100_000)}


def flipped(images: Array, rng: np.random.Generator) -> Array:
    """Each image [n, h, w] up-down or not, left-right or not."""
    return flipped_how(images, rng)[0]


def flipped_how(images: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """The same, and which of the four flips it was."""
    up, left = rng.random(len(images)) < 0.5, rng.random(len(images)) < 0.5
    images = np.where(up[:, None, None], images[:, ::-1], images)
    return np.where(left[:, None, None], images[:, :, ::-1], images), 2 * up + left


def models(data: Digits, grey: Digits, m: int) -> Models:
    """By name, each with its data."""
    flips, negations = ImageFlip(SHAPE), Negation.strided(784, 2)
    return {
        f"flips 4 x {m}": (data, lambda k, X: harmonic(k, flips, X, m, fold=True)),
        f"flips 4 x {m}, shared": (data, lambda k, X: harmonic(k, flips, X, m, share=True)),
        f"SVGP {m}": (data, lambda k, X: sparse(k, X, m)),
        f"SVGP {4 * m}": (data, lambda k, X: sparse(k, X, 4 * m)),
        f"negations 4 x {m}, about grey": (grey, lambda k, X: harmonic(k, negations, X, m)),
        f"negations 4 x {m}, about the mean": (data, lambda k, X: harmonic(k, negations, X, m)),
    }


def experiment(
    size: str, output: Path, steps: int | None = None, classes: str = "digits", **options: Any
) -> Mapping[str, Any]:
    """The models, compared."""
    n, n_test, m, usual = SIZES[size]
    move, only = (flipped, range(10)) if classes == "digits" else (flipped_how, LOPSIDED)
    data, grey = (load_digits(n, n_test, move, about_grey, only=only) for about_grey in (False, True))
    title = "Flip-MNIST" if classes == "digits" else "Flip-MNIST: which flip was it?"
    return compare("flip_mnist", title, models(data, grey, m), output, steps or usual, **options)


if __name__ == "__main__":
    how = {"choices": ("digits", "flips"), "help": "what is learned: the digit (default), or which flip it was"}
    run("flip_mnist", __doc__, experiment, OPTIONS | {"classes": how})
