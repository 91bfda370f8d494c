"""The nvJitLink backend, through cuda-bindings; `linker.watched` says which calls are made otherwise, and why."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from ... import probes
from ...versions import CudaVersion
from ..errors import LinkError
from ..watched import WatchedLibrary, library
from .state import LinkState

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
            msg = "nvJitLinkDestroy failed"
            raise RuntimeError(msg)
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
    return (
        f"link('ltoir') needs a cuda-bindings that has nvjitlink.get_linked_ltoir; install 'cuda-bindings>={version}'"
    )
