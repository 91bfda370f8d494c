"""The nvJitLink backend, through cuda-bindings."""

from __future__ import annotations

from typing import Any

from ...versions import CudaVersion
from ..errors import LinkError
from .state import LinkState

__all__ = ["FETCHED", "INPUT_TYPES", "NvJitLinkState", "can_fetch_ltoir"]

# nvJitLinkInputType of nvJitLink.h
INPUT_TYPES = {"cubin": 1, "ptx": 2, "ltoir": 3, "fatbin": 4, "object": 5, "library": 6}
#: Targets as they are spelled in function names of nvJitLink.h.
FETCHED = {"cubin": "Cubin", "ptx": "Ptx", "ltoir": "LTOIR"}


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
        from cuda.bindings import nvjitlink

        super().__init__()
        self._api: Any = nvjitlink
        self._handle = 0
        try:
            self._handle = nvjitlink.create(len(options), options)
        except nvjitlink.nvJitLinkError as error:
            raise self._failure("nvJitLinkCreate", error, hint=f"options: {' '.join(options)}") from error

    @property
    def handle(self) -> int:
        return self._handle

    def _add(self, kind: str, code: bytes, name: bytes) -> None:
        try:
            self._api.add_data(self._handle, INPUT_TYPES[kind], code, len(code), name.decode())
        except self._api.nvJitLinkError as error:
            raise self._failure("nvJitLinkAddData", error) from error

    def _complete(self, target: str) -> bytes:
        fetched = FETCHED[target]
        call = "nvJitLinkComplete"
        try:
            self._api.complete(self._handle)
            call = f"nvJitLinkGetLinked{fetched}Size"
            image = bytearray(getattr(self._api, f"get_linked_{target}_size")(self._handle))
            call = f"nvJitLinkGetLinked{fetched}"
            getattr(self._api, f"get_linked_{target}")(self._handle, image)
        except self._api.nvJitLinkError as error:
            raise self._failure(call, error) from error
        self.read_logs()
        if "error   :" in self.error_log:
            # an undefined symbol is reported as success on a thread on which a PTX was refused before (13.0.88)
            msg = "nvJitLink: nvJitLinkComplete reported success, but its log has errors"
            raise LinkError(
                msg,
                backend=self.name,
                call="nvJitLinkComplete",
                code=0,
                error_log=self.error_log,
                info_log=self.info_log,
            )
        return bytes(image)

    def _release(self) -> None:
        handle, self._handle = self._handle, 0
        if handle:
            self._api.destroy(handle)

    def _read_logs(self) -> None:
        self.error_log, self.info_log = self._log("error"), self._log("info")

    def _log(self, which: str) -> str:
        size = getattr(self._api, f"get_{which}_log_size")(self._handle)
        if size <= 1:
            return ""
        buffer = bytearray(size)
        getattr(self._api, f"get_{which}_log")(self._handle, buffer)
        return buffer.rstrip(b"\0").decode("utf-8", "replace")

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
