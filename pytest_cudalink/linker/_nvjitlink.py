"""The nvJitLink backend, through cuda-bindings."""

from __future__ import annotations

from typing import Any

from ..versions import CudaVersion
from .errors import LinkError

__all__ = ["NvJitLinkState"]

# nvJitLinkInputType of nvJitLink.h
_INPUT_TYPES = {"cubin": 1, "ptx": 2, "ltoir": 3, "fatbin": 4, "object": 5, "library": 6}


class NvJitLinkState:
    """One nvJitLink handle.

    Parameters
    ----------
    options : list of str
        As nvJitLink spells them.

    Raises
    ------
    LinkError
        If nvJitLink refuses the options.
    """

    name = "nvjitlink"

    def __init__(self, options: list[str]) -> None:
        from cuda.bindings import nvjitlink

        self._api: Any = nvjitlink
        self.handle = 0
        self.error_log = self.info_log = ""
        try:
            self.handle = nvjitlink.create(len(options), options)
        except nvjitlink.nvJitLinkError as error:
            raise self._failure("nvJitLinkCreate", error, hint=f"options: {' '.join(options)}") from error

    def add(self, kind: str, code: bytes, name: str) -> None:
        """Add one input; `LinkError` if it is refused."""
        try:
            self._api.add_data(self.handle, _INPUT_TYPES[kind], code, len(code), name)
        except self._api.nvJitLinkError as error:
            raise self._failure("nvJitLinkAddData", error) from error

    def complete(self, target: str) -> bytes:
        """Link, and fetch ``"cubin"``, ``"ptx"`` or ``"ltoir"``."""
        try:
            self._api.complete(self.handle)
            size = getattr(self._api, f"get_linked_{target}_size")(self.handle)
            image = bytearray(size)
            getattr(self._api, f"get_linked_{target}")(self.handle, image)
        except self._api.nvJitLinkError as error:
            raise self._failure("nvJitLinkComplete", error) from error
        self.read_logs()
        if "error   :" in self.error_log:
            # an undefined symbol is a success on a thread where a PTX was refused before (seen with 13.0.88)
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

    def close(self) -> None:
        """Keep the logs, destroy the handle; may be called again."""
        if not self.handle:
            return
        self.read_logs()
        handle, self.handle = self.handle, 0
        self._api.destroy(handle)

    def read_logs(self) -> None:
        """Copy both logs; does nothing once closed."""
        if self.handle:
            self.error_log, self.info_log = self._log("error"), self._log("info")

    def _log(self, which: str) -> str:
        size = getattr(self._api, f"get_{which}_log_size")(self.handle)
        if size <= 1:
            return ""
        buffer = bytearray(size)
        getattr(self._api, f"get_{which}_log")(self.handle, buffer)
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
    """Why linked LTO-IR cannot be fetched from this nvJitLink; empty when it can."""
    from cuda.bindings import nvjitlink

    if hasattr(nvjitlink, "get_linked_ltoir"):
        return ""
    return (
        f"link('ltoir') needs a cuda-bindings that has nvjitlink.get_linked_ltoir; install 'cuda-bindings>={version}'"
    )
