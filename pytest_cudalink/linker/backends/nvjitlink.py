"""The nvJitLink backend, through cuda-bindings."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from ...versions import CudaVersion
from ..errors import LinkError
from ..fatal import start_watching, stop_watching
from .state import LinkState

__all__ = ["FETCHED", "INPUT_TYPES", "NvJitLinkState", "can_fetch_ltoir"]

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


class NvJitLinkState(LinkState):
    """One nvJitLink handle.

    Parameters
    ----------
    options : list of str
        Options as nvJitLink spells them.

    Raises
    ------
    LinkError
        If nvJitLink refuses the options.
    """

    name = "nvjitlink"

    def __init__(self, options: list[str]) -> None:
        super().__init__()
        self._api = api = _bindings()
        self._handle = 0
        try:
            self._handle = api.create(len(options), options)
        except api.nvJitLinkError as error:
            raise self._failure("nvJitLinkCreate", error, hint=f"options: {' '.join(options)}") from error

    @property
    def handle(self) -> int:
        return self._handle

    def _add(self, kind: str, code: bytes, name: bytes) -> None:
        api = self._api
        start_watching()
        try:
            api.add_data(self._handle, INPUT_TYPES[kind], code, len(code), name.decode())
        except api.nvJitLinkError as error:
            raise self._failure("nvJitLinkAddData", error) from error
        finally:
            fatal = stop_watching()
        if fatal:
            raise self._false_success("nvJitLinkAddData", f"it printed '{fatal}'")

    def _complete(self, target: str) -> bytes:
        api, handle = self._api, self._handle
        size_of, fetch = _FETCHERS[target]
        step = ""
        start_watching()
        try:
            api.complete(handle)
            step = size_of
            image = bytearray(getattr(api, size_of)(handle))
            step = fetch
            getattr(api, fetch)(handle, image)
        except api.nvJitLinkError as error:
            call = f"nvJitLinkGetLinked{FETCHED[target]}"
            failed = {"": "nvJitLinkComplete", size_of: f"{call}Size", fetch: call}[step]
            raise self._failure(failed, error) from error
        finally:
            fatal = stop_watching()
        self.read_logs()
        if "error   :" in self.error_log:
            # an undefined symbol is reported as success on a thread on which a PTX was refused before (13.0.88)
            raise self._false_success("nvJitLinkComplete", "its log has errors")
        if fatal:
            raise self._false_success("nvJitLinkComplete", f"it printed '{fatal}'")
        return bytes(image)

    def _release(self) -> None:
        handle, self._handle = self._handle, 0
        if handle:
            self._api.destroy(handle)

    def _read_logs(self) -> None:
        api, handle = self._api, self._handle
        self.error_log = self.info_log = ""
        if (size := api.get_error_log_size(handle)) > 1:
            api.get_error_log(handle, text := bytearray(size))
            self.error_log = text.rstrip(b"\0").decode("utf-8", "replace")
        if (size := api.get_info_log_size(handle)) > 1:
            api.get_info_log(handle, text := bytearray(size))
            self.info_log = text.rstrip(b"\0").decode("utf-8", "replace")

    def _false_success(self, call: str, finding: str) -> LinkError:
        self.read_logs()
        return LinkError(
            f"nvJitLink: {call} reported success, but {finding}",
            backend=self.name,
            call=call,
            code=0,
            error_log=self.error_log,
            info_log=self.info_log,
        )

    def _failure(self, call: str, error: Any, hint: str = "") -> LinkError:
        self.read_logs()
        code = int(error.status)
        code_name = "NVJITLINK_" + self._api.Result(code).name
        return LinkError(
            f"nvJitLink: {call} failed: {code_name} ({code})",
            backend=self.name,
            call=call,
            code=code,
            code_name=code_name,
            error_log=self.error_log,
            info_log=self.info_log,
            hint=hint,
        )


def can_fetch_ltoir(version: CudaVersion) -> str:
    """Return why linked LTO-IR cannot be fetched from this nvJitLink; empty if it can."""
    from cuda.bindings import nvjitlink

    if hasattr(nvjitlink, "get_linked_ltoir"):
        return ""
    return (
        f"link('ltoir') needs a cuda-bindings that has nvjitlink.get_linked_ltoir; install 'cuda-bindings>={version}'"
    )
