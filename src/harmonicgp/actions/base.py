"""The base class of actions, and products of them. A subclass only has to define how its elements move points."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from harmonicgp._validation import check_points
from harmonicgp.actions.linear import LinearParts, parts_by_matrices
from harmonicgp.groups import Element, Group
from harmonicgp.io.registry import ACTIONS, FieldType

_CHUNK = 1 << 22  # numbers stored at a time while folding


class Action(ABC):
    """A finite abelian group that moves points of R^d. Each way is an isometry that commutes with the others.

    Some coordinates may be circles (`periods`); the others are real numbers. An action must not change after its construction,
    because models store values derived from it.

    Your own action defines `group` and `move`, and `periods`, `dim`, `min_dim` if they apply. Check it with
    `harmonicgp.testing.assert_cyclic`. The other methods have defaults; override them to give estimators more information. To
    save models with it, call `register_action`.

    Examples:
        >>> import torch
        >>> from harmonicgp import Cyclic
        >>> class Mirror(Action):
        ...     group = Cyclic(2)
        ...
        ...     def move(self, x, s):
        ...         return torch.where(s == 1, -x, x)
        >>> Mirror().orbit(torch.tensor([[1.0, 2.0]]))[:, 0]
        tensor([[ 1.,  2.],
                [-1., -2.]])
    """

    #: The group.
    group: Group
    #: The number of columns, if the action determines it (images, matrices).
    dim: int | None = None
    #: The smallest number of columns.
    min_dim: int = 1
    #: Whether every element only changes the signs of some columns.
    negates_columns: bool = False

    @property
    def periods(self) -> dict[int, float]:
        """The coordinates that are circles, and their periods."""
        return {}

    @abstractmethod
    def move(self, x: Tensor, s: Tensor) -> Tensor:
        """The points x [..., d] moved by the elements s, integers [..., J] within 0 <= s_j < T_j; leading axes broadcast."""

    # Moving points --------------------------------------------------------------------------------------------------

    def apply(self, x: Tensor, element: Element) -> Tensor:
        """The points s.x for one element s (an int for one way, J ints for J ways): [..., n, d] -> [..., n, d].

        Examples:
            >>> import torch
            >>> from harmonicgp.actions import Rotation
            >>> Rotation((0, 1), 4).apply(torch.tensor([[1.0, 0.0]]), 1)
            tensor([[0., 1.]])
        """
        self.check(x)
        return _finite(self.move(x, torch.tensor(self.group.reduce(element), device=x.device)))

    def orbit(self, x: Tensor) -> Tensor:
        """All images s.x in the order of `group.elements()`: [..., n, d] -> [|G|, ..., n, d]. Checks x and the result."""
        self.check(x)
        return _finite(self.images(x))

    def images(self, x: Tensor) -> Tensor:
        """The same as `orbit`, without its checks."""
        s = self.group.elements().to(x.device)
        return self.move(x, s.reshape(-1, *[1] * (x.dim() - 1), self.group.ways))

    def inverse(self, element: Element) -> tuple[int, ...]:
        """The inverse of an element s: moving by s and then by its inverse moves nothing.

        Examples:
            >>> from harmonicgp.actions import Rotation
            >>> Rotation((0, 1), 4).inverse(1)
            (3,)
        """
        return self.group.reduce([-s for s in self.group.reduce(element)])

    # The fundamental domain -----------------------------------------------------------------------------------------

    def fold(self, x: Tensor) -> Tensor:
        """Each point moved to the image of its orbit in the fundamental domain, [..., n, d].

        The domain is a Dirichlet cell: the points at least as near to a fixed generic point as to any of its images. It is convex
        if no coordinate is a circle. For negations of single coordinates it is the positive orthant, for a translation of order
        T the first T-th of the period.

        Examples:
            >>> import torch
            >>> from harmonicgp.actions import Negation
            >>> Negation([[0], [1]]).fold(torch.tensor([[-1.0, 2.0]]))
            tensor([[1., 2.]])
        """
        places = self.fold_index(x)
        elements = self.group.elements().to(x.device)[places].reshape(-1, self.group.ways)
        rows, step = x.reshape(-1, x.shape[-1]), self._fold_step(x.shape[-1])
        pairs = zip(rows.split(step), elements.split(step), strict=True)
        return torch.cat([self.tidy(self.move(part, s)) for part, s in pairs]).reshape(x.shape)

    def fold_index(self, x: Tensor) -> Tensor:
        """The place in `group.elements()` of the element that `fold` moves each point by, integers [..., n]."""
        self.check(x)
        self.check_fold(x)
        d = x.shape[-1]
        images = self.images(self.generic_point(d).to(x.device)[None])[:, 0]
        # The mean of an orbit is a fixed point; measured from it every element is linear.
        center = images.mean(0)
        center[list(self.periods)] = 0.0
        W = self.embed(images - center)[self.group.inverses().to(x.device)]  # |w - s.x| = |-s.w - x|
        places = []
        for part in x.detach().reshape(-1, d).split(self._fold_step(d)):
            nearness = self.embed(part.double() - center) @ W.mT
            # Ties are between images that are equal up to rounding: take the first, independent of the rounding.
            scale = 1e-9 * nearness.abs().amax(-1, keepdim=True)
            places.append((nearness >= nearness.amax(-1, keepdim=True) - scale).to(torch.uint8).argmax(-1))
        return torch.cat(places).reshape(x.shape[:-1])

    def _fold_step(self, d: int) -> int:
        """How many rows to fold at once."""
        return max(1, _CHUNK // max(self.group.order, d))

    def check_fold(self, x: Tensor) -> None:  # noqa: B027 - most actions have nothing to check
        """Raise a ValueError if rounding would decide which image is in the fundamental domain."""

    def tidy(self, x: Tensor) -> Tensor:
        """The last step of `fold`: unique coordinates for points that have several, such as a pole of the globe."""
        return x

    def generic_point(self, d: int) -> Tensor:
        """A point [d] with positive coordinates in general position, so that round numbers are not on a boundary.

        It is pseudo-random: with simple irrational numbers, ties would occur for whole-number data.
        """
        generator = torch.Generator(device="cpu").manual_seed(20210718)
        return 1.0 + torch.rand(d, generator=generator, dtype=torch.float64, device="cpu")

    def wrap(self, difference: Tensor) -> Tensor:
        """The difference of two points, with circular coordinates reduced to at most half a period."""
        difference = difference.clone()
        for axis, period in self.periods.items():
            turns = difference[..., axis] / period
            difference[..., axis] = (turns - turns.round()) * period
        return difference

    def embed(self, x: Tensor) -> Tensor:
        """Points with circles as (cos, sin), on which the action is linear: [..., d] -> [..., d + circles]."""
        if not self.periods:
            return x
        columns = []
        for axis, column in enumerate(x.unbind(-1)):
            if axis in self.periods:
                angle = column * (2 * math.pi / self.periods[axis])
                columns += [angle.cos(), angle.sin()]
            else:
                columns.append(column)
        return torch.stack(columns, -1)

    # Properties for the estimators and the fused path ---------------------------------------------------------------

    @property
    def factors(self) -> tuple[Action, ...]:
        """The factors of a product; for any other action, the action itself."""
        return (self,)

    def mixed_columns(self, d: int) -> list[list[int]]:
        """Groups of columns that the action mixes. Default: one group of all d columns.

        The kernels of estimators have one lengthscale for such a group.
        """
        return [list(range(d))]

    def renumbered(self, columns: Sequence[int], width: int) -> Action:
        """The same action on a table of `width` columns, in which its column i is columns[i]. Default: itself, unchanged."""
        return self

    def declared_kinds(self) -> dict[int, Any]:
        """The declarations of columns that an estimator needs to use the action. Default: circles as ("periodic", period)."""
        return {axis: ("periodic", period) for axis, period in self.periods.items()}

    def planes(self) -> list[tuple[tuple[int, int], int]]:
        """The coordinate planes that the action rotates, each with its order. The evidence also tests angles in these planes."""
        return []

    def linear_parts(self, d: int) -> LinearParts | None:
        """The parts of the inner products s.x . x' on d coordinates; None if the action is not linear.

        Default: from the matrices of all elements, if they are small.
        """
        return None if self.periods else parts_by_matrices(self.group, self.images, d)

    def on_unit_vectors(self) -> Action | None:
        """The action on unit vectors, for an action on longitude and latitude in columns 0 and 1. Default: None."""
        return None

    @property
    def repr_parses(self) -> bool:
        """Whether `repr` is Python code for the same action. Default: yes for classes that define `__repr__`."""
        return type(self).__repr__ is not object.__repr__

    # Products, checks -----------------------------------------------------------------------------------------------

    def __mul__(self, other: Action) -> Product:
        return Product(self, other) if isinstance(other, Action) else NotImplemented

    def check(self, x: Tensor, name: str = "x") -> None:
        """Raise a TypeError or ValueError unless the action can move `x`."""
        self.check_dim(check_points(x, name).shape[-1], name)

    def check_dim(self, d: int, name: str = "x") -> None:
        """Raise a ValueError unless the action can move points of d coordinates."""
        if self.dim is not None and d != self.dim:
            raise ValueError(
                f"{self!r} moves points of {self.dim} coordinates, one point per row; {name} has {d} columns "
                "(pass images as flat rows: images.flatten(1))."
            )
        if d < self.min_dim:
            raise ValueError(f"{self!r} needs at least {self.min_dim} coordinates; {name} has {d}.")


def replaced(x: Tensor, columns: dict[int, Tensor]) -> Tensor:
    """The points x [..., d] with new values in some columns; the new values may have further leading axes."""
    shape = next(iter(columns.values())).shape
    return torch.stack([columns[k] if k in columns else x[..., k].expand(shape) for k in range(x.shape[-1])], -1)


def _finite(x: Tensor) -> Tensor:
    if not torch.isfinite(x).all():
        raise ValueError("moved points are not finite: the inputs are too large for their dtype; scale them first.")
    return x


def register_action(
    name: str,
    cls: type[Action],
    /,
    *,
    children: str | tuple[str, ...] = (),
    make: Callable[..., Any] | None = None,
    **fields: FieldType,
) -> None:
    """Register your own class of actions, so that models with it can be saved.

    Args:
        name: the name in files. Register the class before you save and before you load.
        cls: the class. Files store instances of exactly this class, not of its subclasses.
        children: the name of one attribute that is a tuple of actions, or names of attributes that are actions. They are the
            first arguments of `make`.
        make: builds the action from children and fields; the class itself by default.
        fields: constructor arguments to save, each an attribute of the same name, with its type: `int` (not negative), `float`,
            `bool`, `list[int]`, `list[list[int]]`, `torch.Tensor`, or one of these `| None`.

    Examples:
        >>> import torch
        >>> from harmonicgp import Cyclic
        >>> class Mirror(Action):
        ...     def __init__(self, axis):
        ...         self.axis, self.group, self.min_dim = axis, Cyclic(2), axis + 1
        ...
        ...     def move(self, x, s):
        ...         column = torch.arange(x.shape[-1], device=x.device) == self.axis
        ...         return torch.where(column & (s == 1), -x, x)
        >>> register_action("docs.Mirror", Mirror, axis=int)
    """
    ACTIONS.add(name, cls, fields, children, make)


class Product(Action):
    """The joint action of commuting actions; its group is the product of their groups.

    The constructor checks that the factors commute and that only the neutral element leaves every point in its place.

    Examples:
        >>> from harmonicgp.actions import Negation, Translation
        >>> (Negation([0]) * Translation(axis=1, period=24.0, order=3)).group
        Cyclic(2) * Cyclic(3)
    """

    def __init__(self, *factors: Action) -> None:
        flat: list[Action] = []
        for factor in factors:
            if not isinstance(factor, Action):
                raise TypeError(f"Product takes actions; got {factor!r}.")
            flat += factor.factors
        if not flat:
            raise ValueError("Product needs at least one action.")
        self._factors = tuple(flat)
        self.group = Group(tuple(T for factor in flat for T in factor.group.orders))
        dims = {factor.dim for factor in flat if factor.dim is not None}
        if len(dims) > 1:
            raise ValueError(f"the actions move points of different dimension: {sorted(dims)}.")
        self.dim = dims.pop() if dims else None
        self.min_dim = max(factor.min_dim for factor in flat)
        if self.dim is not None and self.dim < self.min_dim:
            raise ValueError(f"one action moves points of {self.dim} coordinates, another needs {self.min_dim}.")
        self._periods: dict[int, float] = {}
        for factor in flat:
            for axis, period in factor.periods.items():
                if self._periods.setdefault(axis, period) != period:
                    raise ValueError(f"coordinate {axis} has two periods, {self._periods[axis]} and {period}.")
        self._widths: set[int] = set()  # numbers of columns for which `_check_faithful` has passed
        self._check_commuting()
        self._check_faithful(self.dim if self.dim is not None else self.min_dim + 1)

    @property
    def factors(self) -> tuple[Action, ...]:
        """The factors; products among the arguments are replaced by their factors."""
        return self._factors

    @property
    def periods(self) -> dict[int, float]:
        """The circular coordinates of all factors."""
        return self._periods

    def move(self, x: Tensor, s: Tensor) -> Tensor:
        """The points moved by one factor after the other."""
        start = 0
        for factor in self.factors:
            stop = start + factor.group.ways
            x = factor.move(x, s[..., start:stop])
            start = stop
        return x

    def check(self, x: Tensor, name: str = "x") -> None:
        """Raise a TypeError or ValueError unless every factor can move x."""
        super().check(x, name)
        for factor in self.factors:
            factor.check(x, name)

    def check_fold(self, x: Tensor) -> None:
        """Raise a ValueError if rounding would decide which image is in the fundamental domain."""
        for factor in self.factors:
            factor.check_fold(x)

    def tidy(self, x: Tensor) -> Tensor:
        """Unique coordinates for points that have several."""
        for factor in self.factors:
            x = factor.tidy(x)
        return x

    def generic_point(self, d: int) -> Tensor:
        """A generic point; circular coordinates are those of their factor."""
        w = super().generic_point(d)
        for factor in self.factors:
            for axis in factor.periods:
                w[axis] = factor.generic_point(d)[axis]
        return w

    def mixed_columns(self, d: int) -> list[list[int]]:
        """The groups of the factors; groups that share a column are joined."""
        groups: list[set[int]] = []
        for part in (set(group) for factor in self.factors for group in factor.mixed_columns(d)):
            overlaps = [group for group in groups if group & part]
            groups = [group for group in groups if not group & part] + [part.union(*overlaps)]
        return [sorted(group) for group in groups]

    def renumbered(self, columns: Sequence[int], width: int) -> Action:
        """The product of the renumbered factors."""
        return Product(*(factor.renumbered(columns, width) for factor in self.factors))

    def declared_kinds(self) -> dict[int, Any]:
        """The declarations of all factors."""
        return {axis: kind for factor in self.factors for axis, kind in factor.declared_kinds().items()}

    def planes(self) -> list[tuple[tuple[int, int], int]]:
        """The planes of all factors."""
        return [plane for factor in self.factors for plane in factor.planes()]

    @property
    def repr_parses(self) -> bool:
        """Whether `repr` is Python code, which it is if it is for all factors."""
        return all(factor.repr_parses for factor in self.factors)

    def check_dim(self, d: int, name: str = "x") -> None:
        """Raise a ValueError unless all factors can move d coordinates and do not repeat each other."""
        super().check_dim(d, name)
        for factor in self.factors:
            factor.check_dim(d, name)
        if d not in self._widths:
            self._check_faithful(d)
            self._widths.add(d)

    def _trial_points(self, d: int) -> Tensor:
        scales = torch.tensor([[1.0], [-0.7], [0.4]], dtype=torch.float64, device="cpu")
        return self.generic_point(d) * scales

    def _check_commuting(self) -> None:
        # Two numbers of columns: an action on "every coordinate" may commute for one and not for another.
        for d in [self.dim] if self.dim is not None else [self.min_dim, self.min_dim + 1]:
            x = self._trial_points(d)
            for i, first in enumerate(self.factors):
                for second in self.factors[i + 1 :]:
                    conflict = first_conflict(first, second, x, 1e-8)
                    if conflict is not None:
                        raise ValueError(f"the actions of a product must commute: {conflict}")

    def _check_faithful(self, d: int) -> None:
        x = self._trial_points(d)[:1]
        fixes_x = self.wrap(self.images(x)[:, 0] - x).abs().amax(-1) < 1e-9 * (1 + x.abs().max())
        if int(fixes_x.sum()) > 1:
            element = tuple(self.group.elements()[fixes_x.nonzero()[1, 0]].tolist())
            raise ValueError(
                f"element {element} of {self!r} leaves every point of {d} coordinates in its place, so the factors repeat "
                "each other: drop a factor, or use one cyclic action of the joint order."
            )

    def __repr__(self) -> str:
        return " * ".join(map(repr, self.factors)) if len(self.factors) > 1 else f"Product({self.factors[0]!r})"


def first_conflict(first: Action, second: Action, x: Tensor, tolerance: float) -> str | None:
    """A sentence on two generators that do not commute on the points x [n, d]; None if all commute."""
    first.check(x)
    second.check(x)
    for s in _generators(first).to(x.device):
        for r in _generators(second).to(x.device):
            one = second.move(first.move(x, s), r)
            other = first.move(second.move(x, r), s)
            gap = first.wrap(second.wrap(one - other)).abs().amax(-1)
            if not float(gap.max()) <= tolerance * (1 + float(one.detach().abs().max())):
                return (
                    f"{first!r} and {second!r} do not commute: elements {s.tolist()} and {r.tolist()} take point "
                    f"{int(gap.argmax())} to different places in the two orders."
                )
    return None


def _generators(action: Action) -> Tensor:
    """One step of each way, [J, J]."""
    orders = torch.tensor(action.group.orders, device="cpu")
    return torch.eye(action.group.ways, dtype=torch.long, device="cpu") % orders
