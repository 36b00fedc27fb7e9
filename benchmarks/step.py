"""A training step of 8 x 512 inducing points against GPyTorch's SVGP with 1024 and with 4096, and against the machine's limit.

    python -m benchmarks.step [--output DIR]

Shared inducing inputs, d = 8, batches of 1024, Matern-3/2 with a lengthscale for each column, float32. All in one run, warm, in
turn. The limit is the time of the step's necessary operations at the machine's own rates: products and triangular solves at that
of a matrix product, factorisations at that of Cholesky, kernels at that of exp.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import gpytorch
import torch
from torch import Tensor

from benchmarks._rates import Rates, facts, interleaved, machine_rates, output_of, publish, table
from benchmarks.peers import _SVGP
from harmonicgp.actions import Negation
from harmonicgp.backend.memory import memory_kept
from harmonicgp.features import Features, HarmonicFeatures, SparseFeatures
from harmonicgp.inducing import place
from harmonicgp.likelihoods.observation import observe
from harmonicgp.training import Schedule
from harmonicgp.training.finish import Split
from harmonicgp.training.fit import TrainingLoop
from harmonicgp.training.problem import Problem

D, ROWS, BATCH, WAYS, POINTS = 8, 20_000, 1024, 3, 512


def data(rows: int = ROWS, d: int = D) -> tuple[Tensor, Tensor]:
    """Rows of a smooth function with noise."""
    X = torch.randn(rows, d, generator=torch.Generator().manual_seed(0))
    noise = 0.1 * torch.randn(rows, generator=torch.Generator().manual_seed(1))
    return X, torch.sin(X.sum(1) / 2) + noise


def kernel(d: int = D) -> gpytorch.kernels.ScaleKernel:
    """Matern-3/2 with a lengthscale for each column."""
    base = gpytorch.kernels.MaternKernel(nu=1.5, ard_num_dims=d)
    base.lengthscale = 2.0
    return gpytorch.kernels.ScaleKernel(base)


def harmonic(X: Tensor, points: int = POINTS, ways: int = WAYS) -> Features:
    """Features of 2^ways blocks, or of one."""
    if ways == 0:
        return SparseFeatures(kernel(X.shape[1]), place(X, points))
    action = Negation.strided(X.shape[1], ways)
    return HarmonicFeatures(kernel(X.shape[1]), action, place(X, points, action=action))


def our_step(features: Features, X: Tensor, y: Tensor, batch: int = BATCH) -> Callable[[], object]:
    """A step of the training loop."""
    problem = Problem(
        features, observe(gpytorch.likelihoods.GaussianLikelihood()), X, y[None], None, None, "tight", None
    )
    plan = Schedule(max_steps=10_000, batch_size=batch, learning_rate=0.01)
    loop = TrainingLoop(Split(problem), "block", plan)

    def step() -> None:
        loop.step()
        loop.course.advance(0.0)

    return step


def svgp_step(X: Tensor, y: Tensor, points: int, batch: int = BATCH) -> Callable[[], object]:
    """A step of GPyTorch's SVGP with Adam."""
    model = _SVGP(place(X, points), kernel(X.shape[1]))
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(y))
    adam = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=0.01)

    def step() -> None:
        rows = torch.randint(len(y), (batch,))
        adam.zero_grad()
        (-bound(model(X[rows]), y[rows])).backward()
        adam.step()

    return step


def limit(rates: Rates, T: int, m: int, B: int) -> dict[str, float]:
    """Seconds of what a step cannot do without, part by part.

    Products: the features and their gradient, the precision (a symmetric product), the variance and its gradient, the gradient of
    the factor (a triangle of a product, and two solves with m columns): T m^2 B each, and 2 T m^3.
    """
    return {
        "products and solves": (6 * T * m * m * B + 2 * T * m**3) / rates.gemm,
        "factorisations": 2 * T * m**3 / 3 / rates.cholesky,
        "kernels": 2 * T * m * (m + B) / rates.exp,
    }


def main(argv: list[str] | None = None) -> int:
    """Measure and print."""
    output = output_of("step", __doc__, argv)
    torch.manual_seed(0)
    X, y = data()
    ours = our_step(harmonic(X), X, y)
    rates = machine_rates()
    with memory_kept():  # as in a fit; for all of them
        timings = interleaved(
            {
                "ours, 8 x 512": ours,
                "GPyTorch SVGP, 512": svgp_step(X, y, 512),
                "GPyTorch SVGP, 1024": svgp_step(X, y, 1024),
            },
            repeats=9,
        )
        timings |= interleaved({"GPyTorch SVGP, 4096": svgp_step(X, y, 4096), "ours again": ours}, repeats=3)
    parts = limit(rates, 2**WAYS, POINTS, BATCH)
    least, step = sum(parts.values()), timings["ours, 8 x 512"].median
    rows = [[name, str(timing), f"{timing.median / step:.2f}"] for name, timing in timings.items()]
    rows += [[f"limit: {name}", f"{1e3 * seconds:.1f} ms", f"{seconds / step:.2f}"] for name, seconds in parts.items()]
    rows += [["limit, all of it", f"{1e3 * least:.1f} ms", f"{least / step:.2f}"]]
    text = f"""## A training step

d = {D}, batches of {BATCH}, float32. {facts(rates)}.

{table(["", "seconds", "of ours"], rows)}

Where ours goes (`torch.profiler`, three steps, time of each operation itself):

{profile(ours)}"""
    results = {"rates": rates._asdict(), "timings": {k: tuple(t) for k, t in timings.items()}, "limit": parts}
    publish("step", text, results, output)
    return 0


def profile(step: Callable[[], object], steps: int = 3, most: int = 8) -> str:
    """The operations that take longest."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
        for _ in range(steps):
            step()
    averages = sorted(seen.key_averages(), key=lambda event: -event.self_cpu_time_total)
    total = sum(event.self_cpu_time_total for event in averages)
    lines = [
        [f"`{e.key}`", f"{e.self_cpu_time_total / 1e3 / steps:.1f} ms", f"{100 * e.self_cpu_time_total / total:.0f} %"]
        for e in averages[:most]
    ]
    return table(["operation", "a step", "share"], lines)


if __name__ == "__main__":
    sys.exit(main())
