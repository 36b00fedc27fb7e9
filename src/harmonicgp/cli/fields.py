"""Fields in a region or on the globe: `fit` and `predict` for netCDF files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from harmonicgp._extras import require
from harmonicgp.backend.files import replacing_path
from harmonicgp.cli.failures import UsageError
from harmonicgp.cli.words import Speaker, count, did_you_mean, listing, say_rows

SUFFIXES = (".nc", ".nc4", ".cdf")
#: Options that only `HarmonicGPGlobe` has.
_OF_GLOBE = ("n_inducing", "neighbours", "t_max")


def is_field(path: Path) -> bool:
    """Whether a file is a netCDF file, by its name."""
    return path.suffix.lower() in SUFFIXES


def open_dataset(path: Path) -> Any:
    """The dataset of a netCDF file, loaded into memory."""
    xarray = require("xarray", "geo", "reading netCDF files")
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}.")
    try:
        with xarray.open_dataset(path) as data:
            return data.load()
    except (ValueError, OSError) as error:
        raise ValueError(f"{path.name} cannot be read as netCDF: {error}") from error


def fit_field(
    path: Path, targets: list[str], options: dict[str, Any], output: Path, test_fraction: float, seed: int, say: Speaker
) -> None:
    """Fit a variable of a netCDF file, with or without covariates, save the model, and score it on held-out cells."""
    import numpy as np

    from harmonicgp.globe.estimator import HarmonicGPGlobe
    from harmonicgp.planes.estimator import HarmonicGPField

    if len(targets) > 1:
        raise UsageError("a fit of a netCDF file takes one --target, a variable.")
    target, data = targets[0], open_dataset(path)
    variables = list(dict.fromkeys([target, *options.pop("covariate", [])]))
    present = [str(key) for key in data.data_vars]
    for name in variables:
        if name not in present:
            hint = did_you_mean(name, present)
            raise UsageError(f"{path.name} has no variable {name!r}{hint}; it has {listing(present)}.")
    data = data[variables]
    of_globe = not {*options}.isdisjoint(_OF_GLOBE)
    model: Any = (HarmonicGPGlobe if of_globe else HarmonicGPField)(**options, random_state=seed, progress=say.progress)
    is_held_out = np.random.default_rng(seed).random(data[target].shape) < test_fraction
    is_cell = np.isfinite(np.asarray(data[target].values, dtype=float))
    n_test = int((is_cell & is_held_out).sum())
    say("cells", f"{int((is_cell & ~is_held_out).sum()):,} for the fit, {n_test:,} held out")
    model.fit(data.assign({target: data[target].where(~is_held_out)}), target)
    say("fitted", f"in {model.seconds_:.0f} s")
    say_field(model, say)
    model.save(output)
    say("model", str(output))
    if n_test:
        scores = model.scores(data.assign({target: data[target].where(is_held_out)}))
        say("scores", f"on the held-out cells, RMSE {scores['rmse']:.4g}, NLL {scores['nll']:.4g}, "
            f"{100 * scores['coverage']:.1f} % within the 95 % error bars")  # fmt: skip


def say_field(model: Any, say: Speaker) -> None:
    """Print the parts of a fitted field."""
    if getattr(model, "globe_", None) is not None:
        model = model.globe_
    units = f" ({model.units_})" if model.units_ else ""
    say("field", f"{model.name_ or 'without a name'}{units}")
    if hasattr(model, "way_"):
        _say_plane(model, say)
        return
    if model.axes_ is not None:
        lat, lon = model.axes_.latitudes, model.axes_.longitudes
        axes = ((lat, "latitude"), (lon, "longitude"))
        grid = ", ".join(f"{count(len(a), name)} from {a.min():g} to {a.max():g}" for a, name in axes)
        say("grid", grid + (f", {count(len(model.slices_), 'slice')} by {model.by}" if model.by else ""))
    if model.regressor_ is not None:
        size = f"{count(model.n_inducing_, 'inducing point')}, {model.regressor_.symmetry_.name}"
        say("inputs", listing(model.inputs_))
        say("kernel", f"{model.kernel_}, noise {model.noise_std_:.4g}; {size}")
        say_rows(model.regressor_, say)
    else:
        size = f"{count(model.n_inducing_, 'latitude')}, frequencies to {model.t_max_}"
        lengthscale = f"lengthscale {model.lengthscale_:.4g} Earth radii"
        say("kernel", f"{model.kernel_}, {lengthscale}, noise {model.noise_std_:.4g}; {size}")
        say("file", "holds no training cells, only coefficients of waves")
    for note in model.notes_:
        say("note", note)


def _say_plane(model: Any, say: Speaker) -> None:
    """Print the parts of a field in a region."""
    fitted = model.field_
    shape = fitted.field.data.places.shape
    n = fitted.field.data.places.X.shape[0]
    slices = f", {count(len(fitted.field.data.y), 'slice')} by {model.by}" if model.by else ""
    say("grid", (f"{' x '.join(map(str, shape))} cells" if shape else count(n, "point")) + slices)
    pairs = zip((model.lengthscale_ or {}).items(), fitted.plane.units, strict=False)
    scales = ", ".join(f"{name} {value:.4g} {units}".rstrip() for (name, value), units in pairs)
    say("kernel", f"{model.kernel_}, lengthscales {scales or 'of its own'}, noise {model.noise_std_:.4g}")
    say("file", "holds the data: predictions need them")
    for note in model.notes_:
        say("note", note)


def predict_field(model: Path, path: Path, output: Path, latent: bool, say: Speaker) -> None:
    """Predict a field on the grid of a netCDF file, and write it to another one."""
    from harmonicgp.cli.models import load_any

    if not is_field(output):
        raise UsageError(f"predictions of a field go to a netCDF file; {output.name} does not end in .nc.")
    fitted = load_any(model)
    if hasattr(fitted, "predict_components"):
        raise UsageError(f"{model.name} is a model of a table: it predicts tables, not netCDF files.")
    call = fitted.predict_f if latent else fitted.predict
    mean, std = call(open_dataset(path), return_std=True)
    name = fitted.name_ or "value"
    data = mean.rename(f"{name}_mean").to_dataset()
    data[f"{name}_std"] = std.rename(f"{name}_std")
    require("netCDF4", "geo", "writing netCDF files")
    with replacing_path(output) as temporary:
        data.to_netcdf(temporary, engine="netcdf4")
    say("predicted", f"{count(int(mean.size), 'cell')}: {name}_mean, {name}_std")
    say("written", str(output))
