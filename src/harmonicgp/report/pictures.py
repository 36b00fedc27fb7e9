"""The pictures of a report. Each function draws on axes; `draw` makes a PNG of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Concatenate, ParamSpec, cast

import numpy as np

from harmonicgp.io.drawing import BLACK, BLUE, GREEN, GREY, ORANGE, PINK, SKY, styled_figure, text
from harmonicgp.report.scores import Reliability, binomial_band
from harmonicgp.tables.columns import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

P = ParamSpec("P")

_CYCLE = (BLUE, ORANGE, GREEN, PINK, SKY, "#E69F00", BLACK, GREY)
_STYLE = {
    "axes.labelsize": 10,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "image.cmap": "cividis",
}
MOST_CLASSES = len(_CYCLE)


def draw(picture: Callable[Concatenate[Axes, P], None], *args: P.args, **kwargs: P.kwargs) -> bytes:
    """The PNG of a picture on one pair of axes, at 200 dots per inch, twice the resolution of a screen."""
    buffer = BytesIO()
    with styled_figure(5.2, 3.5, _STYLE, "a report with pictures") as figure:
        picture(figure.add_subplot(), *args, **kwargs)
        figure.savefig(buffer, format="png", dpi=200)
    return buffer.getvalue()


def learning_curve(
    ax: Axes, steps: Array, bound: Array, seconds: Array, validation: Sequence[tuple[float, float]]
) -> None:
    """The bound against steps, the seconds on the upper axis, the validation bound as points."""
    many = len(steps) > 60
    ax.plot(steps, bound, color=BLUE, lw=0.7 if many else 1.5, alpha=0.45 if many else 1, label="bound, each step")
    if many:
        window = max(len(steps) // 40, 5)
        mean = np.convolve(bound, np.full(window, 1 / window), "valid")
        ax.plot(steps[window - 1 :], mean, color=BLUE, lw=1.8, label=f"mean of {window} steps")
    if validation:
        ax.plot(
            *zip(*validation, strict=True), "o", color=ORANGE, ms=4.5, mec="white", mew=0.6, label="validation rows"
        )
    # The first steps may be far below: limit the range to the later ones.
    later = np.concatenate([bound[len(bound) // 10 :], [value for _, value in validation]])
    spread = float(np.ptp(later)) or 1.0
    if bound.min() < later.min() - spread:
        ax.set_ylim(later.min() - 0.3 * spread, max(later.max(), bound.max()) + 0.1 * spread)
    ax.set(xlabel="step", ylabel="bound per row")
    ax.grid(color="#e6e9ec", lw=0.6)
    ax.legend(loc="lower right")
    _seconds_on_top(ax, steps, seconds)


def _seconds_on_top(ax: Axes, steps: Array, seconds: Array) -> None:
    if len(steps) < 2 or not np.isfinite(seconds).all() or seconds[-1] <= 0:
        return
    top = ax.twiny()
    top.set_xlim(ax.get_xlim())
    places = np.linspace(steps[0], steps[-1], 5)
    at = np.interp(places, steps, seconds)
    top.set_xticks(places, [f"{value:.{0 if seconds[-1] >= 20 else 1 if seconds[-1] >= 2 else 2}f}" for value in at])
    top.set_xlabel("seconds", fontsize=9)


def coverage_curve(ax: Axes, levels: Array, share: Array, rows: int) -> None:
    """The share of rows inside the central intervals against their level, with the 95 % band of chance."""
    low, high = binomial_band(rows, levels)
    ax.fill_between(100 * levels, 100 * low, 100 * high, color=GREY, alpha=0.35, lw=0, label="chance (95 %)")
    ax.plot([0, 100], [0, 100], color=GREY, lw=1, ls="--", label="calibrated")
    ax.plot(100 * levels, 100 * share, color=BLUE, lw=2, label="these rows")
    ax.set(xlabel="level of the interval, %", ylabel="rows inside, %", xlim=(0, 100), ylim=(0, 100))
    ax.grid(color="#e6e9ec", lw=0.6)
    ax.legend(loc="upper left")


def pit_bars(ax: Axes, counts: Array) -> None:
    """The PIT histogram, with the 95 % band of a uniform one."""
    bins, rows = len(counts), int(counts.sum())
    edges = np.linspace(0, 1, bins + 1)
    density = counts * bins / rows
    low, high = binomial_band(rows, 1 / bins)
    ax.bar(edges[:-1], density, 1 / bins, align="edge", color=BLUE, ec="white", lw=0.5, label="these rows")
    ax.axhspan(low * bins, high * bins, color=ORANGE, alpha=0.3, lw=0, label="chance (95 %)")
    ax.axhline(1, color=ORANGE, lw=1)
    ax.set(xlabel="PIT: P(Y ≤ y)", ylabel="density", xlim=(0, 1), ylim=(0, 1.35 * max(density.max(), high * bins)))
    ax.legend(loc="upper center", ncols=2)


def predicted_observed(ax: Axes, predicted: Array, observed: Array, target: str) -> None:
    """Observed against predicted values, with the line on which they are equal."""
    _cloud(ax, predicted, observed)
    low, high = np.min([predicted, observed]), np.max([predicted, observed])
    margin = 0.04 * (high - low) or 1.0
    low, high = low - margin, high + margin
    ax.plot([low, high], [low, high], color=ORANGE, lw=1.2)
    ax.set(xlabel=f"predicted {text(target)}", ylabel=f"observed {text(target)}", xlim=(low, high), ylim=(low, high))


def residuals(ax: Axes, predicted: Array, observed: Array, target: str) -> None:
    """Observed minus predicted against predicted, with the median in twelve slices of equal size."""
    error = observed - predicted
    _cloud(ax, predicted, error)
    ax.axhline(0, color=ORANGE, lw=1.2)
    if len(predicted) >= 100:
        slices = np.array_split(np.argsort(predicted), 12)
        middle = [(np.median(predicted[rows]), np.median(error[rows])) for rows in slices]
        ax.plot(*zip(*middle, strict=True), "o-", color=BLACK, lw=1.5, ms=3, label="median of a twelfth of the rows")
        ax.legend(loc="best")
    ax.set(xlabel=f"predicted {text(target)}", ylabel="observed − predicted")


def bars(ax: Axes, labels: Sequence[str], shares: Array) -> None:
    """Shares as bars, largest first."""
    _figure(ax).set_figheight(max(1.2, 0.6 + 0.25 * len(shares)))
    places = np.arange(len(shares))[::-1]
    ax.barh(places, 100 * shares, color=BLUE, height=0.7)
    for place, share in zip(places, shares, strict=True):
        ax.text(100 * share, place, f" {100 * share:.1f} %", va="center", fontsize=9)
    ax.set_yticks(places, [text(label) for label in labels])
    ax.tick_params(axis="y", length=0)
    ax.set(xlabel="share of variance, %", xlim=(0, 118 * float(shares.max(initial=0)) or 1))


def reliability(ax: Axes, bins: Reliability, label: str) -> None:
    """The observed frequency of a class against its predicted probability."""
    full = bins.counts > 0
    p, share, rows = 100 * bins.predicted[full], 100 * bins.observed[full], bins.counts[full]
    low, high = binomial_band(rows, bins.predicted[full])
    ax.plot([0, 100], [0, 100], color=GREY, lw=1, ls="--", label="calibrated")
    ax.vlines(p, 100 * low, 100 * high, color=GREY, lw=5, alpha=0.4, label="chance (95 %)")
    ax.plot(p, share, color=BLUE, lw=1.5)
    ax.scatter(p, share, 15 + 120 * rows / rows.max(), color=BLUE, ec="white", zorder=3, label="rows (area: how many)")
    ax.set(xlabel=f"{text(label, 44)}, %", ylabel="came true, %", xlim=(-2, 102), ylim=(-4, 104))
    ax.grid(color="#e6e9ec", lw=0.6)
    ax.legend(loc="upper left")


def curve(
    ax: Axes, x: Array, y: Array | None, lines: Array, names: Sequence[str], band: Array | None, z: Array, x_name: str,
    y_name: str,
) -> None:  # fmt: skip
    """Predictions along one column: lines [n, L] at sorted x, a band [n, 2], the data, inducing points as ticks."""
    if y is not None:
        ax.plot(x, y, "o", color="#57606a", ms=2.8, alpha=_alpha(len(x)), mew=0, label="rows")
    if band is not None:
        ax.fill_between(x, band[:, 0], band[:, 1], color=SKY, alpha=0.35, lw=0, label="90 % interval")
    for j, name in enumerate(names):
        ax.plot(x, lines[:, j], color=_CYCLE[j], lw=1.7, label=text(name))
    floor = np.full(len(z), 0.035)
    ax.plot(z, floor, "|", color=ORANGE, ms=9, mew=1.4, transform=ax.get_xaxis_transform(), label="inducing points")
    ax.set(xlabel=text(x_name), ylabel=text(y_name))
    low, high = ax.get_ylim()
    ax.set_ylim(low - 0.08 * (high - low), high)  # room for the ticks
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4, handlelength=1.2, columnspacing=1)


def plane(
    ax: Axes, x: Array, colour: Array, z: Array, axes: Sequence[str], label: str, classes: Sequence[str] = (),
    globe: bool = False,
) -> None:  # fmt: skip
    """Rows x [n, 2] coloured by a value (or by class number), inducing points z [m, 2] over them."""
    _figure(ax).set_figheight(3.8 if globe else 4.2)
    size = float(np.clip(8000 / len(x), 3, 25))
    if classes:
        for k, name in enumerate(classes):
            rows = colour == k
            ax.scatter(x[rows, 0], x[rows, 1], size, color=_CYCLE[k], lw=0, alpha=0.6, label=text(name, 16))
    else:
        low, high = np.quantile(colour, [0.02, 0.98])
        points = ax.scatter(x[:, 0], x[:, 1], size, c=colour, vmin=low, vmax=high, lw=0, alpha=0.8)
        _figure(ax).colorbar(points, ax=ax, label=text(label), location="bottom" if globe else "right")
    ax.plot(*z.T, "x", color="white", ms=7, mew=3)
    ax.plot(*z.T, "x", color=ORANGE, ms=6, mew=1.5, label="inducing points")
    ax.set(xlabel=text(axes[0]), ylabel=text(axes[1]))
    if globe:
        _globe_axes(ax, np.concatenate([x, z]))
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=4, handletextpad=0.3, columnspacing=1)


def _figure(ax: Axes) -> Figure:
    return cast("Figure", ax.get_figure())


def _globe_axes(ax: Axes, points: Array) -> None:
    """Limits of the whole globe, or of the region of the points if that is small, with the aspect ratio of a map."""
    low, high = points.min(0), points.max(0)
    ax.grid(color="#d5dae0", lw=0.6)
    if high[0] - low[0] <= 120:
        margin = 0.05 * np.maximum(high - low, 1)
        ax.set(xlim=(low[0] - margin[0], high[0] + margin[0]), ylim=(low[1] - margin[1], high[1] + margin[1]))
        ax.set_aspect(1 / max(np.cos(np.deg2rad((low[1] + high[1]) / 2)), 0.1))
        return
    west = -180 if low[0] < 0 else 0
    ax.set(xlim=(west, west + 360), ylim=(-90, 90), aspect="equal")
    ax.set_xticks(range(west, west + 361, 60))
    ax.set_yticks(range(-90, 91, 30))


def _cloud(ax: Axes, x: Array, y: Array) -> None:
    ax.plot(x, y, "o", color=BLUE, ms=3.2, mew=0, alpha=_alpha(len(x)))
    ax.grid(color="#e6e9ec", lw=0.6)


def _alpha(n: int) -> float:
    return float(np.clip(30 / np.sqrt(n), 0.3, 0.9))
