"""Which symmetry a fit takes."""

from __future__ import annotations

import numpy as np
import pytest

from harmonicgp import HarmonicGPRegressor
from harmonicgp.actions import Longitude, Negation, Rotation, Translation
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
