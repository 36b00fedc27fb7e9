"""Compiled code: one C file, built on first use into the user's cache; without a compiler everything runs in PyTorch.

`HARMONICGP_NATIVE=0` turns it off, `HARMONICGP_CACHE` names another folder for what is built, `CC` another compiler, and
`HARMONICGP_CFLAGS` more flags for it.
"""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import torch

from harmonicgp.backend.files import replacing, replacing_path

SOURCE = Path(__file__).with_name("orbit.c")
#: Flags to try, the fastest first. None lets a NaN disappear (-ffinite-math-only, part of -ffast-math, would).
_MATH = [
    "-O3",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fno-signed-zeros",
    "-fopenmp-simd",
    "-ffp-contract=fast",
]
FLAGS = (
    [*_MATH, "-march=native", "-mprefer-vector-width=512"],
    [*_MATH, "-march=native"],
    _MATH,
    ["-O2"],
)
_SECONDS = 120  # that a compiler may take


class OrbitProblem(ctypes.Structure):
    """The sizes of an orbit sum, as in the C file."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("m", "n", "parts", "width", "order", "reals", "pairs")),
        *((name, ctypes.c_int64) for name in ("rest", "ways", "negation", "profile")),
        ("parameter", ctypes.c_double),
        ("scale", ctypes.c_double),
    ]


@lru_cache(maxsize=1)
def _loaded() -> tuple[ctypes.CDLL | None, str]:
    """The library, and how it came about or why there is none."""
    if os.environ.get("HARMONICGP_NATIVE", "1") == "0":
        return None, "PyTorch: HARMONICGP_NATIVE=0"
    compiler = _compiler()
    if compiler is None:
        return None, "PyTorch: no C compiler found"
    reason = ""
    for folder in (_cache, _scratch):  # a cache may be on a disk from which nothing can be run
        try:
            path = _build(compiler, folder())
            return _opened(path), f"compiled by {compiler[0]}: {path}"
        except (OSError, RuntimeError, AttributeError, subprocess.SubprocessError) as error:
            reason = reason or str(error)
    return None, f"PyTorch: {reason}"


def _opened(path: Path) -> ctypes.CDLL:
    library = ctypes.CDLL(str(path))
    for suffix in ("float", "double"):
        for name, pointers in {"forward": 10, "backward": 16, "values": 1, "slopes": 3}.items():
            head = [ctypes.POINTER(OrbitProblem), ctypes.c_int64, ctypes.c_int64]
            getattr(library, f"harmonicgp_{name}_{suffix}").argtypes = head + pointers * [ctypes.c_void_p]
    return library


def _compiler() -> list[str] | None:
    """A compiler that is there, with the flags that CC gives it."""
    given = shlex.split(os.environ.get("CC", ""))
    for words in [given] if given else [["cc"], ["gcc"], ["clang"]]:
        program = shutil.which(words[0])
        if program:
            return [program, *words[1:]]
    return None


def _build(compiler: list[str], folder: Path) -> Path:
    """The shared library for this source, compiler and processor, built where it is not there whole."""
    version = _run([*compiler, "--version"]).stdout
    more = shlex.split(os.environ.get("HARMONICGP_CFLAGS", ""))
    facts = [SOURCE.read_text("utf-8"), repr((compiler, version, FLAGS, more)), _processor()]
    key = hashlib.sha256("\0".join(facts).encode()).hexdigest()[:24]
    target = folder / f"orbit-{key}.so"
    digest = target.with_suffix(".sha256")
    if target.exists() and digest.exists() and digest.read_text("ascii", "replace") == _digest(target):
        return target
    with replacing_path(target) as library:
        _compile(compiler, [*more, "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-lm"])
        text = _digest(library)
    with replacing(digest) as file:
        file.write(text.encode("ascii"))
    return target


def _compile(compiler: list[str], arguments: list[str]) -> None:
    """With the fastest flags that the compiler takes."""
    complaint = ""
    for flags in FLAGS:
        done = _run([*compiler, *flags, *arguments])
        if done.returncode == 0:
            return
        complaint = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[0]
    raise OSError(f"{compiler[0]} could not build {SOURCE.name}: {complaint}")


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, encoding="utf-8", errors="replace", timeout=_SECONDS, check=False
    )


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _cache() -> Path:
    """A folder of the user's own."""
    if os.environ.get("HARMONICGP_CACHE"):
        folder = Path(os.environ["HARMONICGP_CACHE"])
    elif sys.platform == "darwin":
        folder = Path.home() / "Library" / "Caches" / "harmonicgp"
    else:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "harmonicgp"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def _scratch() -> Path:
    """Without a home, or with one that cannot be written to: built anew in every process."""
    folder = tempfile.mkdtemp(prefix="harmonicgp-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _processor() -> str:
    """What decides which instructions there are: a cache may be on a disk that several machines share."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    facts = {line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))}
    return platform.machine() + "\n".join(sorted(facts))


def available() -> bool:
    """Whether there is compiled code; the first call builds it."""
    return _loaded()[0] is not None


def status() -> str:
    """What runs, in words.

    Examples:
        >>> status().partition(" ")[0] in ("compiled", "PyTorch:")
        True
    """
    return _loaded()[1]


def function(name: str, dtype: torch.dtype) -> Callable[..., int]:
    """A function of the library by its name, for float32 or float64."""
    library = _loaded()[0]
    assert library is not None
    return getattr(library, f"harmonicgp_{name}_{'double' if dtype == torch.float64 else 'float'}")
