"""Flip-MNIST: digits flipped up-down and left-right at random; the symmetry of the data against one that is not.

RBF kernel, robust-max likelihood, Adam 0.001, batches of 256, pixels centred. HVGP by flips (4 x 100 inducing images, each
block its own, and shared), HVGP by negations of two groups of pixels (4 x 100), SVGP with 100 and 400. All have equal steps;
seconds are reported. Draws training loss and test accuracy over steps and over seconds.

Sizes: small (2,000 images, 60 steps, seconds), medium (60,000 images, 3,000 steps; about half an hour on two cores), paper
(100,000 steps; a day). Needs mnist.npz in the folder that HARMONICGP_DATA names.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from experiments._mnist import SHAPE, Array, compare, load_digits
from experiments._runner import run
from experiments._training import harmonic, sparse
from harmonicgp.actions import ImageFlip, Negation

#: Images, test images, inducing images of a block, steps.
SIZES = {"small": (2000, 500, 20, 60), "medium": (60_000, 10_000, 100, 3000), "paper": (60_000, 10_000, 100, 100_000)}


def flipped(images: Array, rng: np.random.Generator) -> Array:
    """Each image [n, h, w] up-down or not, left-right or not."""
    up, left = rng.random(len(images)) < 0.5, rng.random(len(images)) < 0.5
    images = np.where(up[:, None, None], images[:, ::-1], images)
    return np.where(left[:, None, None], images[:, :, ::-1], images)


def experiment(size: str, output: Path) -> Mapping[str, Any]:
    """The models, compared."""
    n, n_test, m, steps = SIZES[size]
    data = load_digits(n, n_test, flipped)
    flips, negations = ImageFlip(SHAPE), Negation.strided(784, 2)
    models = {
        f"flips 4 x {m}": lambda k: harmonic(k, flips, data.X, m, fold=True),
        f"flips 4 x {m}, shared": lambda k: harmonic(k, flips, data.X, m, share=True),
        f"negations 4 x {m}": lambda k: harmonic(k, negations, data.X, m),
        f"SVGP {m}": lambda k: sparse(k, data.X, m),
        f"SVGP {4 * m}": lambda k: sparse(k, data.X, 4 * m),
    }
    return compare("flip_mnist", "Flip-MNIST", data, models, steps, output)


if __name__ == "__main__":
    run("flip_mnist", __doc__, experiment)
