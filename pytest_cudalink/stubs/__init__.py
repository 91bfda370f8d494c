"""Lazy-loading CUDA stubs: libraries that a program links instead of ``libcuda``, ``libcudart`` and ``libnvrtc``.

A stub exports the same functions, loads without any CUDA library, and opens the real one at the first call: one wheel
runs with CUDA 11, 12 and 13, and imports on a machine without CUDA. `describe` reports which library a stub uses and
why; `library_path` and `cmake_dir` locate the prebuilt stubs for builds; ``cudalink stubs build`` builds others.
"""

import ctypes
import json
import re
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Description", "StubNotFoundError", "cmake_dir", "describe", "library_path"]

_HERE = Path(__file__).parent


class StubNotFoundError(LookupError):
    """There is no such stub library; the message lists the existing ones and how to build one."""


@dataclass(frozen=True)
class Description:
    """The real library that a stub uses."""

    library: str  # "cuda", "cudart" or "nvrtc"
    stub: str  # file name of the stub
    file: str | None  # the real library; None if none was found
    version: str | None  # its CUDA version, such as "12.9"; for `cuda` that of the driver
    why: str  # the rule that found it, such as "wheel beside the caller"
    looked: str  # the places that were searched, up to the one that had it, each with its error
    functions: int  # number of functions in the stub
    missing: tuple[str, ...]  # symbols that the real library lacks: calling one returns an error, the others work
    degraded: tuple[str, ...]  # tiers with a missing symbol: "core", "optional"


def library_path(name: str) -> Path:
    """The prebuilt stub of ``"cuda"``, ``"cudart"`` or ``"nvrtc"``.

    Raises StubNotFoundError for another name, or if the stubs were not built (Windows, a source tree that is not
    installed).
    """
    path = _HERE / "lib" / f"libstub_{name}.so"
    if not path.is_file():
        built = sorted(file.name for file in path.parent.glob("libstub_*.so")) or "none"
        raise StubNotFoundError(
            f"no stub {path.name} in {path.parent} (there: {built}); "
            "install pytest-cudalink on Linux, or run 'cudalink stubs build'"
        )
    return path


def cmake_dir() -> Path:
    """The folder for ``cudalink_stubs_DIR``, which CMake's ``find_package(cudalink_stubs)`` reads."""
    return _HERE / "cmake"


def describe(stub: str | Path) -> Description:
    """Describe the real library that a stub uses in this process, and the symbols that it lacks.

    The stub searches, as its first call would; the result stays for the life of the process.

    `stub`: ``"cuda"``, ``"cudart"`` or ``"nvrtc"`` for our prebuilt stubs, or the path of a stub that ``cudalink stubs
    build`` made.
    Raises StubNotFoundError if there is no such stub, or the file is not a stub.
    Raises OSError if the file cannot be loaded.
    """
    named = isinstance(stub, Path) or "/" in stub or stub.endswith(".so")
    # absolute: the loader would search for a name without a folder
    path = Path(stub).absolute() if named else library_path(str(stub))
    if not path.is_file():
        raise StubNotFoundError(f"no stub library at {path}; 'cudalink stubs build -o DIR' makes them")
    match = re.fullmatch(r"lib(\w+)\.so", path.name)
    function = getattr(ctypes.CDLL(str(path)), f"{match[1]}_describe", None) if match else None
    if function is None:
        msg = f"{path} is not a stub of 'cudalink stubs build': expected libNAME.so with a function NAME_describe"
        raise StubNotFoundError(msg)
    function.restype = ctypes.c_char_p
    answer = json.loads(function().decode("utf-8", "replace"))
    return Description(**{**answer, "missing": tuple(answer["missing"]), "degraded": tuple(answer["degraded"])})
