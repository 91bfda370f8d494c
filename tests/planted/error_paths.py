"""Twenty bugs on error paths: each function is right as long as no call fails, and its `mended` twin also then.

`expected.PLANTED` has the kind of finding that a fault sweep must report for each.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any, Final

cuda: Any = ctypes.CDLL("libcuda.so.1")

PTX = b""".version 8.0
.target sm_70
.address_size 64
.visible .entry small() { ret; }
"""
SIZE = c_size_t(64)


class DriverError(Exception):
    """A call of the driver failed."""


def call(function: str, *arguments: object) -> None:
    """Call the driver; raise what it answers."""
    if code := getattr(cuda, function)(*arguments):
        msg = f"{function} failed with error {code}"
        raise DriverError(msg)


@contextmanager
def current_context() -> Iterator[None]:
    context = c_void_p()
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", byref(context), 0)
    with ExitStack() as stack:
        stack.callback(call, "cuDevicePrimaryCtxRelease_v2", 0)
        call("cuCtxSetCurrent", context)
        yield


# -- pieces without bugs


def memory(stack: ExitStack | None = None) -> c_uint64:
    found = c_uint64()
    call("cuMemAlloc_v2", byref(found), SIZE)
    if stack is not None:
        stack.callback(free, found)
    return found


def free(address: c_uint64) -> None:
    call("cuMemFree_v2", address)


def made(function: str, destroy: str, stack: ExitStack | None, *arguments: object) -> c_void_p:
    found = c_void_p()
    call(function, byref(found), *arguments)
    if stack is not None:
        stack.callback(call, destroy, found)
    return found


def stream(stack: ExitStack | None = None) -> c_void_p:
    return made("cuStreamCreate", "cuStreamDestroy_v2", stack, 0)


def event(stack: ExitStack | None = None) -> c_void_p:
    return made("cuEventCreate", "cuEventDestroy_v2", stack, 0)


def graph(stack: ExitStack | None = None) -> c_void_p:
    return made("cuGraphCreate", "cuGraphDestroy", stack, 0)


def module(stack: ExitStack | None = None) -> c_void_p:
    return made("cuModuleLoadData", "cuModuleUnload", stack, c_char_p(PTX))


def pinned(stack: ExitStack | None = None) -> c_void_p:
    return made("cuMemAllocHost_v2", "cuMemFreeHost", stack, SIZE)


# -- the bugs

BROKEN: Final[dict[str, Callable[[], None]]] = {}
MENDED: Final[dict[str, Callable[[], None]]] = {}


def broken(function: Callable[[], None]) -> Callable[[], None]:
    """Enter a function with a bug."""
    BROKEN[function.__name__] = function
    return function


def mended(function: Callable[[], None]) -> Callable[[], None]:
    """Enter the twin without the bug: its name is that of the bug, behind ``mended_``."""
    MENDED[function.__name__.removeprefix("mended_")] = function
    return function


@broken
def two_buffers() -> None:
    first = memory()
    second = memory()  # the first one stays if this fails
    free(second)
    free(first)


@mended
def mended_two_buffers() -> None:
    with ExitStack() as stack:
        memory(stack)
        memory(stack)


@broken
def stream_and_event() -> None:
    made_stream = stream()
    made_event = event()
    call("cuEventDestroy_v2", made_event)
    call("cuStreamDestroy_v2", made_stream)


@mended
def mended_stream_and_event() -> None:
    with ExitStack() as stack:
        stream(stack)
        event(stack)


@broken
def copy_of_a_buffer() -> None:
    buffer, back = memory(), ctypes.create_string_buffer(64)
    call("cuMemcpyDtoH_v2", back, buffer, SIZE)
    free(buffer)


@mended
def mended_copy_of_a_buffer() -> None:
    with ExitStack() as stack:
        call("cuMemcpyDtoH_v2", ctypes.create_string_buffer(64), memory(stack), SIZE)


@broken
def graph_with_a_node() -> None:
    made_graph, node = graph(), c_void_p()
    call("cuGraphAddEmptyNode", byref(node), made_graph, None, c_size_t(0))
    call("cuGraphDestroy", made_graph)


@mended
def mended_graph_with_a_node() -> None:
    with ExitStack() as stack:
        call("cuGraphAddEmptyNode", byref(c_void_p()), graph(stack), None, c_size_t(0))


def add_ptx(state: c_void_p) -> None:
    call("cuLinkAddData_v2", state, 1, c_char_p(PTX), c_size_t(len(PTX) + 1), b"small", 0, None, None)


@broken
def link() -> None:
    state = c_void_p()
    call("cuLinkCreate_v2", 0, None, None, byref(state))
    add_ptx(state)
    call("cuLinkDestroy", state)


@mended
def mended_link() -> None:
    state = c_void_p()
    call("cuLinkCreate_v2", 0, None, None, byref(state))
    with ExitStack() as stack:
        stack.callback(call, "cuLinkDestroy", state)
        add_ptx(state)


@broken
def pinned_and_device() -> None:
    host = pinned()
    device = memory()
    free(device)
    call("cuMemFreeHost", host)


@mended
def mended_pinned_and_device() -> None:
    with ExitStack() as stack:
        pinned(stack)
        memory(stack)


@broken
def registered_memory() -> None:
    buffer = ctypes.create_string_buffer(4096)
    call("cuMemHostRegister_v2", buffer, c_size_t(4096), 0)
    call("cuCtxSynchronize")
    call("cuMemHostUnregister", buffer)


@mended
def mended_registered_memory() -> None:
    buffer = ctypes.create_string_buffer(4096)
    call("cuMemHostRegister_v2", buffer, c_size_t(4096), 0)
    try:
        call("cuCtxSynchronize")
    finally:
        call("cuMemHostUnregister", buffer)


@broken
def module_without_its_kernel() -> None:
    loaded = module()
    call("cuModuleGetFunction", byref(c_void_p()), loaded, b"small")
    call("cuModuleUnload", loaded)


@mended
def mended_module_without_its_kernel() -> None:
    with ExitStack() as stack:
        call("cuModuleGetFunction", byref(c_void_p()), module(stack), b"small")


@broken
def clean_up_that_stops() -> None:
    with ExitStack() as stack:
        first, second = memory(), memory()
        stack.callback(lambda: (free(second), free(first)))  # a failure in between keeps the first one


@mended
def mended_clean_up_that_stops() -> None:
    with ExitStack() as stack:
        memory(stack)
        memory(stack)


@broken
def fill_without_a_look() -> None:
    with ExitStack() as stack:
        cuda.cuMemsetD8_v2(memory(stack), c_uint(0), SIZE)


@mended
def mended_fill_without_a_look() -> None:
    with ExitStack() as stack:
        call("cuMemsetD8_v2", memory(stack), c_uint(0), SIZE)


@broken
def wait_without_a_look() -> None:
    with ExitStack() as stack:
        cuda.cuStreamSynchronize(stream(stack))


@mended
def mended_wait_without_a_look() -> None:
    with ExitStack() as stack:
        call("cuStreamSynchronize", stream(stack))


@broken
def record_that_may_fail() -> None:
    with ExitStack() as stack:
        one, other = stream(stack), event(stack)
        with suppress(DriverError):
            call("cuEventRecord", other, one)
        call("cuStreamWaitEvent", one, other, 0)


@mended
def mended_record_that_may_fail() -> None:
    with ExitStack() as stack:
        one, other = stream(stack), event(stack)
        call("cuEventRecord", other, one)
        call("cuStreamWaitEvent", one, other, 0)


@broken
def attribute_with_a_default() -> None:
    number = c_int()
    cuda.cuDeviceGetAttribute(byref(number), 16, 0)
    assert number.value >= 0  # 0 multiprocessors, if nobody has answered


@mended
def mended_attribute_with_a_default() -> None:
    number = c_int()
    call("cuDeviceGetAttribute", byref(number), 16, 0)
    assert number.value > 0


@broken
def copy_that_is_not_compared() -> None:
    with ExitStack() as stack:
        back = ctypes.create_string_buffer(64)
        cuda.cuMemcpyDtoH_v2(back, memory(stack), SIZE)
        assert len(back) == 64


@mended
def mended_copy_that_is_not_compared() -> None:
    with ExitStack() as stack:
        back = ctypes.create_string_buffer(64)
        call("cuMemcpyDtoH_v2", back, memory(stack), SIZE)
        assert len(back) == 64


@broken
def error_from_none() -> None:
    with ExitStack() as stack:
        try:
            memory(stack)
        except DriverError:
            msg = "the buffer could not be made"
            raise RuntimeError(msg) from None


@mended
def mended_error_from_none() -> None:
    with ExitStack() as stack:
        try:
            memory(stack)
        except DriverError as error:
            msg = "the buffer could not be made"
            raise RuntimeError(msg) from error


@broken
def nothing_instead_of_a_stream() -> None:
    with ExitStack() as stack:
        found = c_void_p()
        one = None if cuda.cuStreamCreate(byref(found), 0) else found
        stack.callback(call, "cuStreamDestroy_v2", c_void_p(one.value))  # type: ignore[union-attr]


@mended
def mended_nothing_instead_of_a_stream() -> None:
    with ExitStack() as stack:
        stream(stack)


@broken
def every_error_is_one() -> None:
    if cuda.cuCtxSynchronize():
        msg = "something went wrong on the device"
        raise RuntimeError(msg)


@mended
def mended_every_error_is_one() -> None:
    call("cuCtxSynchronize")


@broken
def memory_that_is_not_there() -> None:
    found = c_void_p()
    cuda.cuMemAllocHost_v2(byref(found), SIZE)
    ctypes.memset(found.value or 0, 0, 64)
    call("cuMemFreeHost", found)


@mended
def mended_memory_that_is_not_there() -> None:
    with ExitStack() as stack:
        ctypes.memset(pinned(stack), 0, 64)


@broken
def asking_for_ever() -> None:
    with ExitStack() as stack:
        one = stream(stack)
        while cuda.cuStreamQuery(one):
            pass


@mended
def mended_asking_for_ever() -> None:
    with ExitStack() as stack:
        one = stream(stack)
        while (code := cuda.cuStreamQuery(one)) == 600:
            pass
        if code:
            msg = f"cuStreamQuery failed with error {code}"
            raise DriverError(msg)


_busy: list[str] = []


@broken
def flag_that_stays() -> None:
    assert not _busy, "in use"
    _busy.append("by me")
    call("cuCtxSynchronize")
    _busy.clear()


_used: list[str] = []


@mended
def mended_flag_that_stays() -> None:
    assert not _used, "in use"
    _used.append("by me")
    try:
        call("cuCtxSynchronize")
    finally:
        _used.clear()
