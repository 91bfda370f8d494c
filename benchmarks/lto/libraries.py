"""NVRTC and nvJitLink through ctypes: one copy of each in a process, with the fewest calls."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from ctypes import byref, c_char_p, c_size_t, c_uint32, c_void_p
from dataclasses import dataclass
from pathlib import Path

ARCH = "sm_90"
#: CUDA's numbers of the kinds, for nvJitLinkAddData.
NVJITLINK_TYPES = {"cubin": 1, "ptx": 2, "lto": 3}
#: NVRTC's options and the stem of its functions for the result, by kind; `whole` kinds are of a single source.
COMPILES = {
    "whole-cubin": ([f"-arch={ARCH}"], "CUBIN"),
    "whole-ptx": (["-arch=compute_90"], "PTX"),
    "ptx": (["-arch=compute_90", "-rdc=true"], "PTX"),
    "cubin": ([f"-arch={ARCH}", "-rdc=true"], "CUBIN"),
    "lto": (["-arch=compute_90", "-rdc=true", "-dlto"], "LTOIR"),
}
#: The options of nvJitLink, by kind of the units.
LINKS = {"ptx": [f"-arch={ARCH}"], "cubin": [f"-arch={ARCH}"], "lto": [f"-arch={ARCH}", "-lto"]}


class Refused(Exception):  # noqa: N818 (a result that the benchmark records)
    """A library or the driver refused. `text`: the log."""

    def __init__(self, call: str, code: int, text: str = "") -> None:
        super().__init__(f"{call} returned {code}: {text}" if text else f"{call} returned {code}")
        self.call, self.code, self.text = call, code, text


@dataclass(frozen=True)
class Linked:
    """A linked image, and the seconds from creating the linker to having the image."""

    image: bytes
    seconds: float


def opened(path: Path) -> tuple[ctypes.CDLL, float]:
    """Open a library; return it with the seconds that took."""
    start = time.perf_counter()
    library = ctypes.CDLL(str(path))
    return library, time.perf_counter() - start


def compile_unit(library: ctypes.CDLL, source: str, name: str, kind: str) -> bytes:
    """Compile one unit with NVRTC to one of `COMPILES`."""
    options, stem = COMPILES[kind]
    program, size = c_void_p(), c_size_t()
    written = (c_char_p * len(options))(*[option.encode() for option in options])
    _must(library, "nvrtcCreateProgram", byref(program), source.encode(), name.encode(), 0, None, None)
    code = library.nvrtcCompileProgram(program, len(options), written)
    if code:
        _must(library, "nvrtcGetProgramLogSize", program, byref(size))
        log = ctypes.create_string_buffer(size.value)
        _must(library, "nvrtcGetProgramLog", program, log)
        raise Refused("nvrtcCompileProgram", code, log.value.decode())
    _must(library, f"nvrtcGet{stem}Size", program, byref(size))
    image = ctypes.create_string_buffer(size.value)
    _must(library, f"nvrtcGet{stem}", program, image)
    _must(library, "nvrtcDestroyProgram", byref(program))
    return image.raw


def version(library: ctypes.CDLL) -> str:
    """Return the release of an nvJitLink, such as ``"13.0"``."""
    major, minor = c_uint32(), c_uint32()
    _must(library, "nvJitLinkVersion", byref(major), byref(minor))
    return f"{major.value}.{minor.value}"


def link(library: ctypes.CDLL, kind: str, units: Sequence[bytes]) -> Linked:
    """Link units of one kind with nvJitLink: create, add, complete, fetch, destroy.

    Raises Refused with nvJitLink's log.
    """
    handle, size = c_void_p(), c_size_t()
    options = LINKS[kind]
    written = (c_char_p * len(options))(*[option.encode() for option in options])
    start = time.perf_counter()
    _must(library, "nvJitLinkCreate", byref(handle), c_uint32(len(options)), written)
    try:
        for number, unit in enumerate(units):
            length, name = c_size_t(len(unit)), f"unit{number}".encode()
            _linked(library, handle, "nvJitLinkAddData", NVJITLINK_TYPES[kind], c_char_p(unit), length, name)
        _linked(library, handle, "nvJitLinkComplete")
        _linked(library, handle, "nvJitLinkGetLinkedCubinSize", byref(size))
        image = ctypes.create_string_buffer(size.value)
        _linked(library, handle, "nvJitLinkGetLinkedCubin", image)
        seconds = time.perf_counter() - start
    finally:
        _must(library, "nvJitLinkDestroy", byref(handle))
    return Linked(image.raw, seconds)


def nvrtc(folder: Path) -> ctypes.CDLL:
    """Open the NVRTC of a folder, after its built-ins: some releases look for those only by name."""
    for name in ("libnvrtc-builtins.so.*", "libnvrtc.so.*"):
        library = ctypes.CDLL(str(next(path for path in sorted(folder.glob(name)) if ".alt." not in path.name)))
    return library


def _must(library: ctypes.CDLL, name: str, *arguments: object) -> None:
    code = getattr(library, _exported(library, name))(*arguments)
    if code:
        raise Refused(name, code)


def _exported(library: ctypes.CDLL, name: str) -> str:
    """The name under which a library exports a function: nvJitLink adds its release."""
    if hasattr(library, name):
        return name
    return next(
        versioned
        for minor in range(10)
        for major in (12, 13)
        if hasattr(library, versioned := f"__{name}_{major}_{minor}")
    )


def _linked(library: ctypes.CDLL, handle: c_void_p, name: str, *arguments: object) -> None:
    try:
        _must(library, name, handle, *arguments)
    except Refused as refused:
        size = c_size_t()
        _must(library, "nvJitLinkGetErrorLogSize", handle, byref(size))
        log = ctypes.create_string_buffer(size.value + 1)
        _must(library, "nvJitLinkGetErrorLog", handle, log)
        raise Refused(name, refused.code, log.value.decode(errors="replace").strip()) from None
