"""Programs that rely on waits which CUDA does not promise, and which GPUs keep; their twins wait for themselves.

`expected_waits.RELIES` says which call each of them relies on.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable
from ctypes import c_size_t, c_uint, c_uint64, c_void_p
from functools import partial
from typing import Final

from . import hidden_waits
from .error_paths import call
from .expected_waits import RELIES
from .order_bugs import SIZE, Pieces

#: The two bytes that a program sees: that it wrote, and that memory held before.
NEW, OLD = 7, 1


def _wait(stream: c_void_p) -> None:
    call("cuStreamSynchronize", stream)


def _nothing(_: c_void_p) -> None:
    """Wait for nothing."""


#: How a program waits for a stream: its twin does, and the program relies on another call.
Waits = Callable[[c_void_p], None]


def _send(to: c_uint64, source: c_void_p, stream: c_void_p, size: int = SIZE) -> None:
    call("cuMemcpyHtoDAsync_v2", to, source, c_size_t(size), stream)


def _fill(to: c_uint64 | c_void_p, stream: c_void_p) -> None:
    call("cuMemsetD8Async", to, c_uint(NEW), c_size_t(SIZE), stream)


def _seen(where: c_void_p) -> int:
    return ctypes.string_at(where, SIZE)[0]


def red_zone_checked(wait: Waits) -> None:
    """Free a pinned flag that a stream still clears, where no buffer has to be checked (openxla/xla#46093)."""
    with Pieces() as own:
        stream, flag, buffers = own.stream(), own.pinned(OLD, kept=False), []
        _fill(flag, stream)
        for _ in buffers:
            _wait(stream)
        wait(stream)
        call("cuMemFreeHost", flag)


def temporary_given_back(wait: Waits) -> None:
    """Free a buffer when a function returns, while its stream still writes there (rapidsai/rmm#1655)."""
    with Pieces() as own:
        stream, temporary = own.stream(), hidden_waits.device()
        _fill(temporary, stream)
        wait(stream)
        call("cuMemFree_v2", temporary)
        _wait(stream)


def message_sent(wait: Waits) -> None:
    """Send a message from a buffer of the host that is used again at once (rapidsai/rapidsmpf#1163)."""
    with Pieces() as own:
        stream, memory, result = own.stream(), own.device(), own.pinned()
        message = ctypes.create_string_buffer(bytes([NEW]) * SIZE)
        _send(memory, c_void_p(ctypes.addressof(message)), stream)
        wait(stream)
        ctypes.memset(message, OLD, SIZE)
        call("cuMemcpyDtoHAsync_v2", result, memory, c_size_t(SIZE), stream)
        _wait(stream)
        assert _seen(result) == NEW


def message_unmapped(wait: Waits) -> None:
    """Send a message from pages that the process gives back at once (rapidsai/rapidsmpf#1163)."""
    with Pieces() as own:
        stream, memory, pages = own.stream(), own.device(), mmap.mmap(-1, SIZE)
        pages.write(bytes([NEW]) * SIZE)
        message = ctypes.c_char.from_buffer(pages)
        _send(memory, c_void_p(ctypes.addressof(message)), stream)
        wait(stream)
        del message
        pages.close()
        _wait(stream)


def batch_sent(wait: Waits) -> None:
    """Send so much pageable memory that the driver waits for the stream, and use it again."""
    with Pieces() as own:
        stream, memory = own.stream(), hidden_waits.device(hidden_waits.LARGE)
        own.callback(call, "cuMemFree_v2", memory)
        own.callback(_wait, stream)
        batch = hidden_waits.pageable(hidden_waits.LARGE)
        ctypes.memset(batch, NEW, hidden_waits.LARGE)
        _send(memory, batch, stream, hidden_waits.LARGE)
        wait(stream)
        ctypes.memset(batch, OLD, hidden_waits.LARGE)
        result = own.pinned()
        call("cuMemcpyDtoHAsync_v2", result, memory, c_size_t(SIZE), stream)
        _wait(stream)
        assert _seen(result) == NEW


def result_read_back(wait: Waits) -> None:
    """Read a result that an asynchronous copy brings to pageable memory."""
    with Pieces() as own:
        stream, memory, result = own.stream(), own.device(), hidden_waits.pageable()
        _fill(memory, stream)
        call("cuMemcpyDtoHAsync_v2", result, memory, c_size_t(SIZE), stream)
        wait(stream)
        assert _seen(result) == NEW


def managed_result_read_back(wait: Waits) -> None:
    """Read a result that a copy without a stream brings to managed memory."""
    with Pieces() as own:
        memory, shared = own.device(), hidden_waits.managed()
        own.callback(call, "cuMemFree_v2", shared)
        call("cuMemsetD8_v2", memory, c_uint(NEW), c_size_t(SIZE))
        call("cuMemcpy", shared, memory, c_size_t(SIZE))
        wait(c_void_p())
        assert _seen(c_void_p(shared.value)) == NEW


def array_dropped(wait: Waits) -> None:
    """Destroy an array to which a copy still goes."""
    with Pieces() as own:
        stream, source, array = own.stream(), own.pinned(NEW), hidden_waits.array()
        call("cuMemcpyHtoAAsync_v2", array, c_size_t(0), source, c_size_t(SIZE), stream)
        wait(stream)
        call("cuArrayDestroy", array)
        _wait(stream)


def plugin_unloaded(wait: Waits) -> None:
    """Take the unloading of a module for a barrier, behind which a result is there."""
    with Pieces() as own:
        stream, memory, result, module = own.stream(), own.device(), own.pinned(), hidden_waits.module()
        _fill(memory, stream)
        call("cuMemcpyDtoHAsync_v2", result, memory, c_size_t(SIZE), stream)
        wait(stream)
        call("cuModuleUnload", module)
        assert _seen(result) == NEW


def scratch_freed_behind(wait: Waits) -> None:
    """Take the freeing of another buffer for a barrier, behind which a result is there."""
    with Pieces() as own:
        stream, memory, result, scratch = own.stream(), own.device(), own.pinned(), hidden_waits.device()
        _fill(memory, stream)
        call("cuMemcpyDtoHAsync_v2", result, memory, c_size_t(SIZE), stream)
        wait(stream)
        call("cuMemFree_v2", scratch)
        assert _seen(result) == NEW


BROKEN: Final = {name: partial(globals()[name], _nothing) for name in RELIES}
MENDED: Final = {name: partial(globals()[name], _wait) for name in RELIES}
