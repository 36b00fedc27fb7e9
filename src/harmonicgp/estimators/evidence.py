"""Whether inputs look the same after a symmetry: a kernel two-sample test of rows against moved rows."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from harmonicgp._validation import check_points, whole_number
from harmonicgp.actions import Action

#: Bandwidths of the test's kernel, in median distances.
WIDTHS = (0.25, 0.5, 1.0, 2.0)


class Evidence(NamedTuple):
    """How far the moved rows are from the others, and how often chance would put them as far."""

    distance: float  #: maximum mean discrepancy, 0 for equal distributions and at most 1.5
    p_value: float


def invariance_test(action: Action, X: Tensor, n: int = 500, permutations: int = 200, seed: int = 0) -> Evidence:
    """Compare rows X [N, d] with other rows, each moved by a random element of the group other than the neutral one.

    Maximum mean discrepancy (Gretton et al. 2012) with Gaussian kernels of four widths, between n rows and n moved ones, and its
    p-value by permutation. Once on all columns and once on those that move, with the smaller p-value counted twice. A small one
    says that the action leads out of the data; a large one, that nothing speaks against the symmetry.

    Examples:
        >>> import torch
        >>> from harmonicgp.actions import Negation
        >>> x = torch.randn(1000, 2, generator=torch.Generator().manual_seed(0))
        >>> invariance_test(Negation(), x).p_value > 0.05, invariance_test(Negation(), x.exp()).p_value < 0.01
        (True, True)
    """
    check_points(X, "X")
    whole_number(n, "n", 2)
    generator = torch.Generator().manual_seed(seed)
    rows = X.detach().double()[torch.randperm(len(X), generator=generator)[: 2 * n]]
    half = len(rows) // 2
    if half < 2 or action.group.order < 2:
        return Evidence(0.0, 1.0)
    elements = action.group.elements()[torch.randint(1, action.group.order, (half,), generator=generator)]
    moved = action._move(rows[half : 2 * half], elements)
    still = ((action._orbit(rows[:8])[1:] - rows[:8]).abs().amax((0, 1)) == 0).tolist()
    both = torch.cat((rows[:half], moved))
    tests = [both] if not any(still) else [both, both[:, [i for i, quiet in enumerate(still) if not quiet]]]
    if not any(still) or not action.periods:
        embedded = [action._embed(tests[0]), *tests[1:]]
    else:
        circles = {axis: period for axis, period in action.periods.items() if not still[axis]}
        embedded = [action._embed(tests[0]), _on_circles(both, circles, still)]
    found = [_compare(part, half, permutations, generator) for part in embedded]
    p = min(1.0, len(found) * min(evidence.p_value for evidence in found))
    return Evidence(max(evidence.distance for evidence in found), p)


def _on_circles(x: Tensor, circles: dict[int, float], still: list[bool]) -> Tensor:
    """The columns that move, circles as points of the plane."""
    columns = []
    for axis in range(x.shape[-1]):
        if axis in circles:
            angle = x[:, axis] * (2 * math.pi / circles[axis])
            columns += [angle.cos(), angle.sin()]
        elif not still[axis]:
            columns.append(x[:, axis])
    return torch.stack(columns, -1)


def _compare(both: Tensor, half: int, permutations: int, generator: torch.Generator) -> Evidence:
    spread = both.std(0)
    both = both / torch.where(spread > 1e-12, spread, torch.ones_like(spread)) if both.shape[-1] < 50 else both
    squares = torch.cdist(both, both).square()
    median = float(squares[squares > 0].median()) if bool((squares > 0).any()) else 1.0
    K = sum(torch.exp(squares * (-0.5 / (median * width**2))) for width in WIDTHS) / len(WIDTHS)
    assert isinstance(K, Tensor)
    signs = torch.cat((torch.ones(half), -torch.ones(half))).double()
    shuffled = torch.stack([signs[torch.randperm(2 * half, generator=generator)] for _ in range(permutations)])
    together = torch.cat((signs[None], shuffled))
    values = ((together @ K) * together).sum(-1) / half**2  # MMD^2 of each way to part them
    p = float((1 + (values[1:] >= values[0] - 1e-12).sum()) / (1 + permutations))
    return Evidence(math.sqrt(max(float(values[0] - values[1:].mean()), 0.0)), p)
