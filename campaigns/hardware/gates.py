"""What waits for unfinished work: a stream stands at a closed gate, which another thread opens, while a call is made.

A gate is `cuStreamWaitValue32` on pinned memory. It needs no kernel, and its answers do not depend on speed: a call
"waits" if it comes back after the gate was opened. That happens after a time, or once an emulated driver says that the
call waits. `python -m campaigns.hardware.gates [SECONDS]` prints the answers
of the machine's driver as JSON; campaigns/conformance/recorded/gates.json has those of an H100.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from ctypes import addressof, byref, c_float, c_int, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any

NON_BLOCKING = 1
SIZE = 1 << 20
LEGACY, PER_THREAD = None, c_void_p(2)
HostFunction = ctypes.CFUNCTYPE(None, c_void_p)

Answers = dict[str, Any]


class Machine:
    """A context with streams and memory of each kind.

    `seconds`: after which a gate is opened, where the driver does not say that a call waits.
    """

    def __init__(self, seconds: float) -> None:
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.seconds = seconds
        self._waiting = getattr(self.cuda, "cudalinkWaitingCalls", None)
        self.context = c_void_p()
        self.ok(self.cuda.cuInit(0))
        self.ok(self.cuda.cuDevicePrimaryCtxRetain(byref(self.context), 0))
        self.ok(self.cuda.cuCtxSetCurrent(self.context))
        self.device, self.other_device = self.allocated(), self.allocated()
        self.pinned, self.other_pinned, self.words = self.host(), self.host(), self.host()
        self.managed = c_uint64()
        self.ok(self.cuda.cuMemAllocManaged(byref(self.managed), c_size_t(SIZE), 1))
        self._pages = [ctypes.create_string_buffer(SIZE) for _ in range(2)]
        self.pageable, self.other_pageable = (c_uint64(addressof(pages)) for pages in self._pages)
        self.event = self.new_event()
        self._gates = 0

    def ok(self, code: int) -> None:
        """Fail on anything but CUDA_SUCCESS."""
        if code:
            raise RuntimeError(f"the driver answers {code} where 0 is expected")

    def allocated(self) -> c_uint64:
        """Device memory."""
        made = c_uint64()
        self.ok(self.cuda.cuMemAlloc_v2(byref(made), c_size_t(SIZE)))
        return made

    def host(self) -> c_uint64:
        """Pinned memory of the host."""
        made = c_void_p()
        self.ok(self.cuda.cuMemHostAlloc(byref(made), c_size_t(SIZE), 0))
        return c_uint64(made.value or 0)

    def new_stream(self, flags: int = 0) -> c_void_p:
        """A stream."""
        made = c_void_p()
        self.ok(self.cuda.cuStreamCreate(byref(made), flags))
        return made

    def new_event(self) -> c_void_p:
        """An event."""
        made = c_void_p()
        self.ok(self.cuda.cuEventCreate(byref(made), 0))
        return made

    def gate(self, stream: c_void_p | None) -> Callable[[], None]:
        """Close a gate in a stream; the function opens it."""
        self._gates = self._gates % 1000 + 1
        word = c_uint32.from_address(self.words.value + 4 * self._gates)
        word.value = 0
        self.ok(self.cuda.cuStreamWaitValue32_v2(stream, c_uint64(addressof(word)), 1, 0))

        def open_it() -> None:
            word.value = 1

        return open_it

    def ask(self, stream: c_void_p | None, call: Callable[[], Any]) -> list[Any]:
        """The answer of a call while a stream stands at a gate, and whether it waits."""
        found = self.until_open(self.gate(stream), call)
        self.ok(self.cuda.cuCtxSynchronize())
        return found

    def until_open(self, open_it: Callable[[], None], call: Callable[[], Any]) -> list[Any]:
        """The answer of a call, and whether it waits until a gate is opened; afterwards the gate is open."""
        returned, opened = threading.Event(), threading.Event()
        end = time.monotonic() + self.seconds

        def is_time() -> bool:
            return bool(self._waiting()) if self._waiting else time.monotonic() > end

        def watch() -> None:
            while not returned.wait(0.001) and not is_time():
                pass
            if not returned.is_set():
                opened.set()
            open_it()

        opener = threading.Thread(target=watch)
        opener.start()
        answer = call()
        waited = opened.is_set()
        returned.set()
        opener.join()
        return [answer, "waits" if waited else "returns"]


def copies(machine: Machine, stream: c_void_p, kind: str) -> Answers:
    """Copies and fillings: in the stream of the gate, and without a stream."""
    cuda, small = machine.cuda, c_size_t(4096)
    device, pinned, managed, pageable = machine.device, machine.pinned, machine.managed, machine.pageable
    calls: dict[str, Callable[[], int]] = {}
    for count in (64, 4096, 65536, 65537, SIZE):
        size = c_size_t(count)
        calls |= {
            f"HtoDAsync pageable {count} same": lambda n=size: cuda.cuMemcpyHtoDAsync_v2(device, pageable, n, stream),
            f"DtoHAsync pageable {count} same": lambda n=size: cuda.cuMemcpyDtoHAsync_v2(pageable, device, n, stream),
            f"HtoD pageable {count} sync": lambda n=size: cuda.cuMemcpyHtoD_v2(device, pageable, n),
            f"HtoD pinned {count} sync": lambda n=size: cuda.cuMemcpyHtoD_v2(device, pinned, n),
        }
    pairs = {
        "pinned-pinned": (machine.other_pinned, pinned),
        "pageable-pageable": (machine.other_pageable, pageable),
        "pageable-pinned": (pageable, machine.other_pinned),
        "managed-device": (device, managed),
        "managed-pageable": (pageable, managed),
        "pageable-managed": (managed, pageable),
    }
    for name, (to, source) in pairs.items():
        calls[f"MemcpyAsync {name} same"] = lambda to=to, of=source: cuda.cuMemcpyAsync(to, of, small, stream)
    calls |= {
        "HtoDAsync pinned same": lambda: cuda.cuMemcpyHtoDAsync_v2(device, pinned, small, stream),
        "DtoHAsync pinned same": lambda: cuda.cuMemcpyDtoHAsync_v2(pinned, device, small, stream),
        "DtoH pinned sync": lambda: cuda.cuMemcpyDtoH_v2(pinned, device, small),
        "DtoD sync": lambda: cuda.cuMemcpyDtoD_v2(device, machine.other_device, small),
        "Memcpy managed-device sync": lambda: cuda.cuMemcpy(device, managed, small),
        "Memcpy pinned-pinned sync": lambda: cuda.cuMemcpy(machine.other_pinned, pinned, small),
        "memset device sync": lambda: cuda.cuMemsetD8_v2(device, 0, small),
        "memset pinned sync": lambda: cuda.cuMemsetD8_v2(pinned, 0, small),
        "memset managed sync": lambda: cuda.cuMemsetD8_v2(managed, 0, small),
        "memset async pinned same": lambda: cuda.cuMemsetD8Async(pinned, 0, small, stream),
        "memset async managed same": lambda: cuda.cuMemsetD8Async(managed, 0, small, stream),
    }
    return {f"{name}/{kind}": machine.ask(stream, call) for name, call in calls.items()}


def objects(machine: Machine, stream: c_void_p, kind: str) -> Answers:
    """Streams, events and pools."""
    cuda, event = machine.cuda, machine.event
    other, apart = machine.new_stream(), machine.new_stream(NON_BLOCKING if kind == "nonblocking" else 0)

    def recorded() -> list[int]:
        return [cuda.cuEventRecord(event, LEGACY), cuda.cuEventQuery(event)]

    def made_and_destroyed() -> int:
        return int(cuda.cuStreamDestroy_v2(machine.new_stream()))

    def destroyed_early() -> list[int]:
        late = machine.new_event()
        machine.ok(cuda.cuEventRecord(late, stream))
        return [cuda.cuEventElapsedTime(byref(c_float()), late, late), cuda.cuEventDestroy_v2(late)]

    def destroyed_stream() -> int:
        return int(machine.until_open(machine.gate(apart), lambda: cuda.cuStreamDestroy_v2(apart))[0])

    def pooled() -> list[int]:
        there, size = c_uint64(), c_size_t(64)
        return [
            cuda.cuMemAllocAsync(byref(there), c_size_t(4096), stream),
            cuda.cuMemcpyDtoDAsync_v2(there, machine.device, size, stream),
            cuda.cuMemFreeAsync(there, stream),
            cuda.cuMemcpyDtoHAsync_v2(machine.pinned, there, size, stream),
            cuda.cuMemFreeAsync(there, stream),
        ]

    return {
        f"query legacy/{kind}": machine.ask(stream, lambda: cuda.cuStreamQuery(LEGACY)),
        f"query other blocking/{kind}": machine.ask(stream, lambda: cuda.cuStreamQuery(other)),
        f"record on legacy, query/{kind}": machine.ask(stream, recorded),
        f"create+destroy stream/{kind}": machine.ask(stream, made_and_destroyed),
        f"elapsed pending, destroy/{kind}": machine.ask(stream, destroyed_early),
        f"destroy pending stream/{kind}": machine.ask(other, destroyed_stream),
        f"alloc,copy,free,copy,free async/{kind}": machine.ask(stream, pooled),
    }


def inside_host_functions(machine: Machine) -> Answers:
    """What the driver answers in a host function, and what goes on meanwhile."""
    cuda, apart, blocking = machine.cuda, machine.new_stream(NON_BLOCKING), machine.new_stream()
    found: Answers = {}
    threads: list[int] = []

    @HostFunction  # type: ignore[untyped-decorator,unused-ignore]
    def host(_: int) -> None:
        current = c_void_p(0x55)
        threads.append(threading.get_ident())
        found.update(
            {
                "ctx get current": [cuda.cuCtxGetCurrent(byref(current)), current.value],
                "query": cuda.cuStreamQuery(apart),
                "elapsed": cuda.cuEventQuery(machine.event),
                "version": cuda.cuDriverGetVersion(byref(c_int())),
                "attr": cuda.cuDeviceGetAttribute(byref(c_int()), 16, 0),
                "ptr": cuda.cuPointerGetAttribute(byref(c_int()), 2, machine.device),
                "setctx": cuda.cuCtxSetCurrent(machine.context),
                "alloc": cuda.cuMemAlloc_v2(byref(c_uint64()), c_size_t(64)),
                "proc": cuda.cuGetProcAddress_v2(b"cuInit", byref(c_void_p()), 13000, c_uint64(0), None),
            }
        )

    for stream in (apart, blocking):
        machine.ok(cuda.cuLaunchHostFunc(stream, host, None))
        machine.ok(cuda.cuStreamSynchronize(stream))
    found["one thread for both streams"] = len(set(threads)) == 1 and threads[0] != threading.get_ident()
    second_came, open_it = threading.Event(), machine.gate(blocking)
    flag = c_uint32.from_address(machine.words.value + SIZE - 4)
    flag.value = 0
    machine.ok(cuda.cuStreamWriteValue32_v2(blocking, c_uint64(addressof(flag)), 7, 0))

    @HostFunction  # type: ignore[untyped-decorator,unused-ignore]
    def first(_: int) -> None:
        open_it()
        limit = time.monotonic() + 60
        while flag.value != 7 and time.monotonic() < limit:
            pass
        found["a gate opens meanwhile"] = flag.value == 7
        found["another host function runs meanwhile"] = second_came.wait(0.3)

    second = HostFunction(lambda _: second_came.set())
    machine.ok(cuda.cuLaunchHostFunc(apart, first, None))
    machine.ok(cuda.cuLaunchHostFunc(machine.new_stream(), second, None))
    machine.ok(cuda.cuCtxSynchronize())
    return {"in a host function": found}


def default_streams(machine: Machine) -> Answers:
    """The legacy stream and those of threads, and one executable graph in two streams."""
    cuda, found = machine.cuda, {}
    open_it = machine.gate(PER_THREAD)
    found["legacy query, gate in per-thread"] = cuda.cuStreamQuery(LEGACY)
    elsewhere: list[int] = []

    def other_thread() -> None:
        machine.ok(cuda.cuCtxSetCurrent(machine.context))
        elsewhere.append(cuda.cuStreamQuery(PER_THREAD))

    thread = threading.Thread(target=other_thread)
    thread.start()
    thread.join()
    found["per-thread of another thread"] = elsewhere
    open_it()
    machine.ok(cuda.cuCtxSynchronize())
    open_it = machine.gate(LEGACY)
    found["per-thread query without work, gate in legacy"] = cuda.cuStreamQuery(PER_THREAD)
    machine.ok(cuda.cuMemsetD8Async(machine.device, 0, c_size_t(64), PER_THREAD))
    found["per-thread query with work, gate in legacy"] = cuda.cuStreamQuery(PER_THREAD)
    open_it()
    machine.ok(cuda.cuCtxSynchronize())
    graph, executable = c_void_p(), c_void_p()
    captured, gated, free = machine.new_stream(), machine.new_stream(NON_BLOCKING), machine.new_stream(NON_BLOCKING)
    machine.ok(cuda.cuStreamBeginCapture_v2(captured, 2))
    machine.ok(cuda.cuMemsetD8Async(machine.device, 1, c_size_t(64), captured))
    machine.ok(cuda.cuStreamEndCapture(captured, byref(graph)))
    machine.ok(cuda.cuGraphInstantiateWithFlags(byref(executable), graph, c_uint64(0)))
    open_it = machine.gate(gated)
    answers = [cuda.cuGraphLaunch(executable, gated), cuda.cuGraphLaunch(executable, free)]
    time.sleep(machine.seconds / 2)
    answers += [cuda.cuStreamQuery(free), cuda.cuGraphExecDestroy(executable), cuda.cuStreamQuery(gated)]
    open_it()
    found["one executable in two streams, the first gated, destroyed"] = [*answers, cuda.cuStreamSynchronize(free)]
    return found


def dying_context(machine: Machine) -> Answers:
    """A context that is destroyed with work."""
    cuda, context = machine.cuda, c_void_p()
    machine.ok(cuda.cuCtxCreate_v2(byref(context), 0, 0))
    open_it = machine.gate(machine.new_stream(NON_BLOCKING))
    return {"destroy a context with work": machine.until_open(open_it, lambda: cuda.cuCtxDestroy_v2(context))}


def main(seconds: float) -> None:
    """Print all answers."""
    machine, found = Machine(seconds), {}
    for kind, flags in (("blocking", 0), ("nonblocking", NON_BLOCKING)):
        stream = machine.new_stream(flags)
        found |= copies(machine, stream, kind) | objects(machine, stream, kind)
    found |= inside_host_functions(machine) | default_streams(machine) | dying_context(machine)
    print(json.dumps(found, indent=1))
    sys.stdout.flush()
    os._exit(0)  # whatever a real driver still has to do at exit


if __name__ == "__main__":
    main(float(sys.argv[1]) if sys.argv[1:] else 0.25)
