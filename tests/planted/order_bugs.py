"""Fifteen bugs of order: each function is right in the order in which work usually ends, and its twin in all.

Each has the pair that the check of order names, as (what the first does, the calls of the two), or None where only a
schedule shows it: the host itself reads or writes memory, which no driver sees.
"""

import ctypes
import threading
import time
from contextlib import ExitStack
from ctypes import byref, c_int, c_size_t, c_uint, c_uint32, c_uint64, c_void_p
from typing import Final, Self

from tests.planted import twins
from tests.planted.error_paths import call, cuda, made

SIZE: Final = 256
#: CUDA's handle of the default stream of a thread, and its flag for streams.
PER_THREAD, NON_BLOCKING = c_void_p(2), 1
HostFunction = ctypes.CFUNCTYPE(None, c_void_p)
Callback = ctypes.CFUNCTYPE(None, c_void_p, c_int, c_void_p)


# -- pieces without bugs


class Pieces(ExitStack):
    """What a function uses, freed at its end, when all work is done."""

    def __enter__(self) -> Self:
        super().__enter__()
        context = c_void_p()
        call("cuInit", 0)
        call("cuDevicePrimaryCtxRetain", byref(context), 0)
        self.callback(call, "cuDevicePrimaryCtxRelease_v2", 0)
        call("cuCtxSetCurrent", context)
        return self

    def __exit__(self, *raised: object) -> bool | None:
        call("cuCtxSynchronize")
        return super().__exit__(*raised)  # type: ignore[arg-type]

    def stream(self, flags: int = NON_BLOCKING) -> c_void_p:
        return made("cuStreamCreate", "cuStreamDestroy_v2", self, flags)

    def event(self) -> c_void_p:
        return made("cuEventCreate", "cuEventDestroy_v2", self, 2)

    def device(self) -> c_uint64:
        memory = c_uint64()
        call("cuMemAlloc_v2", byref(memory), c_size_t(SIZE))
        self.callback(call, "cuMemFree_v2", memory)
        call("cuMemsetD8_v2", memory, c_uint(0), c_size_t(SIZE))
        call("cuCtxSynchronize")
        return memory

    def pinned(self, value: int = 0, *, kept: bool = True) -> c_void_p:
        memory = made("cuMemHostAlloc", "cuMemFreeHost", self if kept else None, c_size_t(SIZE), 0)
        ctypes.memset(memory, value, SIZE)
        return memory


def upload(to: c_uint64, source: c_void_p, stream: c_void_p) -> None:
    call("cuMemcpyHtoDAsync_v2", to, source, c_size_t(SIZE), stream)


def download(to: c_void_p, source: c_uint64, stream: c_void_p) -> None:
    call("cuMemcpyDtoHAsync_v2", to, source, c_size_t(SIZE), stream)


def copy(to: c_uint64, source: c_uint64, stream: c_void_p) -> None:
    call("cuMemcpyDtoDAsync_v2", to, source, c_size_t(SIZE), stream)


def fill(to: c_uint64, value: int, stream: c_void_p | None) -> None:
    call("cuMemsetD8Async", to, c_uint(value), c_size_t(SIZE), stream)


def order(first: c_void_p | None, event: c_void_p, second: c_void_p | None) -> None:
    """Let a stream wait for what another one has been given so far."""
    call("cuEventRecord", event, first)
    call("cuStreamWaitEvent", second, event, 0)


def wait(stream: c_void_p | None) -> None:
    call("cuStreamSynchronize", stream)


def bytes_at(address: c_void_p | c_uint64) -> bytes:
    """What the host reads of pinned memory."""
    return ctypes.string_at(address.value or 0, SIZE)


def arrived(to: c_void_p, source: c_uint64, stream: c_void_p) -> bytes:
    """What the host reads when a copy in a stream is done."""
    call("cuMemcpyDtoHAsync_v2", to, source, c_size_t(SIZE), stream)  # three frames of Python are noted
    wait(stream)
    return bytes_at(to)


ONES = b"\1" * SIZE

# -- the bugs

BROKEN, MENDED, planted = twins(Pieces)


@planted(("writes", "cuMemsetD8Async", "cuMemcpyDtoDAsync_v2"))
def missing_edge(use: Pieces, mended: bool) -> None:
    stream, other, edge = use.stream(), use.stream(), use.event()
    middle, end, back = use.device(), use.device(), use.pinned()
    fill(middle, 1, stream)
    if mended:
        order(stream, edge, other)
    copy(end, middle, other)
    assert arrived(back, end, other) == ONES


@planted(("writes", "cuMemsetD8Async", "cuMemcpyDtoHAsync_v2"))
def wait_before_record(use: Pieces, mended: bool) -> None:
    stream, other, edge, middle, back = use.stream(), use.stream(), use.event(), use.device(), use.pinned()
    if not mended:
        call("cuStreamWaitEvent", other, edge, 0)  # an event that was never recorded holds nothing up
    fill(middle, 1, stream)
    call("cuEventRecord", edge, stream)
    if mended:
        call("cuStreamWaitEvent", other, edge, 0)
    assert arrived(back, middle, other) == ONES


@planted(("writes", "cuMemsetD8Async", "cuMemcpyDtoHAsync_v2"))
def stream_of_the_thread_beside_another(use: Pieces, mended: bool) -> None:
    other, edge, middle, back = use.stream(), use.event(), use.device(), use.pinned()
    fill(middle, 1, PER_THREAD)
    if mended:
        order(PER_THREAD, edge, other)
    assert arrived(back, middle, other) == ONES


@planted(("reads", "cuMemcpyHtoDAsync_v2", "cuMemFreeHost"))
def source_freed_too_early(use: Pieces, mended: bool) -> None:
    stream, middle, source = use.stream(), use.device(), use.pinned(1, kept=False)
    upload(middle, source, stream)
    if mended:
        wait(stream)
    call("cuMemFreeHost", source)


@planted(("reads", "cuMemcpyHtoDAsync_v2", "cuMemHostUnregister"))
def unregistered_too_early(use: Pieces, mended: bool) -> None:
    stream, middle, source = use.stream(), use.device(), ctypes.create_string_buffer(ONES, SIZE)
    call("cuMemHostRegister_v2", source, c_size_t(SIZE), 0)
    upload(middle, c_void_p(ctypes.addressof(source)), stream)
    if mended:
        wait(stream)
    call("cuMemHostUnregister", source)


def from_pool(stream: c_void_p) -> c_uint64:
    memory = c_uint64()
    call("cuMemAllocAsync", byref(memory), c_size_t(SIZE), stream)
    return memory


@planted(("reads", "cuMemcpyDtoHAsync_v2", "cuMemFreeAsync"))
def freed_on_another_stream(use: Pieces, mended: bool) -> None:
    stream, other, edge, back = use.stream(), use.stream(), use.event(), use.pinned()
    middle = from_pool(stream)
    fill(middle, 1, stream)
    download(back, middle, stream)
    if mended:
        order(stream, edge, other)
    call("cuMemFreeAsync", middle, other)


@planted(("allocates", "cuMemAllocAsync", "cuMemsetD8Async"))
def allocation_used_on_another_stream(use: Pieces, mended: bool) -> None:
    stream, other, edge = use.stream(), use.stream(), use.event()
    middle = from_pool(stream)
    if mended:
        order(stream, edge, other)
    fill(middle, 1, other)
    wait(other)
    call("cuMemFreeAsync", middle, other)


@planted(("writes", "cuGraphLaunch", "cuGraphLaunch"))
def graph_without_an_edge(use: Pieces, mended: bool) -> None:
    stream, other, fork, joined = use.stream(), use.stream(), use.event(), use.event()
    middle, back, graph, executable = use.device(), use.pinned(), c_void_p(), c_void_p()
    call("cuStreamBeginCapture_v2", stream, 2)
    if not mended:
        order(stream, fork, other)
    fill(middle, 1, stream)
    if mended:
        order(stream, fork, other)
    download(back, middle, other)
    order(other, joined, stream)
    call("cuStreamEndCapture", stream, byref(graph))
    use.callback(call, "cuGraphDestroy", graph)
    call("cuGraphInstantiateWithFlags", byref(executable), graph, c_uint64(0))
    use.callback(call, "cuGraphExecDestroy", executable)
    call("cuGraphLaunch", executable, stream)
    wait(stream)
    assert bytes_at(back) == ONES


@planted(("reads", "cuMemcpyDtoDAsync_v2", "cuMemsetD8Async"))
def double_buffer_off_by_one(use: Pieces, mended: bool) -> None:
    loads, works, loaded = use.stream(), use.stream(), use.event()
    buffers, results, done = [
        [make() for _ in range(n)] for make, n in ((use.device, 2), (use.device, 4), (use.event, 4))
    ]
    for turn, (result, ended) in enumerate(zip(results, done, strict=True)):
        behind = turn - len(buffers) - (not mended)
        if behind >= 0:
            call("cuStreamWaitEvent", loads, done[behind], 0)
        fill(buffers[turn % 2], turn, loads)
        order(loads, loaded, works)
        copy(result, buffers[turn % 2], works)
        call("cuEventRecord", ended, works)
    back = use.pinned()
    for turn, result in enumerate(results):
        assert arrived(back, result, works) == bytes([turn]) * SIZE


@planted(("writes", "cuMemsetD8Async", "cuMemcpyDtoHAsync_v2"))
def word_written_too_early(use: Pieces, mended: bool) -> None:
    stream, other, middle, word, back = use.stream(), use.stream(), use.device(), use.device(), use.pinned()
    if mended:
        fill(middle, 1, stream)
    call("cuStreamWriteValue32_v2", stream, word, c_uint32(1), 0)
    if not mended:
        fill(middle, 1, stream)
    call("cuStreamWaitValue32_v2", other, word, c_uint32(1), 0)
    assert arrived(back, middle, other) == ONES


@planted(None)
def destination_read_before_the_copy_ended(use: Pieces, mended: bool) -> None:
    stream, middle, back = use.stream(), use.device(), use.pinned()
    fill(middle, 1, stream)
    download(back, middle, stream)
    if mended:
        wait(stream)
    assert bytes_at(back) == ONES


@planted(None)
def source_written_before_the_copy_ended(use: Pieces, mended: bool) -> None:
    stream, middle, source, back = use.stream(), use.device(), use.pinned(1), use.pinned()
    upload(middle, source, stream)
    if mended:
        wait(stream)
    ctypes.memset(source, 2, SIZE)
    assert arrived(back, middle, stream) == ONES


@planted(None)
def ring_of_staging_buffers(use: Pieces, mended: bool) -> None:
    stream, ring = use.stream(), [(use.pinned(), use.event()) for _ in range(2)]
    targets = [use.device() for _ in range(4)]
    for turn, target in enumerate(targets):
        staging, used = ring[turn % len(ring)]
        if mended and turn >= len(ring):
            call("cuEventSynchronize", used)
        ctypes.memset(staging, turn, SIZE)
        upload(target, staging, stream)
        call("cuEventRecord", used, stream)
    back = use.pinned()
    for turn, target in enumerate(targets):
        assert arrived(back, target, stream) == bytes([turn]) * SIZE


@planted(None)
def host_function_reads_what_is_reused(use: Pieces, mended: bool) -> None:
    stream, source = use.stream(), use.pinned(1)
    seen: list[bytes] = []
    function = HostFunction(lambda _: seen.append(bytes_at(source)))
    call("cuLaunchHostFunc", stream, function, None)
    if mended:
        wait(stream)
    else:
        time.sleep(0.1)  # long enough, as a rule
    ctypes.memset(source, 2, SIZE)
    wait(stream)
    assert seen == [ONES]


@planted(None)
def flag_of_another_stream(use: Pieces, mended: bool) -> None:
    stream, other, edge, middle, back = use.stream(), use.stream(), use.event(), use.device(), use.pinned()
    done = threading.Event()
    callback = Callback(lambda *_: done.set())
    fill(middle, 1, stream)
    download(back, middle, stream)
    if mended:
        order(stream, edge, other)
    call("cuStreamAddCallback", other, callback, None, 0)
    while not done.wait(0.0001):
        cuda.cuStreamQuery(PER_THREAD)  # a schedule goes on with each call of the driver
    assert bytes_at(back) == ONES
