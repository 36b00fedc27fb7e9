"""What a newcomer meets first: import, version, extras."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

import harmonicgp
from harmonicgp._extras import MissingExtraError, require


def test_version_and_public_names():
    assert harmonicgp.__version__
    for name in harmonicgp.__all__:
        assert hasattr(harmonicgp, name)


def test_importing_the_library_needs_no_extra():
    code = (
        "import sys\n"
        "for name in ('matplotlib', 'pandas', 'polars', 'pyarrow', 'xarray', 'netCDF4'):\n"
        "    sys.modules[name] = None\n"
        "import harmonicgp, harmonicgp.actions, harmonicgp.kernels, harmonicgp.testing\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)


@pytest.mark.parametrize(("given", "expected"), [(None, "passive"), ("active", "active")])
def test_idle_threads_wait_passively_unless_the_user_says_otherwise(given, expected):
    """Spinning threads slow a fit many times on a busy machine. OpenMP reads the variable when PyTorch is loaded."""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    environment.update({} if given is None else {"OMP_WAIT_POLICY": given}, OMP_DISPLAY_ENV="true")
    code = "import harmonicgp; from harmonicgp import HarmonicGPRegressor"
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    policies = re.findall(r"OMP_WAIT_POLICY = '(\w+)'", done.stderr)
    assert policies, "no OpenMP runtime reports its settings"
    assert set(policies) == {expected.upper()}


def test_a_missing_extra_is_one_clear_line(monkeypatch):
    for name in ("matplotlib", "matplotlib.pyplot"):  # the second may have been imported by another test
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError) as error:
        require("matplotlib.pyplot", extra="plot", purpose="drawing")
    assert str(error.value) == "drawing needs matplotlib: pip install 'harmonicgp[plot]'"


def test_a_broken_extra_is_not_hidden(tmp_path, monkeypatch):
    (tmp_path / "brokenextra.py").write_text("import something_not_there\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ModuleNotFoundError, match="something_not_there"):
        require("brokenextra", extra="plot", purpose="drawing")
