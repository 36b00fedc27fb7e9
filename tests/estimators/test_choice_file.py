"""The choice of a fit, kept in a file until the fit is complete."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from harmonicgp.actions import Negation
from harmonicgp.estimators.choice_file import FORMAT, ChoiceFile, fingerprint
from harmonicgp.io.container import ModelFileError, read_container, write_container
from harmonicgp.symmetry.selection import choose_symmetry
from tests.estimators.test_fitting import settings_of


def test_what_is_written_is_read(tmp_path):
    data, settings = settings_of(symmetry=Negation([0]), checkpoint_dir=tmp_path / "new")
    file = ChoiceFile.of(data, settings)
    assert file.read() is None
    choice = choose_symmetry(data, settings.columns_of(data), settings)
    file.write(choice, 7)
    again, m = file.read()
    assert (repr(again.action), again.candidate, again.origin, m) == (repr(Negation([0])), choice.candidate, "asked", 7)
    other, _ = settings_of(80)
    assert ChoiceFile.of(other, settings).read() is None
    file.delete()
    file.delete()
    assert file.read() is None


def test_there_is_no_file_without_a_folder():
    assert ChoiceFile.of(*settings_of()) is None


def test_a_file_that_cannot_be_read_says_what_to_do(tmp_path):
    data, settings = settings_of(checkpoint_dir=tmp_path)
    file = ChoiceFile.of(data, settings)
    file.write(choose_symmetry(data, settings.columns_of(data), settings), 7)
    container = read_container(file.path, "choice", FORMAT)
    write_container(file.path, "choice", FORMAT + 1, container.header, {})
    with pytest.raises(ModelFileError, match="Delete the file to start the fit anew"):
        file.read()


@pytest.mark.parametrize("change", ["target", "rows", "options", "seed", "counts"])
def test_a_choice_serves_no_other_fit(change):
    data, settings = settings_of()
    other_data = {
        "target": replace(data, target=data.target + 1e-9),
        "rows": replace(data, X=data.X * (1 + 1e-9)),
        "counts": replace(data, counts=np.ones(len(data))),
    }.get(change, data)
    other = {
        "options": replace(settings, options=replace(settings.options, kernel="rbf")),
        "seed": replace(settings, seed=settings.seed + 1),
    }.get(change, settings)
    assert fingerprint(other_data, other) != fingerprint(data, settings)
    free = replace(settings.options, callbacks=[print], checkpoint_dir="there", progress=True, time_budget=5.0)
    assert fingerprint(data, replace(settings, options=free)) == fingerprint(data, settings)
