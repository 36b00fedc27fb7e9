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

import gpytorch
import numpy as np

from experiments._mnist import CLASSES, SHAPE, Array, accuracy, load_digits
from experiments._runner import run
from experiments._training import Row, draw_curves, harmonic, markdown, scaled, sparse, train
from harmonicgp._files import write_text_atomically
from harmonicgp.actions import ImageFlip, Negation
from harmonicgp.likelihoods import RobustMaxLikelihood

#: Images, test images, inducing images of a block, steps.
SIZES = {"small": (2000, 500, 20, 60), "medium": (60_000, 10_000, 100, 3000), "paper": (60_000, 10_000, 100, 100_000)}


def flipped(images: Array, rng: np.random.Generator) -> Array:
    """Each image [n, h, w] up-down or not, left-right or not."""
    up, left = rng.random(len(images)) < 0.5, rng.random(len(images)) < 0.5
    images = np.where(up[:, None, None], images[:, ::-1], images)
    return np.where(left[:, None, None], images[:, :, ::-1], images)


def experiment(size: str, output: Path) -> Mapping[str, Any]:
    """Train all, write the table and the curves."""
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
    rows: list[Row] = []
    for name, make in models.items():
        kernel = scaled(gpytorch.kernels.RBFKernel(), data.X[:2000])
        likelihood = RobustMaxLikelihood(CLASSES)
        rows.append(
            train(name, make(kernel), likelihood, data.X, data.y, accuracy(data, likelihood), steps=steps, rate=0.001)
        )
    table = markdown(
        rows, {"model": "", "step": "", "accuracy": ".2f", "nll": ".3f", "loss": ".3f", "seconds_per_step": ".3f"}
    )
    write_text_atomically(output / "flip_mnist.md", table + "\n")
    print(table)
    panels = {"loss": "training loss", "accuracy": "test accuracy, %"}
    draw_curves(output / "flip_mnist.png", rows, panels, f"Flip-MNIST, {n:,} images")
    return {"rows": rows}


if __name__ == "__main__":
    run("flip_mnist", __doc__, experiment)
