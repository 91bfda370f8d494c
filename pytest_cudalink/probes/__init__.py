"""Which driver and which nvJitLink the system has: asked at first use, cached, and fakeable.

`fake` changes the answers inside one context (a thread, a task, a test); it never changes the system or the cache.
"""

import ctypes
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import Enum
from functools import cache
from typing import Final, NamedTuple

from ..base import elf
from ..base.elf import DamagedLibraryError as DamagedLibraryError  # of what `nvjitlink` raises
from ..base.install_command import install_command
from ..base.safe_text import warn as warn_caller
from ..environment.wheels import NVJITLINK, files_of, installed_wheel
from ..versions import CudaVersion
from . import elsewhere, libcuda

#: Who hides nvJitLink from every library of this process.
hiders: Final[list[str]] = []

#: 12.0 to 12.2 export only names with a version suffix, and no ``nvJitLinkVersion``: cuda-bindings cannot use them.
FIRST_USABLE_NVJITLINK = CudaVersion(12, 3)

#: Held while a first use imports modules and loads libraries. A thread that forks waits for it: no thread of the child
#: would finish what another one began, and the child would wait for ever for that module.
importing: Final = threading.RLock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=importing.acquire, after_in_parent=importing.release, after_in_child=importing.release)

_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 75, 76


class _Unset(Enum):
    UNSET = "real"


_UNSET: Final = _Unset.UNSET
#: What `fake` takes for a version.
_Version = str | tuple[int, int] | _Unset | None


class Fakes(NamedTuple):
    """Versions that replace the system's answers; for an `UNSET` field the system is asked."""

    driver: CudaVersion | _Unset | None = _UNSET
    nvjitlink: CudaVersion | _Unset | None = _UNSET

    @property
    def fakes_driver(self) -> bool:
        return self.driver is not _UNSET

    @property
    def fakes_nvjitlink(self) -> bool:
        return self.nvjitlink is not _UNSET


#: Called without arguments when a fake begins or ends: drop every decision that is based on the old answers.
listeners: list[Callable[[], None]] = []

_fakes: ContextVar[Fakes] = ContextVar("pytest_cudalink_fakes", default=Fakes())  # noqa: B039 (frozen)


def fakes() -> Fakes:
    """The answers that are faked in the current context."""
    return _fakes.get()


def _as_version(value: _Version, name: str) -> CudaVersion | _Unset | None:
    if value is None or value is _UNSET:
        return value
    if isinstance(value, str):
        return CudaVersion.parse(value)
    if isinstance(value, tuple) and len(value) == 2 and all(type(number) is int and number >= 0 for number in value):
        return CudaVersion(*value)
    raise TypeError(f"fake {name} version {value!r}: expected '13.0', (13, 0), or None for unknown or absent")


@contextmanager
def fake(*, driver: _Version = _UNSET, nvjitlink: _Version = _UNSET) -> Iterator[Fakes]:
    """Answer probes with these versions inside the ``with`` block, in this thread or task only.

    `driver`: ``"12.9"`` or ``(12, 9)``; None makes the driver unknown. By default it is as outside of the block.
    `nvjitlink`: like `driver`; None makes nvJitLink absent, and so does a version older than 12.3.
    Raises ValueError if a string is not a version.
    Raises TypeError if a value has another type.
    """
    before = _fakes.get()
    faked = with_fakes(driver=driver, nvjitlink=nvjitlink)
    try:
        replace_fakes(faked)
        yield faked
        _end(faked, before)
    except BaseException:
        _end(faked, before)  # (again, if an exception kept the line above from doing so)
        raise


def with_fakes(*, driver: _Version = _UNSET, nvjitlink: _Version = _UNSET) -> Fakes:
    """Return the current fakes with other versions; parameters and errors are those of `fake`."""
    given = {"driver": _as_version(driver, "driver"), "nvjitlink": _as_version(nvjitlink, "nvJitLink")}
    # another object than the current one, also without a version: `_end` compares
    return _fakes.get()._replace(**{name: version for name, version in given.items() if version is not _UNSET})


def replace_fakes(faked: Fakes) -> None:
    """Fake other versions in the current context from now on."""
    _fakes.set(faked)
    for listener in listeners:
        listener()


def _end(faked: Fakes, before: Fakes) -> None:
    # not in another context than the fake began in, which may be gone
    replace_fakes(before if _fakes.get() is faked else _fakes.get())


class NvJitLink(NamedTuple):
    """The nvJitLink of this environment, and why it cannot be used."""

    found: CudaVersion | None  # version of the library, even if it cannot be used
    path: str | None  # file it was loaded from
    obstacle: str = ""  # why it cannot be used; empty if it can
    remedy: str = ""  # how to get a usable one

    @property
    def usable(self) -> CudaVersion | None:
        return None if self.obstacle else self.found


@cache
def nvjitlink() -> NvJitLink:
    """Load the nvJitLink that cuda.pathfinder finds, and read its version, also from releases without a version call.

    Raises DamagedLibraryError if the library of a wheel is cut off or damaged, of which the loader would die.
    Raises OSError if the library cannot be opened.
    """
    with importing:
        return _loaded_nvjitlink()


def _loaded_nvjitlink() -> NvJitLink:
    from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib

    if not hiders:
        _file_of_wheel()
    try:
        loaded = load_nvidia_dynamic_lib("nvJitLink")
    except DynamicLibNotFoundError as error:
        if hidden_by := getattr(error, "hidden_by", ""):
            return NvJitLink(None, None, f"{hidden_by} hides it", f"leave out {hidden_by}")
        return NvJitLink(None, None, elsewhere.NO_NVJITLINK)
    path = loaded.abs_path
    version = version_of_nvjitlink(path)
    if version is None or version < FIRST_USABLE_NVJITLINK:
        return NvJitLink(
            version,
            path,
            f"{path} is nvJitLink {version or 'of an unknown version'}, {FIRST_USABLE_NVJITLINK} or newer is needed",
        )
    try:
        import cuda.bindings.nvjitlink  # noqa: F401 (an optional dependency)
    except ImportError as error:
        obstacle = f"nvJitLink {version} is there, but cuda-bindings is not ({error})"
        return NvJitLink(version, path, obstacle, install_command("cuda-bindings"))
    return NvJitLink(version, path)


def version_of_nvjitlink(path: str) -> CudaVersion | None:
    """Version of the nvJitLink in a file, which is loaded for that; None if it does not tell.

    Raises OSError if the library cannot be opened.
    Raises RuntimeError if it fails.
    """
    library = ctypes.CDLL(path)
    if not hasattr(library, "nvJitLinkVersion"):
        # every library keeps the aliases of all older minors of its major
        minors = [
            minor for minor in range(FIRST_USABLE_NVJITLINK.minor) if hasattr(library, f"__nvJitLinkCreate_12_{minor}")
        ]
        return CudaVersion(12, max(minors)) if minors else None
    major, minor = ctypes.c_uint(), ctypes.c_uint()
    if code := library.nvJitLinkVersion(ctypes.byref(major), ctypes.byref(minor)):
        raise RuntimeError(f"nvJitLinkVersion of {path} failed with {code}")
    return CudaVersion(major.value, minor.value)


def _file_of_wheel() -> str | None:
    """Return the nvJitLink of the installed wheel, the first that cuda.pathfinder finds; None without one.

    Raises DamagedLibraryError if it is damaged.
    """
    wheel = installed_wheel(*NVJITLINK)
    path = next(files_of(wheel, r"libnvJitLink\.so\..*"), None)
    if wheel is None or path is None:
        return None
    elf.check(path, f"to restore it: {install_command(f'{wheel.name}=={wheel.version}', again=True)}")
    return str(path)


def unloaded_nvjitlink() -> NvJitLink | None:
    """Return the nvJitLink of the wheel that cuda.pathfinder would load, by its metadata; nothing is loaded for that.

    None where only a load says what there is: one is faked, hidden or loaded, or there is not a usable one in a wheel.
    Raises DamagedLibraryError if the library of the wheel is cut off or damaged.
    """
    if fakes().fakes_nvjitlink or hiders or nvjitlink.cache_info().currsize:
        return None
    if not (wheel := nvjitlink_wheel()) or not installed_wheel("cuda-bindings"):
        return None
    version = CudaVersion.parse(".".join(wheel.split(".")[:2]))
    path = _file_of_wheel()
    if path is None or not os.path.exists(path) or version < FIRST_USABLE_NVJITLINK:  # noqa: PTH110 (as the loader is asked)
        return None
    return NvJitLink(version, path)


def nvjitlink_version(*, warn: bool = True) -> CudaVersion | None:
    """Version of a usable nvJitLink, real or faked; None if there is not one.

    `warn`: False if the caller only reports what is installed.
    Warns once per process, by a RuntimeWarning, if the real one is absent, older than 12.3, or without cuda-bindings.
    """
    faked = _fakes.get().nvjitlink
    if faked is not _UNSET:
        return faked if faked is not None and faked >= FIRST_USABLE_NVJITLINK else None
    real = nvjitlink()
    if not real.obstacle:
        return real.found
    if warn:
        _warn_once(real.obstacle, real.remedy)
    return None


@cache
def _warn_once(obstacle: str, remedy: str) -> None:
    how = remedy or f"{install_command('nvidia-nvjitlink')} (CUDA 13) or nvidia-nvjitlink-cu12 (CUDA 12)"
    msg = f"nvJitLink is not available: {obstacle}. Links fall back to the driver, without LTO. To get it: {how}"
    warn_caller(msg, RuntimeWarning)


def nvjitlink_wheel() -> str | None:
    """Version of the installed nvJitLink wheel, such as ``"13.0.88"``, read from its metadata without loading it."""
    return wheel_version(*NVJITLINK)


def wheel_version(*names: str) -> str | None:
    """Version of the first of some packages that is installed; None if none of them is."""
    wheel = installed_wheel(*names)
    return None if wheel is None else wheel.version


@cache
def _real_driver_version() -> CudaVersion | None:
    number = ctypes.c_int()
    try:
        libcuda.call("cuDriverGetVersion", ctypes.byref(number))
    except (libcuda.DriverNotFoundError, libcuda.DriverError):
        return None
    return CudaVersion.from_driver(number.value)


def driver_version() -> CudaVersion | None:
    """CUDA version of the driver, real or faked.

    None means unknown: there is no driver, or it returned a CUDA error. Other errors, such as a library that cannot be
    opened, propagate.
    """
    faked = _fakes.get().driver
    return _real_driver_version() if faked is _UNSET else faked


def driver_version_elsewhere() -> CudaVersion | None:
    """As `driver_version`, without a call in this process; None where another process got no answer, too."""
    faked = _fakes.get().driver
    return elsewhere.driver().version if faked is _UNSET else faked


def device_arch() -> str | None:
    """Architecture of the current context's device, else of device 0; None without a driver or a device."""
    if _real_driver_version() is None:  # kept: to look for a driver that is not there takes the loader 50 microseconds
        return None
    device = ctypes.c_int()
    try:
        libcuda.call("cuInit", 0)
        if libcuda.library().cuCtxGetDevice(ctypes.byref(device)):
            libcuda.call("cuDeviceGet", ctypes.byref(device), 0)
        numbers = []
        for attribute in (_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _ATTRIBUTE_COMPUTE_CAPABILITY_MINOR):
            number = ctypes.c_int()
            libcuda.call("cuDeviceGetAttribute", ctypes.byref(number), attribute, device)
            numbers.append(number.value)
    except (libcuda.DriverNotFoundError, libcuda.DriverError):
        return None
    return f"sm_{numbers[0]}{numbers[1]}"


def cache_clear() -> None:
    """Forget every answer and every warning: for tests, and after a library was preloaded."""
    nvjitlink.cache_clear()
    _real_driver_version.cache_clear()
    _warn_once.cache_clear()
    libcuda.library.cache_clear()
    elsewhere.cache_clear()
