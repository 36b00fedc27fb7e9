"""Hypothesis strategies: an action with its numpy twin, a kernel with its numpy twin, and points to try them on."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import gpytorch.kernels as gk
import numpy as np
import torch
from hypothesis import strategies as st

from harmonicgp.actions import (
    Action,
    ImageFlip,
    ImageShift,
    Longitude,
    Negation,
    Orthogonal,
    Permutation,
    PrincipalNegation,
    Rotation,
    Translation,
    strided,
)
from harmonicgp.kernels import ArcCosineKernel, GlobeKernel
from tests import reference as ref


@dataclass(frozen=True)
class Motion:
    """An action on d columns, its twin, and the kind of kernel it leaves alone."""

    action: Action
    move: Callable
    d: int
    # "isotropic": functions of |x|, |x'|, x.x'; "stationary": of |x - x'| only; "ard": also one lengthscale a column;
    # "periodic": period 24 in every column; "globe": longitude and latitude
    kind: str


@dataclass(frozen=True)
class Case:
    motion: Motion
    kernel: object = field(repr=False)
    k: Callable = field(repr=False)
    kernel_name: str
    x: np.ndarray

    @property
    def action(self) -> Action:
        return self.motion.action

    @property
    def orders(self) -> tuple[int, ...]:
        return self.motion.action.group.orders

    @property
    def points(self) -> torch.Tensor:
        return torch.from_numpy(self.x)


def _random_orthogonal(d: int, T: int, seed: int) -> np.ndarray:
    """A conjugate of the rotation by 2 pi / T of the first plane: order T, and mixes all coordinates."""
    Q, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(d, d)))
    R = np.eye(d)
    angle = 2 * np.pi / T
    R[:2, :2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    return Q @ R @ Q.T


def _principal(seed: int) -> Motion:
    X = np.random.default_rng(seed).normal(size=(30, 3)) @ np.diag([3.0, 1.5, 0.5]) + [1.0, -2.0, 0.5]
    _, _, Vh = np.linalg.svd(X - X.mean(0))
    signs = ref.negation(strided(3, 2))
    action = PrincipalNegation(2).fit(torch.from_numpy(X))
    return Motion(action, lambda Y, s: signs((Y - X.mean(0)) @ Vh.T, s) @ Vh + X.mean(0), 3, "stationary")


#: Always tried, whatever hypothesis draws: T = 3, and two-way groups.
FIXED_MOTIONS = [
    Motion(Rotation((0, 1), 3), ref.rotation(0, 1, 3), 2, "isotropic"),
    Motion(Negation([[0], [1, 2]]), ref.negation([[0], [1, 2]]), 3, "ard"),
    Motion(Rotation((0, 1), 3) * Rotation((2, 3), 4), ref.product(ref.rotation(0, 1, 3), 1, ref.rotation(2, 3, 4)), 4,
           "isotropic"),
    Motion(Longitude(3), ref.translation(0, 360.0, 3), 2, "globe"),
    Motion(Translation(0, 24.0, 3) * Translation(1, 24.0, 5),
           ref.product(ref.translation(0, 24.0, 3), 1, ref.translation(1, 24.0, 5)), 2, "periodic"),
    Motion(ImageShift((6, 6), 2), ref.image_shift((6, 6), 2), 36, "isotropic"),
    _principal(0),
]  # fmt: skip


@st.composite
def motions(draw) -> Motion:
    choice = draw(st.integers(0, 9))
    T = draw(st.integers(1, 8))
    match choice:
        case 0:
            d = draw(st.integers(1, 4))
            ways = draw(st.integers(1, min(3, d)))
            return Motion(Negation.strided(d, ways), ref.negation(strided(d, ways)), d, "ard")
        case 1:
            d = draw(st.integers(2, 4))
            p, q = draw(st.permutations(range(d)))[:2]
            return Motion(Rotation((p, q), T), ref.rotation(p, q, T), d, "isotropic")
        case 2:
            d = draw(st.integers(1, 3))
            axis = draw(st.integers(0, d - 1))
            return Motion(Translation(axis, 24.0, T), ref.translation(axis, 24.0, T), d, "periodic")
        case 3:
            return Motion(Longitude(T), ref.translation(0, 360.0, T), 2, "globe")
        case 4:
            shape = draw(st.sampled_from([(2, 3), (4, 2), (3, 3), (2, 2, 2)]))
            return Motion(ImageFlip(shape), ref.image_flip(shape), math.prod(shape), "isotropic")
        case 5:
            step = draw(st.sampled_from([1, 2]))
            return Motion(ImageShift((4, 2), step), ref.image_shift((4, 2), step), 8, "isotropic")
        case 6:
            p = draw(st.permutations(range(draw(st.integers(2, 5)))))
            return Motion(Permutation(p), ref.permutation(list(p)), len(p), "isotropic")
        case 7:
            d = draw(st.integers(2, 4))
            R = _random_orthogonal(d, max(T, 2), draw(st.integers(0, 99)))
            return Motion(Orthogonal(torch.from_numpy(R)), ref.linear_map(R), d, "isotropic")
        case 8:
            return _principal(draw(st.integers(0, 99)))
        case _:
            a, b = max(T, 2), draw(st.integers(2, 4))
            return Motion(
                Rotation((0, 1), a) * Negation([2]) * Rotation((3, 4), b),
                ref.product(ref.rotation(0, 1, a), 1, ref.product(ref.negation([[2]]), 1, ref.rotation(3, 4, b))),
                5,
                "isotropic",
            )


def _set(kernel, **values):
    for name, value in values.items():
        setattr(kernel, name, value)
    return kernel.double()


@st.composite
def kernels(draw, kind: str, d: int):
    """(name, GPyTorch kernel, numpy kernel) invariant under a motion of that kind."""
    length = draw(st.floats(0.4, 2.5))
    if kind == "globe":
        name, kernel, k = draw(kernels("stationary", 3))
        return f"globe {name}", GlobeKernel(kernel), ref.globe(k)
    if kind == "periodic":
        kernel = _set(gk.PeriodicKernel(), lengthscale=length, period_length=24.0)
        kernel.raw_period_length.requires_grad_(False)  # a period that training moves is no symmetry
        return "periodic", kernel, ref.periodic(24.0, length)
    lengths = np.array(draw(st.lists(st.floats(0.4, 2.5), min_size=d, max_size=d))) if kind == "ard" else length
    ard = {"ard_num_dims": d} if kind == "ard" else {}
    ls = torch.as_tensor(lengths)
    simple = {
        "rbf": lambda: (_set(gk.RBFKernel(**ard), lengthscale=ls), ref.rbf(lengths)),
        "matern12": lambda: (_set(gk.MaternKernel(nu=0.5, **ard), lengthscale=ls), ref.matern(0.5, lengths)),
        "matern32": lambda: (_set(gk.MaternKernel(nu=1.5, **ard), lengthscale=ls), ref.matern(1.5, lengths)),
        "matern52": lambda: (_set(gk.MaternKernel(nu=2.5, **ard), lengthscale=ls), ref.matern(2.5, lengths)),
        "rq": lambda: (
            _set(gk.RQKernel(**ard), lengthscale=ls, alpha=torch.tensor(1.7)),
            ref.rational_quadratic(1.7, lengths),
        ),
    }
    inner = {
        "polynomial": lambda: (_set(gk.PolynomialKernel(power=2), offset=0.8), ref.polynomial(2, 0.8)),
        "linear": lambda: (_set(gk.LinearKernel(), variance=1.3), ref.linear(1.3)),
        **{
            f"arccosine{n}": lambda n=n: (
                _set(ArcCosineKernel(order=n, **ard), lengthscale=ls, bias_variance=0.9),
                ref.arc_cosine(n, lengths, 0.9),
            )
            for n in (0, 1, 2)
        },
    }
    available = simple if kind == "stationary" else {**simple, **inner}
    name = draw(st.sampled_from(sorted(available)))
    kernel, k = available[name]()
    other = draw(st.sampled_from([None, "scale", "sum", "product"]))
    if other == "scale":
        return f"2.5 {name}", _set(gk.ScaleKernel(kernel), outputscale=2.5), lambda X, Y: 2.5 * k(X, Y)
    if other in ("sum", "product"):
        name2 = draw(st.sampled_from(sorted(available)))
        kernel2, k2 = available[name2]()
        if other == "sum":
            return f"{name} + {name2}", kernel + kernel2, lambda X, Y: k(X, Y) + k2(X, Y)
        return f"{name} * {name2}", kernel * kernel2, lambda X, Y: k(X, Y) * k2(X, Y)
    return name, kernel, k


@st.composite
def points(draw, motion: Motion, n: int | None = None) -> np.ndarray:
    n = draw(st.integers(1, 6)) if n is None else n
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    X = rng.normal(size=(n, motion.d))
    if motion.kind == "globe":
        X = np.stack([rng.uniform(-180, 180, n), rng.uniform(-90, 90, n)], 1)
    if motion.kind == "periodic":
        X = rng.uniform(0, 24, size=(n, motion.d))
    if n > 1 and draw(st.booleans()):
        X[1] = X[0]  # coincident points
    if draw(st.booleans()) and motion.kind == "isotropic":
        X[-1] = 0.0  # a fixed point of every linear action
    return X


@st.composite
def cases(draw, motion: Motion | None = None, n: int | None = None) -> Case:
    motion = draw(motions()) if motion is None else motion
    name, kernel, k = draw(kernels(motion.kind, motion.d))
    return Case(motion, kernel, k, name, draw(points(motion, n)))


def any_case(n: int | None = None) -> st.SearchStrategy[Case]:
    """Cases over all actions; the fixed ones are drawn as often as the rest together."""
    return st.one_of(st.sampled_from(FIXED_MOTIONS).flatmap(lambda motion: cases(motion, n)), cases(n=n))
