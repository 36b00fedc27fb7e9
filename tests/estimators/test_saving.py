"""Model files: what is loaded predicts as what was saved, bit for bit; what is not a model is refused in one line.

`python -m tests.estimators.test_saving` wrote `model-v1.hgp`. A format that was released is never written again: a new
version gets a file and a test of its own beside it.
"""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path

import gpytorch.kernels as gk
import numpy as np
import pytest
import torch

from harmonicgp import HarmonicGPClassifier, HarmonicGPRegressor, load_model
from harmonicgp.actions import Negation, PrincipalNegation, Rotation
from harmonicgp.estimators.saving import FORMAT
from harmonicgp.io.container import ModelFileError, read_container, write_container
from tests.estimators.common import assert_same, classifier, labels, outputs, regressor, table

HERE = Path(__file__).parent


def periodic_kernel():
    kernel = gk.ScaleKernel(gk.MaternKernel(nu=2.5, active_dims=[0, 1])) + gk.PeriodicKernel(active_dims=[2])
    kernel.kernels[1].period_length = 12.0
    return kernel


OPTIONS = {
    "default": {},
    "one block": {"symmetry": None, "n_inducing": 8},
    "blocks": {"symmetry": Negation([[0], [1]]), "n_inducing": 6},
    "pairs": {"symmetry": Rotation((0, 1), 3), "n_inducing": 6, "kernel": "rbf"},
    "separate": {"symmetry": Rotation((0, 1), 4), "n_inducing": 6, "share_inducing": False, "resolution": "real"},
    "principal": {"symmetry": PrincipalNegation(2), "posterior": "joint", "n_inducing": 6},
    "joint": {"symmetry": Negation([0]), "posterior": "joint", "n_inducing": 6, "bound": "elbo"},
    "many": {"symmetry": Negation([0]), "posterior": "block", "n_inducing": 140},  # factorised by compiled LAPACK calls
    "student": {"likelihood": "student_t", "n_inducing": 10},
    "log": {"target_transform": "log"},
    "quantile": {"target_transform": "quantile", "warp": "quantile"},
    "conformal": {"calibration": "conformal", "n_inducing": 10},
    "float32": {"dtype": "float32"},
    "periodic": {"columns": {2: ("periodic", 24.0), 0: ["periodic", 7]}},
    "globe": {"columns": {np.int64(0): "longitude", 1: "latitude"}},
    "image": {"columns": ("image", (1, 3))},
    "kernel": {"kernel": periodic_kernel()},
    "numbers": {"n_inducing": np.int64(9), "learning_rate": np.float64(0.03), "random_state": np.random.RandomState(2)},
}


def data(name):
    X, y = table({"conformal": 240, "many": 300}.get(name, 40))
    if name == "globe":
        X[:, 1] = np.linspace(-80, 80, len(X))
    return X, y


def saved(model, path):
    model.save(path)
    return type(model).load(path)


@pytest.mark.parametrize("default", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("name", OPTIONS)
def test_predictions_are_equal_bit_for_bit(name, default, tmp_path):
    X, y = data(name)
    torch.set_default_dtype(default)  # that of the process that fits
    gp = regressor(**OPTIONS[name]).fit(X, y)
    gp.save(tmp_path / "a.hgp")
    torch.set_default_dtype(torch.float32 if default == torch.float64 else torch.float64)  # and of one that loads
    again = HarmonicGPRegressor.load(tmp_path / "a.hgp")
    assert_same(outputs(again, X, y), outputs(gp, X, y))
    said, expected = again.predict_components(X), gp.predict_components(X)
    assert said.labels == expected.labels
    assert_same([said.mean, said.std, said.residual_std], [expected.mean, expected.std, expected.residual_std])
    np.testing.assert_array_equal(again.inducing_points(), gp.inducing_points())
    if gp.target_transform is None:
        assert_same(again.predict(X[:5], return_cov=True), gp.predict(X[:5], return_cov=True))
    if name in ("default", "student", "blocks", "quantile", "float32"):
        np.testing.assert_array_equal(again.sample_y(X[:5], 3), gp.sample_y(X[:5], 3))


@pytest.mark.parametrize("name", OPTIONS)
def test_all_that_a_model_knows_is_kept(name, tmp_path):
    X, y = data(name)
    gp = regressor(**OPTIONS[name]).fit(X, y)
    again = saved(gp, tmp_path / "a.hgp")
    for attribute in ("elbo_", "history_", "n_steps_", "n_features_in_", "encoded_names_", "target_names_", "timings_",
                      "notes_", "warnings_", "ranges_", "validation_", "column_kinds_"):  # fmt: skip
        assert getattr(again, attribute) == getattr(gp, attribute), attribute
    assert str(again.symmetry_) == str(gp.symmetry_)
    assert repr(again.symmetry_) == repr(gp.symmetry_)
    assert again.kernel_.state_dict().keys() == gp.kernel_.state_dict().keys()
    for attribute in ("kernel_", "likelihood_"):
        for key, value in getattr(gp, attribute).state_dict().items():
            assert torch.equal(getattr(again, attribute).state_dict()[key], value)
    if name not in ("numbers", "periodic", "globe"):  # plain numbers and tuples come back
        assert repr(again) == repr(gp)


def test_the_table_of_a_search_is_kept(tmp_path):
    X, y = table(2100)
    gp = regressor(n_inducing=10, time_budget=2.0).fit(X, y)
    assert len(gp.symmetry_.table) > 0
    again = saved(gp, tmp_path / "a.hgp")
    assert again.symmetry_.table == gp.symmetry_.table
    assert str(again.symmetry_) == str(gp.symmetry_)
    assert repr(again.symmetry_.action) == repr(gp.symmetry_.action)
    assert_same(outputs(again, X[:40]), outputs(gp, X[:40]))


def test_a_kernel_of_your_own_keeps_its_values(tmp_path):
    """The argument, not what was learned: a clone of the loaded model fits as a clone of the first would."""
    X, y = table(40)
    gp = regressor(kernel=periodic_kernel()).fit(X, y)
    again = saved(gp, tmp_path / "a.hgp")
    assert float(again.kernel.kernels[1].period_length.detach()) == pytest.approx(12.0)
    assert_same(outputs(again.fit(X, y), X), outputs(gp, X))


def test_arguments_come_back_and_callbacks_do_not(tmp_path):
    X, y = table(40)
    gp = regressor(callbacks=[lambda record: None], checkpoint_dir=tmp_path, symmetry=Negation([0]), n_inducing=5)
    again = saved(gp.fit(X, y), tmp_path / "a.hgp")
    ours, theirs = gp.get_params(), again.get_params()
    assert theirs.pop("callbacks") is None
    assert theirs.pop("checkpoint_dir") is None
    assert {k: repr(v) for k, v in ours.items() if k in theirs} == {k: repr(v) for k, v in theirs.items()}


def test_a_loaded_model_goes_on(tmp_path):
    X, y = table(60)
    gp = regressor().fit(X[:30], y[:30])
    again = saved(gp, tmp_path / "a.hgp")
    assert_same(outputs(again.partial_fit(X[30:], y[30:]), X), outputs(gp.partial_fit(X[30:], y[30:]), X))
    again = saved(gp, tmp_path / "a.hgp")  # and what was absorbed is saved
    assert_same(outputs(again, X), outputs(gp, X))


def test_several_targets_and_their_names(tmp_path):
    pd = pytest.importorskip("pandas")
    X, Y = table(40, P=2)
    gp = regressor(target_transform="quantile").fit(X, pd.DataFrame(Y, columns=["price", "weight"]))
    again = saved(gp, tmp_path / "a.hgp")
    assert again.target_names_ == ["price", "weight"]
    assert_same(outputs(again, X, Y), outputs(gp, X, Y))
    one = regressor().fit(X, Y[:, :1])  # a column is not a row of numbers
    assert saved(one, tmp_path / "a.hgp").predict(X).shape == (40, 1)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("kind", [str, object, int, bool, float])
def test_classifiers(classes, kind, tmp_path):
    X, _ = table(40)
    y = labels(X, classes)
    y = np.searchsorted(np.unique(y), y).astype(kind) if kind in (int, bool, float) else y.astype(kind)
    gp = classifier(n_inducing=8).fit(X, y)
    again = saved(gp, tmp_path / "a.hgp")
    assert again.classes_.dtype == gp.classes_.dtype
    assert_same([again.classes_, again.predict(X), *outputs(again, X)], [gp.classes_, gp.predict(X), *outputs(gp, X)])
    assert again.validation_ == gp.validation_
    assert_same(outputs(again.partial_fit(X, y), X), outputs(gp.partial_fit(X, y), X))


def test_tables_with_text_dates_and_gaps(tmp_path):
    pd = pytest.importorskip("pandas")
    X, y = table(60)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    frame["when"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(np.arange(60) * 17, unit="h")
    frame["colour"] = np.array(["red", "blue", "green"])[np.arange(60) % 3]
    frame.loc[::7, "b"] = np.nan
    gp = regressor(missing="impute", columns={"c": ("periodic", 300)}).fit(frame, y)
    again = saved(gp, tmp_path / "a.hgp")
    assert again.feature_names_in_.tolist() == ["a", "b", "c", "when", "colour"]
    assert_same(outputs(again, frame, y), outputs(gp, frame, y))
    shuffled = frame.sample(frac=1, random_state=0)
    np.testing.assert_array_equal(again.predict(shuffled), gp.predict(shuffled))


# --- what is refused ------------------------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path):
    X, y = table(20)
    regressor().fit(X, y).save(tmp_path / "a.hgp")
    return tmp_path / "a.hgp"


def refused(path, words):
    with pytest.raises(ModelFileError, match=words) as caught:
        load_model(path)
    assert "\n" not in str(caught.value)
    assert path.name in str(caught.value)


def test_truncated(path):
    whole = path.read_bytes()
    for size in (0, 5, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        refused(path, "empty|cut short")


def test_altered(path):
    whole = bytearray(path.read_bytes())
    for place in np.linspace(8, len(whole) - 1, 40).astype(int):
        changed = whole.copy()
        changed[place] ^= 1
        path.write_bytes(changed)
        refused(path, "altered or damaged|cut short|not a |no header|upgrade")


def test_a_digit_that_changes_no_value(path):
    whole = path.read_bytes()
    number = re.search(rb"\d\.\d{16}[,}\]]", whole)
    places = range(number.start() + 12, number.end() - 1)
    for place in places:
        changed = bytearray(whole)
        changed[place] ^= 1
        path.write_bytes(changed)
        refused(path, "altered or damaged")


def test_newer(path):
    container = read_container(path, "model", FORMAT)
    write_container(path, "model", FORMAT + 1, container.header, container.tensors)
    refused(path, f"in format {FORMAT + 1}; this version reads up to {FORMAT}: upgrade harmonicgp")


def test_other_files(path, tmp_path):
    write_container(path, "checkpoint", 1, {}, {"a": torch.zeros(1)})
    refused(path, "is a checkpoint, not a model")
    path.write_bytes(pickle.dumps({"a": 1}))
    refused(path, "pickle")
    path.write_text("a,b\n1,2\n" * 10)
    refused(path, "not a model of harmonicgp")
    refused(tmp_path / "absent.hgp", "there is no file")


def test_the_other_estimator(path):
    with pytest.raises(
        ModelFileError, match=r"holds a HarmonicGPRegressor: use HarmonicGPRegressor\.load, or load_model"
    ):
        HarmonicGPClassifier.load(path)
    assert isinstance(load_model(path), HarmonicGPRegressor)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("estimator", "Popen"),
        ("estimator", None),
        ("kernel", {"class": "os.system"}),
        ("kernel", None),
        ("arguments", {}),
        ("arguments", []),
        ("plain", {"fit": 3}),
        ("dtype", "complex64"),
        ("table", {"columns": 3}),
        ("inputs", {}),
        ("posterior", {"family": "block", "stacks": 2}),
        ("posterior", {"family": "wide", "stacks": 1}),
        ("features", {"class": "harmonic"}),
        ("symmetry", {}),
        ("target", {"transform": None, "warps": 3}),
        ("classes", {"dtype": "V8", "values": []}),
    ],
    ids=str,
)
def test_forged_headers(path, key, value):
    container = read_container(path, "model", FORMAT)
    write_container(path, "model", FORMAT, container.header | {key: value}, container.tensors)
    refused(path, "not a model that this version of harmonicgp can read")


@pytest.mark.parametrize("name", ["Z", "posterior.mean.0", "kernel.raw_outputscale", "inputs.scale", "target.scale"])
def test_missing_or_misshapen_tensors(path, name):
    container = read_container(path, "model", FORMAT)
    others = {key: value for key, value in container.tensors.items() if key != name}
    write_container(path, "model", FORMAT, container.header, others)
    refused(path, "not a model that this version of harmonicgp can read")
    if name in ("kernel.raw_outputscale",):
        write_container(path, "model", FORMAT, container.header, others | {name: torch.zeros(3, 3)})
        refused(path, "not a model that this version of harmonicgp can read")


def test_an_unfitted_model_has_nothing_to_save(tmp_path):
    with pytest.raises(ValueError, match="not fitted"):
        regressor().save(tmp_path / "a.hgp")
    assert not list(tmp_path.iterdir())


def test_a_failed_save_leaves_the_old_file(path):
    X, y = table(20)
    before = path.read_bytes()
    gp = regressor(kernel=gk.ScaleKernel(gk.SpectralMixtureKernel(num_mixtures=1, ard_num_dims=3))).fit(X, y)
    with pytest.raises(ValueError, match="SpectralMixtureKernel"):
        gp.save(path)
    assert path.read_bytes() == before


# --- old formats stay readable: one test a version ------------------------------------------------------------------------


def fixture_rows():
    """The rows of the model-v1 fixture, as columns."""
    i = np.arange(20)
    return {
        "length": (i * 7 % 20 / 3.0).tolist(),
        "hour": (i * 5 % 24 + 0.25).tolist(),
        "colour": [("red", "blue", "green")[k % 3] for k in i],
        "width": [None if k % 9 == 4 else float(k * k % 11) for k in i],
    }


def fixture_target():
    i = np.arange(20)
    return np.exp(np.sin(i * 7 % 20 / 3.0) + 0.3 * (i % 3)) + 0.1 * np.cos(37.0 * i)


def test_format_1():
    pa = pytest.importorskip("pyarrow")
    expected = json.loads((HERE / "model-v1.json").read_text())
    gp = load_model(HERE / "model-v1.hgp")
    assert isinstance(gp, HarmonicGPRegressor)
    rows = pa.table(expected["rows"])
    mean, std = gp.predict(rows, return_std=True)
    np.testing.assert_allclose(mean, expected["mean"], rtol=1e-6)
    np.testing.assert_allclose(std, expected["std"], rtol=1e-6)
    np.testing.assert_allclose(gp.predict_quantiles(rows, (0.05, 0.95)), expected["quantiles"], rtol=1e-6)
    np.testing.assert_allclose(gp.log_density(rows, expected["y"]), expected["log_density"], rtol=1e-6, atol=1e-6)
    assert gp.feature_names_in_.tolist() == list(expected["rows"])
    assert gp.symmetry_.name == expected["symmetry"]
    assert gp.target_transform == "quantile"
    # what files of today have besides
    assert gp.notes_ == []
    assert any("median" in line for line in gp.warnings_)
    assert gp.ranges_ is None
    assert gp.beyond(pa.table(expected["rows"] | {"length": [1e6] * 20})) == {}
    gp.partial_fit(rows, expected["y"])
    assert gp.ranges_ is None


def write_fixture():
    """Write model-v1.hgp and what it predicts."""
    import pyarrow as pa

    rows, y = fixture_rows(), fixture_target()
    gp = regressor(
        max_steps=3,
        n_inducing=4,
        symmetry=Negation([[0]]),
        target_transform="quantile",
        missing="impute",
        columns={"hour": ("periodic", 24)},
    ).fit(pa.table(rows), y)
    gp.save(HERE / "model-v1.hgp")
    table_ = pa.table(rows)
    mean, std = gp.predict(table_, return_std=True)
    said = {
        "rows": rows,
        "y": y.tolist(),
        "mean": mean.tolist(),
        "std": std.tolist(),
        "quantiles": gp.predict_quantiles(table_, (0.05, 0.95)).tolist(),
        "log_density": gp.log_density(table_, y).tolist(),
        "symmetry": gp.symmetry_.name,
    }
    (HERE / "model-v1.json").write_text(json.dumps(said, indent=1) + "\n")


if __name__ == "__main__":
    torch.set_default_dtype(torch.float64)
    write_fixture()
