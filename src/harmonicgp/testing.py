"""Conformance tests for your own actions and kernels. The library tests its own actions and kernels with them.

Each test raises an `AssertionError` that names the element and the points where the property fails. The default `tolerance`
depends on the dtype of the points.
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
    """Assert that every way of the action has exactly its order on the points x [n, d], and that the orbit is right.

    It checks for each way that T_j steps return every point and no fewer steps return all of them; that `orbit` and `inverse`
    agree with single steps; that the group law holds; that distances are preserved; and that every image of a point folds to the
    same point. Use generic points, if possible in float64: points that no element moves do not determine an order.

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
    """s steps of way j are the element s, and T_j steps, but no fewer, return every point."""
    group = action.group
    step, T, image = [int(i == j) for i in range(group.ways)], group.orders[j], x
    for s in range(1, T + 1):
        image = action.apply(image, step)
        element = [s % T if i == j else 0 for i in range(group.ways)]
        what = f"{s} steps of way {j}" + (", its order," if s == T else "")
        _assert_same(action, image, orbit[group.index(element)], scale, f"{what} differ from element {element}")
        if s < T and float(action.wrap(image - x).abs().max()) <= scale:
            raise AssertionError(f"way {j} of {action!r} has order {s} on these points, not {T}.")


def _assert_law(action: Action, x: Tensor, orbit: Tensor, scale: float) -> None:
    """Inverses undo elements, and an element after another one is their sum."""
    group = action.group
    elements = group.elements()
    for place, s in enumerate(elements):
        back = action.apply(orbit[place], action.inverse(s))
        _assert_same(action, back, x, scale, f"the inverse does not undo element {s.tolist()}")
        r = elements[-1 - place]
        twice, total = action.apply(orbit[place], r), orbit[group.index(s + r)]
        what = f"elements {s.tolist()} and {r.tolist()} one after the other are not their sum"
        _assert_same(action, twice, total, scale, what)
        if place and float(action.wrap(orbit[place] - x).detach().abs().max()) <= scale:
            raise AssertionError(f"{action!r}: element {s.tolist()} moves none of these points.")


def _assert_moves(action: Action, x: Tensor, orbit: Tensor, scale: float) -> None:
    """`move` is differentiable, and can move each point by a different element."""
    group, elements = action.group, action.group.elements().to(x.device)
    image = action.move(x.detach().requires_grad_(), elements[-1])
    if group.order > 1 and not image.requires_grad:
        raise AssertionError(f"{action!r}: no gradient passes through a move.")
    places = torch.arange(x[..., 0].numel(), device=x.device).reshape(x.shape[:-1]) % group.order
    images = action.move(x, elements[places])
    what = "moving each point by its own element, s [n, J],"
    if images.shape != x.shape:
        raise AssertionError(f"{action!r}: {what} gives shape {tuple(images.shape)}.")
    expected = orbit.gather(0, places[None, ..., None].expand(1, *x.shape))[0]
    _assert_same(action, images, expected, scale, f"{what} differs from the orbit")


def _assert_folds(action: Action, x: Tensor, orbit: Tensor, scale: float) -> None:
    """Distances are preserved, which folding assumes, and every image of a point folds to the same point."""
    folded, points = action.fold(x), action.embed(x)
    before = torch.cdist(points, points)
    for place, s in enumerate(action.group.elements().tolist()):
        images = action.embed(orbit[place])
        change = float((before - torch.cdist(images, images)).detach().abs().max())
        if change > 10 * scale**0.5 * (1 + float(before.detach().max())) ** 0.5:
            raise AssertionError(f"{action!r}: element {s} changes distances between the points.")
        what = f"a point and its image under {s} fold to different points"
        _assert_same(action, action.fold(orbit[place]), folded, 10 * scale, what)


def assert_commuting(first: Action, second: Action, x: Tensor, tolerance: float | None = None) -> None:
    """Assert that two actions commute on the points x [n, d]: all their generators do.

    Examples:
        >>> import torch
        >>> from harmonicgp.actions import Negation, Rotation
        >>> assert_commuting(Rotation((0, 1), 5), Negation([2]), torch.randn(4, 3))
    """
    conflict = first_conflict(first, second, x, tolerance or _motion_tolerance(x))
    if conflict is not None:
        raise AssertionError(conflict)


def assert_invariant(kernel: KernelLike, action: Action, x: Tensor, tolerance: float | None = None) -> None:
    """Assert that k(s.x, s.x') = k(x, x') for every element s and every pair of rows of x [n, d].

    `tolerance` is relative to sqrt(k(x, x) k(x', x')).

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
    """Assert that the harmonic kernels are kernels and add up to k, on the points x [n, d].

    It checks in all three resolutions (only "full" for a complex-valued kernel) that the blocks add up to k and that each is
    Hermitian and positive semi-definite; and the shift property k_t(x, s.x') = chi_t(s) k_t(x, x'). The sum is right for any
    kernel; the other properties fail if the kernel is not invariant.

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
                        f"k_t for t = {t} ({resolution}) is not positive semi-definite on these points: its smallest "
                        f"eigenvalue is {least:.3g}."
                    )
        blocks = harmonic_gram(kernel, action, x, x, "full", check=False)
        characters = group.characters()
        for place, s in enumerate(group.elements()):
            images = harmonic_gram(kernel, action, x, action.apply(x, s), "full", check=False)
            gap = (images - characters[:, place, None, None].to(x.device) * blocks).abs()
            if float(gap.max()) > scale:
                t = int(gap.amax((1, 2)).argmax())
                raise AssertionError(
                    f"the shift property fails for element {s.tolist()} and t = {group.elements()[t].tolist()} at the "
                    f"pair {_pair(gap[t])}."
                )


def _motion_tolerance(x: Tensor) -> float:
    return 1e-8 if x.dtype == torch.float64 else 1e-5


def _kernel_tolerance(x: Tensor) -> float:
    return 1e-8 if x.dtype == torch.float64 else 2e-3  # distances are square roots, which halve the digits


def _assert_same(action: Action, a: Tensor, b: Tensor, scale: float, what: str) -> None:
    gap = action.wrap(a - b).detach().abs().amax(-1)
    if not float(gap.max()) <= scale:
        raise AssertionError(f"{action!r}: {what}, at point {int(gap.argmax())} by {float(gap.max()):.3g}.")


def _pair(gap: Tensor) -> tuple[int, int]:
    return divmod(int(gap.argmax()), gap.shape[-1])
