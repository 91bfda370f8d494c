"""Links that code below Python makes through libnvJitLink, counted in C (`native/jitlink_calls.c`).

Once started, the functions of every libnvJitLink of this process are redirected for the rest of its life: in the
library's symbols, where the loader and ``dlsym`` look them up, and in the slots of objects that are bound to them
already. Objects that are loaded later are seen to in ``dlopen`` and ``dlsym``.
"""

import importlib.machinery
import os
import sys
from collections.abc import Callable, Iterable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NamedTuple, cast

from ..imports import postpone

_OURS: Final = Path(__file__).parent / "lib" / "libcudalink-jitlink-calls.so"
_CALLS, _LATE, _REFUSED, _IMPOSSIBLE, _INPUT = 1, 2, 4, 8, 16  # native/jitlink_calls.h
_PATH_SIZE: Final = 4096


class RefusedInput(NamedTuple):
    """An input that nvJitLink refused."""

    call: str  # "nvJitLinkAddData" or "nvJitLinkAddFile"
    code: int  # the nvJitLinkResult
    library: str  # path of the libnvJitLink; empty where it is not known
    content: bytes  # the input, or the name of its file


class Look(NamedTuple):
    """What happened since the last look."""

    # path of each object that linked, "" where it is unknown, and its number of links
    calls: tuple[tuple[str, int], ...] = ()
    late: bool = False  # whether a libnvJitLink was loaded unnoticed; it is watched from now on
    refused: bool = False  # whether a libnvJitLink cannot be watched
    refused_input: bool = False  # whether an input was refused; `take_refused_input` returns it


_ours: Any = None
#: Names of NVRTC's functions, as C has them for the rest of the life of the process.
_nvrtc: Any = None


def cover(*, on: bool) -> None:
    """Do not count the links of this thread from now on, because the code that calls reports them; or count them."""
    if _ours is not None:
        _ours.cudalinkCover(on)


def start() -> Any:
    """Watch libnvJitLink from now on, and return the native library that does; None where that is not possible.

    It is not possible where the native part is missing, because the package was copied and not installed, and on other
    systems than Linux with glibc on x86-64 or aarch64.
    """
    global _ours  # noqa: PLW0603 (the library is one for the process)
    if _ours is None and _OURS.is_file():
        import ctypes

        ours = ctypes.PyDLL(str(_OURS))  # its functions take less time than to release the interpreter's lock
        ours.cudalinkTakeCalls.argtypes = (ctypes.c_char_p, ctypes.c_size_t)
        ours.cudalinkTakeCalls.restype = ctypes.c_ulong
        ours.cudalinkCover.restype = None
        ours.cudalinkNews.restype = ctypes.c_uint64
        ours.cudalinkLivePrograms.restype = ctypes.c_long
        if not ours.cudalinkLook() & _IMPOSSIBLE:  # watches what is loaded already
            _ours = ours
    return _ours


def counter() -> Callable[[], int]:
    """Return what counts `look` that would return something, and handles and violations of the contract."""
    return int if _ours is None else cast("Callable[[], int]", _ours.cudalinkNews)


def look() -> Look:
    """Return what happened since the last look, and watch what was loaded meanwhile."""
    answer = _ours.cudalinkLook() if _ours is not None else 0
    return Look(
        _take() if answer & _CALLS else (), bool(answer & _LATE), bool(answer & _REFUSED), bool(answer & _INPUT)
    )


def watch_nvrtc(functions: Iterable[str]) -> bool:
    """Redirect functions of NVRTC, too, from now on; returns whether that is possible here.

    `functions`: each has at most six parameters, none of them a floating-point number, and returns an nvrtcResult.
    """
    global _nvrtc  # noqa: PLW0603 (the library is one for the process)
    ours = start()
    if ours is not None and _nvrtc is None:
        import ctypes

        names = [function.encode() for function in functions]
        _nvrtc = (ctypes.c_char_p * (len(names) + 1))(*names)
        ours.cudalinkWatchNvrtc(_nvrtc)
    return ours is not None


def meddle(function: Any, *, nvjitlink: bool = True, nvrtc: bool = False) -> bool:
    """Ask a C function before each call from now on; returns whether that is possible here.

    `function`: gets the name of the function; returns what the call must answer instead of being made, or -1.
    `nvjitlink`: whether calls of nvJitLink are meant.
    `nvrtc`: whether calls of NVRTC are, which `watch_nvrtc` has redirected.
    """
    ours = start()
    if ours is not None:
        import ctypes

        ours.cudalinkMeddle(ctypes.cast(function, ctypes.c_void_p), nvjitlink, nvrtc)
    return ours is not None


def hide_driver(folder: Path) -> None:
    """Let every object of this process find no library of the driver from now on, where that is possible here.

    `folder`: one that does not exist, which the errors of the loader name.
    """
    if (ours := start()) is not None:
        ours.cudalinkHideDriver(os.fsencode(folder))


def live_programs() -> int:
    """Return how many programs of NVRTC were created and not destroyed since its functions are redirected."""
    return int(_ours.cudalinkLivePrograms()) if _ours is not None else 0


def live_handles() -> int:
    """Return how many handles were created and not destroyed while the contract was checked."""
    if _ours is None:
        return 0
    import ctypes

    return int(_ours.cudalinkContractAlive(ctypes.c_uint64(0), None, ctypes.c_uint(0)))


def take_refused_input() -> RefusedInput | None:
    """Return the input that nvJitLink refused last, once; None if there is none. Only behind a `look`."""
    import ctypes

    class About(ctypes.Structure):  # RefusedInput in native/jitlink_calls.h
        _fields_ = (
            ("size", ctypes.c_uint64),
            ("code", ctypes.c_int32),
            ("is_file", ctypes.c_int32),
            ("library", ctypes.c_char * 1024),
        )

    about, content = About(), ctypes.create_string_buffer(0)
    while _ours.cudalinkTakeRefusedInput(ctypes.byref(about), content, ctypes.c_size_t(len(content))):
        if about.size <= len(content):
            call = "nvJitLinkAddFile" if about.is_file else "nvJitLinkAddData"
            return RefusedInput(call, about.code, os.fsdecode(about.library), content.raw[: about.size])
        content = ctypes.create_string_buffer(about.size)
    return None


def _take() -> tuple[tuple[str, int], ...]:
    import ctypes

    path = ctypes.create_string_buffer(_PATH_SIZE)
    counts: dict[str, int] = {}
    while count := _ours.cudalinkTakeCalls(path, _PATH_SIZE):
        name = path.value.decode("utf-8", "surrogateescape")
        counts[name] = counts.get(name, 0) + int(count)
    return tuple(counts.items())


def postpone_until_native_code(begin: Callable[[], object]) -> Callable[[], None]:
    """Call `begin` before this process gets native code that can link: an extension module, or ctypes.

    Extension modules of the standard library do not count. Returns what cancels the call.
    """
    loader: Any = importlib.machinery.ExtensionFileLoader
    original = loader.create_module
    standard = Path(os.__file__).parent  # sysconfig knows it too, and takes 3 ms of every start of pytest
    folders = (standard, standard / "lib-dynload")
    left = [begin]

    def once() -> None:
        try:
            first = left.pop()  # at once, for every thread
        except IndexError:
            return
        cancel()
        first()

    def create_module(self: Any, spec: ModuleSpec) -> ModuleType | None:
        if Path(spec.origin or "").parent not in folders:
            once()
        module: ModuleType | None = original(self, spec)
        return module

    def cancel() -> None:
        if loader.create_module is create_module:
            loader.create_module = original
        waiting()

    if "ctypes" in sys.modules:
        begin()
        return lambda: None
    loader.create_module = create_module
    waiting = postpone(once, until=("ctypes",))
    return cancel
