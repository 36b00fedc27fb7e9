"""netCDF files through the command line."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cli.common import complaint, run

xarray = pytest.importorskip("xarray", reason="the extra geo is not installed")
pytest.importorskip("netCDF4", reason="the extra geo is not installed")


@pytest.fixture
def files(tmp_path):
    lat, lon = np.arange(80.0, -90.0, -20.0), np.arange(0.0, 360.0, 20.0)
    values = np.sin(np.deg2rad(lat))[:, None] + np.cos(np.deg2rad(lon))
    values = values + 0.05 * np.random.default_rng(0).normal(size=values.shape)
    values[2:4, 3:6] = np.nan
    field = xarray.DataArray(values, {"lat": lat, "lon": lon}, ("lat", "lon"), attrs={"units": "K"})
    xarray.Dataset({"sst": field, "other": 0 * field}).to_netcdf(tmp_path / "sst.nc")
    xarray.Dataset(coords={"lat": np.linspace(-60, 60, 7), "lon": np.linspace(-30, 30, 5)}).to_netcdf(
        tmp_path / "grid.nc"
    )
    return tmp_path


def test_fit_and_predict(files):
    told = run("fit", files / "sst.nc", "--target", "sst", "-o", files / "sst.hgp", "--kernel", "rbf").stdout
    assert "on the held-out cells, RMSE" in told
    run("predict", files / "sst.hgp", files / "grid.nc", "-o", files / "out.nc")
    with xarray.open_dataset(files / "out.nc") as out:
        assert out.sst_mean.dims == ("lat", "lon")
        assert out.sst_mean.attrs["units"] == "K"
        truth = np.sin(np.deg2rad(out.lat)) + np.cos(np.deg2rad(out.lon))
        assert float(np.abs(out.sst_mean - truth).max()) < 0.3
        assert float(out.sst_std.min()) > 0
    run("predict", files / "sst.hgp", files / "sst.nc", "-o", files / "out.nc", "--latent", "-q")
    with xarray.open_dataset(files / "out.nc") as out:
        assert out.sst_mean.sizes == {"lat": 9, "lon": 18}
    assert not [path for path in files.iterdir() if path.name.startswith(".harmonicgp")]
    said = run("info", files / "sst.hgp").stdout
    assert "rbf, lengthscale" in said
    assert "file      holds no training cells" in said
    table = files / "table.csv"
    table.write_text("x,y\n1,2\n")
    assert "netCDF" in complaint("predict", files / "sst.hgp", table, "-o", files / "out.csv", code=2)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--target", "ssh"], "no variable 'ssh'"),
        (["--target", "sst", "--drop", "lon"], "takes no --drop"),
        (["--target", "sst", "--target", "other"], "one --target"),
        (["--target", "sst", "--by", "time"], "no dimension 'time'"),
        (["--target", "sst", "--kernel", "cubic"], "--kernel takes"),
        (["--target", "sst", "--t-max", "200"], "frequencies 0 to 9"),
    ],
)
def test_what_a_fit_refuses(files, arguments, words):
    code = 2 if words.startswith(("no variable", "takes", "one --target", "--kernel")) else 1
    assert words in complaint("fit", files / "sst.nc", "-o", files / "sst.hgp", *arguments, code=code)
    assert not (files / "sst.hgp").exists()


def test_what_a_prediction_refuses(files):
    (files / "bad.nc").write_bytes(b"no netCDF")
    assert "cannot be read" in complaint("fit", files / "bad.nc", "-t", "sst", "-o", files / "sst.hgp", code=1)
    run("fit", files / "sst.nc", "--target", "sst", "-o", files / "sst.hgp", "--kernel", "rbf", "-q")
    assert "end in .nc" in complaint("predict", files / "sst.hgp", files / "grid.nc", "-o", files / "out.csv", code=2)
    xarray.Dataset({"a": ("row", np.zeros(3))}).to_netcdf(files / "rows.nc")
    assert "latitude" in complaint("predict", files / "sst.hgp", files / "rows.nc", "-o", files / "out.nc", code=1)
    table = files / "table.csv"
    table.write_text("x,y\n1,2\n")
    assert "--by is for netCDF" in complaint("fit", table, "-t", "y", "-o", files / "m.hgp", "--by", "x", code=2)


def test_further_dimensions_and_covariates(files):
    rng = np.random.default_rng(1)
    with xarray.open_dataset(files / "sst.nc") as data:
        weeks = xarray.concat([data.sst, data.sst + 1.0], "week").assign_coords(week=[0, 1])
        depth = xarray.DataArray(rng.normal(size=(9, 18)), data.sst.coords, data.sst.dims)
        xarray.Dataset({"sst": weeks + depth, "depth": depth}).to_netcdf(files / "deep.nc")
    told = run("fit", files / "deep.nc", "-t", "sst", "-o", files / "deep.hgp", "--covariate", "depth").stdout
    assert "longitude, latitude, week, depth" in told
    said = run("info", files / "deep.hgp").stdout
    assert "longitude, latitude, week, depth" in said
    assert "file      holds the inputs of all training rows" in said
    run("predict", files / "deep.hgp", files / "deep.nc", "-o", files / "out.nc", "-q")
    with xarray.open_dataset(files / "out.nc") as out, xarray.open_dataset(files / "deep.nc") as data:
        assert out.sst_mean.dims == ("week", "lat", "lon")
        assert float(np.abs(out.sst_mean - data.sst).mean()) < 0.3
    table = files / "table.csv"
    table.write_text("x,y\n1,2\n")
    assert "--covariate is for netCDF" in complaint("fit", table, "-t", "y", "-o", "m.hgp", "--covariate", "x", code=2)
    words = complaint("fit", files / "deep.nc", "-t", "sst", "-o", "m.hgp", "--covariate", "dept", code=2)
    assert "no variable 'dept'" in words


def test_a_region_goes_the_way_of_the_plane(tmp_path):
    y, x = 30.0 * np.arange(20), 30.0 * np.arange(25)
    values = np.sin(y[:, None] / 150) + np.cos(x / 200) + 0.05 * np.random.default_rng(0).normal(size=(20, 25))
    values[5:9, 5:12] = np.nan
    field = xarray.DataArray(values, {"y": y, "x": x}, ("y", "x"), attrs={"units": "K"})
    for dim in "xy":
        field[dim].attrs["units"] = "m"
    field.to_dataset(name="t").to_netcdf(tmp_path / "scene.nc")
    told = run("fit", tmp_path / "scene.nc", "-t", "t", "-o", tmp_path / "m.hgp", "--kernel", "matern52").stdout
    assert "20 x 25 cells" in told
    assert "on the held-out cells, RMSE" in told
    run("predict", tmp_path / "m.hgp", tmp_path / "scene.nc", "-o", tmp_path / "out.nc")
    with xarray.open_dataset(tmp_path / "out.nc") as out:
        truth = np.sin(out.y / 150) + np.cos(out.x / 200)
        assert float(np.abs(out.t_mean - truth).max()) < 0.5
        assert float(out.t_std.min()) > 0
    assert "holds the data" in " ".join(run("info", tmp_path / "m.hgp").stdout.split())
