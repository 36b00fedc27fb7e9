"""Do the inputs have a symmetry? A kernel test of the rows against their images."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from harmonicgp._validation import check_points, whole_number
from harmonicgp.actions import Action
from harmonicgp.groups import Group
from harmonicgp.tables.columns import Array

#: Bandwidths of the test's kernel, in median distances, each half of the one before.
WIDTHS = (2.0, 1.0, 0.5, 0.25)
#: Kernel values in a test, at most (and 16 times as many coordinates), so that large groups are tested on fewer rows.
VALUES = 2_000_000
#: Columns that are tested one by one, at most: for a group of two elements, and for larger groups.
COLUMNS, FEWER_COLUMNS = 256, 32
#: Number of frequencies in the search for a centre.
FREQUENCIES = 256
#: Values above this, or all below its inverse, would overflow.
HUGE = 1e100
#: Rows whose angles are tested, at most, and the number of rings by radius.
ANGLES, RINGS = 50_000, 4
#: Fewer distinct places than the first are levels of a column; fewer than the second are too few for a test.
LEVELS, PLACES = 20, 100
#: Fewer rows than this are too few for a test of angles.
FEW = 300


class Evidence(NamedTuple):
    """How far the rows are from their images, and how often chance alone would put them at least as far."""

    distance: float  #: maximum mean discrepancy, 0 for equal distributions and at most 1.5
    p_value: float


def invariance_test(
    action: Action, X: Tensor, n: int = 1000, draws: int = 999, seed: int = 0, centred: bool = False
) -> Evidence:
    """Compare at most n of the rows X [N, d] with their images under all elements of the group.

    The distance is the maximum mean discrepancy (Gretton et al. 2012), with Gaussian kernels of four widths, between the rows and
    the rows moved by every element. It is the mean of sum_t k_t(x, x') over all frequencies t but the first. If the rows have the
    symmetry, moving each of them by a random element changes nothing, so random elements give an exact p-value.

    The test is done on all columns, on the columns that move, column by column, and for a rotation also by the angles of all rows
    (`angles_test`). The smallest p-value is multiplied by the number of tests. If the columns that move have few distinct values,
    such as stations that measure every day, each place counts once (`one_a_place`). A small p-value says that moved rows differ
    from the data, a large one that no difference was seen. With `centred`, the best centre of a negation within its error is
    estimated from the same rows.

    Examples:
        >>> import torch
        >>> from harmonicgp.actions import Negation
        >>> x = torch.randn(1000, 2, generator=torch.Generator().manual_seed(0))
        >>> invariance_test(Negation(), x).p_value > 0.05, invariance_test(Negation(), x.exp()).p_value < 0.01
        (True, True)
    """
    if not isinstance(action, Action):
        raise TypeError(f"action must be one of harmonicgp.actions; got {action!r}.")
    check_points(X, "X")
    if X.ndim != 2:
        raise ValueError(f"X holds rows [N, d]; got shape {tuple(X.shape)}.")
    action.check_dim(X.shape[-1])
    largest = float(X.detach().double().abs().max()) if X.numel() else 0.0
    if largest > HUGE or 0 < largest < 1 / HUGE:
        raise ValueError(f"values of X as large as {largest:.3g} cannot be compared: scale its columns first.")
    whole_number(n, "n", 2)
    whole_number(draws, "draws", 1)
    group = action.group
    generator = torch.Generator().manual_seed(seed)
    moves = moved_columns(action, X)
    distinct = one_a_place(X, moves)
    if len(distinct) < len(X):
        X = distinct - distinct.mean(0) if centred and action.negates_columns else distinct
    n = min(n, max(50, min(math.isqrt(VALUES // group.order), 16 * VALUES // (group.order * X.shape[-1]))))
    rows = X.detach().double()[_shuffled(len(X), generator, X)[:n]]
    if len(rows) < 4 or group.order < 2:
        return Evidence(0.0, 1.0)
    if centred and action.negates_columns:
        rows = rows - _centre(rows)
    orbit = action.images(rows)  # [|G|, n, d]
    places = _places(action, orbit, moves)
    tests = [places] if bool(moves.all()) else [places, _places(action, orbit[..., moves], moves[moves], moves)]
    elements = torch.randint(group.order, (draws, len(rows)), generator=generator, device="cpu").to(X.device)
    evidence = [_compare(group, part, elements) for part in tests]
    width = tests[-1].shape[-1]
    # Not for images, except under a negation: a pixel that is nearly always empty has no reliable centre.
    if width <= FEWER_COLUMNS or action.negates_columns:
        most = COLUMNS if group.order == 2 else FEWER_COLUMNS
        evidence.append(_columns(tests[-1][..., _shuffled(width, generator, X)[:most]], elements))
    for plane, order in action.planes():
        evidence.append(Evidence(0.0, angles_test(X[:, list(plane)], [order])[0]))
    p = min(1.0, len(evidence) * min(each.p_value for each in evidence))
    return Evidence(max(each.distance for each in evidence), p)


def one_a_place(X: Tensor, of: Tensor | None = None) -> Tensor:
    """The rows X [N, d], or one row of each place if they are many measurements at few places.

    A place is a combination of values of the columns `of` (a mask; None for all). Measurements at one place are not independent
    draws, so that a test on all rows would reject a symmetry because of the chance positions of a few places. The rows stay as
    they are if there are fewer than twenty places (levels), if the values lie on a lattice (counts, hours), or if some values
    are far more frequent than others. Fewer than a hundred places are too few for a test (`enough_places`).
    """
    values = (X if of is None else X[:, of]).detach().double().cpu().numpy()
    if values.size == 0:
        return X
    places, first, counts = np.unique(values, axis=0, return_index=True, return_counts=True)
    if len(first) < LEVELS or np.median(counts) < 2 or counts.std() > 0.6 * counts.mean():
        return X
    if any(_on_a_lattice(column) for column in places.T):
        return X
    return X[torch.from_numpy(np.sort(first)).to(X.device)]


def _on_a_lattice(column: Array) -> bool:
    """Whether the numbers are multiples of a step and take a tenth or more of the possible values in their range."""
    levels = np.unique(column)
    if len(levels) < 2:
        return False
    gaps = np.diff(levels)
    steps = gaps / gaps.min()
    return bool(steps.sum() < 10 * len(levels) and (np.abs(steps - np.round(steps)) < 1e-3 * np.round(steps)).all())


def enough_places(action: Action, X: Tensor) -> bool:
    """Whether the rows lie at enough distinct places for a test of the symmetry."""
    places = one_a_place(X, moved_columns(action, X))
    return len(places) == len(X) or len(places) >= PLACES


def moved_columns(action: Action, X: Tensor) -> Tensor:
    """A mask of the columns that some element changes."""
    sample = X[_shuffled(len(X), torch.Generator().manual_seed(1), X)[:64]].detach().double()
    return (action.images(sample) - sample).abs().amax((0, 1)) > 0


def _shuffled(n: int, generator: torch.Generator, like: Tensor) -> Tensor:
    """The numbers below n in a random order, on the device of a tensor."""
    return torch.randperm(n, generator=generator, device="cpu").to(like.device)


def by_counts(rows: int, counts: Array | None, most: int, seed: int) -> Array:
    """Row numbers, each repeated by its count: a random sample of `most` of them if there are more."""
    rng = np.random.default_rng(seed)
    if counts is None:
        return np.sort(rng.permutation(rows)[:most])
    total = counts.sum()
    if total <= most and (counts == np.round(counts)).all():
        return np.repeat(np.arange(rows), counts.astype(np.int64))
    return np.sort(rng.choice(rows, size=min(most, math.ceil(total)), p=counts / total))


def angles_test(X: Tensor, orders: Sequence[int]) -> list[float]:
    """p-values of an n-fold symmetry of points X [N, 2] about their mean, columns of equal spread, for each n of `orders`.

    Under this symmetry the mean of w(radius) exp(i j angle) is zero unless j is a multiple of n. Here w is one of four bumps, and
    j goes up to 12 (to 6 below 1,000 rows). Each mean is compared with its standard error, which includes the errors of the
    centre and of the spreads, since these come from the same rows. The smallest p-value is multiplied by the number of means.
    The test sees the corners of a square, which distances hardly do. Fewer than 300 rows give p-values of one.
    """
    check_points(X, "X")
    if X.ndim != 2 or X.shape[1] != 2:
        raise ValueError(f"X holds points of a plane [N, 2]; got shape {tuple(X.shape)}.")
    orders = [whole_number(order, "the order", 1) for order in orders]
    x = X.detach().double()[:: 1 + len(X) // ANGLES]
    spread = x.std(0)
    if len(x) < FEW or not bool((spread > 1e-12).all()):
        return [1.0 for _ in orders]
    x = (x - x.mean(0)) / spread
    radius = x.square().sum(-1).sqrt()
    centres = torch.quantile(radius, x.new_tensor([0.125, 0.375, 0.625, 0.875]))
    width = max(float(centres[-1] - centres[0]) / 3, 0.1 * float(centres[-1]))

    def waves(x: Tensor) -> Tensor:  # [N, 12, 4], smooth at the centre too
        square = x.square().sum(-1, keepdim=True).clamp_min(1e-24)
        root = square.sqrt()
        w = (-0.5 * ((root - centres) / width) ** 2).exp() * -torch.expm1(-4 * square)
        powers = (torch.complex(x[:, :1], x[:, 1:]) / root).expand(-1, 12).cumprod(-1)
        return powers[:, :, None] * w[:, None, :]

    values = waves(x)
    mean = values.mean(0)
    influence = values - mean
    step = 1e-3
    for axis in (0, 1):
        move = x.new_zeros(2)
        move[axis] = step
        by_centre = (waves(x + move).mean(0) - waves(x - move).mean(0)) / (2 * step)
        by_spread = (waves(x * (1 + move)).mean(0) - waves(x * (1 - move)).mean(0)) / (2 * step)
        influence -= x[:, axis, None, None] * by_centre
        influence -= (x[:, axis, None, None].square() - 1) / 2 * by_spread
    parts = torch.view_as_real(influence)  # [N, 12, 4, 2]
    covariance = torch.einsum("njkc,njkd->jkcd", parts, parts) / len(x) ** 2
    ridge = 1e-3 * values.abs().square().mean(0) / len(x)
    covariance = covariance + ridge[..., None, None] * torch.eye(2, dtype=x.dtype, device=x.device)
    means = torch.view_as_real(mean)
    squares = (means * torch.linalg.solve(covariance, means)).sum(-1)
    tails = (-squares / 2).exp().amin(1)  # chi-squared with two degrees of freedom; the smallest of each frequency
    highest = 12 if len(x) >= 1000 else 6  # the error of the centre counts j times
    p_values = []
    for order in orders:
        against = [float(tails[j - 1]) for j in range(1, highest + 1) if j % order]
        p_values.append(min(1.0, RINGS * len(against) * min(against)) if against else 1.0)
    return p_values


def _centre(rows: Tensor) -> Tensor:
    """The centre of each column, within three standard errors of zero, at which the rows [n, d] and their opposites agree best.

    That is where sum_ij k(x_i + x_j - 2 c) is largest, with the kernel widths of the test. With this centre the test is no more
    likely to reject a symmetry than with the true one.
    """
    n, d = rows.shape
    centre = rows.new_zeros(d)
    for j in range(d):
        x = rows[:, j]
        error = 3 * float(x.std()) / math.sqrt(n)
        gaps = (x[: n // 2] - x[n - n // 2 :]).abs()
        gaps = gaps[gaps > 0]
        if len(gaps) and error > 0:
            narrow, median, wide = torch.quantile(gaps, gaps.new_tensor([0.25, 0.5, 0.75])).tolist()
            lumps = narrow < 0.1 * wide
            centre[j] = _middle(x, error, narrow) if lumps else _smooth_middle(x, error, median)
    return centre


def _smooth_middle(x: Tensor, error: float, median: float) -> float:
    """The centre by the Fourier transform of k: int khat(w) Re(phi(w)^2 exp(-2 i w c)) dw, phi(w) = sum_i exp(i w x_i)."""
    one = x.new_ones(())
    w = torch.linspace(0, 4 / (WIDTHS[-1] * median), FREQUENCIES, dtype=x.dtype, device=x.device)
    widths = median * x.new_tensor(WIDTHS)[:, None]
    khat = (widths * (-0.5 * (w * widths).square()).exp()).sum(0)
    weights = khat * torch.polar(one, w[:, None] * x).sum(1).square()
    return _highest(lambda c, _: (weights * torch.polar(one, -2 * c[:, None] * w)).real.sum(1), error, x)


def _middle(x: Tensor, error: float, narrow: float) -> float:
    """The centre by the pairs themselves, with ever narrower kernels, for data in lumps."""
    one, other = torch.triu_indices(len(x), len(x), device=x.device)
    middles = (x[one] + x[other]) / 2
    middles = middles[middles.abs() < 2 * error + 2 * narrow]

    def heights(c: Tensor, step: float) -> Tensor:
        return (-0.5 * ((middles - c[:, None]) / max(step, narrow / 4)).square()).exp().sum(1)

    return _highest(heights, error, x)


def _highest(heights: Callable[[Tensor, float], Tensor], error: float, like: Tensor) -> float:
    """Where within `error` of zero a function is largest. Its second argument is the distance between the points of the grid."""
    best, reach = 0.0, error
    for _ in range(5):
        tried = (best + reach * torch.linspace(-1, 1, 9, dtype=torch.float64, device=like.device)).clamp(-error, error)
        best = float(tried[heights(tried, reach / 4).argmax()])
        reach /= 4
    return best


def _places(action: Action, orbit: Tensor, moves: Tensor, of: Tensor | None = None) -> Tensor:
    """Columns of unit spread, with circles as points of the plane. Moving both points does not change their distance.

    Columns that an action mixes share one spread; every other column has its own.
    """
    periods = dict(action.periods)
    if of is not None:  # only the columns that move are left
        names = of.nonzero()[:, 0].tolist()
        periods = {names.index(axis): period for axis, period in periods.items() if axis in names}
    circles = [axis in periods for axis in range(orbit.shape[-1])]
    spread = (orbit - orbit.mean((0, 1))).square().mean((0, 1)).sqrt()
    for part in action.mixed_columns(len(of) if of is not None else orbit.shape[-1]):
        mixed = part if of is None else [names.index(axis) for axis in part if axis in names]
        mixed = [axis for axis in mixed if moves[axis] and not circles[axis]]
        spread[mixed] = spread[mixed].square().mean().sqrt()
    scaled = orbit / torch.where(spread > 1e-12, spread, torch.ones_like(spread))
    if not periods:
        return scaled
    columns = []
    for axis, circle in enumerate(circles):
        if circle:
            angle = orbit[..., axis] * (2 * math.pi / periods[axis])
            columns += [angle.cos(), angle.sin()]
        else:
            columns.append(scaled[..., axis])
    return torch.stack(columns, -1)


def _columns(orbit: Tensor, elements: Tensor) -> Evidence:
    """The test column by column: the largest mean of a wave, in standard deviations.

    A difference in one column is lost in a distance over many columns.
    """
    frequencies = orbit.new_tensor([0.5, 1.0, 2.0])
    angle = orbit[..., None] * frequencies
    waves = torch.cat((angle.sin(), angle.cos()), -1).flatten(2)  # [|G|, n, 6 d]
    waves = waves - waves.mean(0)
    spread = waves.square().mean(0).sum(0).sqrt()  # of the sum over rows under random elements
    varies = spread > 1e-9
    waves = waves[..., varies] / spread[varies]
    if not bool(varies.any()):
        return Evidence(0.0, 1.0)
    first = waves[0].sum(0).abs().max()
    n = torch.arange(orbit.shape[1], device=orbit.device)
    if len(orbit) == 2:  # one product: an element changes signs
        signs = (1 - 2 * elements).to(orbit.dtype)
        others = (signs @ waves[0]).abs().amax(-1)
    else:
        others = torch.stack([waves[element, n].sum(0).abs().max() for element in elements])
    return Evidence(0.0, float((1 + (others >= first - 1e-12).sum()) / (1 + len(elements))))


def _compare(group: Group, orbit: Tensor, elements: Tensor) -> Evidence:
    rows = orbit[0]
    squares = torch.cdist(rows, orbit).square_()  # [|G|, n, n]: from x_i to s.x_j
    median = float(squares[0][squares[0] > 0].median()) if bool((squares[0] > 0).any()) else 1.0
    k = squares.mul_(-0.5 / (median * WIDTHS[0] ** 2)).exp_()
    K = k.clone()
    for _ in WIDTHS[1:]:  # half as wide: the fourth power
        k = k.square_().square_()
        K += k
    blocks = group.fourier(K / len(WIDTHS))
    characters = group.characters().to(rows.device)
    values = rows.new_zeros(1 + len(elements))
    for t, minus_t in group.conjugate_pairs[1:]:
        # k(g_i x_i, g_j x_j) is sum_t conj(chi_t(g_i)) chi_t(g_j) k_t(x_i, x_j); no element at first
        chi = torch.cat((characters.new_ones(1, len(rows)), characters[t][elements]))
        block = blocks[t]
        if t == minus_t:
            c = chi.real
            values += ((c @ (block.real if block.is_complex() else block)) * c).sum(-1)
        else:
            values += 2 * ((chi.conj() @ block) * chi).sum(-1).real
    values /= len(rows) ** 2
    p = float((1 + (values[1:] >= values[0] - 1e-12).sum()) / (1 + len(elements)))
    return Evidence(math.sqrt(max(float(values[0] - values[1:].mean()), 0.0)), p)
