from __future__ import annotations

import sys

import matplotlib
import matplotlib.image
import numpy as np
import pytest

from harmonicgp._extras import MissingExtraError
from harmonicgp.globe import maps
from harmonicgp.globe.maps import Panel, draw_maps, draw_spectrum
from harmonicgp.globe.relief import load_relief
from harmonicgp.io import drawing

LON, LAT = np.arange(-175.0, 180, 10), np.arange(-85.0, 90, 10)
SMOOTH = np.sin(np.deg2rad(LAT))[:, None] + np.cos(np.deg2rad(LON))[None]


def size(path):
    """Width and height in dots of what must be a PNG, and the only file in its folder."""
    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    height, width = matplotlib.image.imread(path).shape[:2]
    assert 300 <= width <= 2000
    assert 150 <= height <= 2000
    return width, height


def drawn(monkeypatch, path, *args, **kwargs):
    """The figure behind a picture."""
    figures, plain = [], drawing.require

    def spy(module, extra, purpose):
        found = plain(module, extra, purpose)
        if module != "matplotlib.figure":
            return found

        class Kept(found.Figure):
            def __init__(self, *a, **k):
                super().__init__(*a, **k)
                figures.append(self)

        return type("module", (), {"Figure": Kept})

    monkeypatch.setattr(drawing, "require", spy)
    draw_maps(path, *args, **kwargs)
    return figures[0]


@pytest.mark.parametrize("n", [1, 2, 3, 6])
def test_any_number_of_panels_has_a_sensible_size(tmp_path, n):
    panels = [Panel(f"Panel {i}", SMOOTH, "signed" if i % 2 else "positive", "K") for i in range(n)]
    path = tmp_path / "map.png"
    draw_maps(path, LON, LAT, panels, title="A title")
    width, height = size(path)
    assert width > height or n > 4


def test_panels_have_colour_bars_with_units_and_shared_limits(tmp_path, monkeypatch):
    panels = [Panel("a", SMOOTH, units="km", limits=(-1, 1)), Panel("b", 0.1 * SMOOTH, units="km", limits=(-1, 1))]
    figure = drawn(monkeypatch, tmp_path / "map.png", LON, LAT, panels)
    assert [ax.get_title() for ax in figure.axes] == ["a", "b"]
    for ax in figure.axes:
        assert ax.images[0].get_clim() == (-1, 1)
        (bar,) = ax.child_axes
        assert bar.get_ylabel() == "km"


@pytest.mark.parametrize(
    ("longitudes", "west"),
    [(np.arange(-180.0, 180, 10), -185), (np.arange(0.0, 360, 10), -185), (np.arange(5.0, 365, 10), -180)],
)
def test_a_whole_globe_starts_in_the_west_in_any_convention(tmp_path, monkeypatch, longitudes, west):
    values = np.broadcast_to(np.sin(np.deg2rad(longitudes)), (len(LAT), len(longitudes)))
    figure = drawn(monkeypatch, tmp_path / "map.png", longitudes, LAT[::-1], [Panel("", values)])
    (ax,) = figure.axes
    assert ax.get_xlim() == pytest.approx((west, west + 360))
    assert ax.get_ylim() == pytest.approx((-90, 90))
    centres = west + 5 + np.arange(0, 360, 10)
    np.testing.assert_allclose(ax.images[0].get_array()[0], np.sin(np.deg2rad(centres)), atol=1e-12)


def test_rows_are_drawn_northwards_whatever_their_order(tmp_path, monkeypatch):
    values = np.repeat(LAT[::-1, None], len(LON), 1)
    (ax,) = drawn(monkeypatch, tmp_path / "map.png", LON, LAT[::-1], [Panel("", values)]).axes
    np.testing.assert_array_equal(ax.images[0].get_array()[:, 0], LAT)


@pytest.mark.parametrize(
    ("longitudes", "limits"),
    [
        (np.arange(-10.0, 41), (-10.5, 40.5)),  # Europe
        (np.arange(-10.0, 41) % 360, (-10.5, 40.5)),
        ((np.arange(160.0, 201) + 180) % 360 - 180, (159.5, 200.5)),  # across the date line
    ],
)
def test_a_region_keeps_its_extent(tmp_path, monkeypatch, longitudes, limits):
    latitudes = np.arange(35.0, 71)
    values = np.zeros((len(latitudes), len(longitudes)))
    (ax,) = drawn(monkeypatch, tmp_path / "map.png", longitudes, latitudes, [Panel("", values)]).axes
    assert ax.get_xlim() == pytest.approx(limits)
    assert ax.get_ylim() == pytest.approx((34.5, 70.5))
    assert ax.get_box_aspect() == pytest.approx(36 / len(longitudes) / np.cos(np.deg2rad(52.5)))


def test_the_column_that_closes_the_circle_is_drawn_once(tmp_path, monkeypatch):
    longitudes = np.linspace(0, 360, 37)
    (ax,) = drawn(monkeypatch, tmp_path / "map.png", longitudes, LAT, [Panel("", np.zeros((len(LAT), 37)))]).axes
    assert ax.images[0].get_array().shape == (len(LAT), 36)


def test_missing_cells_are_grey_and_so_are_masked_ones(tmp_path, monkeypatch):
    holes = SMOOTH.copy()
    holes[:4] = np.nan
    holes[4, 0] = np.inf
    masked = np.ma.masked_array(SMOOTH, mask=~np.isfinite(holes))
    panels = [Panel("NaN", holes), Panel("mask", masked)]
    first, second = drawn(monkeypatch, tmp_path / "map.png", LON, LAT, panels).axes
    for ax in (first, second):
        assert np.ma.count_masked(ax.images[0].get_array()) == 4 * len(LON) + 1
        assert matplotlib.colors.to_hex(ax.get_facecolor()) == "#d3d7dc"
    assert first.images[0].get_clim() == second.images[0].get_clim()


@pytest.mark.parametrize("kind", ["signed", "positive"])
def test_constant_and_empty_panels_are_drawn(tmp_path, monkeypatch, kind):
    values = [0.0, -3.0, 1e-30, np.nan, True]
    panels = [Panel("constant", np.full((2, 3), value), kind) for value in values]
    axes = drawn(monkeypatch, tmp_path / "map.png", [0, 1, 2], [0, 1], panels).axes
    for ax, value in zip(axes, values, strict=True):
        low, high = ax.images[0].get_clim()
        assert low < high
        assert np.isnan(value) or low <= value <= high
    size(tmp_path / "map.png")


@pytest.mark.parametrize("value", [0.0, 3.0, -3.0, 1e-300, 1e300])
def test_limits_hold_all_but_the_extremes(value):
    for kind in ("signed", "positive"):
        for found in (np.full(9, value), np.r_[np.zeros(999), value], np.linspace(value, 2 * value, 9)):
            low, high = maps._limits(found, kind)
            assert low < high
            assert np.mean((found >= low) & (found <= high)) >= 0.75
    assert maps._limits(np.linspace(1, 10, 9), "positive")[0] == 0
    assert maps._limits(np.linspace(290, 310, 9), "positive")[0] > 289


@pytest.mark.parametrize(
    ("rows", "columns"), [([5], [7]), ([5], range(36)), (range(18), [7]), ([5, 6], [7, 8]), ([3], [0, 18])]
)
def test_thin_grids_are_drawn(tmp_path, rows, columns):
    rows, columns = list(rows), list(columns)
    draw_maps(tmp_path / "map.png", LON[columns], LAT[rows], [Panel("thin", SMOOTH[np.ix_(rows, columns)])])
    size(tmp_path / "map.png")


def test_a_row_at_the_pole_is_drawn(tmp_path):
    draw_maps(tmp_path / "map.png", LON, [90.0], [Panel("the pole", SMOOTH[:1])])
    size(tmp_path / "map.png")


def test_huge_grids_are_thinned_out(tmp_path, monkeypatch):
    longitudes, latitudes = np.arange(0, 360, 0.1, dtype=np.float32), np.linspace(-90, 90, 1801)
    values = np.broadcast_to(np.sin(np.deg2rad(latitudes))[:, None], (1801, 3600))
    (ax,) = drawn(monkeypatch, tmp_path / "map.png", longitudes, latitudes, [Panel("huge", values)]).axes
    rows, columns = ax.images[0].get_array().shape
    assert (rows, columns) == (601, 1800)
    assert np.diff(ax.get_xlim()) == pytest.approx(360)


def test_uneven_grids_are_drawn_at_their_places(tmp_path, monkeypatch):
    latitudes = np.array([-60.0, -10, 0, 5, 80])
    values = np.repeat(latitudes[:, None], len(LON), 1)
    (ax,) = drawn(monkeypatch, tmp_path / "map.png", LON, latitudes, [Panel("uneven", values)]).axes
    assert ax.get_ylim() == pytest.approx((-85, 90))  # half the next step beyond the last rows, not beyond the pole


def test_signed_colours_have_their_middle_at_zero(tmp_path, monkeypatch):
    panels = [Panel("", SMOOTH, limits=(-6, 6)), Panel("", SMOOTH, limits=(-6, 2)), Panel("", SMOOTH, limits=(-2, 6))]
    axes = drawn(monkeypatch, tmp_path / "map.png", LON, LAT, panels).axes
    middles = [ax.images[0].to_rgba(np.zeros((1, 1)))[0, 0] for ax in axes]
    np.testing.assert_allclose(middles[1:], [middles[0]] * 2, atol=0.02)


def test_extremes_beyond_the_colours_are_marked(tmp_path, monkeypatch):
    spike = SMOOTH.copy()
    spike[0, 0] = 1e6
    (ax,) = drawn(monkeypatch, tmp_path / "map.png", LON, LAT, [Panel("", spike)]).axes
    assert ax.images[0].get_clim()[1] < 3
    assert ax.images[0].colorbar.extend in ("max", "both")


def test_the_coast_is_where_the_relief_changes_sign(tmp_path, monkeypatch):
    relief = load_relief()
    (ax,) = drawn(monkeypatch, tmp_path / "map.png", *relief[:2], [Panel("Height", relief.height)]).axes
    (coast,) = (each for each in ax.collections if len(each.get_paths()[0].vertices) > 100)
    lon, lat = coast.get_paths()[0].vertices.T
    inside = (lon > -179) & (lon < 179)
    i, j = np.floor(lat[inside] + 89.5).astype(int), np.floor(lon[inside] + 179.5).astype(int)
    around = np.stack([relief.height[np.minimum(i + a, 179), j + b] for a in (0, 1) for b in (0, 1)])
    assert np.all((around.min(0) <= 0) & (around.max(0) >= 0))


def test_regions_without_coast_are_drawn(tmp_path):
    draw_maps(tmp_path / "map.png", [-140.0, -139], [-30.0, -29], [Panel("the open Pacific", np.eye(2))])
    size(tmp_path / "map.png")


def test_hostile_titles_are_only_letters(tmp_path):
    title = r"$\frac{$ & _co" + "温度\n\x00" * 40
    draw_maps(tmp_path / "map.png", LON, LAT, [Panel(title, SMOOTH, units=title)], title=title)
    size(tmp_path / "map.png")


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ((LON, LAT, []), "at least one panel"),
        ((LON, LAT, [Panel("a", SMOOTH.T)]), "transpose"),
        ((LON, LAT, [Panel("a", SMOOTH[0])]), "18 latitudes and 36 longitudes"),
        ((LON, LAT + 20, [Panel("a", SMOOTH)]), "latitude 95, beyond ±90 degrees"),
        ((np.full(36, np.nan), LAT, [Panel("a", SMOOTH)]), "finite"),
        ((SMOOTH, LAT, [Panel("a", SMOOTH)]), "finite numbers"),
        ((np.empty(0), LAT, [Panel("a", SMOOTH[:, :0])]), "finite numbers"),
        ((LON, np.zeros(18), [Panel("a", SMOOTH)]), "the latitude 0 twice"),
        ((np.r_[LON[:-1], LON[1]], LAT, [Panel("a", SMOOTH)]), "the longitude -165 twice"),
        ((np.zeros(36), LAT, [Panel("a", SMOOTH)]), "the longitude 0 twice"),
    ],
)
def test_bad_grids_are_refused_and_old_files_kept(tmp_path, args, message):
    path = tmp_path / "map.png"
    path.write_bytes(b"old")
    with pytest.raises(ValueError, match=message):
        draw_maps(path, *args)
    assert path.read_bytes() == b"old"


def test_bad_panels_are_refused():
    with pytest.raises(ValueError, match="one of signed, positive"):
        Panel("a", SMOOTH, "negative")
    for limits in ((1, 1), (2, 1), (0, np.inf), (np.nan, 1)):
        with pytest.raises(ValueError, match="lower one first"):
            Panel("a", SMOOTH, limits=limits)


@pytest.mark.parametrize(("n", "data"), [(1, False), (2, True), (13, True), (181, False), (9000, True)])
def test_spectra_are_drawn(tmp_path, n, data):
    power = 1 / np.arange(1.0, n + 1) ** 2
    draw_spectrum(tmp_path / "spectrum.png", power, 2 * power[: n // 2 + 1] if data else None, title="Power")
    assert size(tmp_path / "spectrum.png") == (935, 506)


@pytest.mark.parametrize(
    "power", [np.zeros(5), [1, 0, np.nan, np.inf, 2], np.exp(-np.arange(2000.0)), [np.nan], [0, 3]]
)
def test_odd_spectra_are_drawn(tmp_path, power):
    draw_spectrum(tmp_path / "spectrum.png", np.asarray(power), np.asarray(power))
    size(tmp_path / "spectrum.png")


@pytest.mark.parametrize(
    ("power", "message"), [([1, -1], "must not be negative"), ([], "one number for each"), ([[1.0]], "got shape")]
)
def test_bad_spectra_are_refused(tmp_path, power, message):
    with pytest.raises(ValueError, match=f"^power.*{message}"):
        draw_spectrum(tmp_path / "a.png", np.asarray(power))
    with pytest.raises(ValueError, match=f"^data_power.*{message}"):
        draw_spectrum(tmp_path / "a.png", np.ones(3), np.asarray(power))
    assert not list(tmp_path.iterdir())


def test_round_numbers_and_wavelengths():
    assert maps._round_numbers(0.85, 60) == [1, 2, 5, 10, 20, 50]
    assert maps._round_numbers(1, 1e6) == [10.0**e for e in range(7)]
    assert maps._degree_label(-120, "WE") == "120°W"
    assert maps._degree_label(7.5, "SN") == "7.5°N"
    assert maps._degree_label(-180, "WE") == "180°"


def test_settings_of_matplotlib_are_left_alone(tmp_path):
    before = dict(matplotlib.rcParams)
    draw_maps(tmp_path / "map.png", LON, LAT, [Panel("a", SMOOTH)])
    assert dict(matplotlib.rcParams) == before


def test_without_matplotlib_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.style", None)
    for draw in (
        lambda: draw_maps(tmp_path / "a.png", LON, LAT, [Panel("a", SMOOTH)]),
        lambda: draw_spectrum(tmp_path / "a.png", np.ones(3)),
    ):
        with pytest.raises(MissingExtraError, match=r"harmonicgp\[plot\]"):
            draw()
