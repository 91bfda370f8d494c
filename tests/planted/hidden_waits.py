"""Hidden waits: in a hot path of each function a call waits for unfinished work, and in that of its twin none.

Each function is given what wraps its hot path, and whether it is the twin; it has the call that waits.
"""

import ctypes
from collections.abc import Callable
from contextlib import AbstractContextManager
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p
from functools import cache
from typing import Final

from . import twins
from .error_paths import call, made
from .order_bugs import SIZE, Pieces

#: What a function wraps its hot path in.
Hot = Callable[[], AbstractContextManager[object]]

#: Of `Pieces.stream`: work of such a stream waits for that of the legacy stream.
BLOCKING: Final = 0
#: Bytes that are more than the driver stages of a pageable copy.
LARGE: Final = 4 << 20
#: CU_LIMIT_STACK_SIZE
STACK_SIZE: Final = 0

PTX: Final = b""".version 6.4
.target sm_75
.address_size 64
.visible .entry empty() { ret; }
"""


# -- pieces without waits


def pageable(size: int = SIZE) -> c_void_p:
    """Memory of the host that CUDA does not know; it lives for ever."""
    there = ctypes.pythonapi.PyMem_RawMalloc
    there.restype, there.argtypes = c_void_p, [c_size_t]
    return c_void_p(there(size))


def device(size: int = SIZE) -> c_uint64:
    """Device memory that the hot path frees."""
    memory = c_uint64()
    call("cuMemAlloc_v2", byref(memory), c_size_t(size))
    return memory


def managed() -> c_uint64:
    """Managed memory that the hot path frees."""
    memory = c_uint64()
    call("cuMemAllocManaged", byref(memory), c_size_t(SIZE), 1)
    return memory


def array() -> c_void_p:
    """An array of 64 floats."""
    return made("cuArrayCreate_v2", "", None, (c_uint64 * 3)(64, 0, 0x20 | 1 << 32))


@cache
def image() -> bytes:
    """A cubin with a kernel: to compile PTX takes as long as to wait."""
    state, linked, size = c_void_p(), c_void_p(), c_size_t()
    call("cuLinkCreate_v2", 0, None, None, byref(state))
    call("cuLinkAddData_v2", state, 1, PTX, c_size_t(len(PTX) + 1), b"empty", 0, None, None)
    call("cuLinkComplete", state, byref(linked), byref(size))
    content = ctypes.string_at(linked.value or 0, size.value)
    call("cuLinkDestroy", state)
    return content


def module() -> c_void_p:
    return made("cuModuleLoadData", "", None, image())


def library(pieces: Pieces) -> c_void_p:
    """A library with a kernel."""
    return made("cuLibraryLoadData", "cuLibraryUnload", pieces, image(), None, None, 0, None, None, 0)


def kernel(pieces: Pieces) -> c_void_p:
    """A kernel that no context has loaded."""
    return made("cuLibraryGetKernel", "", None, library(pieces), b"empty")


def fill(where: c_uint64 | c_void_p, stream: c_void_p) -> None:
    """Work for a stream."""
    call("cuMemsetD8Async", where, c_uint(1), c_size_t(SIZE), stream)


# -- waits, and the twins without them

#: Each function that waits, and its twin; they take what their hot path is wrapped in.
WAITS, SOUND, planted = twins(Pieces)


def in_stream(function: str, mended: str, pieces: Pieces, *arguments: object, hot: Hot, sound: bool) -> None:
    """Call a function in a hot path, or in its place the one that does the same in a stream."""
    stream = (pieces.stream(BLOCKING),) if sound else ()
    with hot():
        call(mended if sound else function, *arguments, *stream)


@planted("cuMemFree_v2")
def buffer_freed(pieces: Pieces, hot: Hot, mended: bool) -> None:
    """Free device memory; the twin gives it back to the pool of its stream."""
    if not mended:
        memory = device()
        with hot():
            call("cuMemFree_v2", memory)
        return
    stream, memory = pieces.stream(), c_uint64()
    call("cuMemAllocAsync", byref(memory), c_size_t(SIZE), stream)
    with hot():
        call("cuMemFreeAsync", memory, stream)


@planted("cuMemFreeHost")
def staging_freed(pieces: Pieces, hot: Hot, mended: bool) -> None:
    """Free pinned memory; the twin keeps it."""
    there = pieces.pinned(kept=mended)
    if not mended:
        with hot():
            call("cuMemFreeHost", there)
        return
    stream, memory = pieces.stream(), pieces.device()
    with hot():
        call("cuMemcpyHtoDAsync_v2", memory, there, c_size_t(SIZE), stream)


@planted("cuMemHostUnregister")
def pages_unregistered(pieces: Pieces, hot: Hot, mended: bool) -> None:
    """Let memory of the host be pageable again; the twin does it later."""
    stream, memory = (pieces.stream(), pieces.device()) if mended else (None, None)
    there = pageable(LARGE)
    call("cuMemHostRegister_v2", there, c_size_t(SIZE), 0)
    if not mended:
        with hot():
            call("cuMemHostUnregister", there)
        return
    pieces.callback(call, "cuMemHostUnregister", there)
    with hot():
        call("cuMemcpyHtoDAsync_v2", memory, there, c_size_t(SIZE), stream)


@planted("cuMemcpyDtoHAsync_v2")
def result_to_pageable_memory(pieces: Pieces, hot: Hot, mended: bool) -> None:
    """Copy a result, asynchronously as it seems, to memory that is not pinned."""
    stream, memory = pieces.stream(BLOCKING), pieces.device()
    there = pieces.pinned() if mended else pageable()
    with hot():
        fill(memory, stream)
        call("cuMemcpyDtoHAsync_v2", there, memory, c_size_t(SIZE), stream)


@planted("cuMemcpyDtoH_v2")
def number_read_back(pieces: Pieces, hot: Hot, mended: bool) -> None:
    """Read a number of the device; the twin asks for it."""
    memory, there = pieces.device(), pieces.pinned()
    if not mended:
        with hot():
            call("cuMemcpyDtoH_v2", there, memory, c_size_t(4))
        return
    stream, event = pieces.stream(), pieces.event()
    with hot():
        call("cuMemcpyDtoHAsync_v2", there, memory, c_size_t(4), stream)
        call("cuEventRecord", event, stream)


@planted("cuMemcpyHtoD_v2")
def parameters_sent(pieces: Pieces, hot: Hot, mended: bool) -> None:
    """Send parameters without a stream."""
    given = pieces.device(), pageable(), c_size_t(SIZE)
    in_stream("cuMemcpyHtoD_v2", "cuMemcpyHtoDAsync_v2", pieces, *given, hot=hot, sound=mended)


@planted("cuMemcpyHtoDAsync_v2")
def large_batch_sent(pieces: Pieces, hot: Hot, mended: bool) -> None:
    """Send more pageable memory in a stream than the driver stages; that of the twin is pinned."""
    stream, memory, there = pieces.stream(BLOCKING), device(LARGE), c_void_p()
    pieces.callback(call, "cuMemFree_v2", memory)
    if mended:
        call("cuMemHostAlloc", byref(there), c_size_t(LARGE), 0)
        pieces.callback(call, "cuMemFreeHost", there)
    else:
        there = pageable(LARGE)
    with hot():
        call("cuMemcpyHtoDAsync_v2", memory, there, c_size_t(LARGE), stream)


@planted("cuMemsetD8_v2")
def pinned_memory_cleared(pieces: Pieces, hot: Hot, mended: bool) -> None:
    """Fill pinned memory without a stream."""
    given = pieces.pinned(), c_uint(0), c_size_t(SIZE)
    in_stream("cuMemsetD8_v2", "cuMemsetD8Async", pieces, *given, hot=hot, sound=mended)


@planted("cuArrayDestroy")
def array_destroyed(pieces: Pieces, hot: Hot, mended: bool) -> None:
    """Destroy an array; the twin does it later."""
    destroyed = None if mended else array()
    with hot():
        if mended:
            pieces.callback(call, "cuArrayDestroy", array())
        else:
            call("cuArrayDestroy", destroyed)


@planted("cuCtxSetLimit")
def stack_enlarged(pieces: Pieces, hot: Hot, mended: bool) -> None:
    """Give kernels a larger stack; the twin looks at it."""
    size = c_size_t()
    if mended:
        with hot():
            call("cuCtxGetLimit", byref(size), STACK_SIZE)
        return
    call("cuCtxGetLimit", byref(size), STACK_SIZE)
    pieces.callback(call, "cuCtxSetLimit", STACK_SIZE, size)
    with hot():
        call("cuCtxSetLimit", STACK_SIZE, c_size_t(size.value + 4096))


@planted("cuModuleLoadData")
def module_loaded(pieces: Pieces, hot: Hot, mended: bool) -> None:
    """Load a module; the twin loads a library."""
    image()
    with hot():
        if mended:
            library(pieces)
        else:
            pieces.callback(call, "cuModuleUnload", module())


@planted("cuKernelGetFunction")
def first_use_of_a_kernel(pieces: Pieces, hot: Hot, mended: bool) -> None:
    """Ask for the function of a kernel that is not loaded yet; that of the twin is."""
    function, asked = c_void_p(), kernel(pieces)
    if mended:
        call("cuKernelGetFunction", byref(function), asked)
    with hot():
        call("cuKernelGetFunction", byref(function), asked)


@planted("cuEventSynchronize")
def event_awaited(pieces: Pieces, hot: Hot, mended: bool) -> None:
    """Wait for an event; a stream of the twin does."""
    stream, memory, event, answer = pieces.stream(BLOCKING), pieces.device(), pieces.event(), c_int()
    with hot():
        fill(memory, stream)
        call("cuEventRecord", event, stream)
        if mended:
            call("cuStreamWaitEvent", pieces.stream(), event, 0)
            call("cuStreamIsCapturing", stream, byref(answer))
        else:
            call("cuEventSynchronize", event)


@planted("cuStreamSynchronize")
def stream_drained(pieces: Pieces, hot: Hot, mended: bool) -> None:
    """Wait for a stream; the twin leaves it alone."""
    stream, memory = pieces.stream(BLOCKING), pieces.device()
    with hot():
        fill(memory, stream)
        if not mended:
            call("cuStreamSynchronize", stream)
