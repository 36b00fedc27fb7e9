"""The fused path: harmonic Gram matrices of radial and inner-product kernels under linear actions, by the orbit sum."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import gpytorch
import torch
from torch import Tensor

from harmonicgp.actions import Action
from harmonicgp.actions.linear import LinearParts, nothing_moves
from harmonicgp.actions.translation import check_latitude
from harmonicgp.backend.threads import alone
from harmonicgp.groups import Cyclic, Resolution
from harmonicgp.kernels.globe import GlobeKernel, unit_vectors
from harmonicgp.kernels.orbit import MAX_OWN_WIDTH, Plan, orbit_sum
from harmonicgp.kernels.profiles import Profile
from harmonicgp.kernels.records import record_of


@dataclass(frozen=True)
class Shape:
    """The parts of a kernel scale * norms * f(scaled coordinates). Hyper-parameters are read at each call."""

    base: gpytorch.kernels.Kernel
    scales: tuple[gpytorch.kernels.ScaleKernel, ...]
    profile: Profile
    globe: GlobeKernel | None

    @classmethod
    def of(cls, kernel: object) -> Shape | None:
        """From a kernel; None for a kernel without a profile. Types must match exactly: a subclass may compute anything."""
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
        profile = record_of(kernel).profile(kernel)
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
        """The further parameter of the profile, a scalar; zero if there is none."""
        value = getattr(self.base, self.profile.parameter) if self.profile.parameter else 0.0
        if isinstance(value, Tensor):
            return value.reshape(())
        return torch.tensor(float(value), dtype=like.dtype, device=like.device)


@dataclass(frozen=True, eq=False)
class FusedGram:
    """Harmonic Gram matrices by the orbit sum, for one kernel and one action on d columns.

    Callers that evaluate it often construct it once. It reads the kernel's hyper-parameters at each call.
    """

    arguments: tuple[Any, ...]  #: those of `of`, from which copies are constructed
    shape: Shape
    action: Action | None  #: on unit vectors, for a kernel on the globe
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
        """For some real and some complex blocks; None if the kernel or the action has no fused path."""
        arguments = (kernel, action, resolution, d, tuple(reals), tuple(pairs))
        shape = Shape.of(kernel)
        if shape is None:
            return None
        if shape.globe is not None:
            rotation = None if action is None else action.on_unit_vectors()
            if d != 2 or (action is not None and rotation is None):
                return None
            d, action = 3, rotation
        with torch.inference_mode(False), torch.no_grad():
            parts = nothing_moves(d) if action is None else _checked_parts(action, d)
            if parts is None or (not shape.profile.stationary and bool(parts.center.any())):
                return None
            ends, C, rest = parts.ends, parts.C, parts.rest
            if not shape.profile.stationary:
                # The further coordinate of the lift comes first. No element moves it: it joins the part at rest, or becomes it.
                ends = tuple(end + 1 for end in ends)
                if not rest:
                    ends, C, rest = (1, *ends), torch.cat((torch.ones_like(C[:, :1]), C), 1), True
        group = Cyclic(1) if action is None else action.group
        plan = Plan(group, resolution, tuple(reals), tuple(pairs), ends, C, rest, parts.negation, shape.profile)
        return cls(arguments, shape, action, parts, plan)

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        """Copies and pickles are constructed for the copy of the kernel."""
        return FusedGram.of, self.arguments

    def __call__(self, z: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """The matrices k_t(z, x) for the real blocks, [reals, m, n], and for the complex ones, [pairs, m, n]."""
        with self._settings(x):
            center = self._center(x)
            return self._matrices(self.plan, self._side(z, center, left=True), self._side(x, center, left=False))

    def each(self, z: Tensor | None, x: Tensor, plans: Sequence[FusedGram]) -> list[tuple[Tensor, Tensor]]:
        """The matrices k_t(z, x_t) for every t and x [T, n, d], one plan for each t; without z, k_t(x_t, x_t)."""
        with self._settings(x):
            flat = x.flatten(0, 1)
            center = self._center(flat)
            rights = _split(self._side(flat, center, left=False), x.shape[1])
            left = self._side(flat if z is None else z, center, left=True)
            lefts = _split(left, x.shape[1]) if z is None else [left] * len(x)
            blocks = zip(plans, lefts, rights, strict=True)
            return [self._matrices(gram.plan, left, right) for gram, left, right in blocks]

    @contextmanager
    def _settings(self, x: Tensor) -> Iterator[None]:
        """No autocast. Compiled code runs without PyTorch's threads, which small matrix products would start in vain."""
        is_compiled = self.plan.ends[-1] <= MAX_OWN_WIDTH and self.plan.is_native(x)
        with torch.autocast(x.device.type, enabled=False), alone() if is_compiled else nullcontext():
            yield

    def _center(self, x: Tensor) -> Tensor | None:
        """The fixed point nearest to the mean of x: distances from it lose the fewest digits."""
        if not self.shape.profile.stationary:
            return None
        if self.shape.globe is not None:
            x = unit_vectors(x)
        center = x.detach().double().mean(0, keepdim=True)
        return (center if self.action is None else self.action.images(center).mean(0)).to(x.dtype)

    def _side(self, x: Tensor, center: Tensor | None, left: bool) -> tuple[Tensor, ...]:
        """For points [n, d] the arguments of the orbit sum: squared norms [n], parts [n, width], and for some factors [n]."""
        parts = self.parts.left if left else self.parts.right
        base = self.shape.base
        if self.shape.globe is not None:
            check_latitude(x[..., 1])
            x = unit_vectors(x)
        if center is not None:
            x = x - center
        if base.has_lengthscale:
            x = x / base.lengthscale[0]
        if center is not None:
            # Squared distances below the rounding of their terms become zero, so that a point has distance zero from itself.
            shrink = 1 - 2 * torch.finfo(x.dtype).eps
            return shrink * x.square().sum(-1), -2 * parts(x) if left else parts(x)
        assert self.shape.profile.lift is not None
        lifted, further, factors = self.shape.profile.lift(base, x)
        side = x.new_zeros(len(x)), torch.cat((further, parts(lifted)), 1)
        return side if factors is None else (*side, factors)

    def _matrices(self, plan: Plan, left: tuple[Tensor, ...], right: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        (a, U, *left_factors), (b, V, *right_factors) = left, right
        real, paired = orbit_sum(plan, a, b, U, V.mT, self.shape.scale(U), self.shape.parameter(U))
        for f, g in zip(left_factors, right_factors, strict=True):
            norms = f[:, None] * g
            real, paired = real * norms, paired * norms
        return real, paired


def _split(side: tuple[Tensor, ...], size: int) -> list[tuple[Tensor, ...]]:
    return list(zip(*(t.split(size) for t in side), strict=True))


def _checked_parts(action: Action, d: int) -> LinearParts | None:
    """The linear parts of an action, checked on two points: a subclass may have inherited those of another motion."""
    parts = action.linear_parts(d)
    if parts is None:
        return None
    x = torch.linspace(0.3, 1.9, d, dtype=torch.float64, device="cpu")[None]
    y = torch.linspace(1.3, -0.8, d, dtype=torch.float64, device="cpu")[None]
    expected = (action.images(x + parts.center) - parts.center) @ y.mT
    # A matrix in float32 is orthogonal only up to its rounding.
    return parts if torch.allclose(parts.inner_products(x, y), expected, rtol=1e-4, atol=1e-5 * d) else None
