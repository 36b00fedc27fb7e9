"""Compiled code: one C file, which is built into the user's cache at the first use. Without a compiler PyTorch does the work.

Environment variables: `HARMONICGP_NATIVE=0` turns compiled code off, `HARMONICGP_CACHE` is another folder for the library, `CC`
another compiler, and `HARMONICGP_CFLAGS` are further flags.
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
#: Flags to try, the fastest first. They all preserve NaN, unlike -ffast-math.
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
_SECONDS = 120  # the time limit of the compiler


class OrbitProblem(ctypes.Structure):
    """The sizes of an orbit sum, with the fields of the struct in the C file."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("m", "n", "parts", "width", "order", "reals", "pairs")),
        *((name, ctypes.c_int64) for name in ("rest", "ways", "negation", "profile")),
        ("parameter", ctypes.c_double),
        ("scale", ctypes.c_double),
    ]


@lru_cache(maxsize=1)
def _loaded() -> tuple[ctypes.CDLL | None, str]:
    """The library, or None, and the reason in words."""
    if os.environ.get("HARMONICGP_NATIVE", "1") == "0":
        return None, "PyTorch: HARMONICGP_NATIVE=0"
    compiler = _compiler()
    if compiler is None:
        return None, "PyTorch: no C compiler found"
    reason = ""
    for folder in (_cache, _scratch):  # the cache may be on a disk without execute permission
        try:
            path = _build(compiler, folder())
            return _open(path), f"compiled by {compiler[0]}: {path}"
        except (OSError, RuntimeError, AttributeError, subprocess.SubprocessError) as error:
            reason = reason or str(error)
    return None, f"PyTorch: {reason}"


def _open(path: Path) -> ctypes.CDLL:
    """Load the library and declare the arguments of its functions."""
    library = ctypes.CDLL(str(path))
    for suffix in ("float", "double"):
        for name, pointers in {"forward": 10, "backward": 16, "values": 1, "slopes": 3}.items():
            head = [ctypes.POINTER(OrbitProblem), ctypes.c_int64, ctypes.c_int64]
            getattr(library, f"harmonicgp_{name}_{suffix}").argtypes = head + pointers * [ctypes.c_void_p]
    return library


def _compiler() -> list[str] | None:
    """The command of CC, or of an installed compiler; None without one."""
    command = shlex.split(os.environ.get("CC", ""))
    for words in [command] if command else [["cc"], ["gcc"], ["clang"]]:
        program = shutil.which(words[0])
        if program:
            return [program, *words[1:]]
    return None


def _build(compiler: list[str], folder: Path) -> Path:
    """The shared library for this source, compiler and processor; it is built unless the folder has it with the right digest."""
    version = _run([*compiler, "--version"]).stdout
    user_flags = shlex.split(os.environ.get("HARMONICGP_CFLAGS", ""))
    texts = [SOURCE.read_text("utf-8"), repr((compiler, version, FLAGS, user_flags)), _processor()]
    key = hashlib.sha256("\0".join(texts).encode()).hexdigest()[:24]
    target = folder / f"orbit-{key}.so"
    digest = target.with_suffix(".sha256")
    if target.exists() and digest.exists() and digest.read_text("ascii", "replace") == _digest(target):
        return target
    with replacing_path(target) as library:
        _compile(compiler, [*user_flags, "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-lm"])
        text = _digest(library)
    with replacing(digest) as file:
        file.write(text.encode("ascii"))
    return target


def _compile(compiler: list[str], arguments: list[str]) -> None:
    """Compile with the fastest flags that the compiler accepts."""
    message = ""
    for flags in FLAGS:
        process = _run([*compiler, *flags, *arguments])
        if process.returncode == 0:
            return
        message = (process.stderr.strip().splitlines() or [f"exit code {process.returncode}"])[0]
    raise OSError(f"{compiler[0]} could not build {SOURCE.name}: {message}")


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, encoding="utf-8", errors="replace", timeout=_SECONDS, check=False
    )


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _cache() -> Path:
    """The cache folder of the user."""
    if os.environ.get("HARMONICGP_CACHE"):
        folder = Path(os.environ["HARMONICGP_CACHE"])
    elif sys.platform == "darwin":
        folder = Path.home() / "Library" / "Caches" / "harmonicgp"
    else:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "harmonicgp"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    return folder


def _scratch() -> Path:
    """A temporary folder, if the user's cache cannot be used. Every process then builds the library."""
    folder = tempfile.mkdtemp(prefix="harmonicgp-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _processor() -> str:
    """The model and instruction set of the processor: several machines may share a cache."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    properties = {line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))}
    return platform.machine() + "\n".join(sorted(properties))


def available() -> bool:
    """Whether there is compiled code. The first call builds it."""
    return _loaded()[0] is not None


def status() -> str:
    """What is used, in words: compiled code, or PyTorch and the reason.

    Examples:
        >>> status().partition(" ")[0] in ("compiled", "PyTorch:")
        True
    """
    return _loaded()[1]


def function(name: str, dtype: torch.dtype) -> Callable[..., int]:
    """A function of the compiled library, for float32 or float64. Call it only if `available()`."""
    library = _loaded()[0]
    assert library is not None
    return getattr(library, f"harmonicgp_{name}_{'double' if dtype == torch.float64 else 'float'}")
