"""Finite abelian groups as values, with their elements, characters and Fourier transforms. Actions say how they move points.

A group is G = Z_{T1} x ... x Z_{TJ}. Its elements s and its frequencies (characters) t are multi-indices with
0 <= s_j, t_j < T_j. The last index runs fastest, so that an axis of length |G| reshapes to (T1, ..., TJ).

    chi_t(s) = exp(2 pi i sum_j t_j s_j / T_j)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import index as as_integer
from typing import Literal, TypeAlias, get_args

import numpy as np
import torch
from torch import Tensor

Resolution: TypeAlias = Literal["full", "complex", "real"]
Element: TypeAlias = int | Sequence[int] | Tensor

_TRANSFORMABLE = (torch.float32, torch.float64, torch.complex64, torch.complex128)

RESOLUTIONS: tuple[Resolution, ...] = get_args(Resolution)


def check_resolution(resolution: str) -> None:
    """Raise a `ValueError` unless `resolution` is one of the three."""
    if resolution not in RESOLUTIONS:
        raise ValueError(f"resolution must be one of {', '.join(map(repr, RESOLUTIONS))}; got {resolution!r}.")


@dataclass(frozen=True)
class Group:
    """A product of cyclic groups; write `Cyclic(2)**3` or `Cyclic(4) * Cyclic(3)`.

    Groups with equal orders in the same sequence are equal. The sequence matters, because an action has a different motion for
    each way (cyclic factor).

    Examples:
        >>> group = Cyclic(2) ** 2 * Cyclic(3)
        >>> group.order, group.ways
        (12, 3)
        >>> eval(repr(group)) == group
        True
    """

    orders: tuple[int, ...]

    def __post_init__(self) -> None:
        try:
            orders = tuple(as_integer(order) for order in self.orders)
        except TypeError:
            raise TypeError(f"a group needs whole numbers as orders; got {self.orders!r}.") from None
        if not orders or min(orders) < 1:
            raise ValueError(f"a cyclic group needs an order T >= 1; got {self.orders!r}.")
        object.__setattr__(self, "orders", orders)

    def __repr__(self) -> str:
        runs = [(order, len(list(run))) for order, run in itertools.groupby(self.orders)]
        return " * ".join(f"Cyclic({order})" + (f"**{n}" if n > 1 else "") for order, n in runs)

    def __mul__(self, other: Group) -> Group:
        return Group(self.orders + other.orders) if isinstance(other, Group) else NotImplemented

    def __pow__(self, ways: int) -> Group:
        if as_integer(ways) < 1:
            raise ValueError(f"a power of a group needs an exponent >= 1; got {ways}.")
        return Group(self.orders * ways)

    # Counting -----------------------------------------------------------------------------------------------------

    @property
    def order(self) -> int:
        """|G|, the number of elements and of frequencies."""
        return math.prod(self.orders)

    @property
    def ways(self) -> int:
        """J, the number of cyclic factors."""
        return len(self.orders)

    @property
    def is_real(self) -> bool:
        """Whether every character is real: all orders are 1 or 2 (negations, flips)."""
        return max(self.orders) <= 2

    def elements(self) -> Tensor:
        """All elements, which are also all frequencies, as integers [|G|, J]."""
        return self._elements.clone()

    @cached_property
    def _elements(self) -> Tensor:
        with torch.inference_mode(False):
            steps = (torch.arange(T, device="cpu") for T in self.orders)
            return torch.cartesian_prod(*steps).reshape(self.order, self.ways)

    def reduce(self, element: Element) -> tuple[int, ...]:
        """An element (an int for one way, J ints for J) as J whole numbers within the orders.

        Examples:
            >>> (Cyclic(4) * Cyclic(3)).reduce((5, -1))
            (1, 2)
        """
        if hasattr(element, "tolist"):  # tensors and arrays
            element = element.tolist()
        try:
            s = tuple(map(as_integer, element)) if isinstance(element, Sequence) else (as_integer(element),)
        except TypeError:
            raise TypeError(f"an element of {self!r} is {self.ways} whole numbers; got {element!r}.") from None
        if len(s) != self.ways:
            raise ValueError(f"an element of {self!r} is {self.ways} whole numbers; {element!r} has {len(s)}.")
        return tuple(s_j % T_j for s_j, T_j in zip(s, self.orders, strict=True))

    def index(self, element: Element) -> int:
        """The place of an element in `elements()`.

        Examples:
            >>> (Cyclic(4) * Cyclic(3)).index((1, -1))
            5
        """
        return int(np.ravel_multi_index(self.reduce(element), self.orders))

    def inverses(self) -> Tensor:
        """The place of -s for every s, integers [|G|]."""
        return _places(-self.elements() % torch.tensor(self.orders, device="cpu"), self.orders)

    def characters(self, dtype: torch.dtype = torch.complex128, frequencies: Tensor | None = None) -> Tensor:
        """chi_t(s) as a dense complex matrix [frequencies (t), |G| (s)], for all frequencies or some [n, J].

        For references and short sums: the transforms below never build it.

        Examples:
            >>> Cyclic(2).characters().real
            tensor([[ 1.,  1.],
                    [ 1., -1.]], dtype=torch.float64)
        """
        s = self.elements()
        t = s if frequencies is None else frequencies
        turns = torch.zeros(len(t), self.order, dtype=torch.float64, device="cpu")
        for j, T in enumerate(self.orders):
            # Reduced to the smallest turn before the division, so that conjugates agree to the last bit.
            turns += ((t[:, None, j] * s[None, :, j] + T // 2) % T - T // 2).to(torch.float64) / T
        return torch.polar(torch.ones_like(turns), 2 * math.pi * turns).to(dtype)

    # Frequencies and the three resolutions -------------------------------------------------------------------------

    @cached_property
    def conjugate_pairs(self) -> tuple[tuple[int, int], ...]:
        """The places of t and -t, once for each pair; they are equal if t is its own conjugate.

        The first of a pair has t_J <= T_J / 2 in the last way: a real FFT computes these frequencies.

        Examples:
            >>> Cyclic(4).conjugate_pairs
            ((0, 0), (1, 3), (2, 2))
        """
        inverse, last, T = self.inverses().tolist(), self.elements()[:, -1].tolist(), self.orders[-1]
        key = {t: (last[t] > T // 2, t) for t in range(self.order)}
        return tuple((t, inverse[t]) for t in range(self.order) if key[t] <= key[inverse[t]])

    @cached_property
    def folded_frequencies(self) -> tuple[tuple[int, ...], ...]:
        """The frequencies of the real resolution: 0 <= t_j <= T_j / 2 in every way.

        Examples:
            >>> len((Cyclic(7) ** 2).folded_frequencies)
            16
        """
        return tuple(itertools.product(*(range(T // 2 + 1) for T in self.orders)))

    def frequencies(self, resolution: Resolution = "complex") -> Tensor:
        """The frequency t of each block, the first of its pair, integers [blocks, J].

        Examples:
            >>> Cyclic(4).frequencies().flatten().tolist()
            [0, 1, 2]
        """
        check_resolution(resolution)
        if resolution == "real":
            return torch.tensor(self.folded_frequencies, device="cpu").reshape(-1, self.ways)
        if resolution == "complex":
            return self.elements()[[t for t, _ in self.conjugate_pairs]]
        return self.elements()

    def n_blocks(self, resolution: Resolution = "complex") -> int:
        """The number of harmonic kernels of the resolution."""
        check_resolution(resolution)
        if resolution == "full":
            return self.order
        if resolution == "real":
            return math.prod(T // 2 + 1 for T in self.orders)
        return (self.order + math.prod(2 - T % 2 for T in self.orders)) // 2

    def weights(self, resolution: Resolution = "complex") -> Tensor:
        """The dense matrix of `harmonics`, [blocks, |G|] in float64 or complex128: for sums over a few elements."""
        return self.harmonics(torch.eye(self.order, dtype=torch.float64, device="cpu"), resolution)

    # Transforms over the group --------------------------------------------------------------------------------------

    def fourier(self, values: Tensor) -> Tensor:
        """1/|G| sum_s conj(chi_t(s)) values_s along the first axis, [|G|, ...] -> [|G|, ...].

        An FFT; a Walsh-Hadamard transform, which stays real, when all orders are at most 2.
        """
        self._check_axis(values)
        if self.is_real:
            return self._hadamard(values) / self.order
        return self._along_ways(torch.fft.fftn, values)

    def inverse_fourier(self, spectrum: Tensor) -> Tensor:
        """sum_t chi_t(s) spectrum_t along the first axis, [|G|, ...] -> [|G|, ...]: the inverse of `fourier`."""
        self._check_axis(spectrum)
        if self.is_real:
            return self._hadamard(spectrum)
        return self._along_ways(torch.fft.ifftn, spectrum)

    def harmonics(self, values: Tensor, resolution: Resolution = "complex") -> Tensor:
        """The transform along the first axis, resolved: [|G|, ...] -> [blocks, ...].

        - "full": `fourier`, all |G| frequencies.
        - "complex": one of each conjugate pair, doubled when t != -t; the real parts of the blocks add up to values_0.
        - "real": sum_s 1/|G| prod_j c_j cos(2 pi t_j s_j / T_j) values_s over the folded frequencies, c_j = 1 for
          t_j in {0, T_j / 2} and 2 otherwise; the blocks add up to values_0.

        The result is real in the real resolution, and in every resolution when all orders are at most 2.
        """
        check_resolution(resolution)
        self._check_axis(values)
        if values.is_complex() and resolution != "full":
            raise ValueError(
                f"the {resolution!r} resolution pairs conjugate frequencies, which needs real values; "
                'use resolution="full" for a complex-valued kernel.'
            )
        if resolution == "full" or self.is_real:
            return self.fourier(values)
        shape = values.shape[1:]
        values = values.reshape(self.orders + shape)
        if resolution == "real":
            for j, T in enumerate(self.orders):
                t = torch.arange(T // 2 + 1, device=values.device)
                c = (1 + (2 * t % T != 0)).to(values) / T
                values = torch.fft.rfft(values, dim=j).real * c.reshape([-1] + [1] * (values.dim() - j - 1))
            return values.reshape((-1, *shape))
        half = torch.fft.rfftn(values, dim=tuple(range(self.ways)), norm="forward").reshape((-1, *shape))
        # The last way of `half` has only t_J <= T_J / 2.
        places = _places(self.frequencies("complex"), (*self.orders[:-1], self.orders[-1] // 2 + 1))
        doubled = [1.0 + (a != b) for a, b in self.conjugate_pairs]
        twice = torch.tensor(doubled, dtype=values.dtype, device=values.device).reshape([-1] + [1] * len(shape))
        return half.index_select(0, places.to(values.device)) * twice

    def _along_ways(self, transform: Callable[..., Tensor], values: Tensor) -> Tensor:
        """An FFT over all ways, divided by |G|, or its inverse."""
        ways = tuple(range(self.ways))
        return transform(values.reshape(self.orders + values.shape[1:]), dim=ways, norm="forward").reshape(values.shape)

    def _hadamard(self, values: Tensor) -> Tensor:
        shape = values.shape
        for j, T in enumerate(self.orders):
            if T == 2:
                a, b = values.reshape(math.prod(self.orders[:j]), 2, -1).unbind(1)
                values = torch.stack((a + b, a - b), dim=1)
        return values.reshape(shape)

    def _check_axis(self, values: Tensor) -> None:
        if not isinstance(values, Tensor):
            raise TypeError(f"the transform takes a torch tensor; got {type(values).__name__}.")
        if values.dtype not in _TRANSFORMABLE:
            raise TypeError(f"the transform takes float32, float64 or complex values; got {values.dtype}.")
        if values.numel() == 0:
            raise ValueError(f"the transform has nothing to work on: shape {tuple(values.shape)}.")
        if values.dim() == 0 or values.shape[0] != self.order:
            raise ValueError(
                f"the transform over {self!r} needs a first axis of length {self.order}; got shape {tuple(values.shape)}."
            )


def _places(elements: Tensor, orders: tuple[int, ...]) -> Tensor:
    """The places of elements [n, J] in a list in which the last way runs fastest, integers [n]."""
    return torch.from_numpy(np.ravel_multi_index(tuple(elements.mT.numpy()), orders))


def Cyclic(order: int) -> Group:
    """The cyclic group of `order` elements.

    Examples:
        >>> Cyclic(2) ** 3
        Cyclic(2)**3
        >>> Cyclic(7).n_blocks("real")
        4
    """
    return Group((order,))
