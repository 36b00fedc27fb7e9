"""Which symmetry a fit takes."""

from __future__ import annotations

import gpytorch
import numpy as np
import pytest

from harmonicgp import HarmonicGPRegressor
from harmonicgp.actions import Longitude, Negation, PrincipalNegation, Rotation, Translation
from harmonicgp.symmetry import selection
from harmonicgp.symmetry import settings as settings_module
from harmonicgp.symmetry.candidates import Candidate
from harmonicgp.symmetry.choice import SymmetryChoice
from harmonicgp.symmetry.selection import check_declared, choose_symmetry
from harmonicgp.tables.notices import UndeclaredColumnsError
from harmonicgp.tables.preprocessing import ColumnEncoding
from tests.symmetry.common import prepared


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (Translation(0, 24.0, 6), r"columns={0: \('periodic', 24.0\)}"),
        (Longitude(6), "columns={0: 'longitude', 1: 'latitude'}"),
    ],
)
def test_shifts_of_columns_that_are_not_declared_say_what_to_declare(action, words):
    X = np.random.default_rng(0).uniform(0, 24, size=(100, 2))
    with pytest.raises(ValueError, match=words):
        HarmonicGPRegressor(symmetry=action, progress=False).fit(X, X[:, 0])


def test_periods_that_differ_are_refused():
    X = np.random.default_rng(0).uniform(0, 24, (60, 2))
    gp = HarmonicGPRegressor(symmetry=Translation(0, 24.0, 6), columns={0: ("periodic", 12.0)}, progress=False)
    with pytest.raises(ValueError, match="declared"):
        gp.fit(X, X[:, 0])
    gp = HarmonicGPRegressor(symmetry=Longitude(12), columns={1: "longitude", 0: "latitude"}, progress=False)
    with pytest.raises(ValueError, match="declared"):
        gp.fit(X, X[:, 0])
    gp = HarmonicGPRegressor(symmetry=Rotation((0, 1), 1), progress=False)
    with pytest.raises(ValueError, match="moves nothing"):
        gp.fit(X, X[:, 0])


@pytest.mark.parametrize(
    ("arguments", "origin"),
    [({"symmetry": None}, "asked"), ({"symmetry": Negation([0])}, "asked"), ({}, "few rows")],
)
def test_where_a_choice_comes_from(arguments, origin):
    data, settings = prepared(**arguments)
    assert choose_symmetry(data, settings.columns_of(data), settings).origin == origin


def test_undeclared_columns_are_named_in_a_field():
    encoding = ColumnEncoding(None, ["column 0", "column 1"], {})
    with pytest.raises(UndeclaredColumnsError) as caught:
        check_declared(Translation(1, 24.0, 6), encoding)
    assert caught.value.kinds == {1: ("periodic", 24.0)}
    assert "--" not in str(caught.value)  # the library knows no command line
    check_declared(Translation(1, 24.0, 6), ColumnEncoding(None, ["column 0", "column 1"], {1: ("periodic", 24.0)}))


def test_what_is_asked_is_taken():
    data, settings = prepared(symmetry=Negation([0]), warp="quantile", posterior="joint")
    choice = choose_symmetry(data, settings.columns_of(data), settings)
    assert repr(choice.action) == repr(Negation([0]))
    assert choice.candidate == Candidate("raw", 0, True, "joint")
    data, settings = prepared(symmetry=PrincipalNegation(2))
    choice = choose_symmetry(data, settings.columns_of(data), settings)
    assert (choice.action, choice.candidate) == (None, Candidate("principal", 2, False, "block"))
    data, settings = prepared(symmetry=PrincipalNegation(3))  # of two columns
    with pytest.raises(ValueError, match="3"):
        choose_symmetry(data, settings.columns_of(data), settings)


def test_only_many_rows_and_a_kernel_by_name_are_searched(monkeypatch):
    def search(data, columns, settings):
        return SymmetryChoice(Candidate(), None, reason=f"searched {len(data)}")

    monkeypatch.setattr(selection, "search_symmetry", search)
    monkeypatch.setattr(settings_module, "SMALL", 30)
    kernel = gpytorch.kernels.RBFKernel()
    for n, arguments, reason in (
        (31, {}, "searched 31"),
        (30, {}, "30 rows are too few to gain from a symmetry"),
        (31, {"symmetry": None}, "as asked"),
        (31, {"symmetry": Negation([0])}, "as asked"),
        (31, {"kernel": kernel}, "a kernel of your own"),
    ):
        data, settings = prepared(n, **arguments)
        choice = choose_symmetry(data, settings.columns_of(data), settings)
        assert choice.reason == reason
        assert (choice.origin == "kernel") is ("kernel" in arguments)


def test_a_kernel_of_the_users_own_knows_its_columns():
    """Of an undeclared column the kernel may know more than its kind says: nothing is refused."""
    data, settings = prepared(symmetry=Translation(0, 24.0, 6), kernel=gpytorch.kernels.PeriodicKernel())
    assert repr(choose_symmetry(data, settings.columns_of(data), settings).action) == repr(Translation(0, 24.0, 6))
    data, settings = prepared(symmetry=Translation(0, 24.0, 6))
    with pytest.raises(UndeclaredColumnsError):
        choose_symmetry(data, settings.columns_of(data), settings)


def test_a_longitude_elsewhere_is_pointed_to():
    encoding = ColumnEncoding(None, list("abcd"), {2: "longitude", 3: "latitude"})
    check_declared(Longitude(6, axis=2), encoding)
    with pytest.raises(ValueError, match=r"give Longitude\(..., axis=2\)"):
        check_declared(Longitude(6), encoding)


def test_frames_are_told_names_and_arrays_numbers():
    for encoder, key in ((None, 1), (object(), "hour")):
        with pytest.raises(UndeclaredColumnsError, match="is periodic in hour") as caught:
            check_declared(Translation(1, 24.0, 6), ColumnEncoding(encoder, ["size", "hour"], {}))
        assert caught.value.kinds == {key: ("periodic", 24.0)}
