"""Twenty hidden waits: in a hot path of each function a call waits for unfinished work, and in that of its twin none.

Each function is given what wraps its hot path. `expected_waits.WAITS` says which call waits.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import AbstractContextManager
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_void_p
from functools import cache
from typing import Final

from .order_bugs import SIZE, HostFunction, Pieces, call

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
    made = c_uint64()
    call("cuMemAlloc_v2", byref(made), c_size_t(size))
    return made


def managed() -> c_uint64:
    """Managed memory that the hot path frees."""
    made = c_uint64()
    call("cuMemAllocManaged", byref(made), c_size_t(SIZE), 1)
    return made


def array() -> c_void_p:
    """An array of 64 floats."""
    made = c_void_p()
    call("cuArrayCreate_v2", byref(made), (c_uint64 * 3)(64, 0, 0x20 | 1 << 32))
    return made


@cache
def image() -> bytes:
    """A cubin with a kernel: to compile PTX takes as long as to wait."""
    state, made, size = c_void_p(), c_void_p(), c_size_t()
    call("cuLinkCreate_v2", 0, None, None, byref(state))
    call("cuLinkAddData_v2", state, 1, PTX, c_size_t(len(PTX) + 1), b"empty", 0, None, None)
    call("cuLinkComplete", state, byref(made), byref(size))
    content = ctypes.string_at(made.value or 0, size.value)
    call("cuLinkDestroy", state)
    return content


def module() -> c_void_p:
    """A module with a kernel."""
    made = c_void_p()
    call("cuModuleLoadData", byref(made), image())
    return made


def library(pieces: Pieces) -> c_void_p:
    """A library with a kernel."""
    made = c_void_p()
    call("cuLibraryLoadData", byref(made), image(), None, None, 0, None, None, 0)
    pieces.callback(call, "cuLibraryUnload", made)
    return made


def kernel(pieces: Pieces) -> c_void_p:
    """A kernel that no context has loaded."""
    made = c_void_p()
    call("cuLibraryGetKernel", byref(made), library(pieces), b"empty")
    return made


def fill(where: c_uint64 | c_void_p, stream: c_void_p) -> None:
    """Work for a stream."""
    call("cuMemsetD8Async", where, c_uint(1), c_size_t(SIZE), stream)


# -- waits


def buffer_freed(hot: Hot) -> None:
    """Free device memory."""
    with Pieces():
        memory = device()
        with hot():
            call("cuMemFree_v2", memory)


def managed_buffer_freed(hot: Hot) -> None:
    """Free managed memory."""
    with Pieces():
        memory = managed()
        with hot():
            call("cuMemFree_v2", memory)


def staging_freed(hot: Hot) -> None:
    """Free pinned memory."""
    with Pieces() as pieces:
        memory = pieces.pinned(kept=False)
        with hot():
            call("cuMemFreeHost", memory)


def pages_unregistered(hot: Hot) -> None:
    """Let memory of the host be pageable again."""
    with Pieces():
        memory = pageable(LARGE)
        call("cuMemHostRegister_v2", memory, c_size_t(SIZE), 0)
        with hot():
            call("cuMemHostUnregister", memory)


def result_to_pageable_memory(hot: Hot) -> None:
    """Copy a result, asynchronously as it seems, to memory that is not pinned."""
    with Pieces() as pieces:
        stream, memory, there = pieces.stream(BLOCKING), pieces.device(), pageable()
        with hot():
            fill(memory, stream)
            call("cuMemcpyDtoHAsync_v2", there, memory, c_size_t(SIZE), stream)


def number_read_back(hot: Hot) -> None:
    """Read a number of the device."""
    with Pieces() as pieces:
        memory, there = pieces.device(), pieces.pinned()
        with hot():
            call("cuMemcpyDtoH_v2", there, memory, c_size_t(4))


def parameters_sent(hot: Hot) -> None:
    """Send parameters without a stream."""
    with Pieces() as pieces:
        memory, there = pieces.device(), pageable()
        with hot():
            call("cuMemcpyHtoD_v2", memory, there, c_size_t(SIZE))


def pinned_parameters_sent(hot: Hot) -> None:
    """Send pinned parameters without a stream."""
    with Pieces() as pieces:
        memory, there = pieces.device(), pieces.pinned()
        with hot():
            call("cuMemcpyHtoD_v2", memory, there, c_size_t(SIZE))


def large_batch_sent(hot: Hot) -> None:
    """Send more pageable memory in a stream than the driver stages."""
    with Pieces() as pieces:
        stream, memory, there = pieces.stream(BLOCKING), device(LARGE), pageable(LARGE)
        pieces.callback(call, "cuMemFree_v2", memory)
        with hot():
            call("cuMemcpyHtoDAsync_v2", memory, there, c_size_t(LARGE), stream)


def staged_by_the_driver(hot: Hot) -> None:
    """Copy memory of the host to a staging buffer in a stream."""
    with Pieces() as pieces:
        stream, staging, there = pieces.stream(BLOCKING), pieces.pinned(), pageable()
        with hot():
            call("cuMemcpyAsync", staging, there, c_size_t(SIZE), stream)


def pinned_memory_cleared(hot: Hot) -> None:
    """Fill pinned memory without a stream."""
    with Pieces() as pieces:
        there = pieces.pinned()
        with hot():
            call("cuMemsetD8_v2", there, c_uint(0), c_size_t(SIZE))


def managed_memory_cleared(hot: Hot) -> None:
    """Fill managed memory without a stream."""
    with Pieces() as pieces:
        memory = managed()
        pieces.callback(call, "cuMemFree_v2", memory)
        with hot():
            call("cuMemsetD32_v2", memory, c_uint(0), c_size_t(SIZE // 4))


def copied_from_managed_memory(hot: Hot) -> None:
    """Copy managed memory to the device without a stream."""
    with Pieces() as pieces:
        memory, there = pieces.device(), managed()
        pieces.callback(call, "cuMemFree_v2", there)
        with hot():
            call("cuMemcpy", memory, there, c_size_t(SIZE))


def array_destroyed(hot: Hot) -> None:
    """Destroy an array."""
    with Pieces():
        made = array()
        with hot():
            call("cuArrayDestroy", made)


def stack_enlarged(hot: Hot) -> None:
    """Give kernels a larger stack."""
    with Pieces() as pieces:
        size = c_size_t()
        call("cuCtxGetLimit", byref(size), STACK_SIZE)
        pieces.callback(call, "cuCtxSetLimit", STACK_SIZE, size)
        with hot():
            call("cuCtxSetLimit", STACK_SIZE, c_size_t(size.value + 4096))


def module_loaded(hot: Hot) -> None:
    """Load a module."""
    with Pieces() as pieces:
        image()
        with hot():
            pieces.callback(call, "cuModuleUnload", module())


def module_unloaded(hot: Hot) -> None:
    """Unload a module."""
    with Pieces():
        made = module()
        with hot():
            call("cuModuleUnload", made)


def first_use_of_a_kernel(hot: Hot) -> None:
    """Ask for the function of a kernel that is not loaded yet."""
    with Pieces() as pieces:
        function, lazy = c_void_p(), kernel(pieces)
        with hot():
            call("cuKernelGetFunction", byref(function), lazy)


def event_awaited(hot: Hot) -> None:
    """Wait for an event."""
    with Pieces() as pieces:
        stream, memory, event = pieces.stream(BLOCKING), pieces.device(), pieces.event()
        with hot():
            fill(memory, stream)
            call("cuEventRecord", event, stream)
            call("cuEventSynchronize", event)


def stream_drained(hot: Hot) -> None:
    """Wait for a stream."""
    with Pieces() as pieces:
        stream, memory = pieces.stream(BLOCKING), pieces.device()
        with hot():
            fill(memory, stream)
            call("cuStreamSynchronize", stream)


# -- the twins


def buffer_given_back(hot: Hot) -> None:
    with Pieces() as pieces:
        stream, memory = pieces.stream(), c_uint64()
        call("cuMemAllocAsync", byref(memory), c_size_t(SIZE), stream)
        with hot():
            call("cuMemFreeAsync", memory, stream)


def managed_buffer_freed_later(hot: Hot) -> None:
    with Pieces() as pieces:
        stream, memory = pieces.stream(), managed()
        pieces.callback(call, "cuMemFree_v2", memory)
        with hot():
            fill(memory, stream)


def staging_kept(hot: Hot) -> None:
    with Pieces() as pieces:
        stream, memory, there = pieces.stream(), pieces.device(), pieces.pinned()
        with hot():
            call("cuMemcpyHtoDAsync_v2", memory, there, c_size_t(SIZE), stream)


def pages_stay_registered(hot: Hot) -> None:
    with Pieces() as pieces:
        stream, memory, there = pieces.stream(), pieces.device(), pageable(LARGE)
        call("cuMemHostRegister_v2", there, c_size_t(SIZE), 0)
        pieces.callback(call, "cuMemHostUnregister", there)
        with hot():
            call("cuMemcpyHtoDAsync_v2", memory, there, c_size_t(SIZE), stream)


def result_to_pinned_memory(hot: Hot) -> None:
    with Pieces() as pieces:
        stream, memory, there = pieces.stream(BLOCKING), pieces.device(), pieces.pinned()
        with hot():
            fill(memory, stream)
            call("cuMemcpyDtoHAsync_v2", there, memory, c_size_t(SIZE), stream)


def number_asked_for(hot: Hot) -> None:
    with Pieces() as pieces:
        stream, memory, there, event = pieces.stream(), pieces.device(), pieces.pinned(), pieces.event()
        with hot():
            call("cuMemcpyDtoHAsync_v2", there, memory, c_size_t(4), stream)
            call("cuEventRecord", event, stream)


def parameters_sent_in_a_stream(hot: Hot) -> None:
    with Pieces() as pieces:
        stream, memory, there = pieces.stream(BLOCKING), pieces.device(), pageable()
        with hot():
            call("cuMemcpyHtoDAsync_v2", memory, there, c_size_t(SIZE), stream)


def pinned_parameters_sent_in_a_stream(hot: Hot) -> None:
    with Pieces() as pieces:
        stream, memory, there = pieces.stream(BLOCKING), pieces.device(), pieces.pinned()
        with hot():
            call("cuMemcpyHtoDAsync_v2", memory, there, c_size_t(SIZE), stream)


def large_batch_pinned(hot: Hot) -> None:
    with Pieces() as pieces:
        stream, memory, there = pieces.stream(BLOCKING), device(LARGE), c_void_p()
        pieces.callback(call, "cuMemFree_v2", memory)
        call("cuMemHostAlloc", byref(there), c_size_t(LARGE), 0)
        pieces.callback(call, "cuMemFreeHost", there)
        with hot():
            call("cuMemcpyHtoDAsync_v2", memory, there, c_size_t(LARGE), stream)


def staged_by_a_host_function(hot: Hot) -> None:
    with Pieces() as pieces:
        stream, staging, there = pieces.stream(BLOCKING), pieces.pinned(), pageable()
        copies = HostFunction(lambda _: (ctypes.memmove(staging, there, SIZE), None)[1])
        with hot():
            call("cuLaunchHostFunc", stream, copies, None)
        call("cuCtxSynchronize")


def pinned_memory_cleared_in_a_stream(hot: Hot) -> None:
    with Pieces() as pieces:
        stream, there = pieces.stream(BLOCKING), pieces.pinned()
        with hot():
            fill(there, stream)


def managed_memory_cleared_in_a_stream(hot: Hot) -> None:
    with Pieces() as pieces:
        stream, memory = pieces.stream(BLOCKING), managed()
        pieces.callback(call, "cuMemFree_v2", memory)
        with hot():
            call("cuMemsetD32Async", memory, c_uint(0), c_size_t(SIZE // 4), stream)


def copied_from_managed_memory_in_a_stream(hot: Hot) -> None:
    with Pieces() as pieces:
        stream, memory, there = pieces.stream(BLOCKING), pieces.device(), managed()
        pieces.callback(call, "cuMemFree_v2", there)
        with hot():
            call("cuMemcpyAsync", memory, there, c_size_t(SIZE), stream)


def array_destroyed_later(hot: Hot) -> None:
    with Pieces() as pieces, hot():
        pieces.callback(call, "cuArrayDestroy", array())


def stack_looked_at(hot: Hot) -> None:
    with Pieces():
        size = c_size_t()
        with hot():
            call("cuCtxGetLimit", byref(size), STACK_SIZE)


def library_loaded(hot: Hot) -> None:
    with Pieces() as pieces:
        image()
        with hot():
            library(pieces)


def module_unloaded_later(hot: Hot) -> None:
    with Pieces() as pieces:
        function, made = c_void_p(), module()
        pieces.callback(call, "cuModuleUnload", made)
        with hot():
            call("cuModuleGetFunction", byref(function), made, b"empty")


def later_use_of_a_kernel(hot: Hot) -> None:
    with Pieces() as pieces:
        function, loaded = c_void_p(), kernel(pieces)
        call("cuKernelGetFunction", byref(function), loaded)
        with hot():
            call("cuKernelGetFunction", byref(function), loaded)


def event_asked(hot: Hot) -> None:
    with Pieces() as pieces:
        stream, memory, event, answer = pieces.stream(BLOCKING), pieces.device(), pieces.event(), c_int()
        with hot():
            fill(memory, stream)
            call("cuEventRecord", event, stream)
            call("cuStreamWaitEvent", pieces.stream(), event, 0)
            call("cuStreamIsCapturing", stream, byref(answer))


def stream_left_alone(hot: Hot) -> None:
    with Pieces() as pieces:
        stream, memory = pieces.stream(BLOCKING), pieces.device()
        with hot():
            fill(memory, stream)


#: Each function that waits, with the twin that does not.
TWINS: Final[dict[Callable[[Hot], None], Callable[[Hot], None]]] = {
    buffer_freed: buffer_given_back,
    managed_buffer_freed: managed_buffer_freed_later,
    staging_freed: staging_kept,
    pages_unregistered: pages_stay_registered,
    result_to_pageable_memory: result_to_pinned_memory,
    number_read_back: number_asked_for,
    parameters_sent: parameters_sent_in_a_stream,
    pinned_parameters_sent: pinned_parameters_sent_in_a_stream,
    large_batch_sent: large_batch_pinned,
    staged_by_the_driver: staged_by_a_host_function,
    pinned_memory_cleared: pinned_memory_cleared_in_a_stream,
    managed_memory_cleared: managed_memory_cleared_in_a_stream,
    copied_from_managed_memory: copied_from_managed_memory_in_a_stream,
    array_destroyed: array_destroyed_later,
    stack_enlarged: stack_looked_at,
    module_loaded: library_loaded,
    module_unloaded: module_unloaded_later,
    first_use_of_a_kernel: later_use_of_a_kernel,
    event_awaited: event_asked,
    stream_drained: stream_left_alone,
}
WAITS: Final = {function.__name__: function for function in TWINS}
SOUND: Final = {function.__name__: twin for function, twin in TWINS.items()}
