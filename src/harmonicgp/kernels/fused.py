"""Which kernels and actions the orbit sum serves, and how they become its numbers."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from types import NoneType

import gpytorch
import torch
from torch import Tensor

from harmonicgp.actions import Action, Longitude, Rotation
from harmonicgp.actions.translation import check_latitude
from harmonicgp.backend.threads import alone
from harmonicgp.groups import Cyclic, Group, Resolution
from harmonicgp.kernels.arccosine import ArcCosineKernel
from harmonicgp.kernels.globe import GlobeKernel, unit_vectors
from harmonicgp.kernels.linear import LinearParts, linear_parts, nothing_moves
from harmonicgp.kernels.orbit import MAX_OWN_WIDTH, PROFILES, Plan, Profile, orbit_sum

_MATERN = {0.5: "matern12", 1.5: "matern32", 2.5: "matern52"}
_MAX_POWER = 15


@dataclass(frozen=True)
class Shape:
    """A kernel taken apart: scale * norms * f(...), f of scaled coordinates."""

    base: gpytorch.kernels.Kernel
    scales: tuple[gpytorch.kernels.ScaleKernel, ...]
    profile: Profile
    globe: GlobeKernel | None

    @classmethod
    def of(cls, kernel: object) -> Shape | None:
        """None for a kernel that is none of those known here; exact types, since a subclass may do anything."""
        scales, globe = [], None
        while type(kernel) in (gpytorch.kernels.ScaleKernel, GlobeKernel):
            assert isinstance(kernel, gpytorch.kernels.Kernel)
            if kernel.active_dims is not None or (globe is not None and type(kernel) is GlobeKernel):
                return None
            if isinstance(kernel, GlobeKernel):
                globe = kernel
            else:
                scales.append(kernel)
            kernel = kernel.base_kernel
        profile = _profile(kernel)
        if profile is None or not isinstance(kernel, gpytorch.kernels.Kernel):
            return None
        if kernel.active_dims is not None or kernel.batch_shape:
            return None
        return cls(kernel, tuple(scales), profile, globe)

    def scale(self, like: Tensor) -> Tensor:
        """The product of the output scales."""
        total = torch.ones((), dtype=like.dtype, device=like.device)
        for kernel in self.scales:
            total = total * kernel.outputscale
        return total

    def parameter(self, like: Tensor) -> Tensor:
        """What else the profile depends on."""
        if self.profile.name == "rational_quadratic":
            return self.base.alpha.reshape(())
        value = {"power": "power", "angle": "order"}.get(self.profile.name)
        number = 0.0 if value is None else float(getattr(self.base, value))
        return torch.tensor(number, dtype=like.dtype, device=like.device)


def _profile(kernel: object) -> Profile | None:
    kind = type(kernel)
    if kind is gpytorch.kernels.RBFKernel:
        return PROFILES["rbf"]
    if isinstance(kernel, gpytorch.kernels.MaternKernel) and kind is gpytorch.kernels.MaternKernel:
        return PROFILES[_MATERN[kernel.nu]]
    if kind is gpytorch.kernels.RQKernel:
        return PROFILES["rational_quadratic"]
    if isinstance(kernel, gpytorch.kernels.PolynomialKernel) and kind is gpytorch.kernels.PolynomialKernel:
        power = float(kernel.power)
        return PROFILES["power"] if 0 <= power <= _MAX_POWER and power.is_integer() else None
    return PROFILES["angle"] if kind is ArcCosineKernel else None


@dataclass(frozen=True, eq=False)
class FusedGram:
    """Harmonic Gram matrices by the orbit sum."""

    shape: Shape
    action: Action | None
    parts: LinearParts
    plan: Plan

    @classmethod
    def of(
        cls,
        kernel: object,
        action: Action | None,
        resolution: Resolution,
        d: int,
        reals: Sequence[int] = (0,),
        pairs: Sequence[int] = (),
    ) -> FusedGram | None:
        """For some blocks, real and complex ones; None where kernel or action is not of the kind."""
        shape = Shape.of(kernel)
        if shape is None:
            return None
        if shape.globe is not None:
            if d != 2 or not (action is None or (isinstance(action, Longitude) and action.axis == 0)):
                return None
            d, action = 3, None if action is None else _turned(action.group.order)
        parts = _parts(action, d)
        if parts is None or (not shape.profile.stationary and bool(parts.center.any())):
            return None
        group: Group = Cyclic(1) if action is None else action.group
        extra = 0 if shape.profile.stationary else 1
        key = (resolution, tuple(reals), tuple(pairs), shape.profile.name)
        if key not in parts.plans:
            with torch.inference_mode(False):
                parts.plans[key] = _plan(group, resolution, tuple(reals), tuple(pairs), parts, extra, shape.profile)
        return cls(shape, action, parts, parts.plans[key])

    def __call__(self, z: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """K_t(z, x) for the real blocks, [reals, m, n], and for the complex ones, [pairs, m, n]."""
        with self._as_is(x):
            center = self._center(x)
            return _matrices(self.plan, self._left(z, center), self._right(x, center), self.shape)

    def each(self, z: Tensor | None, x: Tensor, plans: Sequence[FusedGram]) -> list[tuple[Tensor, Tensor]]:
        """K_t(z, x_t) for every t, by a plan each, where x is [T, n, d]; z None stands for x_t. Points are transformed once."""
        with self._as_is(x):
            flat = x.flatten(0, 1)
            center = self._center(flat)
            rights = self._right(flat, center).split(x.shape[1])
            lefts = [self._left(z, center)] * len(x) if z is not None else self._left(flat, center).split(x.shape[1])
            return [
                _matrices(one.plan, left, right, self.shape)
                for one, left, right in zip(plans, lefts, rights, strict=True)
            ]

    @contextmanager
    def _as_is(self, x: Tensor) -> Iterator[None]:
        """No lower precision; and threads that PyTorch wakes for a product of a few numbers would hinder compiled code."""
        own = self.plan.ends[-1] <= MAX_OWN_WIDTH and self.plan.is_native(x)
        with torch.autocast(x.device.type, enabled=False), alone() if own else nullcontext():
            yield

    def _center(self, x: Tensor) -> Tensor | None:
        """The point that stays and is nearest to the mean: about it the fewest digits are lost."""
        if not self.shape.profile.stationary:
            return None
        if self.shape.globe is not None:
            x = unit_vectors(x)
        center = x.detach().double().mean(0, keepdim=True)
        return (center if self.action is None else self.action._orbit(center).mean(0)).to(x.dtype)

    def _left(self, z: Tensor, center: Tensor | None) -> _Side:
        return self._side(z, center, lambda u: -2 * self.parts.left(u) if center is not None else self.parts.left(u))

    def _right(self, x: Tensor, center: Tensor | None) -> _Side:
        return self._side(x, center, self.parts.right)

    def _side(self, x: Tensor, center: Tensor | None, parts: Callable[[Tensor], Tensor]) -> _Side:
        """What the orbit sum takes of one of its two sets of points [n, d]."""
        base = self.shape.base
        if self.shape.globe is not None:
            check_latitude(x[..., 1])
            x = unit_vectors(x)
        if center is not None:
            x = x - center
        if base.has_lengthscale:
            x = x / base.lengthscale[0]
        if center is not None:
            # A squared distance below the rounding of its terms is zero: so that a point is at no distance from itself.
            shorter = 1 - 2 * torch.finfo(x.dtype).eps
            return _Side(shorter * x.square().sum(-1), parts(x), None)
        zeros = x.new_zeros(len(x))
        if isinstance(base, ArcCosineKernel):  # of directions; one more coordinate, which stays, is the bias
            bias = base.bias_variance[..., 0]
            norm = (x.square().sum(-1) + bias).sqrt()
            one = (bias.sqrt() / norm)[:, None]
            return _Side(zeros, torch.cat((one, parts(x / norm[:, None])), 1), norm**base.order)
        one = base.offset.reshape(()).sqrt().expand(len(x), 1)
        return _Side(zeros, torch.cat((one, parts(x)), 1), None)


@dataclass(frozen=True)
class _Side:
    """Points [n, d] as the orbit sum takes them: squared norms [n], their parts [n, width], and factors [n] of the result."""

    squares: Tensor
    parts: Tensor
    factors: Tensor | None

    def split(self, size: int) -> list[_Side]:
        """Pieces of `size` points."""
        factors = [None] * (len(self.squares) // size) if self.factors is None else self.factors.split(size)
        pieces = zip(self.squares.split(size), self.parts.split(size), factors, strict=True)
        return [_Side(*piece) for piece in pieces]


def _matrices(plan: Plan, left: _Side, right: _Side, shape: Shape) -> tuple[Tensor, Tensor]:
    scale, parameter = shape.scale(left.parts), shape.parameter(left.parts)
    real, paired = orbit_sum(plan, left.squares, right.squares, left.parts, right.parts.mT, scale, parameter)
    if left.factors is None or right.factors is None:
        return real, paired
    norms = left.factors[:, None] * right.factors
    return real * norms, paired * norms


@lru_cache(maxsize=16)
def _turned(order: int) -> Rotation:
    """The globe's longitudes as a rotation of unit vectors."""
    return Rotation((0, 1), order)


@dataclass(frozen=True)
class _Seen:
    """The parts of an action, what it was made of when they were found, and what it did to a point."""

    action: weakref.ref[Action]
    made_of: list[tuple[object, int]] | None
    images: Tensor
    parts: LinearParts | None


_SEEN: dict[tuple[int, int], _Seen] = {}


def _parts(action: Action | None, d: int) -> LinearParts | None:
    """The parts of an action, found once; anew for one that has changed since."""
    if action is None:
        return _still(d)
    key = (id(action), d)
    seen = _SEEN.get(key)
    if seen is not None and seen.action() is not action:
        seen = None
    if seen is not None and _same(seen.made_of, _made_of(action)):
        return seen.parts
    with torch.inference_mode(False), torch.no_grad():
        images = action._orbit(torch.linspace(0.37, 1.61, d, dtype=torch.float64)[None])
        if seen is None or not torch.equal(seen.images, images):
            gone = weakref.ref(action, lambda _: _SEEN.pop(key, None))
            _SEEN[key] = seen = _Seen(gone, _made_of(action), images, linear_parts(action, d))
    return seen.parts


def _made_of(action: Action) -> list[tuple[object, int]] | None:
    """The attributes of one of our own actions, which decide what it does, and the versions of tensors; None for others."""
    if not type(action).__module__.startswith("harmonicgp.actions"):
        return None
    found: list[tuple[object, int]] = []
    for value in vars(action).values():
        if isinstance(value, (bool, int, float, str, tuple, Group, NoneType)):
            found.append((value, 0))
        elif isinstance(value, Tensor) and not value.is_inference():
            found.append((value, value._version))
        else:
            return None
    return found


def _same(a: list[tuple[object, int]] | None, b: list[tuple[object, int]] | None) -> bool:
    if a is None or b is None:
        return False
    return len(a) == len(b) and all(x is y and v == w for (x, v), (y, w) in zip(a, b, strict=True))


@lru_cache(maxsize=16)
def _still(d: int) -> LinearParts:
    return nothing_moves(d)


def _plan(
    group: Group,
    resolution: Resolution,
    reals: tuple[int, ...],
    pairs: tuple[int, ...],
    parts: LinearParts,
    extra: int,
    profile: Profile,
) -> Plan:
    """With `extra`, one more coordinate that stays comes first: it joins the part at rest, or is one."""
    ends, C, rest = parts.ends, parts.C, parts.rest
    if extra:
        ends = tuple(end + 1 for end in ends)
        if not rest:
            ends, C, rest = (1, *ends), torch.cat((torch.ones_like(C[:, :1]), C), 1), True
    return Plan(group, resolution, reals, pairs, ends, C, rest, parts.negation, profile)
