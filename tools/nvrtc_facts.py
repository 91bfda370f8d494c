"""What one release's NVRTC writes and knows, read off its output: PTX ISA, NVVM IR, architectures and ELF headers."""

from __future__ import annotations

import ctypes
import re
from ctypes import byref, c_char_p, c_int, c_size_t, c_void_p
from dataclasses import dataclass
from pathlib import Path

_SOURCE = b'extern "C" __global__ void kernel(float *out) { *out = 1; }'


@dataclass(frozen=True)
class Facts:
    """What a release's NVRTC says of itself."""

    ptx_isa: tuple[int, int]  # in the PTX that it writes
    nvvm_ir: tuple[int, int]  # in the LTO-IR that it writes
    ltoir_format: int  # number of the format of its LTO-IR
    architectures: dict[int, str]  # the letters that may follow the number of each architecture
    osabi: dict[int, int]  # `EI_OSABI` of the cubins for each architecture


def facts_of(library: Path) -> Facts:
    """Return the facts of an NVRTC, which stays loaded: a process asks one release.

    Raises RuntimeError if NVRTC refuses what every release does.
    """
    for builtins in library.parent.glob("libnvrtc-builtins.so.*"):  # the library of 13.0 has no RUNPATH
        ctypes.CDLL(str(builtins))
    nvrtc = ctypes.CDLL(str(library))
    count = c_int()
    nvrtc.nvrtcGetNumSupportedArchs(byref(count))
    numbers = (c_int * count.value)()
    nvrtc.nvrtcGetSupportedArchs(numbers)
    known = sorted(numbers)
    letters = {
        number: "".join(x for x in "af" if _compiled(nvrtc, "CUBIN", f"-arch=sm_{number}{x}")) for number in known
    }
    ptx = _compiled(nvrtc, "PTX", f"-arch=compute_{known[-1]}")
    ltoir = _compiled(nvrtc, "LTOIR", f"-arch=sm_{known[-1]}", "-dlto")
    version = re.search(rb"\.version (\d+)\.(\d+)", ptx)
    if version is None or not ltoir:
        raise RuntimeError(f"{library} compiled no PTX or no LTO-IR for sm_{known[-1]}; ask it with another program")
    cubins = {number: _compiled(nvrtc, "CUBIN", f"-arch=sm_{number}") for number in known}
    return Facts(
        (int(version[1]), int(version[2])),
        (ltoir[6], ltoir[7]),
        ltoir[5],
        letters,
        {number: cubin[7] for number, cubin in cubins.items() if cubin},
    )


def _compiled(nvrtc: ctypes.CDLL, kind: str, *options: str) -> bytes:
    """What NVRTC makes of a kernel; empty if it refuses."""
    program, size = c_void_p(), c_size_t()
    nvrtc.nvrtcCreateProgram(byref(program), _SOURCE, b"kernel.cu", 0, None, None)
    words = (c_char_p * len(options))(*(option.encode() for option in options))
    code = b""
    if not nvrtc.nvrtcCompileProgram(program, len(options), words):
        getattr(nvrtc, f"nvrtcGet{kind}Size")(program, byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        getattr(nvrtc, f"nvrtcGet{kind}")(program, buffer)
        code = buffer.raw[: size.value]
    nvrtc.nvrtcDestroyProgram(byref(program))
    return code
