"""A field's model in one file: hyper-parameters, means and sums over the rows, from which the covariance is made anew."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from harmonicgp.estimators.regressor import HarmonicGPRegressor
from harmonicgp.estimators.saving import pack, unpack
from harmonicgp.globe.cells import CellInputs, frame_from_state, frame_state
from harmonicgp.globe.closed_form import covariance
from harmonicgp.globe.data import MeanFunction, Source
from harmonicgp.globe.fields import FieldPosterior, Parallels
from harmonicgp.globe.grids import GridAxes
from harmonicgp.globe.learning import GlobeModel
from harmonicgp.globe.prediction import FieldPredictor
from harmonicgp.io.container import ModelFileError, read_container, write_container

KIND, FORMAT = "globe", 1
_PLAIN = (
    "notes_", "seconds_", "history_", "kernels_", "name_", "units_", "elbo_", "lengthscale_", "field_std_", "noise_std_",
    "n_inducing_", "t_max_", "kernel_", "n_features_", "residual_share_",
)  # fmt: skip


class SavedField:
    """`save` and `load` for fields."""

    def save(self: Any, path: str | Path) -> None:
        """Write the model to one file, whole or not at all. The covariance is made anew when it is loaded."""
        check_is_fitted(self, "_groups")
        arguments = self.get_params(deep=False)
        if not isinstance(arguments["mean"], str):
            arguments["mean"] = "constant"  # the field itself is among the tensors
        axes, source = self.axes_, self._source
        if self._cells is not None:
            self._save_cells(path, arguments)
            return
        header = {
            "arguments": arguments, "model": asdict(self.model_), "scale": self._scale, "order": self.order_,
            "mean": self._mean.kind, "by": self.by, "groups": [slices for slices, _ in self._groups],
            "source": None if source is None else source.state(),
            "plain": {name: getattr(self, name) for name in _PLAIN},
        }  # fmt: skip
        tensors = _mean_tensors(self._mean)
        if source is not None:
            tensors["source.latitudes"] = torch.from_numpy(np.ascontiguousarray(source.latitudes))
            tensors["source.longitudes"] = torch.from_numpy(np.ascontiguousarray(source.longitudes))
        if axes is not None:
            tensors["axes.latitudes"] = torch.from_numpy(np.ascontiguousarray(axes.latitudes))
            tensors["axes.longitudes"] = torch.from_numpy(np.ascontiguousarray(axes.longitudes))
        for k, (_, predictor) in enumerate(self._groups):
            tensors[f"{k}.mean"] = predictor.posterior.mean
            if predictor.posterior.draws is not None:
                tensors[f"{k}.draws"] = predictor.posterior.draws
            if self._sites:
                tensors[f"{k}.latitudes"], tensors[f"{k}.weights"] = self._sites[k]
            else:
                tensors[f"{k}.M"] = predictor.posterior.M
        write_container(Path(path), KIND, FORMAT, header, tensors)

    def _save_cells(self: Any, path: str | Path, arguments: dict[str, Any]) -> None:
        """A field with further inputs: the regressor of its cells, and how they are made."""
        inner, inner_tensors = pack(self.regressor_.to_file())
        frame, frame_tensors = frame_state(self._frame)
        header = {
            "arguments": arguments, "mean": self._mean.kind, "order": self.order_,
            "cells": {"dims": list(self._cells.dims), "covariates": list(self._cells.covariates),
                      "kinds": list(self._cells.kinds)},
            "regressor": inner, "frame": frame,
            "plain": {name: getattr(self, name) for name in ("notes_", "seconds_", "name_", "units_")},
        }  # fmt: skip
        tensors = _mean_tensors(self._mean) | {f"frame.{name}": value for name, value in frame_tensors.items()}
        tensors |= {f"regressor.{name}": value for name, value in inner_tensors.items()}
        tensors["axes.latitudes"] = torch.from_numpy(np.ascontiguousarray(self.axes_.latitudes))
        tensors["axes.longitudes"] = torch.from_numpy(np.ascontiguousarray(self.axes_.longitudes))
        write_container(Path(path), KIND, FORMAT, header, tensors)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The model of a file that `save` wrote."""
        container = read_container(Path(path), KIND, FORMAT)
        try:
            return cls._unpacked(container.header, container.tensors)
        except (KeyError, TypeError, IndexError, AttributeError, ValueError, RuntimeError) as error:
            reason = " ".join(f"{error!r}".split())
            raise ModelFileError(f"{path} is not a model that this version of harmonicgp can read: {reason}") from error

    @classmethod
    def _unpacked(cls, header: dict[str, Any], tensors: dict[str, Tensor]) -> Self:
        model: Any = cls(**header["arguments"])
        model._check_arguments()
        model.order_ = header["order"]
        given = [tensors[f"mean.{name}"].numpy() for name in ("rows", "columns", "values") if f"mean.{name}" in tensors]
        field = (given[0], given[1], given[2]) if given else None
        model._mean = MeanFunction(header["mean"], tensors["mean.coefficients"].numpy(), field)
        model.axes_ = None
        if "axes.latitudes" in tensors:
            model.axes_ = GridAxes(
                tensors["axes.latitudes"].numpy(), tensors["axes.longitudes"].numpy(), header["order"]
            )
        if "cells" in header:
            return cls._unpacked_cells(model, header, tensors)
        model._cells = model.regressor_ = model._frame = None
        for name in _PLAIN:
            setattr(model, name, header["plain"][name])
        model.model_ = GlobeModel(**header["model"])
        model._scale = float(header["scale"])
        model._source = None if header["source"] is None else Source.from_state(header["source"], tensors)
        features = model.model_.features()
        whitened = features.whiten()
        model._groups, model._sites = [], []
        parallels = None
        for k, slices in enumerate(header["groups"]):
            mean, draws = tensors[f"{k}.mean"], tensors.get(f"{k}.draws")
            if f"{k}.M" in tensors:
                M = tensors[f"{k}.M"]
            else:
                latitudes, weights = tensors[f"{k}.latitudes"], tensors[f"{k}.weights"]
                if parallels is None:
                    dtype = model._precision(model.model_, len(latitudes))
                    parallels = Parallels.of(whitened, latitudes, dtype)
                M, _ = covariance(parallels, weights.double(), parallels.A.dtype)
                model._sites.append((latitudes, weights))
            model._groups.append(([int(i) for i in slices], FieldPredictor(whitened, FieldPosterior(mean, M, draws))))
            shape = (model.model_.t_max + 1, model.model_.m)
            if (
                mean.shape[-2:] != shape
                or (draws is not None and draws.shape[1:] != (2, *shape))
                or len(mean) != len(slices)
            ):
                raise ValueError(f"a posterior of shape {tuple(mean.shape)}")
        _check_plausible(model, tensors, header["groups"])
        fitted: Self = model
        return fitted

    @classmethod
    def _unpacked_cells(cls, model: Any, header: dict[str, Any], tensors: dict[str, Tensor]) -> Self:
        for name in ("notes_", "seconds_", "name_", "units_"):
            setattr(model, name, header["plain"][name])
        cells = header["cells"]
        model._cells = CellInputs(*(tuple(map(str, cells[name])) for name in ("dims", "covariates", "kinds")))
        model.regressor_ = HarmonicGPRegressor.from_file(unpack(header["regressor"], _part(tensors, "regressor.")))
        model._frame = frame_from_state(header["frame"], _part(tensors, "frame."))
        model._groups, model._sites, model._source = [], [], None
        model._describe_cells()
        fitted: Self = model
        return fitted


def _check_plausible(model: Any, tensors: dict[str, Tensor], groups: list[list[int]]) -> None:
    """Numbers that are some, slices that are all there once, and a prediction that can be made."""
    bad = [name for name, tensor in tensors.items() if tensor.is_floating_point() and not torch.isfinite(tensor).all()]
    if bad:
        raise ValueError(f"{', '.join(bad)} hold what is no number")
    places = sorted(int(i) for slices in groups for i in slices)
    source = model._source
    if not places or places != list(range(len(places))) or (source is not None and len(source.slices) != len(places)):
        raise ValueError(f"slices {places}")
    scale, s2 = model._scale, model.model_.s2
    if not (math.isfinite(scale) and scale > 0 and s2 > 0 and float(model.noise_std_) > 0):
        raise ValueError(f"a scale of {scale}, a noise of {s2}")
    if model._mean.coefficients.shape != (4,) or (model._mean.kind == "field") != (model._mean.field is not None):
        raise ValueError("a mean function that is none")
    if source is not None and set(source.dims) != set(source.names):
        raise ValueError(f"dimensions {source.dims}")
    mean, variance = model._at_points(np.array([[0.0, model.model_.south]]), True)
    if not (np.isfinite(mean).all() and np.isfinite(variance).all()):
        raise ValueError("predictions that are no numbers")


def _mean_tensors(mean: MeanFunction) -> dict[str, Tensor]:
    tensors = {"mean.coefficients": torch.from_numpy(mean.coefficients)}
    for name, values in zip(("rows", "columns", "values"), mean.field or (), strict=False):
        tensors[f"mean.{name}"] = torch.from_numpy(np.ascontiguousarray(values))
    return tensors


def _part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
