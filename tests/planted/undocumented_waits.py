"""Programs that rely on waits which CUDA does not promise, and which GPUs keep; their twins wait for themselves.

Each has the call whose wait it relies on.
"""

import ctypes
import mmap
from ctypes import c_size_t, c_uint, c_uint64, c_void_p

from . import hidden_waits, twins
from .error_paths import call
from .order_bugs import SIZE, Pieces

#: The two bytes that a program sees: that it wrote, and that memory held before.
NEW, OLD = 7, 1


BROKEN, MENDED, planted = twins(Pieces)


def _wait(stream: c_void_p, mended: bool = True) -> None:
    """Wait for a stream, as a twin does; the program relies on another call."""
    if mended:
        call("cuStreamSynchronize", stream)


def _send(to: c_uint64, source: c_void_p, stream: c_void_p, size: int = SIZE) -> None:
    call("cuMemcpyHtoDAsync_v2", to, source, c_size_t(size), stream)


def _fill(to: c_uint64 | c_void_p, stream: c_void_p) -> None:
    call("cuMemsetD8Async", to, c_uint(NEW), c_size_t(SIZE), stream)


def _observed(where: c_void_p) -> int:
    return ctypes.string_at(where, SIZE)[0]


@planted("cuMemFreeHost")
def red_zone_checked(own: Pieces, mended: bool) -> None:
    """Free a pinned flag that a stream still clears, where no buffer has to be checked (openxla/xla#46093)."""
    stream, flag, buffers = own.stream(), own.pinned(OLD, kept=False), []
    _fill(flag, stream)
    for _ in buffers:
        _wait(stream)
    _wait(stream, mended)
    call("cuMemFreeHost", flag)


@planted("cuMemFree_v2")
def temporary_given_back(own: Pieces, mended: bool) -> None:
    """Free a buffer when a function returns, while its stream still writes there (rapidsai/rmm#1655)."""
    stream, temporary = own.stream(), hidden_waits.device()
    _fill(temporary, stream)
    _wait(stream, mended)
    call("cuMemFree_v2", temporary)
    _wait(stream)


@planted("cuMemcpyHtoDAsync_v2")
def message_sent(own: Pieces, mended: bool) -> None:
    """Send a message from a buffer of the host that is used again at once (rapidsai/rapidsmpf#1163)."""
    stream, memory, result = own.stream(), own.device(), own.pinned()
    message = ctypes.create_string_buffer(bytes([NEW]) * SIZE)
    _send(memory, c_void_p(ctypes.addressof(message)), stream)
    _wait(stream, mended)
    ctypes.memset(message, OLD, SIZE)
    call("cuMemcpyDtoHAsync_v2", result, memory, c_size_t(SIZE), stream)
    _wait(stream)
    assert _observed(result) == NEW


@planted("cuMemcpyHtoDAsync_v2")
def message_unmapped(own: Pieces, mended: bool) -> None:
    """Send a message from pages that the process gives back at once (rapidsai/rapidsmpf#1163)."""
    stream, memory, pages = own.stream(), own.device(), mmap.mmap(-1, SIZE)
    pages.write(bytes([NEW]) * SIZE)
    message = ctypes.c_char.from_buffer(pages)
    _send(memory, c_void_p(ctypes.addressof(message)), stream)
    _wait(stream, mended)
    del message
    pages.close()
    _wait(stream)


@planted("cuMemcpyHtoDAsync_v2")
def batch_sent(own: Pieces, mended: bool) -> None:
    """Send so much pageable memory that the driver waits for the stream, and use it again."""
    stream, memory = own.stream(), hidden_waits.device(hidden_waits.LARGE)
    own.callback(call, "cuMemFree_v2", memory)
    own.callback(_wait, stream)
    batch = hidden_waits.pageable(hidden_waits.LARGE)
    ctypes.memset(batch, NEW, hidden_waits.LARGE)
    _send(memory, batch, stream, hidden_waits.LARGE)
    _wait(stream, mended)
    ctypes.memset(batch, OLD, hidden_waits.LARGE)
    result = own.pinned()
    call("cuMemcpyDtoHAsync_v2", result, memory, c_size_t(SIZE), stream)
    _wait(stream)
    assert _observed(result) == NEW


@planted("cuMemcpyDtoHAsync_v2")
def result_read_back(own: Pieces, mended: bool) -> None:
    """Read a result that an asynchronous copy brings to pageable memory."""
    stream, memory, result = own.stream(), own.device(), hidden_waits.pageable()
    _fill(memory, stream)
    call("cuMemcpyDtoHAsync_v2", result, memory, c_size_t(SIZE), stream)
    _wait(stream, mended)
    assert _observed(result) == NEW


@planted("cuMemcpy")
def managed_result_read_back(own: Pieces, mended: bool) -> None:
    """Read a result that a copy without a stream brings to managed memory."""
    memory, shared = own.device(), hidden_waits.managed()
    own.callback(call, "cuMemFree_v2", shared)
    call("cuMemsetD8_v2", memory, c_uint(NEW), c_size_t(SIZE))
    call("cuMemcpy", shared, memory, c_size_t(SIZE))
    _wait(c_void_p(), mended)
    assert _observed(c_void_p(shared.value)) == NEW


@planted("cuArrayDestroy")
def array_dropped(own: Pieces, mended: bool) -> None:
    """Destroy an array to which a copy still goes."""
    stream, source, array = own.stream(), own.pinned(NEW), hidden_waits.array()
    call("cuMemcpyHtoAAsync_v2", array, c_size_t(0), source, c_size_t(SIZE), stream)
    _wait(stream, mended)
    call("cuArrayDestroy", array)
    _wait(stream)


@planted("cuModuleUnload")
def plugin_unloaded(own: Pieces, mended: bool) -> None:
    """Take the unloading of a module for a barrier, behind which a result is there."""
    stream, memory, result, module = own.stream(), own.device(), own.pinned(), hidden_waits.module()
    _fill(memory, stream)
    call("cuMemcpyDtoHAsync_v2", result, memory, c_size_t(SIZE), stream)
    _wait(stream, mended)
    call("cuModuleUnload", module)
    assert _observed(result) == NEW
