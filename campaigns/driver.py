"""Calls of a CUDA driver by their names, and files of what drivers answered; it needs no package but Python."""

import ctypes
import json
import lzma
from pathlib import Path
from typing import Any


class Driver:
    """The functions of a libcuda, which nothing has initialized."""

    def __init__(self, library: str = "libcuda.so.1") -> None:
        self.cuda = ctypes.CDLL(library)

    def do(self, name: str, *arguments: Any) -> int:
        """Call a function; numbers go as 64 bits, which no calling convention of Linux minds."""
        return int(getattr(self.cuda, name)(*[ctypes.c_uint64(a) if type(a) is int else a for a in arguments]))

    def must(self, name: str, *arguments: Any) -> None:
        """Call a function, and fail on anything but CUDA_SUCCESS."""
        if code := self.do(name, *arguments):
            raise RuntimeError(f"{name} answers {code} where 0 is expected")

    def made(self, name: str, *arguments: Any) -> int:
        """Call a function that writes a handle, an address or a number first, and return that."""
        there = ctypes.c_uint64()
        self.must(name, ctypes.byref(there), *arguments)
        return there.value

    def start(self, device: int = 0) -> int:
        """Initialize the driver, and make the primary context of a device current; return the context."""
        self.must("cuInit", 0)
        context = self.made("cuDevicePrimaryCtxRetain", device)
        self.must("cuCtxSetCurrent", context)
        return context


def load(path: Path) -> dict[str, Any]:
    """The content of a recording."""
    data = path.read_bytes()
    return dict(json.loads(lzma.decompress(data) if path.suffix == ".xz" else data))


def save(path: Path, content: Any) -> None:
    """Write a recording, with a line for each row."""
    text = json.dumps(content, separators=(",", ":")).replace("},{", "},\n{") + "\n"
    path.write_bytes(lzma.compress(text.encode(), preset=9) if path.suffix == ".xz" else text.encode())
