"""The errors that compiling and linking raise."""

from __future__ import annotations

from typing import Any

from ..artifacts import Artifact
from ..versions import CudaVersion, Needs, skew_remedy


class CompileError(RuntimeError):
    """NVRTC refused a program.

    `call`: the NVRTC function that failed.
    `code_name`: the name of its result, such as ``"NVRTC_ERROR_COMPILATION"``.
    `log`: the compiler's log.
    """

    def __init__(self, call: str, code_name: str, log: str, name: str) -> None:
        self.call, self.code_name, self.log = call, code_name, log
        super().__init__(
            f"{call} failed: {code_name}, compiling {name!r}" + (f"\n{log.rstrip()}" if log.strip() else "")
        )


class LinkError(RuntimeError):
    """A linker or its library refused the inputs.

    `summary`: the first line of the message.
    `backend`: ``"driver"`` or ``"nvjitlink"``.
    `call`: the library function that failed; empty if the link was refused before any call.
    `code`: the result of that function, and `code_name` its name.
    `error_log`, `info_log`: what the library wrote before it failed.
    `input_name`: the refused input, and `artifact` what is known about it.
    `hint`: what to do about the error, if that is known.
    `version`: the CUDA version of the linker, if that is known.
    """

    def __init__(
        self,
        summary: str,
        *,
        backend: str,
        call: str = "",
        code: int | None = None,
        code_name: str = "",
        error_log: str = "",
        info_log: str = "",
        input_name: str | None = None,
        artifact: Artifact | None = None,
        hint: str = "",
        version: CudaVersion | None = None,
    ) -> None:
        self.summary = summary
        self.backend, self.call, self.code, self.code_name = backend, call, code, code_name
        self.error_log, self.info_log = error_log, info_log
        self.input_name, self.artifact, self.hint = input_name, artifact, hint
        self.version = version
        lines = [summary]
        if input_name is not None:
            lines.append(f"  input: {input_name!r}" + (f" ({artifact.describe()})" if artifact else ""))
        if hint:
            lines.append(f"  {hint}")
        lines += [f"  log: {line}" for line in error_log.strip().splitlines() if line.strip()]
        super().__init__("\n".join(lines))

    def with_context(self, **context: Any) -> LinkError:
        """Return the same error with more arguments of the constructor, which name the input and say what to do."""
        return LinkError(**vars(self) | {name: value for name, value in context.items() if value})


class VersionSkewError(LinkError):
    """An input was made by a newer CUDA than the linker understands."""


def skew_sentence(artifact: Artifact, needs: Needs, linker: CudaVersion, backend: str) -> str:
    """Return the sentence for an input that is newer than the linker, with both versions and what to do."""
    if artifact.producer and artifact.producer > linker:
        made = f"made by CUDA {artifact.producer}"
    elif needs.newer_than:
        made = f"made by a CUDA newer than {needs.version}"
    else:
        made = f"made for CUDA {needs.version}"
    return f"{made}, {skew_remedy(needs, linker, driver=backend == 'driver')}"
