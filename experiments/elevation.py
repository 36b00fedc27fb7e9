"""The paper's Earth: heights of land and sea floor, 72 % of the cells seen, 20 % tested.

Ours in closed form with everything learned, against SVGP trained for as long as ours took in all, the paper's HVGP by turns of
the globe (7 and 13 real blocks, Adam 0.01, batches of 256), and SKI on 600,000 points. Table of RMSE, NLL and coverage (also
weighted by area), seconds and memory; maps of SVGP and ours, and the zonal spectrum.

Sizes: small (1 degree, embedded; 100 inducing points for 1000), medium (0.5 degree), paper (0.1 degree, 6.48 million cells). The
peers have as many steps as fit into the time given to them (`SIZES`: 2, 13 and 35 minutes in all, with ours once more for SVGP),
the table says how many, and are scored on 50,000 of the test cells. medium and paper need etopo5.npz in the folder that
HARMONICGP_DATA names.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from experiments._elevation_models import Result, Split, hvgp, load_split, peak_rise, scores, ski, svgp
from experiments._runner import run
from harmonicgp.io.container import write_text_atomically

Array = np.ndarray[Any, Any]
Row = dict[str, Any]
#: Inducing points that stand for the paper's 1000, seconds of the paper's HVGP and of SVGP 3000, and of SKI at most.
SIZES = {"small": (100, 15.0, 60.0), "medium": (1000, 120.0, 300.0), "paper": (1000, 300.0, 600.0)}


def closed_form(split: Split, name: str, gp: Any) -> tuple[Row, Array]:
    """Ours, fitted and predicted on all cells, scored on all test cells; and the mean."""
    import xarray

    heights = np.where(split.train, split.heights, np.nan)
    data = xarray.DataArray(heights, {"lat": split.latitudes, "lon": split.longitudes}, ("lat", "lon"), name="height")
    with peak_rise() as rise:
        start = time.perf_counter()
        gp.fit(data)
        mean, std = gp.predict(return_std=True)
        seconds, memory = time.perf_counter() - start, rise()
    latitudes = np.broadcast_to(split.latitudes[:, None], split.test.shape)[split.test]
    found = scores(mean.values[split.test], std.values[split.test] ** 2, split.heights[split.test], latitudes)
    words = (
        f"kernel {gp.kernel_}, lengthscale {gp.lengthscale_:.4g}, {gp.n_inducing_} latitudes, |t| <= {gp.t_max_}, "
        f"{gp.n_features_:,} features"
    )
    row = {"model": name, "seconds": seconds, "steps": len(gp.history_), "memory": memory, "note": words, **found}
    return row, coarse(mean.values, split)


def ours(split: Split, size: str) -> tuple[Row, Array]:
    """Everything learned."""
    from harmonicgp import HarmonicGPGlobe

    gp = HarmonicGPGlobe(progress=False)
    row, field = closed_form(split, "ours", gp)
    return {**row, "spectrum": gp.spectrum(split.latitudes).tolist()}, field


def given(split: Split, size: str) -> tuple[Row, Array]:
    """Hyper-parameters given, for |t| <= 360 and 360 latitudes."""
    from harmonicgp import HarmonicGPGlobe

    gp = HarmonicGPGlobe(
        "rbf", n_inducing=360, t_max=360, lengthscale=0.015, field_std=0.7, noise_level=0.07, progress=False
    )
    return closed_form(split, "ours, given", gp)


def peer(split: Split, size: str, kind: str, points: int, seconds: float) -> tuple[Row, Array] | str:
    """One of the others, or the reason why not."""
    reasons: list[str] = []
    result: Result | None
    if kind == "ski":
        result = ski(split, limit=seconds, report=reasons.append)
    elif kind == "svgp":
        result = svgp(split, points, seconds=seconds)
    else:
        result = hvgp(split, {"7": 12, "13": 24}[kind], points, seconds=seconds)
    if result is None:
        return reasons[0]
    row = {
        "model": result.name, "seconds": result.seconds, "steps": result.steps, "memory": result.memory_bytes,
        **result.scores,
    }  # fmt: skip
    lat, lon = coarse_axes(split)
    return row, result.predict(lat, lon) if kind == "svgp" else np.empty((0, 0))


def coarse_axes(split: Split) -> tuple[Array, Array]:
    """About a degree, for maps."""
    step = max(1, len(split.latitudes) // 180)
    return split.latitudes[step // 2 :: step], split.longitudes[step // 2 :: step]


def coarse(values: Array, split: Split) -> Array:
    """On those."""
    step = max(1, len(split.latitudes) // 180)
    return values[step // 2 :: step, step // 2 :: step]


def _sent(sender: Any, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    size, rest = arguments[0], arguments[1:]
    sender.send(function(load_split(size), size, *rest))


def fresh(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function finds in a process of its own, so that memory is counted for itself."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_sent, args=(sender, function, arguments))
    process.start()
    sender.close()
    try:
        return receiver.recv()
    except EOFError:
        return f"{arguments}: the process ended without an answer (out of memory?)"
    finally:
        process.join()


def experiment(size: str, output: Path) -> Mapping[str, Any]:
    """Run all, print and write the table, draw the maps."""
    split = load_split(size)
    points, seconds, limit = SIZES[size]
    cells = split.heights.size
    print(
        f"{cells:,} cells, {int(split.train.sum()):,} to learn from, {int(split.test.sum()):,} to test on", flush=True
    )
    rows: list[Row] = []
    remarks: list[str] = []
    own, own_map = fresh(ours, size)
    rows.append(own)
    _say(own)
    if size == "paper":
        known, _ = fresh(given, size)
        rows.append(known)
        _say(known)
    peers = [
        ("svgp", points, own["seconds"]),
        ("svgp", 3 * points, seconds),
        ("7", points, seconds),
        ("13", points, seconds),
    ]
    peers.append(("ski", 0, limit))
    maps = {}
    for kind, m, given_seconds in peers:
        answer = fresh(peer, size, kind, m, given_seconds)
        if isinstance(answer, str):
            remarks.append(answer)
            print(answer, flush=True)
            continue
        row, field = answer
        rows.append(row)
        _say(row)
        if kind == "svgp":
            maps[m] = field
    text = table(rows, remarks)
    write_text_atomically(output / "elevation.md", text + "\n")
    print(text)
    if points in maps:
        draw(output, split, own_map, maps[points], own)
    for row in rows:
        row.pop("spectrum", None)
    return {"cells": cells, "rows": rows, "remarks": remarks}


def _say(row: Row) -> None:
    print(
        f"{row['model']}: {row['seconds']:.1f} s, RMSE {row['rmse']:.4f}, NLL {row['nll']:.4f}, "
        f"coverage {100 * row['coverage']:.1f} %, {row['memory'] / 1e9:.1f} GB {row.get('note', '')}",
        flush=True,
    )


def table(rows: list[Row], remarks: list[str]) -> str:
    """In Markdown."""
    head = "| model | seconds | steps | RMSE | NLL | coverage | by area: RMSE | NLL | coverage | memory, GB |\n"
    lines = [head + "|" + "---|" * 10]
    for r in rows:
        lines.append(
            f"| {r['model']} | {r['seconds']:.0f} | {r['steps']} | {r['rmse']:.4f} | {r['nll']:+.4f} | "
            f"{100 * r['coverage']:.1f} % | {r['rmse_by_area']:.4f} | {r['nll_by_area']:+.4f} | "
            f"{100 * r['coverage_by_area']:.1f} % | {r['memory'] / 1e9:.1f} |"
        )
    return "\n".join([*lines, "", *(f"- {remark}" for remark in remarks)])


def draw(output: Path, split: Split, own: Array, other: Array, row: Row) -> None:
    """The paper's figure: the data, SVGP and ours; and the zonal spectrum."""
    from harmonicgp.globe.maps import Panel, draw_maps, draw_spectrum

    lat, lon = coarse_axes(split)
    truth = coarse(split.heights, split)
    high = float(np.quantile(np.abs(truth), 0.995))
    panels = [
        Panel("Heights, standardised", truth, limits=(-high, high)),
        Panel("Ours", own, limits=(-high, high)),
        Panel("SVGP, trained as long", other, limits=(-high, high)),
        Panel("Error of ours", own - truth, limits=(-0.5, 0.5)),
        Panel("Error of SVGP", other - truth, limits=(-0.5, 0.5)),
    ]
    draw_maps(output / "elevation.png", lon, lat, panels, "The Earth from 72 % of its cells")
    draw_spectrum(
        output / "elevation-spectrum.png", np.array(row["spectrum"]), title="Power of the height by zonal frequency"
    )


if __name__ == "__main__":
    run("elevation", __doc__, experiment)
