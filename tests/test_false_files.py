"""Changed model files of every estimator: refused, or read with finite predictions, in little time; nothing else happens."""

from __future__ import annotations

import copy
import math
import time
import warnings

import numpy as np
import pytest
import torch

from harmonicgp import HarmonicGPClassifier, HarmonicGPGlobe, HarmonicGPRegressor, load_model
from harmonicgp.actions import Negation
from harmonicgp.io.container import ModelFileError, kind_of, read_container, write_container

VALUES = [
    math.nan,
    math.inf,
    -math.inf,
    -1.0,
    0.0,
    1e300,
    -1e300,
    1e-300,
    1e12,
    10**18,
    -3,
    2,
    None,
    "x",
    [],
    {},
    True,
    [1],
]
NUMBERS = [math.nan, math.inf, -1.0, 0.0, 1e30, -1e30, 1e-30, 1e8, -1e8]
SECONDS = 10  # that a load and a prediction may take at most


def made():
    """A fitted model of every kind, with inputs to predict at."""
    g = np.random.default_rng(0)
    X = g.normal(size=(60, 3))
    y, quick = np.sin(X[:, 0]) + 0.1 * g.normal(size=60), {"progress": False, "max_steps": 3}
    many = g.normal(size=(2050, 3))
    classes = np.digitize(y, [-0.5, 0.5]).astype(str)
    few = {"n_inducing": 8, **quick}
    yield "exact", HarmonicGPRegressor(**quick).fit(X, y), X[:7]
    quantile = {"symmetry": Negation([[0]]), "target_transform": "quantile", "warp": "quantile"}
    yield "quantile", HarmonicGPRegressor(**few, **quantile).fit(np.exp(X), y), np.exp(X[:7])
    yield "log", HarmonicGPRegressor(**quick, target_transform="log").fit(X, np.exp(y)), X[:7]
    yield "student", HarmonicGPRegressor(**few, likelihood="student_t").fit(X, y), X[:7]
    yield "calibrated", HarmonicGPRegressor(**few, calibration="conformal").fit(many[:260], many[:260, 0]), X[:7]
    yield "two classes", HarmonicGPClassifier(**few).fit(X, y > 0), X[:7]
    yield "classes", HarmonicGPClassifier(**few).fit(X, classes), X[:7]
    neighbours = HarmonicGPRegressor(**few, neighbours=6, symmetry=None)
    yield "neighbours", neighbours.fit(many, many[:, 0] + 0.1 * g.normal(size=2050)), X[:7]
    pa = pytest.importorskip("pyarrow")
    table = pa.table(
        {"a": [None, *X[1:, 0]], "b": X[:, 1], "k": [*"uvw"] * 20, "d": [f"2020-03-{1 + i % 28:02}" for i in range(60)]}
    )
    frame = HarmonicGPRegressor(**quick, missing="impute", columns={"b": ("periodic", 3.0)})
    yield "table", frame.fit(table, y), table.slice(0, 7)
    lon, lat = (part.reshape(-1) for part in np.meshgrid(np.arange(-180, 180, 20.0), np.arange(-80, 81, 20.0)))
    field = np.cos(np.deg2rad(lat)) * np.cos(np.deg2rad(lon)) + 0.1 * g.normal(size=len(lon))
    maps = HarmonicGPGlobe(progress=False, n_inducing=5, t_max=4, max_evaluations=3, neighbours=0)
    places = np.stack((lon, lat), 1)
    yield "maps", maps.fit(places, field), (np.arange(-180, 180, 90.0), np.array([-40.0, 10.0]))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    originals = {}
    for name, model, X in made():
        model.save(folder / name)
        originals[name] = (folder / name, X)
    return originals


def said(model, X):
    """What a model says of inputs."""
    if isinstance(model, HarmonicGPClassifier):
        return [model.predict_proba(X)]
    values = [*model.predict(X, return_std=True)]
    if isinstance(model, HarmonicGPRegressor):
        values += [*model.predict_f(X, return_std=True), model.predict_quantiles(X, (0.1, 0.9))]
        assert model.beyond(X).keys() <= {*model.encoded_names_}
        assert sum(model.timings_.values()) > -math.inf
        assert str(model.symmetry_)
    return [np.asarray(value) for value in values]


def outcome(path, X):
    """Refused or read; anything else fails. What is read predicts finite numbers."""
    start = time.monotonic()
    try:
        with warnings.catch_warnings(action="ignore"):
            values = said(load_model(path), X)
    except ModelFileError as error:
        values, lines = None, str(error).count("\n")
        assert lines == 0
    assert time.monotonic() - start < SECONDS
    assert values is None or all(np.isfinite(value).all() for value in values)
    return values


def places_of(value, path=()):
    """The places of all values in a header, lists up to their fifth item."""
    if path:
        yield path
    for key in value if isinstance(value, dict) else range(min(len(value), 5)) if isinstance(value, list) else ():
        yield from places_of(value[key], (*path, key))


def change_header(header, g):
    """Replace or delete one value. Returns where."""
    places = list(places_of(header))
    *parents, last = places[g.integers(len(places))]
    holder = header
    for key in parents:
        holder = holder[key]
    if isinstance(holder, dict) and g.random() < 0.15:
        del holder[last]
    elif type(holder[last]) in (int, float) and g.random() < 0.3:
        holder[last] *= float(g.choice([-1, 1e3, 1e-3, 1e10]))
    else:
        holder[last] = VALUES[g.integers(len(VALUES))]
    return (*parents, last)


def change_tensor(tensors, g):
    """Change values, shape or dtype of one tensor. Returns its name."""
    name = list(tensors)[g.integers(len(tensors))]
    x = tensors[name].clone()
    kind, value = g.random(), NUMBERS[g.integers(len(NUMBERS))]
    if kind < 0.15 or not x.numel():
        x = x.reshape(-1)[:-1]
    elif kind < 0.25:
        x = x[None]
    elif kind < 0.32:
        x = x.long() if x.dtype == torch.float64 else x.double()
    elif x.is_floating_point() and g.random() < 0.3:
        x.fill_(value)
    else:
        x.view(-1)[g.integers(x.numel())] = value if x.is_floating_point() else -5
    tensors[name] = x
    return name


@pytest.mark.parametrize("count", [20, pytest.param(500, marks=pytest.mark.slow)])
def test_changes_of_the_content_with_the_checks_made_right_again(files, tmp_path, count):
    g, refused = np.random.default_rng(count), 0
    for path, X in files.values():
        kind = kind_of(path)
        container = read_container(path, kind, newest=99)
        for _ in range(count):
            header, tensors = copy.deepcopy(container.header), dict(container.tensors)
            where = change_header(header, g) if g.random() < 0.5 else change_tensor(tensors, g)
            write_container(tmp_path / "changed", kind, container.version, header, tensors)
            try:
                refused += outcome(tmp_path / "changed", X) is None
            except Exception as error:
                error.add_note(f"{path.name}: {where}")
                raise
    assert 0.3 * count * len(files) < refused < 0.95 * count * len(files)


@pytest.mark.parametrize("count", [20, pytest.param(500, marks=pytest.mark.slow)])
def test_changes_of_bytes(files, tmp_path, count):
    g = np.random.default_rng(count)
    for path, X in files.values():
        whole, before = path.read_bytes(), outcome(path, X)
        for _ in range(count):
            changed = bytearray(whole)
            for place in g.integers(len(whole), size=g.integers(1, 4)):
                changed[place] = g.integers(256)
            if g.random() < 0.2:
                del changed[g.integers(len(whole)) :]
            (tmp_path / "changed").write_bytes(changed)
            after = outcome(tmp_path / "changed", X)
            assert after is None or all(map(np.array_equal, after, before)), path.name
