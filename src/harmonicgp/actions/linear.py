"""Inner products under a linear action, as sums of few parts: s.x . x' = sum_k C[s, k] u^(k)(x) . v^(k)(x').

An abelian group of orthogonal matrices splits the space into subspaces, one for each frequency that occurs. On each of them an
element multiplies by its character. So J negations have J parts, and one for coordinates that no element moves; a rotated plane
has two, and one. Rolls of images by every pixel have as many parts as elements, each of a few pixels: the Fourier transform along
the group comes before the matrix products, which are never of whole images.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from harmonicgp.groups import Group

#: Up to this many coordinates the matrices of an action are computed.
MAX_MATRIX = 64
#: Up to this group order the Fourier transform along orbits of coordinates is a matrix product; above, an FFT.
MAX_PRODUCT = 128


@dataclass(frozen=True, eq=False)
class LinearParts:
    """The parts of s.x . x' about a fixed point `center`; `left` and `right` take centred points [n, d] to [n, width]."""

    ends: tuple[int, ...]  #: the end of each part among the columns of `left` and `right`
    C: Tensor  #: [|G|, parts], float64
    rest: bool  #: whether no element changes the first part
    negation: bool  #: whether each other part is negated by one way, in the order of the ways
    center: Tensor  #: [d], float64
    left: Callable[[Tensor], Tensor]
    right: Callable[[Tensor], Tensor]

    def inner_products(self, x1: Tensor, x2: Tensor) -> Tensor:
        """The inner products s.x1 . x2 of centred points, as the sum of the parts: [|G|, n1, n2]."""
        U, V = self.left(x1), self.right(x2)
        products = [U[:, a:b] @ V[:, a:b].mT for a, b in zip((0, *self.ends[:-1]), self.ends, strict=True)]
        return torch.einsum("sk,kij->sij", self.C.to(U), torch.stack(products))


def nothing_moves(d: int) -> LinearParts:
    """The one part of the trivial group."""
    C, center = torch.ones(1, 1, dtype=torch.float64, device="cpu"), torch.zeros(d, dtype=torch.float64, device="cpu")
    return LinearParts((d,), C, True, True, center, lambda u: u, lambda v: v)


def negated_parts(
    group: Group,
    subsets: tuple[tuple[int, ...], ...],
    d: int,
    directions: Tensor | None = None,
    center: Tensor | None = None,
) -> LinearParts:
    """The parts of negations, where each way negates a subset of the coordinates, or of orthonormal directions.

    The part that no element moves comes first, then one part for each way.
    """
    fixed = sorted(set(range(d)).difference(*subsets))
    spaces = [(0, True, len(fixed))] if fixed else []
    spaces += [(_way(group, j), True, len(subset)) for j, subset in enumerate(subsets)]
    order = torch.tensor([*fixed, *(i for subset in subsets for i in subset)], device="cpu")
    center = torch.zeros(d, dtype=torch.float64, device="cpu") if center is None else center.cpu().double()
    if directions is not None:
        Q = directions.cpu().double()[:, order]
        return _parts(group, spaces, center, lambda u: u @ Q.to(u), lambda v: v @ Q.to(v))
    reorder = _reordering(order)
    return _parts(group, spaces, center, reorder, reorder)


def parts_by_matrices(group: Group, images: Callable[[Tensor], Tensor], d: int) -> LinearParts | None:
    """The parts from the matrices of all elements, computed from `images` [n, d] -> [|G|, n, d]: a basis of each subspace.

    None if the action is not linear, or if the matrices would be too large.
    """
    if d > MAX_MATRIX and (group.order > 8 or d > 1024):
        return None
    origin = images(torch.zeros(1, d, dtype=torch.float64, device="cpu"))[:, 0]
    center = origin.mean(0)  # the mean of an orbit is a fixed point
    R = images(torch.eye(d, dtype=torch.float64, device="cpu") + center) - center  # row i is s.e_i
    probe = torch.linspace(0.3, 1.9, d, dtype=torch.float64, device="cpu")[None]
    probe_images = images(probe + center)[:, 0] - center
    if not torch.allclose(probe_images, (probe @ R)[:, 0], atol=1e-8):
        return None
    P = group.fourier(R)  # R_s = sum_t chi_t(s) P_t, P_t Hermitian projections
    spaces, lefts, rights = [], [], []
    for t, single in _ordered(group):
        values, vectors = torch.linalg.eigh(P[t].real if single else P[t])
        Q = vectors[:, values > 0.5]
        if Q.shape[1] == 0:
            continue
        spaces.append((t, single, Q.shape[1] if single else 2 * Q.shape[1]))
        # 2 Re(chi_t(s) x Q . conj(x' Q)): the real part of the product, and the imaginary one. x P x' = x Q Q^H x'.
        lefts += [Q.real] if single else [2 * Q.real, 2 * Q.imag, 2 * Q.imag, -2 * Q.real]
        rights += [Q.real] if single else [Q.real, Q.imag] * 2
    left, right = torch.cat(lefts, 1), torch.cat(rights, 1)
    return _parts(group, spaces, center, lambda u: u @ left.to(u), lambda v: v @ right.to(v))


def reordered_parts(group: Group, places: Tensor, d: int) -> LinearParts | None:
    """The parts of a reordering of coordinates, (s.x)_i = x[places[s, i]], by a Fourier transform along their orbits.

    None if an element other than the first leaves a coordinate in its place.
    """
    columns = torch.arange(d, device="cpu")
    if places.shape[-1] != d or (places == columns).sum() != d:
        return None
    representatives = (places.amin(0) == columns).nonzero()[:, 0]
    orbits = places[:, representatives].mT.contiguous()  # [orbits, |G|], every coordinate once
    if orbits.numel() != d:
        return None
    r = len(representatives)
    singles, pairs = ([t for t, single in _ordered(group) if single is kind] for kind in (True, False))
    spaces = [(t, True, r) for t in singles] + [(t, False, 2 * r) for t in pairs]
    reorder = _reordering(orbits.mT.flatten())  # by element, then by orbit
    # u . v = sum_t Re(u_t conj(v_t)). A pair of frequencies has twice that: the left side is (re, im | im, -re), the right one
    # (re, im | re, im).
    first = range(len(singles), len(singles) + 2 * len(pairs), 2)
    lefts = [(k, 1.0) for k in range(len(singles))] + [
        part for k in first for part in ((k, 2.0), (k + 1, 2.0), (k + 1, 2.0), (k, -2.0))
    ]
    rights = [(k, 1.0) for k in range(len(singles))] + [(k + i, 1.0) for k in first for i in (0, 1, 0, 1)]
    spectrum = _by_product if group.order <= MAX_PRODUCT else _by_fft

    def side(parts: list[tuple[int, float]]) -> Callable[[Tensor], Tensor]:
        transform = spectrum(group, singles, pairs, parts)

        return lambda x: transform(reorder(x).reshape(len(x), group.order, r)).flatten(1)

    return _parts(group, spaces, torch.zeros(d, dtype=torch.float64, device="cpu"), side(lefts), side(rights))


def _parts(
    group: Group,
    spaces: list[tuple[int, bool, int]],
    center: Tensor,
    left: Callable[[Tensor], Tensor],
    right: Callable[[Tensor], Tensor],
) -> LinearParts:
    """The parts from (frequency, whether it is its own conjugate, width) of each subspace; conjugate pairs have two parts."""
    characters = group.characters()
    widths, columns = [], []
    for t, self_conjugate, width in spaces:
        widths += [width] if self_conjugate else [width, width]
        columns += [characters[t].real] if self_conjugate else [characters[t].real, -characters[t].imag]
    rest = bool(spaces) and spaces[0][0] == 0
    ways = [_way(group, j) for j, T in enumerate(group.orders) if T == 2]
    negation = group.is_real and len(ways) > 0 and ways == [t for t, _, _ in spaces[int(rest) :]]
    return LinearParts(tuple(accumulate(widths)), torch.stack(columns, 1), rest, negation, center, left, right)


def _way(group: Group, j: int) -> int:
    """The place of the generator of way j among the elements, or of its frequency."""
    return group.index([int(i == j) for i in range(group.ways)])


class _Reordered(torch.autograd.Function):
    """Columns in another order. The gradient is a lookup; that of PyTorch is a sum, which takes four times as long."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, order: Tensor, back: Tensor) -> Tensor:
        ctx.orders = order, back
        return x.index_select(1, order)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
        order, back = ctx.orders
        return _Reordered.apply(g, back, order), None, None


def _reordering(order: Tensor) -> Callable[[Tensor], Tensor]:
    back = order.argsort()
    return lambda x: _Reordered.apply(x, order.to(x.device), back.to(x.device))


def _ordered(group: Group) -> list[tuple[int, bool]]:
    """One frequency of each conjugate pair, and whether it is self-conjugate: first zero, then single ways, then the others."""
    rank = {_way(group, j): j for j in range(group.ways)} | {0: -1}
    pairs = [(t, t == minus_t) for t, minus_t in group.conjugate_pairs]
    return sorted(pairs, key=lambda pair: (rank.get(pair[0], group.ways), pair[0]))


def _by_product(
    group: Group, singles: list[int], pairs: list[int], parts: list[tuple[int, float]]
) -> Callable[[Tensor], Tensor]:
    """Weighted real and imaginary parts of the unitary Fourier transform, [n, |G|, orbits] -> [n, parts, orbits]."""
    chi = group.characters().conj() / group.order**0.5
    rows = torch.cat((chi[singles].real, torch.stack((chi[pairs].real, chi[pairs].imag), 1).flatten(0, 1)))
    F = torch.stack([weight * rows[k] for k, weight in parts])
    return lambda values: F.to(values) @ values


def _by_fft(
    group: Group, singles: list[int], pairs: list[int], parts: list[tuple[int, float]]
) -> Callable[[Tensor], Tensor]:
    """The same by an FFT, for a large group."""
    lists = ([k for k, _ in parts], singles, pairs)
    places, single, paired = (torch.tensor(numbers, dtype=torch.long, device="cpu") for numbers in lists)
    weights = torch.tensor([weight for _, weight in parts], dtype=torch.float64, device="cpu")[:, None]

    def transform(values: Tensor) -> Tensor:
        n, _, r = values.shape
        device = values.device
        hat = torch.fft.fftn(values.reshape(n, *group.orders, r), dim=tuple(range(1, 1 + group.ways)), norm="ortho")
        hat = hat.reshape(n, -1, r)
        pair = hat[:, paired.to(device)]
        interleaved = torch.stack((pair.real, pair.imag), 2).flatten(1, 2)
        rows = torch.cat((hat[:, single.to(device)].real, interleaved), 1)
        return rows[:, places.to(device)] * weights.to(values)

    return transform
