"""How an action changes inner products: s.x . x' = sum_k C[s, k] u^(k)(x) . v^(k)(x'), in few parts.

An abelian group of orthogonal matrices splits the space into subspaces, one for each frequency that occurs, on which an element
merely multiplies by its character. So J negations have J parts (and one for coordinates that stay), a rotated plane has two (and
one), a roll of images by every pixel has as many as elements, each of a few pixels: the Fourier transform along the group comes
before the matrix products, and no product is of whole images.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from harmonicgp.actions import Action, Negation, PrincipalNegation
from harmonicgp.actions.negation import strided
from harmonicgp.actions.permutation import Reordering
from harmonicgp.groups import Group

#: Coordinates up to which matrices of an action are formed.
MAX_MATRIX = 64
#: Elements of a group up to which a matrix product is the Fourier transform along orbits of coordinates; beyond it FFTs are.
MAX_PRODUCT = 128


@dataclass(frozen=True, eq=False)
class LinearParts:
    """The parts of s.x . x' about a fixed point `center`; `left` and `right` take centred points [n, d] to [n, width]."""

    ends: tuple[int, ...]
    C: Tensor  #: [|G|, parts], float64
    rest: bool  #: the first part moves with no element
    negation: bool  #: each of the others is negated by one way, in the order of the ways
    center: Tensor  #: [d], float64
    left: Callable[[Tensor], Tensor]
    right: Callable[[Tensor], Tensor]
    plans: dict[Any, Any] = field(default_factory=dict)  #: of orbit sums with these parts


def nothing_moves(d: int) -> LinearParts:
    """The trivial group's one part."""
    zero = torch.zeros(d, dtype=torch.float64)
    return LinearParts((d,), torch.ones(1, 1, dtype=torch.float64), True, True, zero, lambda u: u, lambda v: v)


def linear_parts(action: Action, d: int) -> LinearParts | None:
    """The parts of an action on d coordinates; None where it is not linear, or too large to be looked at."""
    if action.periods:
        return None
    if type(action) is Negation:
        return _negated(action.group, action.subsets or (tuple(range(d)),), d)
    if type(action) is PrincipalNegation and action.directions is not None and action.mean is not None:
        return _negated(action.group, strided(d, action.ways), d, action.directions.cpu(), action.mean.cpu())
    if isinstance(action, Reordering):
        found = _reordered(action, d)
        if found is not None:
            return found
    return _by_matrices(action, d) if d <= MAX_MATRIX or (action.group.order <= 8 and d <= 1024) else None


def _finished(
    group: Group,
    found: list[tuple[int, bool, int]],
    center: Tensor,
    left: Callable[[Tensor], Tensor],
    right: Callable[[Tensor], Tensor],
) -> LinearParts:
    """From (frequency, own conjugate, width) of the subspaces in their order: conjugate pairs have two parts."""
    characters = group.characters()
    ends, columns, end = [], [], 0
    for t, own, width in found:
        end += width
        ends.append(end)
        columns.append(characters[t].real)
        if not own:
            end += width
            ends.append(end)
            columns.append(-characters[t].imag)
    ways = [j for j, T in enumerate(group.orders) if T == 2]
    rest = bool(found) and found[0][0] == 0
    single = [t for t, _, _ in found[int(rest) :]]
    singles = [group.index([int(i == j) for i in range(group.ways)]) for j in ways]
    negation = group.is_real and len(ways) > 0 and single == singles
    return LinearParts(tuple(ends), torch.stack(columns, 1), rest, negation, center, left, right)


def _negated(
    group: Group,
    subsets: tuple[tuple[int, ...], ...],
    d: int,
    directions: Tensor | None = None,
    center: Tensor | None = None,
) -> LinearParts:
    """Coordinates, or those along orthonormal directions, of which each way negates some: what stays, then way by way."""
    still = sorted(set(range(d)).difference(*subsets))
    found = [(0, True, len(still))] if still else []
    for j, subset in enumerate(subsets):
        found.append((group.index([int(i == j) for i in range(group.ways)]), True, len(subset)))
    order = torch.tensor([*still, *(i for subset in subsets for i in subset)])
    center = torch.zeros(d, dtype=torch.float64) if center is None else center.double()
    if directions is not None:
        Q = directions.double()[:, order]
        return _finished(group, found, center, lambda u: u @ Q.to(u), lambda v: v @ Q.to(v))
    back = order.argsort()

    def sorted_out(x: Tensor) -> Tensor:
        return _Reordered.apply(x, order.to(x.device), back.to(x.device))

    return _finished(group, found, center, sorted_out, sorted_out)


class _Reordered(torch.autograd.Function):
    """Columns in another order; PyTorch's own gradient of it adds where it could look up, and takes four times as long."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, order: Tensor, back: Tensor) -> Tensor:
        ctx.orders = order, back
        return x.index_select(1, order)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
        order, back = ctx.orders
        return _Reordered.apply(g, back, order), None, None


def _by_matrices(action: Action, d: int) -> LinearParts | None:
    """From the matrices of all elements: projections on the subspaces, and bases of those."""
    group = action.group
    origin = action._orbit(torch.zeros(1, d, dtype=torch.float64))[:, 0]
    center = origin.mean(0)  # the mean of an orbit is a fixed point
    R = action._orbit(torch.eye(d, dtype=torch.float64) + center) - center  # row i is s.e_i
    probe = torch.linspace(0.3, 1.9, d, dtype=torch.float64)[None]
    moved = action._orbit(probe + center)[:, 0] - center
    if not torch.allclose(moved, (probe @ R)[:, 0], atol=1e-8):
        return None
    P = group.fourier(R)  # R_s = sum_t chi_t(s) P_t, P_t Hermitian projections
    found, lefts, rights = [], [], []
    for t, own in _ordered(group):
        values, vectors = torch.linalg.eigh(P[t].real if own else P[t])
        Q = vectors[:, values > 0.5]
        if Q.shape[1] == 0:
            continue
        found.append((t, own, Q.shape[1] if own else 2 * Q.shape[1]))
        if own:
            lefts.append(Q.real)
            rights.append(Q.real)
            continue
        # 2 Re(chi_t(s) x Q . conj(x' Q)): the real part of the product, and the imaginary one. x P x' = x Q Q^H x'.
        a, b = Q.real, Q.imag
        lefts += [torch.cat((2 * a, 2 * b), 1), torch.cat((2 * b, -2 * a), 1)]
        rights += [torch.cat((a, b), 1)] * 2
    left, right = torch.cat(lefts, 1), torch.cat(rights, 1)
    return _finished(group, found, center, lambda u: u @ left.to(u), lambda v: v @ right.to(v))


def _ordered(group: Group) -> list[tuple[int, bool]]:
    """One frequency of each conjugate pair, and whether it is its own: zero, those of single ways in their order, the rest."""
    singles = [group.index([int(i == j) for i in range(group.ways)]) for j in range(group.ways)]
    rank = {0: -1} | {t: i for i, t in enumerate(singles) if t != 0}
    pairs = [(t, t == minus_t) for t, minus_t in group.conjugate_pairs]
    return sorted(pairs, key=lambda pair: (rank.get(pair[0], len(singles)), pair[0]))


def _reordered(action: Reordering, d: int) -> LinearParts | None:
    """Coordinates that change places, none staying under any element but the first: a Fourier transform along their orbits."""
    group = action.group
    places = action.source(group.elements())  # (s.x)_i = x[places[s, i]]
    if places.shape[-1] != d or (places == torch.arange(d)).sum() != d:
        return None
    representatives = (places.amin(0) == torch.arange(d)).nonzero()[:, 0]
    orbits = places[:, representatives].mT.contiguous()  # [orbits, |G|], every coordinate once
    if orbits.numel() != d:
        return None
    r = len(representatives)
    own, pairs = ([t for t, alone in _ordered(group) if alone is kind] for kind in (True, False))
    found = [(t, True, r) for t in own] + [(t, False, 2 * r) for t in pairs]
    listed = orbits.mT.flatten()  # by element, then by orbit
    back = listed.argsort()
    # Of u . v = sum_t Re(u_t conj(v_t)): for a pair of frequencies twice that, u times (re, im | im, -re), v (re, im | re, im).
    first = range(len(own), len(own) + 2 * len(pairs), 2)
    ahead = [(k, 1.0) for k in range(len(own))] + [
        part for k in first for part in ((k, 2.0), (k + 1, 2.0), (k + 1, 2.0), (k, -2.0))
    ]
    behind = [(k, 1.0) for k in range(len(own))] + [(k + i, 1.0) for k in first for i in (0, 1, 0, 1)]
    spectrum = _by_product if group.order <= MAX_PRODUCT else _by_fft

    def side(parts: list[tuple[int, float]]) -> Callable[[Tensor], Tensor]:
        transform = spectrum(group, own, pairs, parts)

        def of(x: Tensor) -> Tensor:
            columns = _Reordered.apply(x, listed.to(x.device), back.to(x.device))
            return transform(columns.reshape(len(x), group.order, r)).flatten(1)

        return of

    return _finished(group, found, torch.zeros(d, dtype=torch.float64), side(ahead), side(behind))


def _by_product(
    group: Group, own: list[int], pairs: list[int], parts: list[tuple[int, float]]
) -> Callable[[Tensor], Tensor]:
    """Some real and imaginary parts of the unitary Fourier transform, weighted, [n, |G|, orbits] -> [n, parts, orbits]."""
    chi = group.characters().conj() / group.order**0.5
    rows = torch.cat((chi[own].real, torch.stack((chi[pairs].real, chi[pairs].imag), 1).flatten(0, 1)))
    F = torch.stack([weight * rows[k] for k, weight in parts])
    return lambda values: F.to(values) @ values


def _by_fft(
    group: Group, own: list[int], pairs: list[int], parts: list[tuple[int, float]]
) -> Callable[[Tensor], Tensor]:
    """The same for a large group."""
    places = torch.tensor([k for k, _ in parts])
    weights = torch.tensor([weight for _, weight in parts], dtype=torch.float64)[:, None]
    alone, paired = torch.tensor(own, dtype=torch.long), torch.tensor(pairs, dtype=torch.long)

    def transform(values: Tensor) -> Tensor:
        n, _, r = values.shape
        device = values.device
        hat = torch.fft.fftn(values.reshape(n, *group.orders, r), dim=tuple(range(1, 1 + group.ways)), norm="ortho")
        hat = hat.reshape(n, -1, r)
        pair = hat[:, paired.to(device)]
        both = torch.stack((pair.real, pair.imag), 2).flatten(1, 2)
        rows = torch.cat((hat[:, alone.to(device)].real, both), 1)
        return rows[:, places.to(device)] * weights.to(values)

    return transform
