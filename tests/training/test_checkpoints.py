"""Fits that are killed, in a process of their own, go on where they were and end as if nothing had happened.

`python -m tests.training.test_checkpoints FOLDER` has every case fitted by a child that kills itself at some step; one program
for all, since most of its time is spent on imports.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import gpytorch
import numpy as np
import pytest
import torch

from harmonicgp import HarmonicGPClassifier, HarmonicGPRegressor
from harmonicgp.actions import Negation, Rotation
from harmonicgp.features import HarmonicFeatures
from harmonicgp.io.container import write_container
from harmonicgp.training import Schedule, fit
from tests.inference.common import data, make_kernel

ROOT = Path(__file__).parents[2]
FILE = "fit.checkpoint"


def table(n=2500):
    X, y = data(n, 3)
    return X.numpy(), y.numpy()


def regressor(folder, callbacks=(), y=None, **arguments):
    X, targets = table()
    settings = {"symmetry": Negation([[0], [1]]), "n_inducing": 16, "max_steps": 50, "batch_size": 256}
    settings |= {"checkpoint_dir": folder, "callbacks": callbacks, "progress": False, **arguments}
    return HarmonicGPRegressor(**settings).fit(X, targets if y is None else y)


def classifier(folder, callbacks=()):
    X, y = table()
    model = HarmonicGPClassifier(symmetry=Negation([[0], [1]]), n_inducing=12, max_steps=45, batch_size=256)
    return model.set_params(checkpoint_dir=folder, callbacks=callbacks, posterior="joint").fit(X, np.digitize(y, [0.0]))


def three_classes(folder, callbacks=()):
    X, y = table()
    model = HarmonicGPClassifier(symmetry=Rotation((0, 1), 3), n_inducing=8, max_steps=45, batch_size=256)
    return model.set_params(checkpoint_dir=folder, callbacks=callbacks).fit(X, np.digitize(y, [-0.5, 0.5]))


def low_level(folder, callbacks=(), likelihood=None, nu=1.5, target=None, action=None, mean=None, **changes):
    X, y = data(400, 2)
    features = HarmonicFeatures(make_kernel(nu), action or Rotation((0, 1), 3), X[:8])
    checkpoint = None if folder is None else Path(folder) / FILE
    plan = Schedule(**({"max_steps": 60, "batch_size": 64, "checkpoint": checkpoint, "checkpoint_every": 7} | changes))
    likelihood = likelihood or gpytorch.likelihoods.GaussianLikelihood()
    return fit(
        features, likelihood, X, y if target is None else target(y), schedule=plan, callbacks=callbacks, mean=mean
    )


def adam(folder, callbacks=()):
    return low_level(folder, callbacks, optimizer="adam")


def early(folder, callbacks=()):
    return low_level(folder, callbacks, early_stopping=True, max_steps=200, checkpoint_every=3)


def whole(folder, callbacks=()):
    """All rows at every step: what early stopping watches is the training bound, with a KL that is not new at each step."""
    likelihood = gpytorch.likelihoods.BernoulliLikelihood()
    plan = {"early_stopping": True, "max_steps": 120, "batch_size": 400, "validation_fraction": 0.0}
    return low_level(folder, callbacks, likelihood, target=lambda y: (y > 0).double(), **plan)


#: At which steps; a second kill is that of the resumed fit.
KILLS = {
    "regressor": (33,),
    "classifier": (22,),
    "three_classes": (21,),
    "adam": (30,),
    "early": (11, 160),
    "whole": (31,),
}
CASES = {f.__name__: f for f in (regressor, classifier, three_classes, adam, early, whole)}


def everything(result):
    """All that a fit leaves, as lists of numbers; times apart."""
    if isinstance(result, HarmonicGPRegressor | HarmonicGPClassifier):
        predictor, likelihood, bound = result.model_.predictor, result.likelihood_, result.elbo_
        features, posterior, history = predictor.features, predictor.posterior, result.history_
    else:
        features, posterior, likelihood = result.features, result.posterior, result.observation.likelihood
        bound, history = result.bound, result.history
    tensors = [*features.state_dict().values(), *likelihood.state_dict().values()]
    tensors += [*posterior.means, *posterior.precisions, *posterior.factors]
    steps = [{name: value for name, value in record.items() if name != "seconds"} for record in history]
    return [tensor.tolist() for tensor in tensors], bound, steps


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A folder that holds one for every case, with what its killed fit has left."""
    folder = tmp_path_factory.mktemp("killed")
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", "-m", "tests.training.test_checkpoints", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("case", CASES)
def test_a_killed_fit_ends_as_one_never_killed(case, killed):
    folder, kills = killed / case, KILLS[case]
    assert {FILE} <= {path.name for path in folder.iterdir()} <= {FILE, "fit.choice"}
    steps = []
    resumed = CASES[case](folder, [lambda record: steps.append(record["step"])])
    assert 1 < steps[0] <= kills[-1] + 1  # it went on, and did not begin anew
    straight = CASES[case](None)
    assert everything(resumed) == everything(straight)
    assert not (folder / FILE).exists()
    if case == "early":
        cooling = len(straight.history) - 40  # the last fifth of 200 steps
        assert kills[0] < cooling < kills[1] < len(straight.history) < 200


class DeathError(Exception):
    """Ends a fit in the middle, within this process."""


def fall(record):
    if record["step"] == 25:
        raise DeathError


def test_killed_while_a_checkpoint_is_written(killed):
    """The one before stays whole, and what is left over of the new one is not in the way."""
    folder = killed / "torn"
    left = [path for path in folder.iterdir() if path.name != FILE]
    assert len(left) == 1
    assert left[0].stat().st_size > 0
    steps = []
    resumed = adam(folder, [lambda record: steps.append(record["step"])])
    assert steps[0] == 22  # a checkpoint every seven steps: that of step 28 was not to be
    assert everything(resumed) == everything(adam(None))
    assert list(folder.iterdir()) == left


def test_killed_in_the_finish(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    straight = low_level(None, max_steps=28)
    with monkeypatch.context() as patch:
        patch.setattr(sys.modules["harmonicgp.training.fit"], "finish", interrupted)
        with pytest.raises(KeyboardInterrupt):
            low_level(tmp_path, max_steps=28)
    steps = []
    resumed = low_level(tmp_path, [lambda record: steps.append(record["step"])], max_steps=28)
    assert steps == []
    assert everything(resumed) == everything(straight)


def test_the_checkpoint_of_a_finished_fit_is_removed(tmp_path):
    folder = tmp_path / "made" / "as needed"
    first = low_level(folder)
    assert list(folder.iterdir()) == []
    assert everything(low_level(folder)) == everything(first)
    low_level(folder, target=lambda y: -y)  # other data are not refused
    stopped = low_level(folder, [lambda record: record["step"] == 21])
    assert len(stopped.history) == 21
    assert list(folder.iterdir()) == []


def left_behind(folder, **arguments):
    """A checkpoint, as a fit leaves it that was killed at step 25."""
    with pytest.raises(DeathError):
        low_level(folder, [fall], **arguments)
    assert (Path(folder) / FILE).exists()


def last_row_changed(y):
    y = y.clone()
    y[-1] += 1e-9
    return y


@pytest.mark.parametrize(
    "changes",
    [
        {"target": lambda y: -y},
        {"target": last_row_changed},
        {"nu": 2.5},
        {"action": Rotation((0, 1), 4)},
        {"action": Negation()},
        {"max_steps": 61},
        {"learning_rate": 0.03},
        {"seed": 1},
        {"batch_size": 65},
        {"optimizer": "adam"},
        {"validation_fraction": 0.2},
        {"mean": lambda x: x[:, 0]},
        {"likelihood": gpytorch.likelihoods.StudentTLikelihood()},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_checkpoint_of_another_fit_is_refused(changes, tmp_path):
    left_behind(tmp_path)
    with pytest.raises(
        ValueError, match=r"fit.checkpoint belongs to another fit .*: remove it, or give another folder"
    ):
        low_level(tmp_path, **changes)


def test_every_row_counts_in_the_fingerprint(tmp_path):
    """Rows held out too: training never sees them, but the finish does."""
    left_behind(tmp_path)
    for row in (0, 57, 123, 399):

        def moved(y, row=row):
            return torch.where(torch.arange(400) == row, y + 1, y)

        with pytest.raises(ValueError, match="another fit"):
            low_level(tmp_path, target=moved)


def test_what_may_change_between_the_two_halves(tmp_path):
    left_behind(tmp_path)
    resumed = low_level(tmp_path, progress=False, checkpoint_every=11)
    assert everything(resumed) == everything(low_level(None))


def test_an_estimator_refuses_other_data(tmp_path):
    with pytest.raises(DeathError):
        regressor(tmp_path, [fall])
    for changes in ({"y": table()[1] ** 2}, {"kernel": "rbf"}, {"n_inducing": 15}, {"random_state": 1}):
        with pytest.raises(ValueError, match="another fit"):
            regressor(tmp_path, **changes)


def test_a_killed_fit_with_a_time_budget_goes_on(tmp_path):
    arguments = {"n_inducing": "auto", "time_budget": 5.0, "max_steps": 100}
    with pytest.raises(DeathError):
        regressor(tmp_path, [fall], **arguments)
    steps = []
    regressor(tmp_path, [lambda record: steps.append(record["step"])], **arguments)
    assert steps[0] == 21


def shorten(path):
    path.write_bytes(path.read_bytes()[:-100])


def flip(path):
    content = bytearray(path.read_bytes())
    content[-50] ^= 1
    path.write_bytes(content)


def swap(path):
    write_container(path, "model", 1, {}, {"a": torch.zeros(1)})


def empty(path):
    path.write_bytes(b"")


def pickled(path):
    torch.save({"a": 1}, path)


@pytest.mark.parametrize("damage", [shorten, flip, swap, empty, pickled], ids=lambda f: f.__name__)
def test_a_damaged_checkpoint_is_refused_and_the_error_says_what_to_do(damage, tmp_path):
    left_behind(tmp_path)
    damage(tmp_path / FILE)
    with pytest.raises(ValueError, match=r"fit\.checkpoint.*Remove .*fit\.checkpoint to start afresh\.$"):
        low_level(tmp_path)
    (tmp_path / FILE).unlink()
    low_level(tmp_path, max_steps=2)


def test_a_folder_that_is_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match="is a file: name a folder"):
        low_level(tmp_path / "file")


def main(folder):
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    for case, steps in KILLS.items():
        for step in steps:
            run_to_death(lambda case=case, step=step: CASES[case](Path(folder) / case, [lambda r: die(r, step)]))
    run_to_death(lambda: torn(Path(folder) / "torn"))


def run_to_death(job):
    child = os.fork()
    if child == 0:
        job()
        os._exit(1)
    _, status = os.waitpid(child, 0)
    if not (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL):
        sys.exit(f"a fit was not killed: status {status}")


def torn(folder):
    """Killed when the fourth checkpoint is written and not yet in its place."""
    replace, calls = os.replace, []

    def fatal(*arguments):
        calls.append(arguments)
        if len(calls) == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        replace(*arguments)

    os.replace = fatal
    adam(folder)


def die(record, step):
    if record["step"] == step:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])
