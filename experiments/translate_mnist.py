"""Translate-MNIST: digits rolled leftwards and downwards at random (around the edges), two-way shifts against negations.

RBF kernel, robust-max likelihood, Adam 0.001, batches of 256, pixels centred. HVGP by shifts of 4 pixels, (7, 7)-cyclic, in
its 16 real blocks: 16 x 50 inducing images, each block its own (TRAN) or shared (TRAN-S); HVGP by four-way negations 16 x 50
(NEG); SVGP with 50 and 800. All have equal steps; seconds are reported. Draws training loss and test accuracy over steps and
over seconds.

Sizes: small (2,000 images, 40 steps, 8 inducing images; a minute), medium (60,000 images, 3,000 steps; an hour and a half on
two cores), paper (100,000 steps; two days). Needs mnist.npz in the folder that HARMONICGP_DATA names.
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
from harmonicgp.actions import ImageShift, Negation
from harmonicgp.likelihoods import RobustMaxLikelihood

#: Images, test images, inducing images of a block, steps.
SIZES = {"small": (2000, 500, 8, 40), "medium": (60_000, 10_000, 50, 3000), "paper": (60_000, 10_000, 50, 100_000)}


def rolled(images: Array, rng: np.random.Generator) -> Array:
    """Each image [n, h, w] rolled leftwards and downwards by 0 to 27 pixels."""
    n, h, w = images.shape
    down, left = rng.integers(h, size=(n, 1)), rng.integers(w, size=(n, 1))
    rows, columns = (np.arange(h) - down) % h, (np.arange(w) + left) % w
    return images[np.arange(n)[:, None, None], rows[:, :, None], columns[:, None, :]]


def experiment(size: str, output: Path) -> Mapping[str, Any]:
    """Train all, write the table and the curves."""
    n, n_test, m, steps = SIZES[size]
    data = load_digits(n, n_test, rolled)
    shifts, negations = ImageShift(SHAPE, 4), Negation.strided(784, 4)
    models = {
        f"TRAN 16 x {m}": lambda k: harmonic(k, shifts, data.X, m, fold=True),
        f"TRAN-S 16 x {m}": lambda k: harmonic(k, shifts, data.X, m, share=True),
        f"NEG 16 x {m}": lambda k: harmonic(k, negations, data.X, m),
        f"SVGP {m}": lambda k: sparse(k, data.X, m),
        f"SVGP {16 * m}": lambda k: sparse(k, data.X, 16 * m),
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
    write_text_atomically(output / "translate_mnist.md", table + "\n")
    print(table)
    panels = {"loss": "training loss", "accuracy": "test accuracy, %"}
    draw_curves(output / "translate_mnist.png", rows, panels, f"Translate-MNIST, {n:,} images")
    return {"rows": rows}


if __name__ == "__main__":
    run("translate_mnist", __doc__, experiment)
