"""One file for a fitted field: a JSON header and tensors."""

from __future__ import annotations

import math
from collections.abc import Mapping
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


#: The arguments of the estimator, its field, the axes of the fitted grid, and fitted attributes that are plain values.
FieldFile: TypeAlias = tuple[dict[str, Any], FittedField, GridAxes | None, dict[str, Any]]


def write_field(path: str | Path, saved: FieldFile) -> None:
    """Write a file, whole or not at all."""
    arguments, field, axes, attributes = saved
    header, tensors = field.state()
    if not isinstance(arguments["mean"], str):
        arguments = arguments | {"mean": "constant"}  # the field itself is among the tensors
    header |= {"arguments": arguments, "order": None if axes is None else axes.order, "plain": attributes}
    if axes is not None:
        for name in ("latitudes", "longitudes"):
            tensors[f"axes.{name}"] = torch.from_numpy(np.ascontiguousarray(getattr(axes, name)))
    write_container(Path(path), KIND, FORMAT, header, tensors)


def read_field(path: str | Path) -> FieldFile:
    """Read a file that `write_field` wrote."""
    container = read_container(Path(path), KIND, FORMAT)
    try:
        return _unpack(container.header, container.tensors)
    except (KeyError, TypeError, IndexError, AttributeError, ValueError, RuntimeError) as error:
        reason = " ".join(f"{error!r}".split())
        raise ModelFileError(f"{path} is not a model that this version of harmonicgp can read: {reason}") from error


def _unpack(header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> FieldFile:
    options, axes, plain = Options.of(header["arguments"]), None, dict(header["plain"])
    if "axes.latitudes" in tensors:
        latitudes, longitudes = (tensors[f"axes.{name}"].numpy() for name in ("latitudes", "longitudes"))
        axes = GridAxes(latitudes, longitudes, header["order"])
    if "cells" in header:
        return header["arguments"], FittedCells.from_state(header, tensors), axes, plain
    field = FittedMaps.from_state(header, tensors, options)
    if not math.isclose(float(plain["noise_std_"]), field.noise_std, rel_tol=1e-6):
        raise ValueError(f"a noise of {plain['noise_std_']} beside one of {field.noise_std}")
    return header["arguments"], field, axes, plain
