"""Calling the reader of device code, which is C (`native/`): one call for one image."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

_FILE: Final = Path(__file__).parent / "lib" / "libcudalink-artifacts.so"
#: Bytes for the records of an image: almost always enough, so that one call is.
_SMALL, _LARGE, _SMALL_IMAGE = 4096, 131072, 65536


class ReaderError(RuntimeError):
    """The native reader is not built; the message says what to do."""


@cache
def reader() -> Callable[[bytes], bytes]:
    """The function that answers with the records about an image and its parts, laid out as in native/record.h.

    Raises ReaderError if the library was not built: on Windows, or when the package was copied and not installed.
    """
    import ctypes

    from ..compat.releases import LATEST_KNOWN

    if not _FILE.is_file():
        msg = (
            f"the reader of device code is not built: {_FILE} is missing. Install pytest-cudalink with pip on Linux "
            "(from a source tree this needs a C compiler or the ziglang wheel)"
        )
        raise ReaderError(msg)
    inspect = ctypes.CDLL(str(_FILE)).art_inspect
    inspect.argtypes = [ctypes.c_char_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint64]
    inspect.restype = ctypes.c_uint64
    latest = LATEST_KNOWN.major << 16 | LATEST_KNOWN.minor
    small, large = ctypes.c_char * _SMALL, ctypes.c_char * _LARGE  # types of arrays are slow to make
    string_at = ctypes.string_at

    def answer(data: bytes, room: int = 0) -> bytes:
        kind = ctypes.c_char * room if room else small if len(data) <= _SMALL_IMAGE else large
        out = kind()
        used: int = inspect(data, len(data), latest, out, len(out))
        if not used:
            raise MemoryError
        return string_at(out, used) if used <= len(out) else answer(data, used)

    return answer
