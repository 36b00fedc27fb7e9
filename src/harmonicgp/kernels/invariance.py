"""The check that a kernel is invariant under an action, k(s.x, s.x') = k(x, x'). Errors name the reason and a remedy."""

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

#: The largest difference of k(s.x, s.x') and k(x, x'), as a share of sqrt(k(x, x) k(x', x')).
TOLERANCE = 1e-5
_LIBRARIES = ("gpytorch", "harmonicgp", "torch")


@dataclass(frozen=True)
class Deviation:
    """The largest difference of k(s.x, s.x') and k(x, x')."""

    share: float  #: of sqrt(k(x, x) k(x', x'))
    element: tuple[int, ...]  #: s
    pair: tuple[int, int]  #: the rows x and x'
    before: complex  #: k(x, x')
    after: complex  #: k(s.x, s.x')

    def __str__(self) -> str:
        element = self.element[0] if len(self.element) == 1 else self.element
        before, after = (f"{z.real:.6g}" if z.imag == 0 else f"{z:.6g}" for z in (self.before, self.after))
        words = f"element s = {element} moves the pair of points {self.pair} from k = {before} to k = {after}"
        if any(self.element):
            return words
        return f"the neutral {words}, though it must leave k as it is (check the action with harmonicgp.testing.assert_cyclic)"


@dataclass(frozen=True, order=True)
class Lap:
    """The change of the kernel when one point of a pair moves by a whole period of a circular coordinate."""

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
    """The circular coordinate of the action whose period changes k(x, x') most, on rows of x [n, d]."""
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
    """Raise a `ValueError` that names the reason and a remedy unless the kernel is invariant on a few trial points.

    `dim` is the number of columns, `like` are some of the user's points. With `learnable` a kernel is also refused if it is
    invariant only at the initial values of its learned parameters, such as equal lengthscales. The scale of the trial points
    comes from the lengthscales and from `like`; for plain functions and the user's own classes the scales 1, 0.1 and 0.01 are
    tried too.

    Examples:
        >>> from gpytorch.kernels import RBFKernel
        >>> from harmonicgp.actions import Rotation
        >>> check_invariant(RBFKernel(), Rotation((0, 1), 4))
    """
    d = _guess_dim(kernel, action) if dim is None else whole_number(dim, "dim", 1)
    action.check_dim(d, "the input")
    original, initial, kernel = kernel, _in_float64(kernel), _in_float64(kernel)
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
            raise ValueError(
                f"the kernel cannot be evaluated at points of {d} columns ({error}): give dim=."
            ) from error
        if max(deviation.share, lap.share) > TOLERANCE:
            raise ValueError(
                f"{name} is not invariant under {action!r}: {lap if lap.share > deviation.share else deviation}. "
                f"{_reason(initial, kernel, action, x, lap, learned)} (check=False skips this check.)"
            )


def _other_width(kernel: KernelLike, d: int) -> str:
    """The message for a kernel whose lengthscales do not match its number of columns; empty if they match."""
    for part in _parts(kernel):
        width = d if part.active_dims is None else len(part.active_dims)
        if part.ard_num_dims and part.ard_num_dims not in (1, width):
            columns = f"the points have {d}" if part.active_dims is None else f"its active_dims name {width}"
            return (
                f"{type(part).__name__} has lengthscales for {part.ard_num_dims} columns (ard_num_dims={part.ard_num_dims}), "
                f"and {columns}: give it ard_num_dims={width}, or active_dims with the columns that it reads."
            )
    return ""


def _guess_dim(kernel: KernelLike, action: Action) -> int:
    """The least number of columns that both the kernel and the action accept."""
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
    """The kernel and its component kernels."""
    if not isinstance(kernel, torch.nn.Module):
        return []
    return [part for part in kernel.modules() if isinstance(part, gpytorch.kernels.Kernel)]


def _is_own(kernel: KernelLike) -> bool:
    """Whether the kernel is a function, or has a part of a class that neither GPyTorch nor this library defines."""
    if not isinstance(kernel, torch.nn.Module):
        return True
    return any(type(module).__module__.partition(".")[0] not in _LIBRARIES for module in kernel.modules())


def _active(part: gpytorch.kernels.Kernel, width: int | None = None) -> list[int]:
    """The columns that a kernel reads: its active_dims, or the first `width`."""
    return list(range(width or part.ard_num_dims)) if part.active_dims is None else part.active_dims.tolist()


def _in_float64(kernel: KernelLike) -> KernelLike:
    """A copy in float64, so that rounding does not affect the check; the kernel itself if it cannot be copied."""
    if not isinstance(kernel, torch.nn.Module):
        return kernel
    try:
        return copy.deepcopy(kernel).double()
    except RuntimeError:  # a parameter that is the result of a computation cannot be copied
        return kernel


def _move_parameters(kernel: KernelLike) -> list[str]:
    """Change every learned parameter of a copy of a kernel by a small random amount, as training would. Returns their names."""
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
    """Raise a ValueError unless T steps of every way return each point: the Fourier transform assumes it."""
    steps = torch.eye(action.group.ways, dtype=torch.long, device=x.device)
    for j, (T, step) in enumerate(zip(action.group.orders, steps, strict=True)):
        back = action.move(action.move(x, step % T), (T - 1) * step)
        if float(action.wrap(back - x).abs().max()) > 1e-3 * (1 + float(x.abs().max())):
            raise ValueError(
                f"way {j} of {action!r} does not have order {T} on points of {x.shape[-1]} columns: "
                "harmonicgp.testing.assert_cyclic shows where it fails."
            )


def _trial_elements(action: Action) -> Tensor:
    """The generators, and a half turn of each way, which moves many points beyond the end of a period."""
    ways = action.group.ways
    steps = [(j, s_j) for j, T in enumerate(action.group.orders) for s_j in {1 % T, T // 2} - {0}]
    rows = [[s_j if i == j else 0 for i in range(ways)] for j, s_j in steps]
    return torch.tensor(rows or [[0] * ways], device="cpu")


def _trial_sets(kernel: KernelLike, action: Action, d: int, like: Sequence[Tensor]) -> list[Tensor]:
    """Sets of random points at the scale of every lengthscale, near each other and all around the circles, and of `like`.

    Sets of different scales are separate: in one Gram matrix small distances would be lost to rounding.
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
            if len(lengthscale) == len(columns) > 1 and max(columns) < d:  # each coordinate at its lengthscale
                scales.append(generic.new_ones(d))
                scales[-1][columns] = lengthscale
    globes = [_active(part, 2) for part in _parts(kernel) if isinstance(part, GlobeKernel)]
    sets: dict[tuple[float, ...], Tensor] = {}
    for scale in scales:
        for x in (generic * scale, generic * scale / d**0.5):  # points at large and at small distances
            for columns in globes:  # a patch of the size of the lengthscale, away from the equator
                x[:, columns] = (57.3 * x[:, columns]).clamp(-40, 40) + 45.0
            on_circles = x.clone()
            for axis, period in action.periods.items():
                on_circles[:, axis] = turns[:, axis] * period
            for longitude, latitude in globes:
                on_circles[:, longitude] = 360 * turns[:, longitude] - 180
                on_circles[:, latitude] = 160 * turns[:, latitude] - 80
            sets.update({tuple(points[0].tolist()): points for points in (x, on_circles)})
    result = list(sets.values())
    for rows in like:
        rows = rows.detach().reshape(-1, d).double().cpu()
        result.append(rows[:: max(1, len(rows) // 6)][:6])
    parameter = next(iter(kernel.parameters()), None) if isinstance(kernel, torch.nn.Module) else next(iter(like), None)
    return [x if parameter is None else x.to(dtype=parameter.dtype, device=parameter.device) for x in result]


def _reason(initial: KernelLike, kernel: KernelLike, action: Action, x: Tensor, lap: Lap, learned: list[str]) -> str:
    """Why the kernel, `initial` with changed `learned` parameters, is not invariant, and a remedy."""
    holds_initially = bool(learned) and _is_invariant(initial, action, x)
    has_period = any(isinstance(part, gpytorch.kernels.PeriodicKernel) for part in _parts(kernel))
    if lap.share > TOLERANCE and (has_period or not holds_initially):
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
            for part, initial_part in zip(_parts(kernel), _parts(initial), strict=True):
                pair = _unequal_pair(part, mixing)
                if pair is not None:
                    i, j, a, b = pair
                    l_i, l_j = initial_part.lengthscale.flatten()[[a, b]].tolist()
                    how = "differ" if abs(l_i - l_j) > 1e-6 * l_i else "are learned separately"
                    return (
                        f"The action mixes coordinates {i} and {j}, whose lengthscales {how} ({l_i:.4g} and {l_j:.4g}): "
                        "give them one lengthscale (no ard_num_dims), freeze them at one value, or choose an action that does "
                        "not mix the coordinates, such as a Negation."
                    )
            if not holds_initially and not action.periods and float(image.abs().max()) > 1e-6:
                return (
                    "The action has a fixed point other than the origin, and the kernel depends on the origin: subtract the mean "
                    "from the inputs first, or use a stationary kernel."
                )
    if holds_initially:
        names = ", ".join(learned[:8]) + (" ..." if len(learned) > 8 else "")
        return (
            f"It is invariant now, but no longer when training has moved its learned parameters ({names}). Make those that must "
            "stay equal one parameter, such as lengthscales of coordinates that the action mixes. Freeze those that must keep "
            "their value, such as a period, with requires_grad_(False)."
        )
    return "Choose an action that preserves the kernel's value for every pair of points, or another kernel."


def _is_invariant(kernel: KernelLike, action: Action, x: Tensor) -> bool:
    """Whether the kernel is invariant on the points x."""
    deviation = largest_deviation(kernel, action, x, _trial_elements(action))
    return max(deviation.share, largest_lap(kernel, action, x).share) <= TOLERANCE


def _unequal_pair(part: gpytorch.kernels.Kernel, mixing: Tensor) -> tuple[int, int, int, int] | None:
    """Two coordinates that the action mixes and that have different lengthscales, and the positions of these lengthscales."""
    if not getattr(part, "has_lengthscale", False) or not part.ard_num_dims or part.ard_num_dims < 2:
        return None
    lengthscale = part.lengthscale.detach().reshape(-1, part.ard_num_dims)[0].tolist()
    for (a, i), (b, j) in combinations(enumerate(_active(part)), 2):
        is_equal = abs(lengthscale[a] - lengthscale[b]) <= 1e-6 * abs(lengthscale[a])
        if not is_equal and bool(mixing[i, j] | mixing[j, i]):
            return i, j, a, b
    return None
