"""How the compiled code is built, found again, and done without."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from harmonicgp.backend import native


def test_compiled_code_is_there_where_it_must_be():
    if os.environ.get("HARMONICGP_MUST_COMPILE"):
        assert native.available(), native.status()


def _said(environment, tmp_path):
    code = (
        "import torch, gpytorch; from harmonicgp.backend import native; from harmonicgp.actions import Negation;"
        "from harmonicgp.kernels import harmonic_gram; torch.manual_seed(0); z = torch.randn(9, 3, dtype=torch.float64);"
        "K = harmonic_gram(gpytorch.kernels.MaternKernel(nu=1.5).double(), Negation([[0], [1]]), z, z);"
        "print(native.status()); print(float(K.sum()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "HARMONICGP_CACHE": str(tmp_path), **environment},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    status, value = done.stdout.strip().splitlines()
    return status, float(value)


def test_without_a_compiler_or_when_told_the_answer_is_the_same(tmp_path):
    off, a = _said({"HARMONICGP_NATIVE": "0"}, tmp_path)
    none, b = _said({"CC": "no-such-compiler"}, tmp_path)
    broken, c = _said({"CC": "false"}, tmp_path)
    assert off.startswith("PyTorch: HARMONICGP_NATIVE=0")
    assert none.startswith("PyTorch: no C compiler")
    assert broken.startswith("PyTorch: ")
    assert a == b == c
    assert not list(tmp_path.iterdir())
    if native.available():
        built, d = _said({}, tmp_path)
        assert built.startswith("compiled by")
        assert d == pytest.approx(a, rel=1e-12)
        (library,) = tmp_path.glob("*.so")
        before = library.stat().st_mtime_ns
        assert _said({}, tmp_path)[0] == built  # the second time it is found
        assert library.stat().st_mtime_ns == before
        library.write_bytes(library.read_bytes()[:2000])  # cut short: mapped, it would end the process
        assert _said({}, tmp_path) == (built, d)
        assert library.stat().st_mtime_ns != before


def test_without_a_home_it_is_built_anew(tmp_path):
    code = "from pathlib import Path; Path.home = lambda: (_ for _ in ()).throw(RuntimeError('no home'));"
    code += "import os; [os.environ.pop(k, None) for k in ('HARMONICGP_CACHE', 'XDG_CACHE_HOME')];"
    code += "from harmonicgp.backend import native; print(native.status())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("compiled by" if native.available() else "PyTorch")


def test_a_cache_that_cannot_be_written_to_is_no_obstacle(tmp_path):
    file = tmp_path / "file"
    file.write_text("in the way")
    status, _ = _said({"HARMONICGP_CACHE": str(file / "below")}, tmp_path)
    assert status.startswith("compiled by" if native.available() else "PyTorch")
