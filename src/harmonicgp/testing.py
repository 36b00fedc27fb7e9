"""Conformance tests for actions and kernels of your own: the same ones this library runs on its own.

Each raises an `AssertionError` that names the element and the points where the property breaks. Without a `tolerance` of
your own the one used fits the dtype of the points.
"""

from __future__ import annotations

import torch
from torch import Tensor

from harmonicgp.actions.base import Action, first_conflict
from harmonicgp.groups import RESOLUTIONS
from harmonicgp.kernels.functions import KernelLike, kernel_matrix
from harmonicgp.kernels.harmonic import harmonic_gram
from harmonicgp.kernels.invariance import largest_deviation, largest_lap

__all__ = ["assert_commuting", "assert_cyclic", "assert_decomposition", "assert_invariant"]


def assert_cyclic(action: Action, x: Tensor, tolerance: float | None = None) -> None:
    """Every way of the action has exactly its order on the points x [n, d], and the orbit is repeated application.

    Checks, for each way: T_j steps return every point, no fewer return them all; `orbit` and `inverse` agree with
    single steps; the group's law holds; distances are kept; every image of a point folds to the same place. Points fixed by
    the whole action cannot show an order: give generic points, best in float64.

    Examples:
        >>> import torch
        >>> from harmonicgp.actions import Rotation
        >>> assert_cyclic(Rotation((0, 1), 5), torch.randn(4, 2))
    """
    action.check(x)
    group, orbit = action.group, action.orbit(x)
    scale = (tolerance or _motion_tolerance(x)) * (1 + float(orbit.detach().abs().max()))
    if orbit.shape != (group.order, *x.shape):
        raise AssertionError(
            f"the orbit under {group!r} has shape {tuple(orbit.shape)}, not {(group.order, *x.shape)}."
        )
    _assert_same(action, action.apply(x, [0] * group.ways), x, scale, "the neutral element moves points")
    for j in range(group.ways):
        _assert_order(action, x, orbit, j, scale)
    _assert_law(action, x, orbit, scale)
    _assert_moves(action, x, orbit, scale)
    _assert_folds(action, x, orbit, scale)


def _assert_order(action: Action, x: Tensor, orbit: Tensor, j: int, scale: float) -> None:
    """A number of steps of way j is the element of that number, and T_j of them return every point."""
    group = action.group
    step, T, moved = [int(i == j) for i in range(group.ways)], group.orders[j], x
    for s in range(1, T + 1):
        moved = action.apply(moved, step)
        element = [s % T if i == j else 0 for i in range(group.ways)]
        what = f"{s} steps of way {j}" + (", its order," if s == T else "")
        _assert_same(action, moved, orbit[group.index(element)], scale, f"{what} differ from element {element}")
        if s < T and float(action.wrap(moved - x).abs().max()) <= scale:
            raise AssertionError(f"way {j} of {action!r} has order {s} on these points, not {T}.")


def _assert_law(action: Action, x: Tensor, orbit: Tensor, scale: float) -> None:
    """Inverses undo elements, and two elements one after the other are their sum."""
    group = action.group
    elements = group.elements()
    for place, s in enumerate(elements):
        back = action.apply(orbit[place], action.inverse(s))
        _assert_same(action, back, x, scale, f"the inverse does not undo element {s.tolist()}")
        r = elements[-1 - place]
        both, total = action.apply(orbit[place], r), orbit[group.index(s + r)]
        what = f"elements {s.tolist()} and {r.tolist()} one after the other are not their sum"
        _assert_same(action, both, total, scale, what)
        if place and float(action.wrap(orbit[place] - x).detach().abs().max()) <= scale:
            raise AssertionError(f"{action!r}: element {s.tolist()} moves none of these points.")


def _assert_moves(action: Action, x: Tensor, orbit: Tensor, scale: float) -> None:
    """Gradients pass through a move, and each point may be moved by an element of its own."""
    group, elements = action.group, action.group.elements().to(x.device)
    moved = action.move(x.detach().requires_grad_(), elements[-1])
    if group.order > 1 and not moved.requires_grad:
        raise AssertionError(f"{action!r}: no gradient passes through a move.")
    places = torch.arange(x[..., 0].numel(), device=x.device).reshape(x.shape[:-1]) % group.order
    apart = action.move(x, elements[places])
    what = "moving each point by its own element, s [n, J],"
    if apart.shape != x.shape:
        raise AssertionError(f"{action!r}: {what} gives shape {tuple(apart.shape)}.")
    chosen = orbit.gather(0, places[None, ..., None].expand(1, *x.shape))[0]
    _assert_same(action, apart, chosen, scale, f"{what} differs from the orbit")


def _assert_folds(action: Action, x: Tensor, orbit: Tensor, scale: float) -> None:
    """Distances are kept, which folding relies on, and every image of a point folds to the same place."""
    folded, points = action.fold(x), action.embed(x)
    before = torch.cdist(points, points)
    for place, s in enumerate(action.group.elements().tolist()):
        moved = action.embed(orbit[place])
        change = float((before - torch.cdist(moved, moved)).detach().abs().max())
        if change > 10 * scale**0.5 * (1 + float(before.detach().max())) ** 0.5:
            raise AssertionError(f"{action!r}: element {s} changes distances between the points.")
        what = f"a point and its image under {s} fold apart"
        _assert_same(action, action.fold(orbit[place]), folded, 10 * scale, what)


def assert_commuting(first: Action, second: Action, x: Tensor, tolerance: float | None = None) -> None:
    """The two actions may be applied in either order, on the points x [n, d]: all their generators commute.

    Examples:
        >>> import torch
        >>> from harmonicgp.actions import Negation, Rotation
        >>> assert_commuting(Rotation((0, 1), 5), Negation([2]), torch.randn(4, 3))
    """
    conflict = first_conflict(first, second, x, tolerance or _motion_tolerance(x))
    if conflict is not None:
        raise AssertionError(conflict)


def assert_invariant(kernel: KernelLike, action: Action, x: Tensor, tolerance: float | None = None) -> None:
    """k(s.x, s.x') = k(x, x') for every element s and every pair of rows of x [n, d].

    `tolerance` is a share of sqrt(k(x, x) k(x', x')).

    Examples:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from harmonicgp.actions import Rotation
        >>> assert_invariant(RBFKernel(), Rotation((0, 1), 5), torch.randn(4, 2))
    """
    action.check(x)
    deviation = largest_deviation(kernel, action, x)
    if deviation.share > (tolerance := tolerance or _kernel_tolerance(x)):
        lap = largest_lap(kernel, action, x)  # a wrong period breaks every element, even the neutral one
        words = f"{lap}: the period of the action is not that of the kernel" if lap.share > tolerance else deviation
        raise AssertionError(f"the kernel is not invariant under {action!r}: {words}.")


def assert_decomposition(kernel: KernelLike, action: Action, x: Tensor, tolerance: float | None = None) -> None:
    """The harmonic kernels are kernels, and add up to k, on the points x [n, d].

    Checks in all three resolutions (only "full" for a complex-valued kernel) that the blocks add up to k and that each
    is Hermitian and positive semi-definite; and the shift property k_t(x, s.x') = chi_t(s) k_t(x, x'). The sum alone
    would hold for any kernel; the rest fails for one that is not invariant.

    Examples:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> from harmonicgp.actions import Rotation
        >>> assert_decomposition(RBFKernel(), Rotation((0, 1), 5), torch.randn(4, 2))
    """
    action.check(x)
    group = action.group
    with torch.no_grad():
        K = kernel_matrix(kernel, x, x)
        if not torch.isfinite(K).all():
            raise AssertionError("the kernel is NaN or infinite on these points.")
        scale = (tolerance or _kernel_tolerance(x)) * float(K.abs().max())
        for resolution in RESOLUTIONS[:1] if K.is_complex() else RESOLUTIONS:
            blocks = harmonic_gram(kernel, action, x, x, resolution, check=False)
            frequencies = group.frequencies(resolution)
            total = blocks.sum(0)
            gap = ((total.real if total.is_complex() and not K.is_complex() else total) - K).abs()
            if float(gap.max()) > scale:
                raise AssertionError(f"the {resolution!r} kernels do not add up to k at the pair {_pair(gap)}.")
            for t, k_t in zip(frequencies.tolist(), blocks, strict=True):
                gap = (k_t - k_t.mH).abs()
                if float(gap.max()) > scale:
                    raise AssertionError(f"k_t for t = {t} ({resolution}) is not Hermitian at the pair {_pair(gap)}.")
                least = float(torch.linalg.eigvalsh(k_t).min())
                if least < -scale * len(x):
                    raise AssertionError(
                        f"k_t for t = {t} ({resolution}) is not positive semi-definite on these points: its least "
                        f"eigenvalue is {least:.3g}."
                    )
        blocks = harmonic_gram(kernel, action, x, x, "full", check=False)
        characters = group.characters()
        for place, s in enumerate(group.elements()):
            moved = harmonic_gram(kernel, action, x, action.apply(x, s), "full", check=False)
            gap = (moved - characters[:, place, None, None].to(x.device) * blocks).abs()
            if float(gap.max()) > scale:
                t = int(gap.amax((1, 2)).argmax())
                raise AssertionError(
                    f"the shift property fails for element {s.tolist()} and t = {group.elements()[t].tolist()} at the "
                    f"pair {_pair(gap[t])}."
                )


def _motion_tolerance(x: Tensor) -> float:
    return 1e-8 if x.dtype == torch.float64 else 1e-5


def _kernel_tolerance(x: Tensor) -> float:
    return 1e-8 if x.dtype == torch.float64 else 2e-3  # distances are square roots: of rounding, half its digits


def _assert_same(action: Action, a: Tensor, b: Tensor, scale: float, what: str) -> None:
    gap = action.wrap(a - b).detach().abs().amax(-1)
    if not float(gap.max()) <= scale:
        raise AssertionError(f"{action!r}: {what}, at point {int(gap.argmax())} by {float(gap.max()):.3g}.")


def _pair(gap: Tensor) -> tuple[int, int]:
    return divmod(int(gap.argmax()), gap.shape[-1])
