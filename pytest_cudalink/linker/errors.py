"""The errors that compiling and linking raise."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
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
        said = f"\n{log.rstrip()}" if log.strip() else ""
        super().__init__(f"{call} failed: {code_name}, compiling {name!r}{said}")


@dataclass(eq=False, repr=False)
class LinkError(RuntimeError):
    """A linker or its library refused the inputs."""

    summary: str  # the first line of the message
    _: KW_ONLY
    backend: str  # "driver" or "nvjitlink"
    call: str = ""  # the library function that failed; empty if the link was refused before any call
    code: int | None = None  # the result of that function
    code_name: str = ""  # the name of that result
    error_log: str = ""  # what the library wrote before it failed: errors
    info_log: str = ""  # and other lines
    input_name: str | None = None  # the refused input
    artifact: Artifact | None = None  # what is known about the refused input
    hint: str = ""  # what to do about the error, if that is known
    version: CudaVersion | None = None  # the CUDA version of the linker, if that is known

    def __post_init__(self) -> None:
        """Write the message."""
        lines = [self.summary]
        if self.input_name is not None:
            lines.append(f"  input: {self.input_name!r}" + (f" ({self.artifact.describe()})" if self.artifact else ""))
        if self.hint:
            lines.append(f"  {self.hint}")
        lines += [f"  log: {line}" for line in self.error_log.strip().splitlines() if line.strip()]
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
