"""The nvJitLink backend, through cuda-bindings but for the calls that it cannot make for us.

Three measurements stand behind `WatchedLibrary`:

- nvJitLink 13.0 reads a cubin whose ``.debug_frame`` has another type, prints ``fatal   : Internal error: unexpected
  reloc section`` on stderr, and returns success and an image that lacks a part: so what it prints is watched.
- nvJitLink keeps the address of an input's name until it completes, while cuda-bindings passes a copy that is freed
  when the call returns: so names are passed as bytes that the caller keeps.
- An exception of a signal that arrives as cuda-bindings returns a handle loses the handle: so the library writes it
  into the caller's memory.
"""

import ctypes
import importlib
import sys
from collections.abc import Sequence
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_void_p
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from ... import probes
from ...versions import CudaVersion
from ..errors import LinkError
from .state import LinkState

_OURS = Path(__file__).parents[1] / "lib" / "libcudalink-watched.so"
_PRINTED_FATAL = 1 << 16  # native/watched.h


@cache
def _ours() -> Any:
    """Return our native library.

    Raises RuntimeError if it was not built: on Windows, or when the package was copied and not installed.
    """
    if not _OURS.is_file():
        where = " on Linux" if sys.platform == "win32" else ""
        msg = f"the linker's native library is not built: {_OURS} is missing; install pytest-cudalink with pip{where}"
        raise RuntimeError(msg)
    library = ctypes.CDLL(str(_OURS))
    library.cudalinkAddData.argtypes = (c_void_p, c_void_p, c_int, c_char_p, c_size_t, c_char_p)
    library.cudalinkComplete.argtypes = (c_void_p, c_void_p)
    library.cudalinkCreate.argtypes = (c_void_p, c_void_p, c_uint, c_void_p)
    library.cudalinkDestroy.argtypes = (c_void_p, c_void_p)
    library.cudalinkFatalLine.restype = c_char_p
    library.cudalinkWatch.argtypes = (c_void_p,)
    return library


@lru_cache(maxsize=64)
def _texts(options: tuple[str, ...]) -> Any:
    """Return the options as C takes them; nvJitLinkCreate only reads them."""
    return (c_char_p * len(options))(*(option.encode() for option in options))


class WatchedLibrary:
    """The watched functions of one libnvJitLink.

    `add_data`, `complete`, `create`, `destroy`: addresses of nvJitLinkAddData, nvJitLinkComplete, nvJitLinkCreate and
    nvJitLinkDestroy.
    """

    __slots__ = (
        *("_add", "_add_data", "_complete", "_completes", "_create", "_creates", "_destroy", "_destroys", "_line"),
    )

    def __init__(self, add_data: int, complete: int, create: int = 0, destroy: int = 0) -> None:
        ours = _ours()
        self._add_data, self._completes, self._creates, self._destroys = add_data, complete, create, destroy
        self._create, self._destroy = ours.cudalinkCreate, ours.cudalinkDestroy
        self._add, self._complete, self._line = ours.cudalinkAddData, ours.cudalinkComplete, ours.cudalinkFatalLine

    def create(self, handle: c_void_p, options: Sequence[str]) -> int:
        """Create a handle in the caller's memory, and return nvJitLink's result."""
        return int(self._create(self._creates, byref(handle), len(options), _texts(tuple(options))))

    def destroy(self, handle: c_void_p) -> int:
        """Destroy the handle in the caller's memory, and return nvJitLink's result; does nothing without one."""
        return int(self._destroy(self._destroys, byref(handle)))

    def add(self, handle: int, kind: int, data: bytes, name: bytes) -> int:
        """Add an input, and return nvJitLink's result; the caller keeps `name` until the handle is destroyed."""
        return int(self._add(self._add_data, handle, kind, data, len(data), name))

    def complete(self, handle: int) -> int:
        """Link, and return nvJitLink's result."""
        return int(self._complete(self._completes, handle))

    def split(self, result: int) -> tuple[int, str]:
        """Return the result of this thread's last call without our mark, and the fatal line that it printed or ``""``.

        Needed only for a result that is not 0.
        """
        if not result & _PRINTED_FATAL:
            return result, ""
        return result & ~_PRINTED_FATAL, self._line().decode("utf-8", "replace")


@cache
def library(path: str) -> WatchedLibrary:
    """Return the functions of the libnvJitLink at a path, which is loaded already, and watch what it prints."""
    loaded = ctypes.CDLL(path)
    _ours().cudalinkWatch(loaded._handle)  # noqa: SLF001 (ctypes has no public name for it)
    calls = ("nvJitLinkAddData", "nvJitLinkComplete", "nvJitLinkCreate", "nvJitLinkDestroy")
    return WatchedLibrary(*(ctypes.cast(getattr(loaded, call), c_void_p).value or 0 for call in calls))


# nvJitLinkInputType of nvJitLink.h
INPUT_TYPES = {"cubin": 1, "ptx": 2, "ltoir": 3, "fatbin": 4, "object": 5, "library": 6}
_MODULE = "cuda.bindings.nvjitlink"
#: Targets as they are spelled in function names of nvJitLink.h.
FETCHED = {"cubin": "Cubin", "ptx": "Ptx", "ltoir": "LTOIR"}
#: By target: the functions of cuda-bindings that return its size and fetch it.
_FETCHERS = {target: (f"get_linked_{target}_size", f"get_linked_{target}") for target in FETCHED}


def _bindings() -> Any:
    """Return cuda-bindings' module; importing it for each link would cost more than the look-up."""
    return sys.modules.get(_MODULE) or importlib.import_module(_MODULE)


class NvJitLinkErrors(LinkState):
    """What the links on nvJitLink have in common, in this process or in a link worker: their errors."""

    name = "nvjitlink"
    library = "nvJitLink"

    def _failure(self, call: str, code: int, hint: str = "") -> LinkError:
        self.read_logs()
        try:
            code_name = "NVJITLINK_" + _bindings().Result(code).name
        except ValueError:
            code_name = "a code that this cuda-bindings does not know"
        return self._link_error(f"{self.library}: {call} failed: {code_name} ({code})", call, code, code_name, hint)


class NvJitLinkState(NvJitLinkErrors):
    """One nvJitLink handle.

    `options`: as nvJitLink spells them.
    Raises LinkError if nvJitLink refuses the options.
    """

    def __init__(self, options: list[str]) -> None:
        super().__init__()
        self._api = _bindings()
        self._functions: WatchedLibrary = library(probes.nvjitlink().path or "")
        self._names: list[bytes] = []  # nvJitLink reads them when it completes
        try:
            result = self._functions.create(self._cell, options)
        except BaseException:
            self.close()
            raise
        if result:
            raise self._failure("nvJitLinkCreate", result, hint=f"options: {' '.join(options)}")

    def _add(self, kind: str, code: bytes, name: bytes) -> None:
        self._names.append(name)
        result = self._functions.add(self.handle, INPUT_TYPES[kind], code, name)
        if result:
            raise self._refused("nvJitLinkAddData", result)

    def _complete(self, target: str) -> bytes:
        api, handle = self._api, self.handle
        result = self._functions.complete(handle)
        if result:
            raise self._refused("nvJitLinkComplete", result)
        size_of, fetch = _FETCHERS[target]
        step = size_of
        try:
            image = bytearray(getattr(api, size_of)(handle))
            step = fetch
            getattr(api, fetch)(handle, image)
        except api.nvJitLinkError as error:
            size = "Size" if step == size_of else ""
            raise self._failure(f"nvJitLinkGetLinked{FETCHED[target]}{size}", int(error.status)) from error
        self.read_logs()
        # an undefined symbol is reported as success on a thread on which a PTX was refused before (13.0.88)
        self._refuse_logged_errors("nvJitLinkComplete")
        return bytes(image)

    def _release(self) -> None:
        if self._functions.destroy(self._cell):
            raise RuntimeError("nvJitLinkDestroy failed")
        self._names.clear()

    def _read_logs(self) -> None:
        api, handle = self._api, self.handle
        self.error_log = self.info_log = ""
        if (size := api.get_error_log_size(handle)) > 1:
            api.get_error_log(handle, text := bytearray(size))
            self.error_log = text.rstrip(b"\0").decode("utf-8", "replace")
        if (size := api.get_info_log_size(handle)) > 1:
            api.get_info_log(handle, text := bytearray(size))
            self.info_log = text.rstrip(b"\0").decode("utf-8", "replace")

    def _refused(self, call: str, result: int) -> LinkError:
        code, fatal = self._functions.split(result)
        if code:
            return self._failure(call, code)
        self.read_logs()
        return self._false_success(call, f"it printed '{fatal}'")


def can_fetch_ltoir(version: CudaVersion) -> str:
    """Return why linked LTO-IR cannot be fetched from this nvJitLink; empty if it can."""
    from cuda.bindings import nvjitlink

    if hasattr(nvjitlink, "get_linked_ltoir"):
        return ""
    lacks = "link('ltoir') needs a cuda-bindings that has nvjitlink.get_linked_ltoir"
    return f"{lacks}; install 'cuda-bindings>={version}'"
