"""Figure 1 of the paper: samples from each harmonic part of an RBF kernel under quarter turns of the plane.

Draws the real part of one sample of GP(0, k_t) for t = 0..3, where k = k_0 + k_1 + k_2 + k_3 is the RBF kernel in two
dimensions and the group is that of 90-degree rotations. A quarter turn multiplies a sample of k_t by (-i)^t: k_0 is
invariant, k_2 changes sign, k_1 and k_3 (conjugate to each other, so alike in their real parts) change sign under a
half turn. The first row shows it, the second the kernels themselves, k_t(x, x') for a fixed x'.

Takes seconds: the grid is four copies of its first quadrant, which the shift property fills from one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from experiments._runner import run
from harmonicgp._extras import require
from harmonicgp.actions import Rotation
from harmonicgp.kernels import harmonic_gram

POINTS_A_SIDE = {"small": 40, "medium": 80, "paper": 120}
TURNS = ("invariant to quarter turns", "opposite after half a turn", "opposite after a quarter turn", "as $k_1$")
SOURCE = (0.9, 1.5)


def quadrant(n: int, width: float = 3.0) -> Tensor:
    """The points of an n x n grid over [-width, width]^2 that lie in the first quadrant, [(n/2)^2, 2]."""
    line = (torch.arange(n // 2, dtype=torch.float64) + 0.5) * (2 * width / n)
    return torch.cartesian_prod(line, line)


def sampling_factor(kernel: Any, action: Rotation, x: Tensor, jitter: float = 1e-8) -> Tensor:
    """A with A A^H = k_t(O, O) for every t, on the orbits O = (x, g.x, g^2.x, ...): [|G|, |G| n, n].

    k_t(s.x, s'.x') = conj(chi_t(s)) chi_t(s') k_t(x, x'), so one factor of k_t(x, x) and the phases are enough.
    """
    K = harmonic_gram(kernel, action, x, x, resolution="full")
    L = torch.linalg.cholesky(K + jitter * torch.eye(len(x), dtype=K.real.dtype))
    phases = action.group.characters().conj()  # [t, s]
    return (phases[:, :, None, None] * L[:, None]).flatten(1, 2)


def experiment(size: str, output: Path) -> Mapping[str, Any]:
    """Draw the samples, write figure1.png, and report how well the symmetries hold."""
    from gpytorch.kernels import RBFKernel

    torch.manual_seed(1)
    kernel = RBFKernel().double().requires_grad_(False)
    kernel.lengthscale = 0.6
    action, n = Rotation((0, 1), 4), POINTS_A_SIDE[size]
    x = quadrant(n)
    # k_0 and k_2 are real, so are their samples; k_1 and k_3 take complex noise, half of its variance in each part.
    white = torch.complex(*torch.randn(2, 4, len(x), dtype=torch.float64))
    noise = torch.stack([white[0].real.to(white), white[1] / 2**0.5, white[2].real.to(white), white[3] / 2**0.5])
    samples = (sampling_factor(kernel, action, x) @ noise[..., None])[..., 0]
    points = action.orbit(x).flatten(0, 1)
    source = torch.tensor([SOURCE], dtype=torch.float64)
    kernels = harmonic_gram(kernel, action, points, source, "full")[..., 0]
    path = output / "figure1.png"
    draw(points, samples.real, kernels.real, n, path)

    # What a quarter turn does to each sample, measured on the drawn values.
    turned = samples.reshape(4, 4, -1)[:, 1]  # the values at g.x
    ratios = [complex((turned[t].conj() @ samples[t, : len(x)]).conj() / samples[t, : len(x)].abs().square().sum())
              for t in range(4)]  # fmt: skip
    gap = float((kernels.sum(0).real - kernel(points, source).to_dense()[:, 0]).abs().max())
    for t, ratio in enumerate(ratios):
        print(f"k_{t}: a quarter turn multiplies the sample by {ratio.real:+.3f} {ratio.imag:+.3f}i")
    print(f"k_0 + k_1 + k_2 + k_3 = k to {gap:.1e} on {len(points)} points")
    print(f"picture: {path}")
    return {
        "quarter_turn": [[ratio.real, ratio.imag] for ratio in ratios],
        "largest_gap_of_the_sum": gap,
        "points": len(points),
    }


def draw(points: Tensor, samples: Tensor, kernels: Tensor, n: int, path: Path) -> None:
    """Two rows of four panels: samples, and the kernels themselves."""
    matplotlib = require("matplotlib", extra="plot", purpose="drawing Figure 1")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    order = torch.argsort(points[:, 1] * 1e3 + points[:, 0])  # row by row, from the lower left
    figure, axes = plt.subplots(2, 4, figsize=(11, 5.8), layout="constrained")
    for row, (values, name) in enumerate([(samples, "sample of GP(0, $k_{}$)"), (kernels, "$k_{}(x, x')$")]):
        for t, axis in enumerate(axes[row]):
            image = values[t][order].reshape(n, n)
            limit = float((values if row else values[t]).abs().max())
            axis.imshow(image, origin="lower", extent=(-3, 3, -3, 3), cmap="RdBu_r", vmin=-limit, vmax=limit)
            axis.set_title(name.format(t), fontsize=11)
            axis.set_xticks([])
            axis.set_yticks([])
            if row == 0:
                axis.set_xlabel(TURNS[t], fontsize=10)
            else:
                orbit = Rotation((0, 1), 4).orbit(torch.tensor([SOURCE]))[:, 0]
                axis.plot(*orbit[1:].T, "o", ms=4, mfc="none", mec="black")
                axis.plot(*orbit[0], "o", ms=5, color="black")
    notes = (
        "dot: $x'$; rings: its quarter turns",
        "imaginary at the empty rings",
        "",
        "the same, of opposite sign",
    )
    for axis, note in zip(axes[1], notes, strict=True):
        axis.set_xlabel(note, fontsize=10)
    figure.suptitle(
        "An RBF kernel split by quarter turns of the plane, $k = k_0 + k_1 + k_2 + k_3$: real parts\n"
        "blue negative, red positive; each sample on a scale of its own, the kernels on one",
        fontsize=11,
    )
    figure.savefig(path, dpi=130)
    plt.close(figure)


if __name__ == "__main__":
    run("decomposition", __doc__, experiment)
