"""Which kernels and actions the orbit sum serves, and how they become its numbers."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from types import NoneType

import gpytorch
import torch
from torch import Tensor

from harmonicgp._threads import alone
from harmonicgp.actions import Action, Longitude, Rotation
from harmonicgp.actions.translation import check_latitude
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
        # Threads that PyTorch wakes for a product of a few numbers would take processors from compiled code.
        own = self.plan.ends[-1] <= MAX_OWN_WIDTH and self.plan.is_native(x)
        with torch.autocast(x.device.type, enabled=False), alone() if own else nullcontext():
            return self._matrices(z, x)

    def _matrices(self, z: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        shape, parts, base = self.shape, self.parts, self.shape.base
        if shape.globe is not None:
            check_latitude(z[..., 1])
            check_latitude(x[..., 1])
            z, x = unit_vectors(z), unit_vectors(x)
        scale, parameter = shape.scale(z), shape.parameter(z)
        u, v = z, x
        if shape.profile.stationary:
            # About the point that stays and is nearest to the mean: it loses the fewest digits.
            center = x.detach().double().mean(0, keepdim=True)
            center = (center if self.action is None else self.action._orbit(center).mean(0)).to(x.dtype)
            u, v = u - center, v - center
        if base.has_lengthscale:
            u, v = u / base.lengthscale[0], v / base.lengthscale[0]
        if shape.profile.stationary:
            # A squared distance below the rounding of its terms is zero: so that a point is at no distance from itself.
            shorter = 1 - 2 * torch.finfo(u.dtype).eps
            a, b = shorter * u.square().sum(-1), shorter * v.square().sum(-1)
            return orbit_sum(self.plan, a, b, -2 * parts.left(u), parts.right(v).mT, scale, parameter)
        norms = None
        if isinstance(base, ArcCosineKernel):  # of directions; one more coordinate, which stays, is the bias
            bias = base.bias_variance[..., 0]
            n1, n2 = ((w.square().sum(-1) + bias).sqrt() for w in (u, v))
            one, two = ((bias.sqrt() / n)[:, None] for n in (n1, n2))
            u, v, norms = u / n1[:, None], v / n2[:, None], (n1[:, None] * n2) ** base.order
        else:
            root = base.offset.reshape(()).sqrt()
            one, two = root.expand(len(u), 1), root.expand(len(v), 1)
        U, V = torch.cat((one, parts.left(u)), 1), torch.cat((two, parts.right(v)), 1).mT
        zeros = u.new_zeros(len(u)), v.new_zeros(len(v))
        real, paired = orbit_sum(self.plan, *zeros, U, V, scale, parameter)
        return (real, paired) if norms is None else (real * norms, paired * norms)


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
