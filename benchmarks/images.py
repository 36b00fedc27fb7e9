"""A training step of every model of the MNIST experiments, in turn.

    python -m benchmarks.images [--output DIR]

The models of `experiments.flip_mnist` and `experiments.translate_mnist` at their full size, on random images of 28 x 28 pixels
(a step does not ask what they show): RBF kernel, robust-max likelihood for ten classes, Adam for everything, batches of 256,
float32. All in one run, warm.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import gpytorch
import torch

from benchmarks._rates import facts, interleaved, machine_rates, output_of, publish, table
from experiments import flip_mnist, translate_mnist
from experiments._mnist import CLASSES, Digits
from experiments._training import scaled
from harmonicgp.backend.memory import memory_kept
from harmonicgp.features import Features
from harmonicgp.likelihoods import RobustMaxLikelihood
from harmonicgp.likelihoods.observation import observe
from harmonicgp.training import Schedule
from harmonicgp.training.finish import Split
from harmonicgp.training.fit import TrainingLoop
from harmonicgp.training.problem import Problem


def images(rows: int = 2000) -> Digits:
    """Random pixels and classes."""
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(rows, 784, generator=generator) - 0.5
    y = torch.randint(CLASSES, (rows,), generator=generator)
    return Digits(X, y.float(), X, y)


def step_of(features: Features, data: Digits) -> Callable[[], object]:
    """A step of the training loop."""
    observation = observe(RobustMaxLikelihood(CLASSES))
    problem = Problem(features, observation, data.X, data.y[None], None, None, "elbo", None)
    plan = Schedule(max_steps=10_000, batch_size=256, learning_rate=0.001, optimizer="adam")
    loop = TrainingLoop(Split(problem), "block", plan)

    def step() -> None:
        loop.step()
        loop.course.advance(0.0)

    return step


def main(argv: list[str] | None = None) -> int:
    """Measure and print."""
    output = output_of("images", __doc__, argv)
    rates, data = machine_rates(), images()
    rows, results = [], {}
    for module, points in ((flip_mnist, 100), (translate_mnist, 50)):
        models = module.models(data, data, points)
        kernels = {name: scaled(gpytorch.kernels.RBFKernel(), data.X) for name in models}
        steps = {name: step_of(make(kernels[name], data.X), data) for name, (_, make) in models.items()}
        with memory_kept():
            timings = interleaved(steps, repeats=9)
        rival = max(timing.median for name, timing in timings.items() if name.startswith("SVGP"))
        rows += [[name, str(timing), f"{timing.median / rival:.2f}"] for name, timing in timings.items()]
        results |= {name: tuple(timing) for name, timing in timings.items()}
    text = f"""## A training step on images

Random images of 28 x 28 pixels, batches of 256, float32. {facts(rates)}.

{table(["", "seconds", "of the larger SVGP"], rows)}"""
    publish("images", text, {"rates": rates._asdict(), "timings": results}, output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
