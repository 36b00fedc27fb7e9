"""Is a kernel invariant under an action, k(s.x, s.x') = k(x, x')? And if not, why not, and what to do."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import gpytorch
import torch
from torch import Tensor

from harmonicgp._validation import whole_number
from harmonicgp.actions import Action
from harmonicgp.kernels.functions import KernelLike, kernel_matrix
from harmonicgp.kernels.globe import GlobeKernel

#: How far k(s.x, s.x') may be from k(x, x'), as a share of sqrt(k(x, x) k(x', x')).
TOLERANCE = 1e-5
_LIBRARIES = ("gpytorch", "harmonicgp", "torch")


@dataclass(frozen=True)
class Deviation:
    """The worst break of invariance that was found."""

    share: float
    element: tuple[int, ...]
    pair: tuple[int, int]
    before: complex
    after: complex

    def __str__(self) -> str:
        element = self.element[0] if len(self.element) == 1 else self.element
        before, after = (f"{z.real:.6g}" if z.imag == 0 else f"{z:.6g}" for z in (self.before, self.after))
        words = f"element s = {element} moves the pair of points {self.pair} from k = {before} to k = {after}"
        if any(self.element):
            return words
        return (
            f"the neutral {words}, though it must leave k as it is (harmonicgp.testing.assert_cyclic checks the action)"
        )


@dataclass(frozen=True, order=True)
class Lap:
    """How far the kernel changes when one point of a pair goes once round a circle: its period must be the kernel's."""

    share: float  #: of the largest |k(x, x')|
    axis: int = 0
    period: float = 0.0

    def __str__(self) -> str:
        return (
            f"moving a point by a whole period of {self.period:g} along coordinate {self.axis} changes k, by {self.share:.3g} "
            "of its largest value"
        )


def largest_deviation(kernel: KernelLike, action: Action, x: Tensor, elements: Tensor | None = None) -> Deviation:
    """The element and the pair of rows of x [n, d] where k(s.x, s.x') and k(x, x') differ most."""
    if elements is None:
        elements = action.group.elements()
    with torch.no_grad():
        K = kernel_matrix(kernel, x, x)
        K = K.reshape(-1, *K.shape[-2:])
        if not torch.isfinite(K).all():
            i, j = divmod(int((~torch.isfinite(K[0])).flatten().to(torch.uint8).argmax()), K.shape[-1])
            raise ValueError(
                f"the kernel is not finite at points such as {x[i].tolist()[:8]} and {x[j].tolist()[:8]}: scale the inputs, "
                "or look at its hyper-parameters."
            )
        scale = K.diagonal(dim1=-2, dim2=-1).abs().clamp_min(torch.finfo(x.dtype).tiny).sqrt()
        scale = scale[..., :, None] * scale[..., None, :]
        worst = Deviation(-1.0, (), (0, 0), 0.0, 0.0)
        for s in elements:
            moved = action.move(x, s.to(x.device))
            try:
                K_moved = kernel_matrix(kernel, moved, moved).reshape(K.shape)
            except ValueError as error:
                raise ValueError(f"the kernel cannot be evaluated at points moved by {action!r}: {error}") from error
            share = (K_moved - K).abs() / scale
            share = torch.where(torch.isfinite(share), share, torch.inf)
            place = int(share.argmax())
            value = float(share.flatten()[place])
            if value > worst.share:
                i, j = divmod(place % (K.shape[-2] * K.shape[-1]), K.shape[-1])
                before, after = (complex(M.flatten()[place].item()) for M in (K, K_moved))
                worst = Deviation(value, tuple(s.tolist()), (i, j), before, after)
    return worst


def largest_lap(kernel: KernelLike, action: Action, x: Tensor) -> Lap:
    """The circle of the action where going round once changes k(x, x') most, on rows of x [n, d]."""
    laps = [Lap(0.0)]
    with torch.no_grad():
        for axis, period in action.periods.items():
            shifted = x.clone()
            shifted[:, axis] += period
            K = kernel_matrix(kernel, x, x)
            share = float((kernel_matrix(kernel, shifted, x) - K).abs().max() / K.abs().max())
            laps.append(Lap(share, axis, period))
    return max(laps)


def check_invariant(
    kernel: KernelLike,
    action: Action,
    dim: int | None = None,
    like: Sequence[Tensor] = (),
    learnable: bool = False,
) -> None:
    """Raise a `ValueError` that names the reason and a way out unless the kernel is invariant, on a few points.

    `dim` is the number of columns, `like` some of the user's own points. `learnable` also refuses a kernel that is
    invariant only while its parameters, still to be learned, keep their first values, such as equal lengthscales. The scale of
    trial points comes from lengthscales and from `like`; a plain function or a class of one's own is also tried at the scales 1,
    0.1 and 0.01.

    Examples:
        >>> from gpytorch.kernels import RBFKernel
        >>> from harmonicgp.actions import Rotation
        >>> check_invariant(RBFKernel(), Rotation((0, 1), 4))
    """
    d = _guess_dim(kernel, action) if dim is None else whole_number(dim, "dim", 1)
    action.check_dim(d, "the input")
    original, given, kernel = kernel, _in_float64(kernel), _in_float64(kernel)
    learned = _move_parameters(kernel) if learnable and kernel is not original else []
    name = type(kernel).__name__ if isinstance(kernel, torch.nn.Module) else "the kernel"
    for x in _trial_sets(kernel, action, d, like):
        _check_group_law(action, x)
        try:
            deviation = largest_deviation(kernel, action, x, _trial_elements(action))
            lap = largest_lap(kernel, action, x)
        except (RuntimeError, IndexError) as error:
            if mismatch := _other_width(kernel, d):
                raise ValueError(mismatch) from error
            if dim is not None:
                raise
            raise ValueError(f"the kernel cannot be tried on points of {d} columns ({error}): give dim=.") from error
        if max(deviation.share, lap.share) > TOLERANCE:
            raise ValueError(
                f"{name} is not invariant under {action!r}: {lap if lap.share > deviation.share else deviation}. "
                f"{_reason(given, kernel, action, x, lap, learned)} (check=False skips this check.)"
            )


def _other_width(kernel: KernelLike, d: int) -> str:
    """What is wrong with a kernel that has lengthscales for another number of columns than it gets; empty if nothing is."""
    for part in _parts(kernel):
        width = d if part.active_dims is None else len(part.active_dims)
        if part.ard_num_dims and part.ard_num_dims not in (1, width):
            reads = f"the points have {d}" if part.active_dims is None else f"its active_dims name {width}"
            return (
                f"{type(part).__name__} has lengthscales for {part.ard_num_dims} columns (ard_num_dims="
                f"{part.ard_num_dims}), and {reads}: give it ard_num_dims={width}, or active_dims with the columns that it reads."
            )
    return ""


def _guess_dim(kernel: KernelLike, action: Action) -> int:
    if action.dim is not None:
        return action.dim
    d = action.min_dim
    for part in _parts(kernel):
        if part.active_dims is not None:
            d = max(d, int(part.active_dims.max()) + 1)
        elif part.ard_num_dims:
            d = max(d, part.ard_num_dims)
    return d


def _parts(kernel: KernelLike) -> list[gpytorch.kernels.Kernel]:
    """The kernel and all it is made of."""
    if not isinstance(kernel, torch.nn.Module):
        return []
    return [part for part in kernel.modules() if isinstance(part, gpytorch.kernels.Kernel)]


def _is_own(kernel: KernelLike) -> bool:
    """Whether the kernel is a function, or has a part of a class that neither GPyTorch nor this library defines."""
    if not isinstance(kernel, torch.nn.Module):
        return True
    return any(type(module).__module__.partition(".")[0] not in _LIBRARIES for module in kernel.modules())


def _active(part: gpytorch.kernels.Kernel, width: int | None = None) -> list[int]:
    """The columns that a kernel takes: of those it names, or its first `width`."""
    return list(range(width or part.ard_num_dims)) if part.active_dims is None else part.active_dims.tolist()


def _in_float64(kernel: KernelLike) -> KernelLike:
    """A float64 copy, so that rounding does not blur the verdict; the kernel itself where it cannot be copied."""
    if not isinstance(kernel, torch.nn.Module):
        return kernel
    try:
        return copy.deepcopy(kernel).double()
    except RuntimeError:  # parameters that are results of a computation cannot be copied
        return kernel


def _move_parameters(kernel: KernelLike) -> list[str]:
    """Move every number that a copy of a kernel still learns by a little of its own, as training would; their names."""
    if not isinstance(kernel, torch.nn.Module):
        return []
    generator = torch.Generator(device="cpu").manual_seed(0)
    free = {name: p for name, p in kernel.named_parameters() if p.requires_grad}
    with torch.no_grad():
        for p in free.values():
            share = 0.2 + 0.8 * torch.rand(p.shape, generator=generator, dtype=torch.float64, device="cpu")
            p.add_(0.01 * share.to(p) * p.abs().clamp_min(1.0))
    return list(free)


def _check_group_law(action: Action, x: Tensor) -> None:
    """A step and T - 1 more must bring every point back, else the transform means nothing."""
    steps = torch.eye(action.group.ways, dtype=torch.long, device=x.device)
    for j, (T, step) in enumerate(zip(action.group.orders, steps, strict=True)):
        back = action.move(action.move(x, step % T), (T - 1) * step)
        if float(action.wrap(back - x).abs().max()) > 1e-3 * (1 + float(x.abs().max())):
            raise ValueError(
                f"way {j} of {action!r} does not have order {T} on points of {x.shape[-1]} columns: "
                "harmonicgp.testing.assert_cyclic says where it breaks."
            )


def _trial_elements(action: Action) -> Tensor:
    """The generators, and half a turn of each way, which takes many points past the end of a period."""
    ways = action.group.ways
    steps = [(j, s_j) for j, T in enumerate(action.group.orders) for s_j in {1 % T, T // 2} - {0}]
    rows = [[s_j if i == j else 0 for i in range(ways)] for j, s_j in steps]
    return torch.tensor(rows or [[0] * ways], device="cpu")


def _trial_sets(kernel: KernelLike, action: Action, d: int, like: Sequence[Tensor]) -> list[Tensor]:
    """Generic points at the scale of every lengthscale, near each other and all round the circles, and the user's own.

    Sets of different scale are tried apart: in one Gram matrix the distances of the small would drown in rounding.
    """
    generator = torch.Generator(device="cpu").manual_seed(0)
    generic = torch.randn(6, d, generator=generator, dtype=torch.float64, device="cpu")
    turns = torch.rand(6, d, generator=generator, dtype=torch.float64, device="cpu")
    scales = [generic.new_full((d,), scale) for scale in ((1.0, 0.1, 0.01) if _is_own(kernel) else (1.0,))]
    for part in _parts(kernel):
        if getattr(part, "has_lengthscale", False):
            lengthscale = part.lengthscale.detach().double().cpu().reshape(-1)
            scales += [value.expand(d) for value in lengthscale.aminmax()]
            columns = _active(part, len(lengthscale))
            if len(lengthscale) == len(columns) > 1 and max(columns) < d:  # each coordinate at its own
                scales.append(generic.new_ones(d))
                scales[-1][columns] = lengthscale
    globes = [_active(part, 2) for part in _parts(kernel) if isinstance(part, GlobeKernel)]
    sets: dict[tuple[float, ...], Tensor] = {}
    for scale in scales:
        for x in (generic * scale, generic * scale / d**0.5):  # far points are all but independent, near ones are not
            for columns in globes:  # a patch of the size of the lengthscale, away from the equator
                x[:, columns] = (57.3 * x[:, columns]).clamp(-40, 40) + 45.0
            around = x.clone()
            for axis, period in action.periods.items():
                around[:, axis] = turns[:, axis] * period
            for longitude, latitude in globes:
                around[:, longitude] = 360 * turns[:, longitude] - 180
                around[:, latitude] = 160 * turns[:, latitude] - 80
            sets.update({tuple(points[0].tolist()): points for points in (x, around)})
    result = list(sets.values())
    for rows in like:
        rows = rows.detach().reshape(-1, d).double().cpu()
        result.append(rows[:: max(1, len(rows) // 6)][:6])
    parameter = next(iter(kernel.parameters()), None) if isinstance(kernel, torch.nn.Module) else next(iter(like), None)
    return [x if parameter is None else x.to(dtype=parameter.dtype, device=parameter.device) for x in result]


def _reason(given: KernelLike, kernel: KernelLike, action: Action, x: Tensor, lap: Lap, learned: list[str]) -> str:
    """Why the kernel, whose `learned` parameters may have been moved from those given, is not invariant, and a way out."""
    at_first = bool(learned) and _holds(given, action, x)
    periodic = any(isinstance(part, gpytorch.kernels.PeriodicKernel) for part in _parts(kernel))
    if lap.share > TOLERANCE and (periodic or not at_first):
        return (
            f"It does not repeat along coordinate {lap.axis} after a period of {lap.period:g}: use a PeriodicKernel "
            f"with period_length={lap.period:g} for that coordinate (and raw_period_length.requires_grad_(False), so that "
            "training keeps it), a GlobeKernel for longitude and latitude, or a Negation."
        )
    d = x.shape[-1]
    with torch.no_grad():
        origin = torch.zeros(1, d, dtype=x.dtype, device=x.device)
        for s in _trial_elements(action).to(x.device):
            image = action.move(origin, s)
            mixing = (action.move(torch.eye(d, dtype=x.dtype, device=x.device), s) - image).abs() > 1e-6
            for part, first in zip(_parts(kernel), _parts(given), strict=True):
                pair = _unequal_pair(part, mixing)
                if pair is not None:
                    i, j, a, b = pair
                    l_i, l_j = first.lengthscale.flatten()[[a, b]].tolist()
                    how = "differ" if abs(l_i - l_j) > 1e-6 * l_i else "are learned apart"
                    return (
                        f"The action mixes coordinates {i} and {j}, whose lengthscales {how} ({l_i:.4g} and {l_j:.4g}): "
                        "give them one lengthscale (no ard_num_dims), freeze them at one value, or choose an action that "
                        "leaves the coordinates apart, such as a Negation."
                    )
            if not at_first and not action.periods and float(image.abs().max()) > 1e-6:
                return (
                    "The action turns about a point other than the origin, and the kernel depends on where the origin "
                    "is: subtract the mean from the inputs first, or use a stationary kernel."
                )
    if at_first:
        names = ", ".join(learned[:8]) + (" ..." if len(learned) > 8 else "")
        return (
            f"It is invariant now, but no longer when training has moved its learned parameters ({names}). Make those that must "
            "stay equal one parameter, such as lengthscales of coordinates that the action mixes. Freeze those that must keep "
            "their value, such as a period, with requires_grad_(False)."
        )
    return "Choose an action that keeps the kernel's value for every pair of points moved together, or another kernel."


def _holds(kernel: KernelLike, action: Action, x: Tensor) -> bool:
    """Whether the kernel is invariant on the points x."""
    deviation = largest_deviation(kernel, action, x, _trial_elements(action))
    return max(deviation.share, largest_lap(kernel, action, x).share) <= TOLERANCE


def _unequal_pair(part: gpytorch.kernels.Kernel, mixing: Tensor) -> tuple[int, int, int, int] | None:
    """Two coordinates that the action mixes and the kernel measures by different lengthscales, and which these are."""
    if not getattr(part, "has_lengthscale", False) or not part.ard_num_dims or part.ard_num_dims < 2:
        return None
    lengthscale = part.lengthscale.detach().reshape(-1, part.ard_num_dims)[0].tolist()
    for (a, i), (b, j) in combinations(enumerate(_active(part)), 2):
        differ = abs(lengthscale[a] - lengthscale[b]) > 1e-6 * abs(lengthscale[a])
        if differ and bool(mixing[i, j] | mixing[j, i]):
            return i, j, a, b
    return None
