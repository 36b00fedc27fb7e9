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

from harmonicgp.actions import Action
from harmonicgp.actions.permutation import Reordering
from harmonicgp.groups import Group

#: Coordinates up to which matrices of an action are formed.
MAX_MATRIX = 64


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
    r, order = len(representatives), group.orders
    kept = _ordered(group)
    own = torch.tensor([t for t, alone in kept if alone], dtype=torch.long)
    pairs = torch.tensor([t for t, alone in kept if not alone], dtype=torch.long)
    found = [(t, True, r) for t, alone in kept if alone] + [(t, False, 2 * r) for t, alone in kept if not alone]
    axes = tuple(range(2, 2 + group.ways))

    def spectrum(x: Tensor) -> tuple[Tensor, Tensor]:
        values = x[:, orbits.to(x.device).flatten()].reshape(len(x), r, *order)
        hat = torch.fft.fftn(values, dim=axes, norm="ortho").reshape(len(x), r, -1)
        return hat[..., own.to(x.device)].real.transpose(1, 2), hat[..., pairs.to(x.device)].transpose(1, 2)

    def right(v: Tensor) -> Tensor:
        alone, paired = spectrum(v)
        both = torch.cat((paired.real, paired.imag), -1)  # [n, pairs, 2r]
        return torch.cat((alone.flatten(1), torch.stack((both, both), 2).flatten(1)), 1)

    def left(u: Tensor) -> Tensor:
        alone, paired = spectrum(u)
        a, b = 2 * paired.real, 2 * paired.imag
        return torch.cat((alone.flatten(1), torch.cat((a, b, b, -a), -1).flatten(1)), 1)

    center = torch.zeros(d, dtype=torch.float64)
    return _finished(group, found, center, left, right)
