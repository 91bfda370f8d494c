"""The address that an argument of cuda-bindings means."""

from __future__ import annotations

import ctypes
import numbers
from typing import Any


class _Buffer(ctypes.Structure):
    """Py_buffer, as Python's stable ABI has it."""

    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.py_object),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


def address_of(given: Any) -> int:
    """Return the address that an argument means: a number, a pointer of cuda-bindings, or an object with a buffer."""
    if given is None or isinstance(given, numbers.Integral):
        return int(given or 0)
    buffer = _Buffer()
    try:  # before int(), which reads a number out of bytes
        ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(given), ctypes.byref(buffer), 0)
    except TypeError:
        return int(given)
    address = buffer.buf or 0
    # the caller holds the object while the call lasts
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(buffer))
    return int(address)
