"""One file for a fitted field: a JSON header and tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from harmonicgp.globe.fitted_cells import FittedCells
from harmonicgp.globe.fitted_maps import FittedMaps
from harmonicgp.globe.grids import GridAxes
from harmonicgp.globe.options import Options
from harmonicgp.io.container import ModelFileError, read_container, write_container

KIND, FORMAT = "globe", 1

#: A field that predicts in the units of the data, without noise. A place goes back to the field that made it.
FittedField: TypeAlias = FittedMaps | FittedCells


@dataclass(frozen=True)
class SavedField:
    """All that a file holds."""

    arguments: dict[str, Any]  #: of the estimator
    field: FittedField
    axes: GridAxes | None  #: of the fitted grid
    attributes: dict[str, Any]  #: fitted attributes that are plain values


def write_field(path: str | Path, saved: SavedField) -> None:
    """Write a file, whole or not at all."""
    header, tensors = saved.field.state()
    arguments, axes = dict(saved.arguments), saved.axes
    if not isinstance(arguments["mean"], str):
        arguments["mean"] = "constant"  # the field itself is among the tensors
    header |= {"arguments": arguments, "order": None if axes is None else axes.order, "plain": saved.attributes}
    if axes is not None:
        for name in ("latitudes", "longitudes"):
            tensors[f"axes.{name}"] = torch.from_numpy(np.ascontiguousarray(getattr(axes, name)))
    write_container(Path(path), KIND, FORMAT, header, tensors)


def read_field(path: str | Path) -> SavedField:
    """Read a file that `write_field` wrote."""
    container = read_container(Path(path), KIND, FORMAT)
    try:
        return _unpack(container.header, container.tensors)
    except (KeyError, TypeError, IndexError, AttributeError, ValueError, RuntimeError) as error:
        reason = " ".join(f"{error!r}".split())
        raise ModelFileError(f"{path} is not a model that this version of harmonicgp can read: {reason}") from error


def _unpack(header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> SavedField:
    options, axes, plain = Options.of(header["arguments"]), None, dict(header["plain"])
    if "axes.latitudes" in tensors:
        latitudes, longitudes = (tensors[f"axes.{name}"].numpy() for name in ("latitudes", "longitudes"))
        axes = GridAxes(latitudes, longitudes, header["order"])
    if "cells" in header:
        return SavedField(header["arguments"], FittedCells.from_state(header, tensors), axes, plain)
    field = FittedMaps.from_state(header, tensors, options)
    if not math.isclose(float(plain["noise_std_"]), field.noise_std, rel_tol=1e-6):
        raise ValueError(f"a noise of {plain['noise_std_']} beside one of {field.noise_std}")
    return SavedField(header["arguments"], field, axes, plain)
