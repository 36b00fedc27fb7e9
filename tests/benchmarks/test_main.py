"""Benchmarks of a checkout."""

from __future__ import annotations

import shutil
import sys

from tests.cli.common import ROOT, complaint, run


def test_benchmarks_are_listed_and_run(tmp_path, monkeypatch):
    (tmp_path / "src" / "harmonicgp").mkdir(parents=True)
    suites = tmp_path / "benchmarks"
    suites.mkdir()
    (suites / "__init__.py").touch()
    shutil.copy(ROOT / "benchmarks" / "__main__.py", suites)
    (suites / "speed.py").write_text(
        '"""How fast.\n\nMore."""\ndef main(argv):\n    print(argv)\n    return len(argv)\n'
    )
    (suites / "plain.py").write_text('"""Nothing to set."""\ndef main():\n    print("ran")\n')
    (suites / "_help.py").write_text("def main(): pass\n")
    (suites / "parts.py").write_text("x = 1\n")
    monkeypatch.chdir(suites)
    for name in [name for name in sys.modules if name.partition(".")[0] == "benchmarks"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert [line.split(maxsplit=1) for line in run("bench").stdout.splitlines()] == [
        ["plain", "Nothing to set."],
        ["speed", "How fast."],
    ]
    assert run("bench", "speed", "--size", "2", "--help", code=3).stdout == "['--size', '2', '--help']\n"
    assert run("bench", "plain").stdout == "ran\n"
    assert "takes no arguments" in complaint("bench", "plain", "--size", code=2)
    assert "did you mean 'speed'" in complaint("bench", "sped", code=2)
    for name in [name for name in sys.modules if name.partition(".")[0] == "benchmarks"]:
        del sys.modules[name]
