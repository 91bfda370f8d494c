"""Driver and nvJitLink as another process finds them, for what watches this one: the first call must be its own.

A process that initializes a driver changes what it can do: its forked children cannot use CUDA any more. Even to load
the library is visible, and an environment that is read then cannot be changed later.
"""

import json
import os
import site
import subprocess
import sys
from functools import cache
from typing import Any, Final, NamedTuple

from ..environment import loader_search
from ..loader.loads import loaded_file
from ..versions import CudaVersion
from . import libcuda

#: Prints what a driver answers, as JSON; the words of the loader where there is none.
_PROGRAM: Final = """
import ctypes, json, sys
found = {}
try:
    cuda = ctypes.CDLL(sys.argv[1])
except OSError as error:
    found["problem"] = str(error)
else:
    number, device = ctypes.c_int(), ctypes.c_int()
    def ask(name, *arguments):
        return hasattr(cuda, name) and getattr(cuda, name)(ctypes.byref(number), *arguments) == 0
    if hasattr(cuda, "cudalinkAbsentDriver"):
        found["problem"] = "--cudalink-driver=absent hides it"
    else:
        if ask("cuDriverGetVersion"):
            found["version"] = number.value
        if sys.argv[2:] and cuda.cuInit(0) == 0 and cuda.cuDeviceGet(ctypes.byref(device), 0) == 0:
            numbers = [number.value for attribute in (75, 76) if ask("cuDeviceGetAttribute", attribute, device)]
            if len(numbers) == 2:
                found["arch"] = "sm_{}{}".format(*numbers)
        with open("/proc/self/maps", errors="surrogateescape") as maps:
            paths = (line.rstrip("\\n").partition("/")[1:] for line in maps if "/libcuda.so" in line)
            found["file"] = "".join(next(paths, ()))
print(json.dumps(found))
"""
#: Prints version, file and obstacle of the nvJitLink that is found with a search path of modules, as JSON.
_NVJITLINK: Final = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from pytest_cudalink import probes
library = probes.nvjitlink()
print(json.dumps([str(library.found or ""), library.path or "", library.obstacle]))
"""
#: Seconds until a driver counts as one that does not answer.
_DEADLINE: Final = 60
#: Variables of an emulated driver that another process must not have: it would add to what the run records.
_OF_THE_RUN: Final = tuple(f"CUDALINK_EMULATOR_{name}" for name in ("EVENTS", "FAULTS", "NOTES"))
#: Variables that decide what another process finds.
_DECIDING: Final = ("LD_LIBRARY_PATH", "LD_PRELOAD", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "PATH")
#: Libraries by which cuda.pathfinder finds an nvJitLink that the loader finds, and beginnings of variables of toolkits.
_OF_TOOLKIT: Final = ("libnvJitLink.so", "libcudart.so")
_VARIABLES: Final = ("CONDA_", "CUDA_")
NO_NVJITLINK: Final = "no libnvJitLink was found by cuda.pathfinder"


class ForeignAnswer(NamedTuple):
    """What a driver has answered another process."""

    exists: bool
    version: CudaVersion | None = None
    arch: str | None = None  # architecture of the first device that the process sees; None without one, or if not asked
    problem: str = ""  # why there is none, in words of the loader


#: By the file that is loaded, what decides, and whether the device was asked.
_answers: Final[dict[tuple[str, tuple[str | None, ...], bool], ForeignAnswer]] = {}


def may_be_emulated() -> bool:
    """Whether this process has a driver, or was started on an emulated one: only then is it worth a closer look."""
    return "CUDALINK_EMULATOR_VERSION" in os.environ or loaded_file(libcuda.LIBRARY_NAME) is not None


def driver(*, device: bool = False) -> ForeignAnswer:
    """Return what the driver answers that this process has loaded or would load; each answer is asked for once.

    An emulated driver that this process has loaded says its version without a call.

    `device`: whether to initialize it, and ask for its device, too.
    """
    loaded = loaded_file(libcuda.LIBRARY_NAME) or ""
    if loaded and not device and libcuda.is_emulated():
        return ForeignAnswer(exists=True, version=CudaVersion.from_driver(libcuda.library().cudalinkEmulatorVersion()))
    deciding = tuple(map(os.environ.get, _DECIDING))
    for known in (device, True):
        answer = _answers.get((loaded, deciding, known))
        # a driver that dies or waits as it is initialized still says its version
        if answer and (known is device or answer.version or not answer.exists):
            return answer
    answer, file = _ask(loaded, device=device)
    for image in (loaded, file):  # the program may load that file next
        _answers[image, deciding, device] = answer
    return answer


def _ask(loaded: str, *, device: bool) -> tuple[ForeignAnswer, str]:
    """Return what a driver answers, and its file."""
    if not loaded and not loader_search.may_find(libcuda.LIBRARY_NAME):
        try:  # the loader itself says so, and loads nothing
            libcuda.library()
        except (libcuda.DriverNotFoundError, OSError) as error:
            return ForeignAnswer(exists=False, problem=getattr(error, "missing", str(error))), ""
    try:
        answers = _run("-S", "-c", _PROGRAM, loaded or libcuda.LIBRARY_NAME, *["device"] * device)
    except subprocess.TimeoutExpired:
        return ForeignAnswer(exists=True, problem=f"it has not answered another process for {_DEADLINE} s"), loaded
    except (OSError, ValueError):
        return ForeignAnswer(exists=True, problem="another process that asked it died"), loaded
    problem, version = answers.get("problem", ""), answers.get("version")
    answer = ForeignAnswer(not problem, version and CudaVersion.from_driver(version), answers.get("arch"), problem)
    return answer, answers.get("file", loaded)


def _run(*arguments: str) -> Any:
    """Return what another Python prints, read as JSON.

    Raises OSError or ValueError if it does not come so far, and subprocess.TimeoutExpired.
    """
    done = subprocess.run(  # noqa: S603 (this Python)
        [sys.executable, "-I", *arguments],
        env={name: value for name, value in os.environ.items() if name not in _OF_THE_RUN},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=_DEADLINE,
    )
    return json.loads(done.stdout)


@cache
def nvjitlink() -> tuple[str, str, str] | None:
    """Return version, file and obstacle of the nvJitLink that another process finds; each is empty without it.

    None if the other process could not say; it is not started where there is nothing to find.
    """
    if not _nvjitlink_may_exist():
        return "", "", NO_NVJITLINK
    try:
        version, file, obstacle = _run("-c", _NVJITLINK, json.dumps([*map(str, sys.path)]))
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return version, file, obstacle


def _nvjitlink_may_exist() -> bool:
    """Whether cuda.pathfinder may find one: in a wheel, in a toolkit that a variable names, or as the loader does."""
    sites = {*sys.path, *site.getsitepackages(), site.getusersitepackages()}
    return (
        any(name.startswith(_VARIABLES) for name in os.environ)
        or any(os.path.lexists(os.path.join(place, "nvidia")) for place in sites)  # noqa: PTH118 (of sys.path)
        or loader_search.may_find(*_OF_TOOLKIT)
    )


def cache_clear() -> None:
    """Forget every answer."""
    _answers.clear()
    nvjitlink.cache_clear()
