"""The nvJitLink backend, through cuda-bindings but for the calls that it cannot make for us.

Three measurements stand behind `WatchedFunctions`:

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
from collections.abc import Callable
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_void_p
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from ... import probes
from ...versions import CudaVersion
from ..errors import LinkError
from .state import LinkState

_OURS = Path(__file__).parents[1] / "lib" / "libcudalink-watched.so"
_PRINTED_FATAL = 1 << 16  # native/watched.h
#: The functions of `WatchedFunctions`, as nvJitLink and our library name them.
_CALLS = ("Create", "Destroy", "AddData", "Complete")


@cache
def _ours() -> Any:
    """Return our native library.

    Raises RuntimeError if it was not built: on Windows, or when the package was copied and not installed.
    """
    if not _OURS.is_file():
        msg = f"the linker's native library is not built: {_OURS} is missing; install pytest-cudalink with pip on Linux"
        raise RuntimeError(msg)
    library = ctypes.CDLL(str(_OURS))
    library.cudalinkAddData.argtypes = (c_void_p, c_void_p, c_int, c_char_p, c_size_t, c_char_p)
    library.cudalinkComplete.argtypes = (c_void_p, c_void_p)
    library.cudalinkCreate.argtypes = (c_void_p, c_void_p, c_uint, c_void_p)
    library.cudalinkDestroy.argtypes = (c_void_p, c_void_p)
    library.cudalinkFatalLine.restype = c_char_p
    library.cudalinkWatch.argtypes = (c_void_p,)
    return library


class WatchedFunctions(NamedTuple):
    """The functions of one libnvJitLink, each in one call of our C, which returns nvJitLink's result.

    `create` and `destroy` get the address of the caller's memory for the handle: without a handle the latter does
    nothing. The caller of `add` keeps the name until the handle is destroyed.
    """

    create: Callable[..., int]
    destroy: Callable[..., int]
    add: Callable[..., int]
    complete: Callable[..., int]


def split(result: int) -> tuple[int, str]:
    """Return the result of this thread's last call without our mark, and the fatal line that it printed or ``""``.

    Needed only for a result that is not 0.
    """
    fatal = _ours().cudalinkFatalLine().decode("utf-8", "replace") if result & _PRINTED_FATAL else ""
    return result & ~_PRINTED_FATAL, fatal


@cache
def library(path: str) -> WatchedFunctions:
    """Return the functions of the libnvJitLink at a path, which is loaded already, and watch what it prints."""
    loaded, ours = ctypes.CDLL(path), _ours()
    ours.cudalinkWatch(loaded._handle)  # noqa: SLF001 (ctypes has no public name for it)
    calls = {name: ctypes.cast(getattr(loaded, f"nvJitLink{name}"), c_void_p) for name in _CALLS}
    return WatchedFunctions(*(partial(getattr(ours, f"cudalink{name}"), call) for name, call in calls.items()))


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
        self._functions = library(probes.nvjitlink().path or "")
        self._names: list[bytes] = []  # nvJitLink reads them when it completes
        try:
            texts = (c_char_p * len(options))(*(option.encode() for option in options))
            result = self._functions.create(byref(self._cell), len(options), texts)
        except BaseException:
            self.close()
            raise
        if result:
            raise self._failure("nvJitLinkCreate", result, hint=f"options: {' '.join(options)}")

    def _add(self, kind: str, code: bytes, name: bytes) -> None:
        self._names.append(name)
        result = self._functions.add(self.handle, INPUT_TYPES[kind], code, len(code), name)
        if result:
            raise self._refused("nvJitLinkAddData", result)

    def _complete(self, target: str) -> bytes:
        api, handle = self._api, self.handle
        result = self._functions.complete(handle)
        if result:
            raise self._refused("nvJitLinkComplete", result)
        size_of, fetch = _FETCHERS[target]
        step = "Size"
        try:
            image = bytearray(getattr(api, size_of)(handle))
            step = ""
            getattr(api, fetch)(handle, image)
        except api.nvJitLinkError as error:
            raise self._failure(f"nvJitLinkGetLinked{FETCHED[target]}{step}", int(error.status)) from error
        self.read_logs()
        # an undefined symbol is reported as success on a thread on which a PTX was refused before (13.0.88)
        self._refuse_logged_errors("nvJitLinkComplete")
        return bytes(image)

    def _release(self) -> None:
        if self._functions.destroy(byref(self._cell)):
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
        code, fatal = split(result)
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
