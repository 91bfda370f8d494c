"""Bugs on error paths: each function is right as long as no call fails, and its mended twin also then.

Each has the kind of finding that a fault sweep must report for it.
"""

import asyncio
import ctypes
import gc
import logging
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

from tests.planted import twins

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
        raise DriverError(f"{function} failed with error {code}")


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
    memory = c_uint64()
    call("cuMemAlloc_v2", byref(memory), SIZE)
    if stack is not None:
        stack.callback(free, memory)
    return memory


def free(address: c_uint64) -> None:
    call("cuMemFree_v2", address)


def made(function: str, destroy: str, stack: ExitStack | None, *arguments: object) -> c_void_p:
    handle = c_void_p()
    call(function, byref(handle), *arguments)
    if stack is not None:
        stack.callback(call, destroy, handle)
    return handle


def stream(stack: ExitStack | None = None) -> c_void_p:
    return made("cuStreamCreate", "cuStreamDestroy_v2", stack, 0)


# -- the bugs

BROKEN, MENDED, planted = twins(ExitStack)


def unseen(function: str, mended: bool, *arguments: object) -> None:
    """Call the driver without a look at its answer; mended, raise it."""
    if mended:
        call(function, *arguments)
    else:
        getattr(cuda, function)(*arguments)


@planted("leak")
def two_buffers(stack: ExitStack, mended: bool) -> None:
    if mended:
        memory(stack)
        memory(stack)
        return
    first = memory()
    second = memory()  # the first one stays if this fails
    free(second)
    free(first)


@planted("leak")
def link(stack: ExitStack, mended: bool) -> None:
    state = c_void_p()
    call("cuLinkCreate_v2", 0, None, None, byref(state))
    if mended:
        stack.callback(call, "cuLinkDestroy", state)
    call("cuLinkAddData_v2", state, 1, c_char_p(PTX), c_size_t(len(PTX) + 1), b"small", 0, None, None)
    if not mended:
        call("cuLinkDestroy", state)


@planted("leak")
def registered_memory(stack: ExitStack, mended: bool) -> None:
    buffer = ctypes.create_string_buffer(4096)
    call("cuMemHostRegister_v2", buffer, c_size_t(4096), 0)
    if mended:
        stack.callback(call, "cuMemHostUnregister", buffer)
    call("cuCtxSynchronize")
    if not mended:
        call("cuMemHostUnregister", buffer)


@planted("leak")
def clean_up_that_stops(stack: ExitStack, mended: bool) -> None:
    first, second = memory(stack if mended else None), memory(stack if mended else None)
    if not mended:
        stack.callback(lambda: (free(second), free(first)))  # a failure in between keeps the first one


@planted("swallowed")
def fill_without_a_look(stack: ExitStack, mended: bool) -> None:
    unseen("cuMemsetD8_v2", mended, memory(stack), c_uint(0), SIZE)


@planted("no-cause")
def error_from_none(stack: ExitStack, mended: bool) -> None:
    try:
        memory(stack)
    except DriverError as error:
        raise RuntimeError("the buffer could not be made") from (error if mended else None)


@planted("no-cause")
def nothing_instead_of_a_stream(stack: ExitStack, mended: bool) -> None:
    if mended:
        stream(stack)
        return
    handle = c_void_p()
    created = None if cuda.cuStreamCreate(byref(handle), 0) else handle
    stack.callback(call, "cuStreamDestroy_v2", c_void_p(created.value))  # type: ignore[union-attr]


@planted("no-cause")
def every_error_is_one(_stack: ExitStack, mended: bool) -> None:
    if mended:
        call("cuCtxSynchronize")
    elif cuda.cuCtxSynchronize():
        raise RuntimeError("something went wrong on the device")


@planted("crash")
def memory_that_is_not_there(_stack: ExitStack, mended: bool) -> None:
    memory = c_void_p()
    unseen("cuMemAllocHost_v2", mended, byref(memory), SIZE)
    ctypes.memset(memory.value or 0, 0, 64)
    call("cuMemFreeHost", memory)


@planted("hang")
def asking_for_ever(stack: ExitStack, mended: bool) -> None:
    asked = stream(stack)
    while (code := cuda.cuStreamQuery(asked)) == 600 or (code and not mended):
        pass
    if code:
        raise DriverError(f"cuStreamQuery failed with error {code}")


def fill(address: c_uint64) -> int:
    return int(cuda.cuMemsetD8_v2(address, c_uint(0), SIZE))


@planted("swallowed")
def log_line_of_every_run(stack: ExitStack, mended: bool) -> None:
    buffer = memory(stack)
    logging.getLogger("planted").warning("cuMemsetD8 of %#x", buffer.value)
    if fill(buffer) and mended:
        logging.getLogger("planted").warning("the buffer keeps what was in it")


@planted("swallowed")
def printed_by_every_run(stack: ExitStack, mended: bool) -> None:
    code = fill(memory(stack))
    print("cuMemsetD8: done" if not mended else f"cuMemsetD8: {code}")


@planted("swallowed")
def destructor_without_a_word(stack: ExitStack, mended: bool) -> None:
    class Filled:
        def __init__(self, buffer: c_uint64) -> None:
            self.buffer, self.me = buffer, self

        def __del__(self) -> None:
            with nullcontext() if mended else suppress(DriverError):
                call("cuMemsetD8_v2", self.buffer, c_uint(0), SIZE)

    Filled(memory(stack))
    gc.collect()


@planted("swallowed")
def task_whose_error_is_read(stack: ExitStack, mended: bool) -> None:
    async def main(buffer: c_uint64) -> None:
        async def filling() -> None:
            call("cuMemsetD8_v2", buffer, c_uint(0), SIZE)

        task = asyncio.create_task(filling())
        await asyncio.wait([task])
        if not mended:
            task.exception()  # which asyncio takes for a look at it

    asyncio.run(main(memory(stack)))


@planted("swallowed")
def thread_that_catches_all(stack: ExitStack, mended: bool) -> None:
    def filling(context: c_void_p, buffer: c_uint64) -> None:
        with nullcontext() if mended else suppress(Exception):
            call("cuCtxSetCurrent", context)
            call("cuMemsetD8_v2", buffer, c_uint(0), SIZE)

    context = c_void_p()
    call("cuCtxGetCurrent", byref(context))
    thread = threading.Thread(target=filling, args=(context, memory(stack)))
    thread.start()
    thread.join()


@planted("swallowed")
def warning_of_every_run(stack: ExitStack, mended: bool) -> None:
    buffer = memory(stack)
    warnings.warn("cuMemsetD8 is slow", stacklevel=1)
    if fill(buffer) and mended:
        warnings.warn("the buffer keeps what was in it", stacklevel=1)


@planted("no-cause")
def words_of_any_program(stack: ExitStack, mended: bool) -> None:
    if code := fill(memory(stack)):
        raise ValueError(f"error {code} of the driver" if mended else "invalid value of config key")


@planted("no-cause")
def amount_that_looks_like_a_code(stack: ExitStack, mended: bool) -> None:
    code = fill(memory(stack))
    done = [0] if not code else []
    if mended:
        assert not code, f"driver error {code}"
    assert len(done) == 1, f"assert {len(done)} == 1"  # as pytest would say it


@planted("no-cause")
def error_of_the_next_call(stack: ExitStack, mended: bool) -> None:
    buffer = memory(stack)
    with nullcontext() if mended else suppress(DriverError):
        call("cuMemsetD8_v2", buffer, c_uint(0), SIZE)
        return
    free(c_uint64(1))


@contextmanager
def pushed(context: c_void_p, mended: bool) -> Iterator[None]:
    call("cuCtxPushCurrent_v2", context)
    if mended:
        with ExitStack() as stack:
            stack.callback(call, "cuCtxPopCurrent_v2", None)
            yield
        return
    yield
    call("cuCtxPopCurrent_v2", None)


@planted("state")
def context_that_stays_pushed(_stack: ExitStack, mended: bool) -> None:
    context = c_void_p()
    call("cuCtxGetCurrent", byref(context))
    with pushed(context, mended):
        call("cuCtxSynchronize")


@planted("state")
def context_that_is_not_pushed_back(stack: ExitStack, mended: bool) -> None:
    context = c_void_p()
    call("cuCtxPopCurrent_v2", byref(context))
    if mended:
        stack.callback(call, "cuCtxPushCurrent_v2", context)
    call("cuDeviceGetAttribute", byref(c_int()), 16, 0)
    if not mended:
        call("cuCtxPushCurrent_v2", context)


_captured: list[c_void_p] = []


@planted("state")
def capture_that_goes_on(stack: ExitStack, mended: bool) -> None:
    if not _captured:  # as a library has both for the life of its process
        call("cuDevicePrimaryCtxRetain", byref(c_void_p()), 0)
        _captured.append(stream())
    captured, graph = _captured[0], c_void_p()

    def end() -> None:
        try:
            call("cuStreamEndCapture", captured, byref(graph))
        except DriverError:
            if mended:
                call("cuStreamDestroy_v2", _captured.pop())
            raise
        call("cuGraphDestroy", graph)

    call("cuStreamBeginCapture_v2", captured, 0)
    if mended:
        stack.callback(end)
    call("cuStreamIsCapturing", captured, byref(c_int()))
    if not mended:
        end()


@planted("state")
def capture_mode_that_stays(stack: ExitStack, mended: bool) -> None:
    mode = c_int(2)

    def exchange() -> None:
        call("cuThreadExchangeStreamCaptureMode", byref(mode))

    exchange()
    if mended:
        stack.callback(exchange)
    call("cuCtxSynchronize")
    if not mended:
        exchange()


@planted("state")
def thread_that_keeps_its_context(stack: ExitStack, mended: bool) -> None:
    def work(context: c_void_p, over: threading.Event) -> None:
        cuda.cuCtxSetCurrent(context) if not mended else call("cuCtxSetCurrent", context)
        begun.set()
        over.wait(20)

    context, begun, over = c_void_p(), threading.Event(), threading.Event()
    call("cuCtxGetCurrent", byref(context))
    thread = threading.Thread(target=work, args=(context, over), daemon=True)
    if mended:
        stack.callback(thread.join)
        stack.callback(over.set)
    thread.start()
    begun.wait(5)
    call("cuCtxSynchronize")
    over.set()
    thread.join()


_busy: list[str] = []


@planted("later")
def flag_that_stays(stack: ExitStack, mended: bool) -> None:
    assert not _busy, "in use"
    _busy.append("by me")
    if mended:
        stack.callback(_busy.clear)
    call("cuCtxSynchronize")
    _busy.clear()
