"""What every action can do, from the one thing each must say: how its elements move points."""

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

_CHUNK = 1 << 22  # numbers held at once while folding


class Action(ABC):
    """A finite abelian group that moves points of R^d, each way by an isometry that commutes with the others.

    Some coordinates may be circles (`periods`); the rest are ordinary numbers. An action does not change after its
    construction: models keep what they derive from it.

    An action of your own gives `group` and `move`, and where they apply `periods`, `dim`, `min_dim`. Check it with
    `harmonicgp.testing.assert_cyclic`. The other methods have defaults; override one to tell the estimators more. To save
    models with it, call `register_action`.
    """

    #: The group that acts.
    group: Group
    #: The number of columns, where the action fixes it (images, matrices).
    dim: int | None = None
    #: The least number of columns the action can work on.
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
        """The same as `orbit`, without checks."""
        s = self.group.elements().to(x.device)
        return self.move(x, s.reshape(-1, *[1] * (x.dim() - 1), self.group.ways))

    def inverse(self, element: Element) -> tuple[int, ...]:
        """The element that undoes this one: moving by s and then by its inverse moves nothing."""
        return self.group.reduce([-s for s in self.group.reduce(element)])

    # The fundamental domain -----------------------------------------------------------------------------------------

    def fold(self, x: Tensor) -> Tensor:
        """Each point moved to the one image of its orbit that lies in the fundamental domain, [..., n, d].

        The domain is a Dirichlet cell: the points at least as near to a fixed generic point as to any of its images.
        It is convex where no coordinate is a circle. For negations of single coordinates it is the positive orthant,
        for a translation of order T the first T-th of the period.
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
            # Ties are between images that coincide up to rounding: take the first, so that rounding does not choose.
            scale = 1e-9 * nearness.abs().amax(-1, keepdim=True)
            places.append((nearness >= nearness.amax(-1, keepdim=True) - scale).to(torch.uint8).argmax(-1))
        return torch.cat(places).reshape(x.shape[:-1])

    def _fold_step(self, d: int) -> int:
        """How many rows to fold at once."""
        return max(1, _CHUNK // max(self.group.order, d))

    def check_fold(self, x: Tensor) -> None:  # noqa: B027 - most actions have nothing to check
        """Raise a clear error where rounding would choose the representative."""

    def tidy(self, x: Tensor) -> Tensor:
        """One name for a point that has several (a pole of the globe), as the last step of `fold`."""
        return x

    def generic_point(self, d: int) -> Tensor:
        """A point of positive coordinates in no special position, so that no boundary falls on tidy data.

        Pseudo-random, not a formula: whole-number data meet a whole-number relation between simple irrationals as a tie.
        """
        generator = torch.Generator(device="cpu").manual_seed(20210718)
        return 1.0 + torch.rand(d, generator=generator, dtype=torch.float64, device="cpu")

    def wrap(self, difference: Tensor) -> Tensor:
        """The difference of two points with circular coordinates reduced to half a period at most."""
        difference = difference.clone()
        for axis, period in self.periods.items():
            turns = difference[..., axis] / period
            difference[..., axis] = (turns - turns.round()) * period
        return difference

    def embed(self, x: Tensor) -> Tensor:
        """Circles as (cos, sin), so that the action is by isometries that fix the origin: [..., d] -> [..., d + circles]."""
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

    # What the rest of the library asks of an action -----------------------------------------------------------------

    @property
    def factors(self) -> tuple[Action, ...]:
        """The actions that a product joins; an action that is no product has itself."""
        return (self,)

    def mixed_columns(self, d: int) -> list[list[int]]:
        """Groups of columns between which the action takes values about. Default: all d columns, one group.

        A kernel that an estimator makes gives such columns one lengthscale.
        """
        return [list(range(d))]

    def renumbered(self, columns: Sequence[int], width: int) -> Action:
        """The same action on a wider table: its column i becomes columns[i], of `width`. Default: itself, unchanged."""
        return self

    def declared_kinds(self) -> dict[int, Any]:
        """What must be declared of columns for an estimator to use the action. Default: circles as ("periodic", period)."""
        return {axis: ("periodic", period) for axis, period in self.periods.items()}

    def planes(self) -> list[tuple[tuple[int, int], int]]:
        """Coordinate planes that it rotates, each with the order: their angles are tested too. Default: none."""
        return []

    def linear_parts(self, d: int) -> LinearParts | None:
        """The parts of the inner products s.x . x' on d coordinates; None where the action is not linear.

        Default: from the matrices of all elements, where they are small.
        """
        return None if self.periods else parts_by_matrices(self.group, self.images, d)

    def on_unit_vectors(self) -> Action | None:
        """The same motion of places on the globe, columns 0 and 1, as one of unit vectors in space. Default: None."""
        return None

    @property
    def repr_parses(self) -> bool:
        """Whether `repr` is Python that makes the same action. Default: yes for a class with a `__repr__` of its own."""
        return type(self).__repr__ is not object.__repr__

    # Products, checks -----------------------------------------------------------------------------------------------

    def __mul__(self, other: Action) -> Product:
        return Product(self, other) if isinstance(other, Action) else NotImplemented

    def check(self, x: Tensor, name: str = "x") -> None:
        """Raise a clear error unless the action can move `x`."""
        self.check_dim(check_points(x, name).shape[-1], name)

    def check_dim(self, d: int, name: str = "x") -> None:
        """Raise a clear error unless the action can move points of d coordinates."""
        if self.dim is not None and d != self.dim:
            raise ValueError(
                f"{self!r} moves points of {self.dim} coordinates, one point a row; {name} has {d} columns "
                "(images come as flat rows: images.flatten(1))."
            )
        if d < self.min_dim:
            raise ValueError(f"{self!r} needs at least {self.min_dim} coordinates; {name} has {d}.")


def replaced(x: Tensor, columns: dict[int, Tensor]) -> Tensor:
    """The points x [..., d] with other values in some of their columns, which may have more leading axes."""
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
    """Let model files hold actions of a class of your own, under a name.

    Args:
        name: the name in files. Call this before you save, and before you load.
        cls: the class. Files hold exactly this class, not its subclasses.
        children: the attribute that holds a tuple of actions, or several attributes that hold one each. They are the first
            arguments of `make`.
        make: builds the action from children and fields; the class itself by default.
        fields: constructor arguments to save, attributes of the same name, each with its type: `int` (not negative), `float`,
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
    """The joint action of commuting actions: its group is the product of theirs.

    The factors are checked to commute, and no element but the neutral one may leave every point in its place.

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
        self._widths: set[int] = set()  # on which no element leaves every point in its place
        self._check_commuting()
        self._check_faithful(self.dim if self.dim is not None else self.min_dim + 1)

    @property
    def factors(self) -> tuple[Action, ...]:
        """The actions; products among them are taken apart."""
        return self._factors

    @property
    def periods(self) -> dict[int, float]:
        """The circular coordinates of all factors."""
        return self._periods

    def move(self, x: Tensor, s: Tensor) -> Tensor:
        """One factor after the other."""
        start = 0
        for factor in self.factors:
            stop = start + factor.group.ways
            x = factor.move(x, s[..., start:stop])
            start = stop
        return x

    def check(self, x: Tensor, name: str = "x") -> None:
        """Raise a clear error unless every factor can move x."""
        super().check(x, name)
        for factor in self.factors:
            factor.check(x, name)

    def check_fold(self, x: Tensor) -> None:
        """Raise a clear error where rounding would choose the representative."""
        for factor in self.factors:
            factor.check_fold(x)

    def tidy(self, x: Tensor) -> Tensor:
        """One name for a point that has several."""
        for factor in self.factors:
            x = factor.tidy(x)
        return x

    def generic_point(self, d: int) -> Tensor:
        """On each circle, that of its own factor."""
        w = super().generic_point(d)
        for factor in self.factors:
            for axis in factor.periods:
                w[axis] = factor.generic_point(d)[axis]
        return w

    def mixed_columns(self, d: int) -> list[list[int]]:
        """Those of the factors; groups that share a column are one."""
        joined: list[set[int]] = []
        for part in (set(group) for factor in self.factors for group in factor.mixed_columns(d)):
            touched = [group for group in joined if group & part]
            joined = [group for group in joined if not group & part] + [part.union(*touched)]
        return [sorted(group) for group in joined]

    def renumbered(self, columns: Sequence[int], width: int) -> Action:
        """Factor by factor."""
        return Product(*(factor.renumbered(columns, width) for factor in self.factors))

    def declared_kinds(self) -> dict[int, Any]:
        """Those of all factors."""
        return {axis: kind for factor in self.factors for axis, kind in factor.declared_kinds().items()}

    def planes(self) -> list[tuple[tuple[int, int], int]]:
        """Those of all factors."""
        return [plane for factor in self.factors for plane in factor.planes()]

    @property
    def repr_parses(self) -> bool:
        """Whether those of all factors do."""
        return all(factor.repr_parses for factor in self.factors)

    def check_dim(self, d: int, name: str = "x") -> None:
        """Raise a clear error unless the factors can move d coordinates together without repeating each other."""
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
        # Two widths, since an action on "every coordinate" may commute at one and not at another.
        for d in [self.dim] if self.dim is not None else [self.min_dim, self.min_dim + 1]:
            x = self._trial_points(d)
            for i, first in enumerate(self.factors):
                for second in self.factors[i + 1 :]:
                    conflict = first_conflict(first, second, x, 1e-8)
                    if conflict is not None:
                        raise ValueError(f"the actions of a product must commute: {conflict}")

    def _check_faithful(self, d: int) -> None:
        x = self._trial_points(d)[:1]
        still = self.wrap(self.images(x)[:, 0] - x).abs().amax(-1) < 1e-9 * (1 + x.abs().max())
        if int(still.sum()) > 1:
            element = tuple(self.group.elements()[still.nonzero()[1, 0]].tolist())
            raise ValueError(
                f"element {element} of {self!r} leaves every point of {d} coordinates in its place, so the factors repeat "
                "each other: drop a factor, or use one cyclic action of the joint order."
            )

    def __repr__(self) -> str:
        return " * ".join(map(repr, self.factors)) if len(self.factors) > 1 else f"Product({self.factors[0]!r})"


def first_conflict(first: Action, second: Action, x: Tensor, tolerance: float) -> str | None:
    """In words, two generators whose order matters to a point of x [n, d]; None where the actions commute."""
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
    orders = torch.tensor(action.group.orders, device="cpu")
    return torch.eye(action.group.ways, dtype=torch.long, device="cpu") % orders
