"""Lazy-loading CUDA stubs: libraries that a program links instead of ``libcuda``, ``libcudart`` and ``libnvrtc``.

A stub exports the same functions, needs no CUDA library to be loaded, and opens the real one at the first call: one
wheel runs with CUDA 11, 12 and 13, and imports on a machine with none. `describe` tells which library a stub uses and
why; `library_path` and `cmake_dir` tell builds where the prebuilt stubs are; ``cudalink stubs build`` makes others.
"""

from __future__ import annotations

import ctypes
import json
import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Description", "StubNotFoundError", "cmake_dir", "describe", "library_path"]

_HERE = Path(__file__).parent


class StubNotFoundError(LookupError):
    """There is no such stub library; says which there are and how to make one."""


@dataclass(frozen=True)
class Description:
    """What a stub found.

    Attributes
    ----------
    library : str
        ``"cuda"``, ``"cudart"`` or ``"nvrtc"``.
    stub : str
        File name of the stub.
    file : str or None
        The real library; None when there is none.
    version : str or None
        Its CUDA version, such as ``"12.9"``; for ``cuda`` that of the driver.
    why : str
        The rule that found it, such as ``"wheel beside the caller"``.
    looked : str
        Every place that was looked at, up to the one that had it, and what went wrong there.
    functions : int
        How many functions the stub has.
    missing : tuple of str
        Symbols that the real library lacks: calling one gives an error, the others work.
    degraded : tuple of str
        Tiers with a missing symbol: ``"core"``, ``"optional"``.
    """

    library: str
    stub: str
    file: str | None
    version: str | None
    why: str
    looked: str
    functions: int
    missing: tuple[str, ...]
    degraded: tuple[str, ...]


def library_path(name: str) -> Path:
    """The prebuilt stub of ``"cuda"``, ``"cudart"`` or ``"nvrtc"``.

    Raises
    ------
    StubNotFoundError
        For another name, and where the stubs were not built (Windows, a source tree that is not installed).
    """
    path = _HERE / "lib" / f"libstub_{name}.so"
    if not path.is_file():
        built = sorted(file.name for file in path.parent.glob("libstub_*.so")) or "none"
        msg = (
            f"no stub {path.name} in {path.parent} (there: {built}); "
            "install pytest-cudalink on Linux, or run 'cudalink stubs build'"
        )
        raise StubNotFoundError(msg)
    return path


def cmake_dir() -> Path:
    """The folder for ``cudalink_stubs_DIR``, which ``find_package(cudalink_stubs)`` of CMake looks at."""
    return _HERE / "cmake"


def describe(stub: str | Path) -> Description:
    """Which real library a stub uses in this process, and what it lacks.

    Asking makes the stub search, as its first call would; what it finds stays for the life of the process.

    Parameters
    ----------
    stub : str or Path
        ``"cuda"``, ``"cudart"`` or ``"nvrtc"`` for our prebuilt stubs, or the path of a stub that
        ``cudalink stubs build`` made.

    Raises
    ------
    StubNotFoundError
        If there is no such stub, or the file is not one.
    OSError
        If the file cannot be loaded.
    """
    named = isinstance(stub, Path) or "/" in stub or stub.endswith(".so")
    path = Path(stub).absolute() if named else library_path(str(stub))  # the loader searches for names without a folder
    if not path.is_file():
        msg = f"no stub library at {path}; 'cudalink stubs build -o DIR' makes them"
        raise StubNotFoundError(msg)
    match = re.fullmatch(r"lib(\w+)\.so", path.name)
    function = getattr(ctypes.CDLL(str(path)), f"{match[1]}_describe", None) if match else None
    if function is None:
        msg = f"{path} is no stub of 'cudalink stubs build': libNAME.so would have a function NAME_describe"
        raise StubNotFoundError(msg)
    function.restype = ctypes.c_char_p
    answer = json.loads(function().decode("utf-8", "replace"))
    return Description(**{**answer, "missing": tuple(answer["missing"]), "degraded": tuple(answer["degraded"])})
