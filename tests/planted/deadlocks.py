"""Nine deadlocks in which calls of the driver wait for each other or for their own thread, with mended twins.

The first five are rebuilt from torchcomms#2334, lupine#679, nccl#48, nvbench#136 and uccl#220. What a deadlocked call
answers is left alone: the driver gives it up. Each has the calls that wait.
"""

import ctypes
import threading
import time
from collections.abc import Callable
from ctypes import byref, c_size_t, c_uint, c_uint32, c_uint64, c_void_p
from typing import Any, Final, Self

from tests.emulator.cu import small_ptx
from tests.planted import twins
from tests.planted.error_paths import call, cuda, made
from tests.planted.order_bugs import HostFunction, Pieces

SIZE: Final = 256


class Gates(Pieces):
    """Streams that stand at gates; at the end all are open."""

    def __enter__(self) -> Self:
        super().__enter__()
        self.context = c_void_p()
        call("cuCtxGetCurrent", byref(self.context))
        self.words, self.closed = self.pinned(), 0
        return self

    def __exit__(self, *raised: object) -> bool | None:
        for at in range(self.closed):
            self.open(at)
        return super().__exit__(*raised)

    def close(self, stream: c_void_p | None) -> int:
        self.closed += 1
        call("cuStreamWaitValue32_v2", stream, self._word(self.closed - 1), c_uint(1), 0)
        return self.closed - 1

    def open(self, gate: int) -> None:
        c_uint32.from_address(self._word(gate).value).value = 1

    def _word(self, gate: int) -> c_uint64:
        return c_uint64((self.words.value or 0) + 4 * gate)

    def thread(self, function: Callable[[], Any]) -> threading.Thread:
        """Run a function in a thread with this context, and give it the time to begin waiting."""

        def run() -> None:
            call("cuCtxSetCurrent", self.context)
            function()

        thread = threading.Thread(target=run)
        thread.start()
        self.callback(thread.join)
        time.sleep(0.05)
        return thread

    def kernel(self) -> c_void_p:
        """A kernel of a library that was not used."""
        library = made("cuLibraryLoadData", "cuLibraryUnload", self, small_ptx(), None, None, 0, None, None, 0)
        return made("cuLibraryGetKernel", "", None, library, b"small")


BROKEN, MENDED, planted = twins(Gates)


@planted(("cuModuleLoadData", "cuMemcpyHtoDAsync_v2"))
def load_beside_a_copy(use: Gates, mended: bool) -> None:
    stream, other, there, source = use.stream(), use.stream(), use.device(), use.pinned()
    gate, image, module = use.close(stream), small_ptx(), c_void_p()

    def load() -> None:
        if mended:
            cuda.cuLibraryLoadData(byref(module), image, None, None, 0, None, None, 0)
        else:
            cuda.cuModuleLoadData(byref(module), image)

    use.thread(load)
    cuda.cuMemcpyHtoDAsync_v2(there, source, c_size_t(SIZE), other)
    use.open(gate)


@planted(("cuMemFree_v2", "cuMemcpyDtoH_v2"))
def free_beside_a_pageable_copy(use: Gates, mended: bool) -> None:
    stream, there, freed, back = use.stream(), use.device(), c_uint64(), (ctypes.c_char * SIZE)()
    call("cuMemAllocAsync" if mended else "cuMemAlloc_v2", byref(freed), c_size_t(SIZE), stream)
    call("cuStreamSynchronize", stream)
    gate = use.close(stream)
    use.thread(lambda: cuda.cuMemFreeAsync(freed, stream) if mended else cuda.cuMemFree_v2(freed))
    cuda.cuMemcpyDtoH_v2(c_uint64(ctypes.addressof(back)), there, c_size_t(SIZE))
    use.open(gate)


@planted(("cuMemFreeHost",))
def pinned_memory_freed_at_a_gate(use: Gates, mended: bool) -> None:
    stream, memory = use.stream(), use.pinned(kept=False)
    gate = use.close(stream)
    if mended:
        use.open(gate)
    cuda.cuMemFreeHost(c_uint64(memory.value or 0))
    use.open(gate)


@planted(("cuKernelGetFunction",))
def first_use_of_a_kernel_at_a_gate(use: Gates, mended: bool) -> None:
    stream, kernel, function = use.stream(), use.kernel(), c_void_p()
    if mended:
        call("cuKernelGetFunction", byref(function), kernel)
    gate = use.close(stream)
    cuda.cuKernelGetFunction(byref(function), kernel)
    use.open(gate)


@planted(("cuStreamSynchronize", "cuKernelGetFunction"))
def first_use_of_a_kernel_by_the_opener(use: Gates, mended: bool) -> None:
    stream, kernel, function = use.stream(), use.kernel(), c_void_p()
    if mended:
        call("cuKernelGetFunction", byref(function), kernel)
    gate = use.close(stream)
    use.thread(lambda: cuda.cuStreamSynchronize(stream))
    cuda.cuKernelGetFunction(byref(function), kernel)
    use.open(gate)


@planted(("cuStreamSynchronize",))
def stream_that_its_own_thread_would_open(use: Gates, mended: bool) -> None:
    stream = use.stream()
    gate = use.close(stream)
    if mended:
        use.open(gate)
    cuda.cuStreamSynchronize(stream)
    use.open(gate)


@planted(("cuEventSynchronize", "cuEventSynchronize"))
def events_of_two_threads(use: Gates, mended: bool) -> None:
    streams, events = (use.stream(), use.stream()), (use.event(), use.event())
    gates = [use.close(stream) for stream in streams]
    for stream, event in zip(streams, events, strict=True):
        call("cuEventRecord", event, stream)

    def meet(mine: int) -> None:
        if mended:
            use.open(gates[1 - mine])
        cuda.cuEventSynchronize(events[mine])
        use.open(gates[1 - mine])

    use.thread(lambda: meet(0))
    meet(1)


@planted(("cuStreamSynchronize",))
def host_function_that_needs_a_held_lock(use: Gates, mended: bool) -> None:
    stream, lock = use.stream(), threading.Lock()

    def touch(_: object) -> None:
        with lock:
            pass

    function = HostFunction(touch)
    with lock:
        call("cuLaunchHostFunc", stream, function, None)
        if not mended:
            cuda.cuStreamSynchronize(stream)
    call("cuStreamSynchronize", stream)


@planted(("cuMemcpyDtoHAsync_v2", "cuStreamCreate"))
def copy_to_pageable_memory_beside_a_new_stream(use: Gates, mended: bool) -> None:
    stream, there, pinned, made = use.stream(), use.device(), use.pinned(), c_void_p()
    back = (ctypes.c_char * SIZE)()
    to = pinned if mended else c_void_p(ctypes.addressof(back))
    gate = use.close(stream)
    use.thread(lambda: cuda.cuMemcpyDtoHAsync_v2(to, there, c_size_t(SIZE), stream))
    cuda.cuStreamCreate(byref(made), 1)
    use.open(gate)
    call("cuStreamDestroy_v2", made)
