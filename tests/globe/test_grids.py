"""Grids of longitude and latitude: conventions, round trips, errors, and grids among scattered points."""

from __future__ import annotations

import pickle
import re
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harmonicgp._extras import MissingExtraError
from harmonicgp.globe.grids import axes_of, grid_from_points, read_grid, to_dataarray

xr = pytest.importorskip("xarray", reason="the extra geo is not installed")

LON, LAT = np.arange(0.0, 360.0, 30.0), np.arange(-75.0, 90.0, 30.0)
NORTH, EAST = {"units": "degrees_north"}, {"units": "degrees_east"}


def a_field(lon=LON, lat=LAT, dims=("lat", "lon"), seed=0, attrs=None, **extra):
    """Values that are a function of the place, so that all conventions hold the same field."""
    sizes = {"lat": np.asarray(lat), "lon": np.asarray(lon), **{k: np.asarray(v) for k, v in extra.items()}}
    data = xr.DataArray(0.0, coords=sizes, dims=list(sizes))
    data = data + np.sin(np.deg2rad(data.lon)) * data.lat + 7 * np.cos(np.deg2rad(data.lon))
    for number, name in enumerate(extra):
        data = data + (number + 2) * 100 * xr.DataArray(np.arange(len(extra[name])), dims=name)
    return data.transpose(*dims).assign_attrs(attrs or {}).rename("t")


def one_map(template):
    return template.with_slices(None, np.empty(0))


def in_order(grid):
    """Longitudes 0 to 360 rising, and the values at them."""
    phase = np.mod(np.round(grid.axes.longitudes, 6), 360)
    order = np.argsort(phase)
    return phase[order], grid.axes.latitudes, grid.values[..., order]


def same(left, right):
    for a, b in zip(in_order(left), in_order(right), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    assert left.axes.order == right.axes.order


# Reading -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "lon",
    [
        *(
            LON,
            LON - 180,
            LON[::-1],
            np.roll(LON, 6),
            np.roll(LON, 5)[::-1],
            LON - 360,
            LON.astype("f4"),
            LON.astype(int),
        ),
        *(np.append(LON, 360), np.arange(-180, 181, 30), np.append(np.roll(LON, 6), 180.0)),
    ],
)
@pytest.mark.parametrize("dims", [("lat", "lon"), ("lon", "lat")])
@pytest.mark.parametrize("lat", [LAT, LAT[::-1]])
def test_all_conventions_are_one_field(lon, lat, dims):
    field = a_field(lon, lat, dims)
    grid = read_grid(field)
    same(grid, read_grid(a_field()))
    assert (grid.axes.order, grid.name, grid.units, grid.template.extra) == (12, "t", None, ())
    assert len(grid.notes) == len(lon) - 12
    back = to_dataarray(grid.values, grid.template, "t")
    xr.testing.assert_allclose(back, field, atol=1e-12)
    assert back.dims == field.dims
    assert back.lon.dtype == field.lon.dtype


@given(
    shift=st.integers(0, 11),
    turn=st.integers(-2, 1),
    flips=st.tuples(st.booleans(), st.booleans()),
    closed=st.booleans(),
    order=st.permutations(["lat", "lon", "time", "depth"]),
    gaps=st.sets(st.integers(0, 5), max_size=5),
)
def test_rolled_and_flipped_grids_come_back(shift, turn, flips, closed, order, gaps):
    lon = np.roll(LON, shift) + 180 * turn
    lon = np.append(lon, lon[0]) if closed else lon
    field = a_field(lon[:: -1 if flips[0] else 1], LAT[:: -1 if flips[1] else 1], order, time=[0, 1], depth=[5, 10, 20])
    slices = xr.DataArray(np.arange(6).reshape(2, 3), dims=["time", "depth"])
    field = field.where(~slices.isin(sorted(gaps)) | (field.lon % 360 != 90)).transpose(*order)
    grid = read_grid(field)
    names = tuple(name for name in order if name in ("time", "depth"))
    assert grid.template.extra == names
    assert grid.values.shape == (6, 6, 12)
    assert np.isnan(grid.values).sum() == 6 * len(gaps)
    xr.testing.assert_allclose(to_dataarray(grid.values, grid.template), field)
    first = dict.fromkeys(names, 0)
    plain = to_dataarray(grid.values[:1], one_map(grid.template))
    xr.testing.assert_allclose(plain, field.isel(first, drop=True))
    assert plain.dims == field.isel(first).dims
    same(read_grid(field.isel(first).fillna(0)), read_grid(plain.fillna(0)))


@pytest.mark.parametrize("dtype", ["f4", "f8", "i2", "u1", "?", ">f8"])
def test_numbers_become_float64(dtype):
    field = (abs(a_field()) % 100).astype(dtype)
    grid = read_grid(field)
    assert grid.values.dtype == np.float64
    np.testing.assert_array_equal(grid.values[0], field.values)
    grid.values[:] = 0
    assert field.values.any()


def test_masks_are_missing_values():
    masked = np.ma.masked_greater(a_field().values, 50)
    grid = read_grid(xr.DataArray(masked, [("lat", LAT), ("lon", LON)]))
    np.testing.assert_array_equal(np.isnan(grid.values[0]), masked.mask)
    assert masked.mask.any()


def test_chunked_arrays_are_computed():
    pytest.importorskip(
        "dask.array", reason="dask is no part of any extra: arrays of it are computed where it is there"
    )
    field = a_field(lat=LAT[::-1], time=[0, 1], dims=("time", "lat", "lon"))
    same(read_grid(field.chunk({"lat": 2})), read_grid(field))


@pytest.mark.parametrize(
    ("names", "attrs"),
    [
        (("longitude", "latitude"), ({}, {})),
        (("LON", "Lat"), ({}, {})),
        (("x", "y"), (EAST, NORTH)),
        (("x", "y"), ({"units": "degree_E"}, {"units": "degreesN"})),
        (("a", "b"), ({"standard_name": "longitude"}, {"standard_name": "latitude"})),
        (("x", "y"), ({"axis": "X", "units": "degrees"}, {"axis": "Y", "units": "deg"})),
    ],
)
def test_coordinates_are_found(names, attrs):
    field = a_field().rename(lon=names[0], lat=names[1])
    for name, own in zip(names, attrs, strict=True):
        field[name].attrs.update(own)
    grid = read_grid(field)
    same(grid, read_grid(a_field()))
    assert (grid.template.longitude, grid.template.latitude) == names
    back = to_dataarray(grid.values, grid.template, "t")
    xr.testing.assert_identical(back, field)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_radians_are_converted_and_come_back(dtype):
    lon, lat = np.arange(-180, 181, 30.0), np.arange(-90, 91, 30.0)
    field = a_field(lon, lat)
    turned = field.assign_coords(
        lon=("lon", np.deg2rad(lon).astype(dtype), {"units": "radians"}),
        lat=("lat", np.deg2rad(lat).astype(dtype), {"units": "radian"}),
    )
    grid = read_grid(turned)
    same(grid, read_grid(field))
    assert np.abs(grid.axes.latitudes).max() <= 90
    xr.testing.assert_allclose(to_dataarray(grid.values, grid.template), turned)


def test_names_go_before_attributes_and_rotated_poles_are_no_longitudes():
    data = xr.Dataset(coords={"lat": LAT, "lon": LON, "slon": ("slon", LON + 15, EAST), "nv": [0, 1]})
    axes, template = axes_of(data)
    np.testing.assert_array_equal(axes.longitudes, LON)
    assert (template.frame.dims, set(template.frame.coords)) == (("lat", "lon"), {"lat", "lon"})
    rotated = a_field().rename(lon="rlon", lat="rlat")
    rotated.rlon.attrs.update(axis="X", units="degrees", standard_name="grid_longitude")
    rotated.rlat.attrs.update(axis="Y", units="degrees", standard_name="grid_latitude")
    with pytest.raises(ValueError, match="no coordinate of latitude"):
        read_grid(rotated)


def test_a_repeated_column_is_filled_from_both():
    field = a_field(np.arange(-180, 181, 30))
    expected = field.values[:, :-1].copy()
    field[2, 0], field[3, -1] = np.nan, np.nan
    grid = read_grid(field)
    np.testing.assert_allclose(grid.values[0], expected)
    assert grid.notes == ("the columns at lon = -180 and 180 are one meridian; the latter is left out.",)


def test_close_columns_are_two():
    grid = read_grid(a_field([0.0, 5e-5, 10.0, 20.0]))
    assert (len(grid.axes.longitudes), grid.axes.order, grid.notes) == (4, None, ())


def test_a_stacked_dimension_is_one_of_slices():
    field = a_field(dims=("a", "b", "lat", "lon"), a=[0, 1], b=[5, 6, 7]).stack(ab=("a", "b"))
    grid = read_grid(field)
    assert (grid.template.extra, grid.values.shape) == (("ab",), (6, 6, 12))
    xr.testing.assert_identical(to_dataarray(grid.values, grid.template, "t"), field)
    assert set(to_dataarray(grid.values[:1], one_map(grid.template)).coords) == {"lat", "lon"}


# Errors --------------------------------------------------------------------------------------------------------------


def changed(**cells):
    field = a_field()
    field[1, 2] = cells["to"]
    return field


def curvilinear():
    lon, lat = np.meshgrid(LON, LAT)
    return xr.DataArray(lon, dims=("j", "i"), coords={"lon": (("j", "i"), lon), "lat": (("j", "i"), lat)})


BAD = [
    (a_field().rename(lon="x"), "'t' has no coordinate of longitude; it has 'lat', 'x'.*'lon'.*degrees_east"),
    (a_field().drop_vars(["lon", "lat"]), "no coordinate of latitude; it has none"),
    (curvilinear(), "curvilinear.*cells as points"),
    (a_field(lat=[0.0, 120.0]), "latitude 120, beyond ±90 degrees: .*swapped"),
    (a_field(lon=np.arange(0.0, 400, 20)), "spans 380 degrees"),
    (a_field(lon=[0.0, np.nan, 20.0]), "'lon' .* nan at position 1"),
    (a_field(lat=[0.0, np.inf]), "'lat' .* inf at position 1"),
    (a_field(lon=[0.0, 10.0, 10.0, 20.0]), "longitude 10 twice"),
    (a_field(lon=[10.0, 20.0, 10.0]), "longitude 10 twice"),
    (a_field(lon=[-180.0, 0.0, 180.0, -180.0]), "twice"),
    (a_field(lat=[5.0, 0.0, 5.0]), "latitude 5 twice"),
    (a_field() * np.nan, "no value: all 72 cells"),
    (changed(to=np.inf), "1 infinite values"),
    (a_field(lon=[]), "'lon' .* is empty"),
    (a_field().isel(lon=0), "'lon' .* is one number.*expand_dims"),
    (a_field().stack(z=("lat", "lon")), "both run over 'z'.*unstack"),
    (a_field().rename(lon="x").assign_coords(lon=("x", LON)).drop_vars("x"), r"swap_dims\(\{'x': 'lon'\}\)"),
    (a_field(attrs={"_FillValue": -9.0}).where(lambda field: field.lon > 0, -9.0), "6 values of -9.0, its _FillValue"),
    (a_field().assign_coords(lon=("lon", LON, {"units": "km"})), "in 'km'"),
    (a_field(lon=[-180.0, 0.0, 180.0]) + xr.DataArray([0, 0, 1], dims="lon"), "lon = -180 and 180.*differ by up to 1"),
    (
        a_field(dims=("lat", "lon", "x2"), x2=LON).assign_coords(x2=("x2", LON, EAST)).rename(lon="x1")
        .assign_coords(x1=("x1", LON, EAST)),
        "several coordinates of longitude: 'x2', 'x1'",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("field", "message"), BAD, ids=range(len(BAD)))
def test_bad_fields_say_what_is_wrong(field, message):
    with pytest.raises(ValueError, match=f"(?s){message}"):
        read_grid(field)


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (a_field() * 1j, "complex128"),
        (a_field().astype(str), "real numbers"),
        (a_field().astype(object), "object"),
        (a_field().astype("M8[ns]"), "datetime64"),
        (a_field().astype("m8[ns]"), "timedelta64"),
        (a_field().to_dataset(), "one variable; choose one of the dataset: 't'"),
        (a_field().values, "xarray.DataArray; got ndarray"),
        (a_field().assign_coords(lon=[str(x) for x in LON]), "'lon' .* must be real numbers"),
    ],
)
def test_values_that_are_no_numbers(field, message):
    with pytest.raises(TypeError, match=message):
        read_grid(field)


def test_xarray_is_asked_for(monkeypatch):
    monkeypatch.setitem(sys.modules, "xarray", None)
    with pytest.raises(MissingExtraError, match=re.escape("harmonicgp[geo]")):
        axes_of((LON, LAT))


# Grids for results ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "grid",
    [
        (LON - 180, LAT[::-1]),
        (list(LON - 180), tuple(LAT[::-1])),
        {"lon": LON - 180, "lat": LAT[::-1]},
        {"lat": LAT[::-1], "lon": xr.DataArray(np.deg2rad(LON - 180), dims="lon", attrs={"units": "radians"})},
        a_field(LON - 180, LAT[::-1]).drop_attrs(),
        a_field(LON - 180, LAT[::-1]).to_dataset(),
    ],
)
def test_axes_of_whatever_says_where(grid):
    axes, template = axes_of(grid)
    np.testing.assert_array_equal(axes.latitudes, LAT)
    np.testing.assert_allclose(axes.longitudes, LON - 180, atol=1e-12)
    assert axes.order == 12
    result = to_dataarray(np.outer(LAT, np.ones(12)), template, "height", "m", "height above the sea")
    assert result.dims == ("lat", "lon")
    np.testing.assert_array_equal(result.values[:, 3], LAT[::-1])
    assert (result.name, result.attrs) == ("height", {"units": "m", "long_name": "height above the sea"})


@pytest.mark.parametrize(
    ("grid", "error", "message"),
    [
        ((LAT, LON), ValueError, "swapped"),
        (tuple(np.meshgrid(LON, LAT)), ValueError, "not a mesh of them"),
        ((LON, 3.0), ValueError, "one-dimensional"),
        ({"x": LON, "y": LAT}, ValueError, "no coordinate of latitude; it has 'x', 'y'"),
        ((LON, LAT, LAT), TypeError, "got tuple"),
        (LON, TypeError, "got ndarray"),
        ((LON, np.ma.masked_equal(LAT, 15.0)), ValueError, "nan at position 3"),
    ],
)
def test_bad_grids(grid, error, message):
    with pytest.raises(error, match=message):
        axes_of(grid)


def test_results_look_like_their_template():
    field = a_field(lat=LAT[::-1], dims=("lon", "time", "lat"), time=np.array(["2020-01", "2020-03"], "M8[ns]"))
    field = field.assign_coords(land=(("lat", "lon"), np.ones((6, 12), bool)), run=3, month=("time", [1, 3]))
    field.lon.attrs.update(EAST)
    field.attrs = {"units": "K", "standard_name": "air_temperature", "valid_max": 400, "source": "a model"}
    grid = pickle.loads(pickle.dumps(read_grid(field)))
    assert (grid.units, grid.template.extra, grid.template.extra_shape) == ("K", ("time",), (2,))
    back = to_dataarray(grid.values, grid.template, "t", "K")
    assert back.attrs == {"units": "K", "source": "a model"}
    xr.testing.assert_identical(back.assign_attrs(field.attrs), field)
    plain = to_dataarray(grid.values[0].astype("f4"), one_map(grid.template))
    assert (plain.dims, set(plain.coords), plain.dtype) == (("lon", "lat"), {"lat", "lon", "land", "run"}, np.float32)
    np.testing.assert_allclose(plain.values, field.isel(time=0).values, rtol=1e-6)
    with pytest.raises(ValueError, match="cannot reshape"):
        to_dataarray(grid.values[:1], grid.template)


def test_slices_may_keep_their_dimensions():
    field = a_field(dims=("depth", "lat", "time", "lon"), time=[0, 1], depth=[5, 10, 20]).drop_vars("depth")
    grid = read_grid(field)
    assert grid.template.extra == ("depth", "time")
    for shape in ((6, 6, 12), (3, 2, 6, 12)):
        xr.testing.assert_equal(to_dataarray(grid.values.reshape(shape), grid.template), field)


# Points --------------------------------------------------------------------------------------------------------------


@given(
    shape=st.tuples(st.integers(1, 9), st.integers(2, 12)),
    share=st.floats(0.3, 1),
    seed=st.integers(0, 99),
    origin=st.sampled_from([-180.0, 0.0, 170.0]),
)
def test_shuffled_points_with_holes_are_a_grid(shape, share, seed, origin):
    rng = np.random.default_rng(seed)
    rows, columns = shape
    latitudes, longitudes = np.sort(rng.uniform(-90, 90, rows)), origin + np.arange(columns) * 7.5
    values = np.where(rng.random(shape) < share, rng.normal(size=shape), np.nan)
    values[0, :2], values[:, 0] = 1.0, 2.0
    values[rows - 1] = 3.0
    i, j = rng.permutation(np.argwhere(np.isfinite(values))).T
    noise = rng.random(len(i))
    lat = latitudes[i] + rng.uniform(0, 1e-10, len(i))
    lon = longitudes[j] - 360.0 * (rng.random(len(i)) < 0.5)  # conventions mixed
    grid = grid_from_points(lon, lat, values[i, j], noise)
    assert grid.axes.order == 48
    np.testing.assert_allclose(grid.axes.latitudes, latitudes, atol=1e-9)
    order = np.argsort(np.mod(grid.axes.longitudes - origin, 360))
    np.testing.assert_allclose(np.mod(grid.axes.longitudes - origin, 360)[order], longitudes - origin)
    assert (np.diff(grid.axes.longitudes) > 0).all()
    np.testing.assert_array_equal(grid.values[0][:, order], values)
    np.testing.assert_array_equal(grid.noise[0][:, order][i, j], noise)
    assert grid.template is None


def points(n=60, seed=0):
    rng = np.random.default_rng(seed)
    cells = rng.permutation(120)[:n]
    return LON[cells % 12], -40.0 + cells // 12, rng.normal(size=n)


@pytest.mark.parametrize(
    "change",
    [
        lambda lon, lat, y: (np.append(lon, lon[0]), np.append(lat, lat[0]), np.append(y, 1)),
        lambda lon, lat, y: (np.append(lon, lon[0] + 360), np.append(lat, lat[0]), np.append(y, 1)),
        lambda lon, lat, y: (lon + np.arange(len(y)) ** 2 * 0.0371, lat, y),
        lambda lon, lat, y: (lon, lat * 4, y),
        lambda lon, lat, y: (0 * lon, lat, y),
        lambda lon, lat, y: (lon * np.nan, lat, y),
        lambda lon, lat, y: (np.arange(60) % 60, np.arange(60.0), y),  # a diagonal: 1 cell in 60
        lambda lon, lat, y: (lon[:0], lat[:0], y[:0]),
    ],
)
def test_points_that_are_no_grid(change):
    assert grid_from_points(*points()) is not None
    assert grid_from_points(*change(*points())) is None
