"""Which driver calls wait for unfinished work, and which calls of other threads they hold up meanwhile.

A stream stands at a closed gate (`cuStreamWaitValue32` on pinned memory) while a call is made. The gate opens as soon
as the call has returned, or after 0.15 s: then the call "waits". `python -m campaigns.hardware.waits FILE` asks
everything twice, under lazy and under eager loading, and writes the answers to FILE as JSON, which FILE.xz
compresses. It needs no package but Python. Each row is written to FILE.rows as it comes; a row that ends or hangs its
process costs no other.
"""

import argparse
import ctypes
import itertools
import json
import os
import re
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from campaigns.driver import Driver, save

#: A call that has not returned after these seconds waits; one that holds others up gets the second time to begin.
LIMIT, BEGINS = 0.15, 0.03
#: A call that takes longer by itself, as those that make contexts do, gets so many times the time of its first.
PATIENCE = 3
#: A process that says nothing for so long hangs.
SILENT = 60.0
SMALL, MOST = 4096, 1 << 22
STREAMS = ("blocking", "non-blocking", "legacy", "per-thread")
PLACES = ("none", *STREAMS, "per-thread of another thread", "another context", "another device")
MEMORY = ("pageable", "pinned", "managed", "device")
LOADING = ("LAZY", "EAGER")
PTX = b"""
.version 6.4
.target sm_75
.address_size 64
.visible .global .align 4 .u32 there;
.visible .entry empty() { ret; }
.visible .entry other() { ret; }
"""

TEXT = ctypes.create_string_buffer(PTX)
Item = tuple[str, ...]
Arguments = tuple[Any, ...]


class Watch(threading.Thread):
    """Opens all gates when the time is over that the current step has."""

    def __init__(self, open_all: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self.opened, self._end, self._open_all = False, float("inf"), open_all
        self._lock = threading.Lock()
        self.start()

    def arm(self, seconds: float) -> None:
        """Give the next step its time."""
        with self._lock:
            self.opened, self._end = False, time.monotonic() + seconds

    def rest(self) -> bool:
        """Return whether the step had the gates opened, and open none until the next."""
        with self._lock:
            self._end = float("inf")
            return self.opened

    def run(self) -> None:
        """Look every two milliseconds."""
        while True:
            time.sleep(0.002)
            with self._lock:
                if time.monotonic() > self._end:
                    self.opened, self._end = True, float("inf")
                    self._open_all()


class Machine(Driver):
    """The primary context of the first device, with memory of each kind, another context, and another thread."""

    def __init__(self) -> None:
        super().__init__()
        libc = ctypes.CDLL(None)
        #: Host functions that need no Python: one that does nothing, and one that waits for a semaphore.
        self.nothing = ctypes.cast(libc.abs, ctypes.c_void_p).value
        self.sem_wait = ctypes.cast(libc.sem_wait, ctypes.c_void_p).value
        self._libc, self._semaphores = libc, list[Any]()
        self.context = self.start()
        self.other_context = self.made("cuCtxCreate_v2", 0, 0)
        self.other_memory = self.device(SMALL)
        self.other_device = self.made("cuDevicePrimaryCtxRetain", 1) if self.made("cuDeviceGetCount") > 1 else 0
        self.must("cuCtxSetCurrent", self.context)
        self.words, self._gates, self._closed = self.host(1 << 16), 0, set[int]()
        self._pages = [ctypes.create_string_buffer(MOST + 4096) for _ in range(2)]
        self.memory = {
            "pageable": [-(-ctypes.addressof(pages) // 4096) * 4096 for pages in self._pages],
            "pinned": [self.host(MOST), self.host(MOST)],
            "managed": [self.managed(MOST), self.managed(MOST)],
            "device": [self.device(MOST), self.device(MOST)],
        }
        self.image = self._linked()
        self.module = self.made("cuModuleLoadData", self.image)
        self.function = self.made("cuModuleGetFunction", self.module, b"empty")
        self.do("cuLaunchKernel", self.function, 1, 1, 1, 1, 1, 1, 0, 0, None, None)
        self.pool = self.made("cuDeviceGetDefaultMemPool", 0)
        self.scratch = ctypes.create_string_buffer(64)
        self.arrays = [self.array(), self.array()]
        self.graph = self.captured(kernel=False)
        self.graph_behind = self.executable()
        self.must("cuCtxSynchronize")
        #: By question and stream: how long the call may take before it counts as waiting.
        self.limits: dict[tuple[str, str], float] = {}
        self.watch = Watch(self.open)
        self.helper = ThreadPoolExecutor(1, initializer=self.do, initargs=("cuCtxSetCurrent", self.context))
        self.helper.submit(self.do, "cuStreamQuery", 2).result()

    @contextmanager
    def current(self, context: int) -> Iterator[None]:
        """Make a context current, and afterwards the first one."""
        self.must("cuCtxSetCurrent", context)
        yield
        self.must("cuCtxSetCurrent", self.context)

    def device(self, size: int = SMALL) -> int:
        return self.made("cuMemAlloc_v2", size)

    def host(self, size: int = SMALL) -> int:
        """Pinned memory that all contexts see."""
        return self.made("cuMemHostAlloc", size, 3)

    def managed(self, size: int = SMALL) -> int:
        return self.made("cuMemAllocManaged", size, 1)

    def array(self) -> int:
        """An array of 4096 bytes."""
        return self.made("cuArrayCreate_v2", (ctypes.c_uint64 * 3)(SMALL, 0, 1 | 1 << 32))

    def library(self) -> int:
        """A library that no one has used."""
        return self.made("cuLibraryLoadData", self.image, None, None, 0, None, None, 0)

    def kernel(self, library: int = 0) -> int:
        """A kernel that no one has launched."""
        return self.made("cuLibraryGetKernel", library or self.library(), b"empty")

    def used_library(self) -> int:
        """A library with a kernel that was loaded."""
        library = self.library()
        self.used_kernel(library)
        return library

    def used_kernel(self, library: int = 0) -> int:
        """A kernel that was loaded."""
        kernel = self.kernel(library)
        self.made("cuKernelGetFunction", kernel)
        return kernel

    def new_module(self) -> int:
        """A module that no one has used."""
        return self.made("cuModuleLoadData", self.image)

    def kernel_that_is(self, state: str) -> int:
        """A function of a module, "loaded" or not."""
        return self.function if state == "loaded" else self.made("cuModuleGetFunction", self.new_module(), b"other")

    def link(self, *, added: bool) -> int:
        """A link, perhaps with an input."""
        state = ctypes.c_uint64()
        self.must("cuLinkCreate_v2", 0, None, None, ctypes.byref(state))
        if added:
            self.must("cuLinkAddData_v2", state, 1, TEXT, len(PTX) + 1, b"waits", 0, None, None)
        return state.value

    def texture(self) -> Arguments:
        """What a texture of an array is made with."""
        return numbers(0, self.arrays[0]), numbers(), None

    def pages(self, *, registered: bool) -> int:
        """Pageable memory, registered or not."""
        there = self.memory["pageable"][0]
        self.do("cuMemHostUnregister", there)
        if registered:
            self.must("cuMemHostRegister_v2", there, SMALL, 0)
        return there

    def new_pool(self, handles: int = 0) -> int:
        """A pool that no one has used; other processes may have its memory by handles of a kind."""
        return self.made("cuMemPoolCreate", (ctypes.c_uint32 * 32)(1, handles, 1, 0))

    def limited(self, limit: int, before: int) -> int:
        """A CUlimit that has a value."""
        self.do("cuCtxSetLimit", limit, before)
        return limit

    def captured(self, *, kernel: bool) -> int:
        """A graph of one node: the kernel, or a memset."""
        stream = self.made("cuStreamCreate", 1)
        self.must("cuStreamBeginCapture_v2", stream, 2)
        if kernel:
            self.do("cuLaunchKernel", self.function, 1, 1, 1, 1, 1, 1, 0, stream, None, None)
        else:
            self.must("cuMemsetD8Async", self.memory["device"][0], 1, 64, stream)
        graph = ctypes.c_uint64()
        self.must("cuStreamEndCapture", stream, ctypes.byref(graph))
        self.must("cuStreamDestroy_v2", stream)
        return graph.value

    def executable(self, *, kernel: bool = False) -> int:
        """An executable graph of one node."""
        return self.made("cuGraphInstantiateWithFlags", self.captured(kernel=kernel) if kernel else self.graph, 0)

    def graph_with(self, kind: str) -> int:
        """A graph of one node of a kind."""
        graph = self.made("cuGraphCreate", 0)
        wanted = (ctypes.c_uint32 * 64)(1, 0, 1, 0)  # CUDA_MEM_ALLOC_NODE_PARAMS: its pool's properties first
        ctypes.c_uint64.from_address(ctypes.addressof(wanted) + 104).value = SMALL
        function, *given = {
            "empty": ["EmptyNode"],
            "host": ["HostNode", numbers(self.nothing or 0, 0)],
            "event": ["EventRecordNode", self.made("cuEventCreate", 0)],
            "child": ["ChildGraphNode", self.graph],
            "allocation": ["MemAllocNode", wanted],
        }[kind]
        self.must(f"cuGraphAdd{function}", OUT(), graph, None, 0, *given)
        return graph

    def synchronous(self) -> int:
        """Device memory whose operations are synchronous: CU_POINTER_ATTRIBUTE_SYNC_MEMOPS."""
        there = self.device()
        self.must("cuPointerSetAttribute", numbers(1), 6, there)
        return there

    def described(self) -> int:
        """A description of all multiprocessors, for a green context."""
        resource, description = ctypes.create_string_buffer(256), ctypes.c_uint64()
        self.must("cuDeviceGetDevResource", 0, resource, 1)
        self.must("cuDevResourceGenerateDesc", ctypes.byref(description), resource, 1)
        return description.value

    def mapped_handle(self) -> int:
        """Physical memory that is mapped."""
        handle, there = self.physical(), self.reserved()
        self.must("cuMemMap", there, 1 << 21, 0, handle, 0)
        return handle

    def done_event(self) -> int:
        """An event that was recorded, in a stream that is finished."""
        event, stream = self.made("cuEventCreate", 0), self.made("cuStreamCreate", 1)
        self.must("cuEventRecord", event, stream)
        self.must("cuStreamSynchronize", stream)
        return event

    def pool_with_memory(self) -> int:
        """A pool with memory that is in use."""
        pool, stream = self.new_pool(), self.made("cuStreamCreate", 1)
        self.made("cuMemAllocFromPoolAsync", SMALL, pool, stream)
        self.must("cuStreamSynchronize", stream)
        return pool

    def physical(self) -> int:
        """Physical memory of the device, not mapped."""
        return self.made("cuMemCreate", 1 << 21, self.properties(), 0)

    def reserved(self) -> int:
        """Addresses that nothing is mapped at."""
        return self.made("cuMemAddressReserve", 1 << 21, 0, 0, 0)

    def mapped(self, *, access: bool = True) -> int:
        there = self.reserved()
        self.must("cuMemMap", there, 1 << 21, 0, self.physical(), 0)
        if access:
            self.must("cuMemSetAccess", there, 1 << 21, self.access(), 1)
        return there

    @staticmethod
    def properties() -> Any:
        """CUmemAllocationProp, and CUmemPoolProps alike, of the first device; longer than either."""
        return (ctypes.c_uint32 * 32)(1, 0, 1, 0)

    @staticmethod
    def access() -> Any:
        """CUmemAccessDesc: the first device reads and writes."""
        return (ctypes.c_uint32 * 3)(1, 0, 3)

    def _linked(self) -> Any:
        """A cubin of the kernels, or their PTX where the driver links none."""
        image, size = ctypes.c_void_p(), ctypes.c_size_t()
        try:
            self.must("cuLinkComplete", self.link(added=True), ctypes.byref(image), ctypes.byref(size))
        except RuntimeError:
            return TEXT
        code = ctypes.string_at(image.value, size.value) if image.value else b""
        return ctypes.create_string_buffer(code) if code else TEXT

    def wait(self, stream: int) -> None:
        """Close a gate in a stream."""
        self._gates = self._gates % 4000 + 1
        word = self.words + 4 * self._gates
        ctypes.c_uint32.from_address(word).value = 0
        self._closed.add(word)
        self.must("cuStreamWaitValue32_v2", stream, word, 1, 0)

    def wait_in_host_function(self, stream: int) -> None:
        """Close a gate in a stream that is a host function which does not return."""
        semaphore = ctypes.create_string_buffer(32)
        self._libc.sem_init(semaphore, 0, 0)
        self._semaphores.append(semaphore)
        self.must("cuLaunchHostFunc", stream, self.sem_wait, ctypes.addressof(semaphore))

    def open(self) -> None:
        for word in list(self._closed):
            ctypes.c_uint32.from_address(word).value = 1
        for semaphore in list(self._semaphores):
            self._libc.sem_post(semaphore)

    def synchronize(self) -> list[int]:
        """Wait for all contexts; return what is not 0."""
        self.open()
        codes = []
        for context in (self.other_device, self.other_context, self.context):
            if context:
                codes += [self.do("cuCtxSetCurrent", context), self.do("cuCtxSynchronize")]
        self._closed.clear()
        self._semaphores.clear()
        return [code for code in codes if code]


class Row:
    """What one row makes: its streams, what stands behind its gate, and what is put away afterwards."""

    def __init__(self, machine: Machine, stream: str) -> None:
        self.machine = machine
        self._behind: list[Arguments] = []
        self._first: list[Arguments] = []
        self._after: list[Arguments] = []
        self.stream = self.fresh(stream)

    def fresh(self, kind: str) -> int:
        """A stream: new where it can be."""
        if kind in ("legacy", "per-thread"):
            return {"legacy": 0, "per-thread": 2}[kind]
        return self.put_away("cuStreamDestroy_v2", self.machine.made("cuStreamCreate", int(kind == "non-blocking")))

    def put_away(self, name: str, handle: int) -> int:
        """Call a function with a handle when the row is over."""
        self._after.append((name, handle))
        return handle

    def out(self, name: str) -> Any:
        """Memory that the call writes a handle to; a function is called with that when the row is over."""
        written = OUT()
        self._after.append((name, written))
        return written

    def begins(self, stream: int) -> int:
        """A stream in which the call begins a capture, which ends before anything else does."""
        self._first.append(("cuStreamEndCapture", stream, OUT()))
        return stream

    def kept(self, handle: int) -> int:
        """Say that the call itself destroys this."""
        self._after = [each for each in self._after if each[1] != handle]
        return handle

    def behind(self, name: str, *arguments: Any) -> None:
        """Queue work behind the gate."""
        self._behind.append((name, *arguments))

    def event(self, flags: int = 0) -> int:
        """An event with flags that is recorded in the stream, behind the gate."""
        event = self.put_away("cuEventDestroy_v2", self.machine.made("cuEventCreate", flags))
        self.behind("cuEventRecord", event, self.stream)
        return event

    def launched(self, *, kernel: bool = False) -> int:
        """An executable graph that is launched in the stream, behind the gate."""
        graph = self.machine.executable(kernel=kernel)
        self.behind("cuGraphLaunch", graph, self.stream)
        return graph

    def second_launch(self) -> int:
        """A stream in which a graph is launched that is launched behind the gate of the row's stream."""
        second = self.fresh("non-blocking")
        self.behind("cuGraphLaunch", self.launched(), second)
        return second

    def pooled(self) -> int:
        """Memory of a pool, allocated and there."""
        there = self.machine.made("cuMemAllocAsync", SMALL, self.stream)
        self.machine.must("cuCtxSynchronize")
        return there

    def freed_pool(self) -> int:
        """A pool whose memory is freed behind the gate."""
        made = self.machine.new_pool()
        there = self.machine.made("cuMemAllocFromPoolAsync", SMALL, made, self.stream)
        self.machine.must("cuCtxSynchronize")
        self.behind("cuMemFreeAsync", there, self.stream)
        return made

    def begun(self) -> int:
        """A stream of its own in which a capture has begun."""
        apart = self.fresh("non-blocking")
        self.machine.must("cuStreamBeginCapture_v2", apart, 2)
        return apart

    def new_context(self, *, gate: bool) -> int:
        """A context, current and with a gate in it, or neither."""
        made = self.machine.made("cuCtxCreate_v2", 0, 0)
        if gate:
            self.behind("gate", self.machine.made("cuStreamCreate", 1))
        else:
            self.machine.must("cuCtxPopCurrent_v2", OUT())
        return made

    def close(self, place: str) -> None:
        """Close the gate, and queue what stands behind it."""
        machine = self.machine
        machine.watch.arm(1)
        where, *words = place.split(", ")
        if where == "same" or where in STREAMS:
            self._gate(self.stream if where == "same" else self.fresh(where), words)
        elif where == "per-thread of another thread":
            machine.helper.submit(self._gate, 2, words).result()
        elif where != "none":
            other = machine.other_context if where == "another context" else machine.other_device
            machine.must("cuCtxPushCurrent_v2", other)
            self._gate(self.fresh("blocking"), words)
            machine.must("cuCtxPopCurrent_v2", OUT())
        for name, *arguments in self._behind:
            if name == "gate":
                machine.wait(*arguments)
            else:
                machine.must(name, *arguments)

    def _gate(self, stream: int, words: list[str]) -> None:
        """Close a gate in a stream, by what the words of its place say, and queue what they name behind it."""
        machine = self.machine
        (machine.wait_in_host_function if "host function" in words else machine.wait)(stream)
        to, source = machine.memory["device"][0], machine.memory["pinned"][1]
        for behind, call in {
            "copy behind": ("cuMemcpyHtoDAsync_v2", to, source, SMALL, stream),
            "filling behind": ("cuMemsetD8Async", to, 1, 64, stream),
            "kernel behind": ("cuLaunchKernel", machine.function, *ONE_THREAD, stream, None, None),
            "graph behind": ("cuGraphLaunch", machine.graph_behind, stream),
            "host function behind": ("cuLaunchHostFunc", stream, machine.nothing, None),
        }.items():
            if behind in words:
                (machine.do if call[0] == "cuLaunchKernel" else machine.must)(*call)

    def end(self) -> list[int]:
        """Open the gates, wait for everything, and put away what the row has made; return what is not 0."""
        self.machine.open()
        for name, *arguments in self._first:
            self.machine.do(name, *arguments)
        codes = self.machine.synchronize()
        for name, handle in self._after:
            self.machine.do(name, handle if type(handle) is int else ctypes.c_uint64.from_buffer(handle))
        return codes


@dataclass(frozen=True)
class Question:
    """A call, what it is asked with in words, whether it has a stream, and its arguments, made before the gate."""

    call: str
    given: str
    in_stream: bool
    arguments: Callable[..., Arguments]

    @property
    def name(self) -> str:
        """What items call it."""
        return f"{self.call} {self.given}".strip()

    def bound(self, machine: Machine, row: Row) -> Callable[[], int]:
        """The call with its arguments."""
        arguments = self.arguments(machine, row)
        return lambda: machine.do(self.call, *arguments)


def OUT(size: int = 512) -> Any:  # noqa: N802 - reads as the mark that it is, in the lists below
    """Memory that a call writes."""
    return ctypes.create_string_buffer(size)


def numbers(*values: int) -> Any:
    """An array of 64-bit numbers, zeros behind it."""
    return (ctypes.c_uint64 * (len(values) + 16))(*values)


def copied(machine: Machine, to: str, source: str) -> tuple[int, int]:
    """The addresses of a copy."""
    return machine.memory[to][0], machine.memory[source][1]


def plane(machine: Machine, to: str, source: str, *, cube: bool = False) -> Any:
    """CUDA_MEMCPY2D or CUDA_MEMCPY3D of 64 rows of 64 bytes."""

    def side(kind: str, address: int) -> list[int]:
        host = kind in ("pageable", "pinned")
        place = [0, 0, 1, address, 0, 0] if host else [0, 0, 2, 0, address, 0]
        return [*place[:2], 0, 0, *place[2:], 0, 64, 64] if cube else [*place, 64]

    there, here = copied(machine, to, source)
    return numbers(*side(source, here), *side(to, there), 64, 64, 1)


def copy(name: str, to: str, source: str, size: int) -> Question:
    """A copy of one kind of memory to another."""
    in_stream = "Async" in name

    def arguments(m: Machine, r: Row) -> Arguments:
        return (*copied(m, to, source), size, *([r.stream] if in_stream else []))

    return Question(name, f"{source} to {to}, {size}", in_stream, arguments)


LOCATION = 1  # CUmemLocation as it goes in a register: a device, the first
ONE_THREAD = (1, 1, 1, 1, 1, 1, 0)
#: How arguments name the stream of their row.
_IN_STREAM = re.compile(r"\br\.(stream|event|pooled|launched|second_launch|freed_pool)\b")


def expanded(name: str, text: str) -> Iterator[tuple[str, str]]:
    """A name and a text for each choice of the words in braces; in the text, $1 stands for that of the first braces."""
    for words in itertools.product(*(group.split(",") for group in re.findall(r"\{(.*?)\}", name))):
        made = re.sub(r"\$(\d)", lambda match, words=words: words[int(match[1]) - 1], text)
        yield re.sub(r"\{.*?\}", "%s", name) % words, made


def read_questions() -> dict[str, list[Question]]:
    """The questions of questions.txt, by group."""
    groups: dict[str, list[Question]] = {}
    for line in Path(__file__).with_name("questions.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            group = groups.setdefault(line[1:-1], [])
        elif line and line[0] != "#":
            asked, _, arguments = line.partition(":")
            for name, text in expanded(asked, arguments.strip()):
                call, _, given = name.partition(" ")
                made = eval(f"lambda m, r: ({text}{',' if text else ''})")
                group.append(Question(call, given, bool(_IN_STREAM.search(text)), made))
    return groups


#: The questions by group.
GROUPS = read_questions()
#: The question that closes a gate of its own.
OWN_GATE = "cuCtxDestroy_v2 gate in it"
#: Calls that may wait: the question, the stream that it is asked with, and the gate's place.
WAITING = (
    ("cuCtxSynchronize", "non-blocking", "non-blocking"),
    ("cuStreamSynchronize", "non-blocking", "same"),
    ("cuStreamSynchronize", "legacy", "blocking"),
    ("cuEventSynchronize", "non-blocking", "same"),
    ("cuMemFree_v2 device, 64", "non-blocking", "non-blocking"),
    ("cuMemFree_v2 managed", "non-blocking", "non-blocking"),
    ("cuMemFree_v2 of a pool", "non-blocking", "same"),
    ("cuMemFreeHost", "non-blocking", "non-blocking"),
    ("cuMemHostRegister_v2", "non-blocking", "non-blocking"),
    ("cuMemHostUnregister", "non-blocking", "non-blocking"),
    ("cuMemAllocManaged global", "non-blocking", "non-blocking"),
    ("cuMemcpyHtoD_v2 pageable to device, 4096", "non-blocking", "blocking"),
    ("cuMemcpyHtoD_v2 pinned to device, 4096", "non-blocking", "blocking"),
    ("cuMemcpyDtoH_v2 device to pageable, 4096", "non-blocking", "blocking"),
    ("cuMemcpyHtoDAsync_v2 pageable to device, 1048576", "non-blocking", "same"),
    ("cuMemcpyDtoHAsync_v2 device to pageable, 4096", "non-blocking", "same"),
    ("cuMemsetD8_v2 managed, 64", "non-blocking", "blocking"),
    ("cuMemUnmap", "non-blocking", "non-blocking"),
    ("cuMemPoolTrimTo freed behind the gate", "non-blocking", "same"),
    ("cuMemPoolDestroy freed behind the gate", "non-blocking", "same"),
    ("cuArrayDestroy", "non-blocking", "non-blocking"),
    ("cuModuleLoadData cubin", "non-blocking", "non-blocking"),
    ("cuModuleUnload", "non-blocking", "non-blocking"),
    ("cuLibraryUnload used", "non-blocking", "non-blocking"),
    ("cuKernelGetFunction first", "non-blocking", "non-blocking"),
    ("cuGraphExecDestroy kernel, launched", "non-blocking", "same"),
    ("cuCtxSetLimit stack, larger", "non-blocking", "non-blocking"),
    ("cuCtxSetLimit printf, larger", "non-blocking", "non-blocking"),
)
#: The same; each of its rows makes contexts.
WAITING_OWN_GATE = (OWN_GATE, "non-blocking", "none")
#: Calls of another thread, asked with an idle non-blocking stream.
OTHERS = (
    "cuMemAlloc_v2 64", "cuMemFree_v2 nothing", "cuMemAllocHost_v2 64", "cuMemAllocManaged global",
    "cuMemAllocAsync", "cuMemFreeAsync", "cuMemGetInfo_v2", "cuPointerGetAttribute type, device",
    "cuMemcpyHtoD_v2 pinned to device, 4096", "cuMemcpyHtoDAsync_v2 pageable to device, 4096",
    "cuMemcpyHtoDAsync_v2 pinned to device, 4096", "cuMemcpyDtoHAsync_v2 device to pinned, 4096",
    "cuMemsetD8Async device, 64", "cuMemPoolCreate", "cuMemCreate", "cuMemAddressReserve", "cuMemHostGetFlags",
    "cuStreamCreate non-blocking", "cuStreamDestroy_v2 idle", "cuStreamQuery", "cuStreamSynchronize",
    "cuStreamWaitEvent never recorded", "cuStreamWriteValue32_v2", "cuLaunchHostFunc", "cuEventCreate",
    "cuEventDestroy_v2 never recorded", "cuEventRecord", "cuEventQuery", "cuEventSynchronize",
    "cuGraphCreate", "cuGraphInstantiateWithFlags memset", "cuGraphLaunch memset", "cuGraphLaunch kernel",
    "cuCtxGetCurrent", "cuCtxSetCurrent same", "cuCtxSetCurrent another", "cuCtxGetLimit stack",
    "cuDeviceGetAttribute", "cuModuleGetFunction again", "cuModuleGetGlobal_v2", "cuLibraryLoadData cubin",
    "cuLibraryGetKernel", "cuFuncGetAttribute loaded", "cuLaunchKernel loaded", "cuGetProcAddress_v2",
)  # fmt: skip
#: Copies whose limit is found by bisection, each in a blocking stream with the gate in it, and without a stream.
LIMITS = [(to, source) for to in MEMORY for source in MEMORY if "pageable" in (to, source)]
#: Calls of which so many are made behind a gate until one waits.
DEPTHS = (
    "cuMemsetD8Async device, 64", "cuMemcpyHtoDAsync_v2 pageable to device, 4096", "cuLaunchKernel loaded",
    "cuMemcpyHtoDAsync_v2 pinned to device, 4096", "cuStreamWriteValue32_v2", "cuLaunchHostFunc", "cuEventRecord",
)  # fmt: skip
DEEPEST = 8192
NO_TIME, NO_DEVICE = "no time left", "no other device"
QUESTIONS = {question.name: question for questions in GROUPS.values() for question in questions}
#: The longest first, and those that loading matters to.
FIRST = (
    "contexts made", "held own gate", "modules", "libraries",
    "copies in streams", *(f"held {part}" for part in range(6)), "limits", "copies",
)  # fmt: skip
#: What a part of a file of rows follows as a task: "items PART PARTS FILE".
ITEMS = "items "
TASKS = (*FIRST, *(group for group in GROUPS if group not in FIRST))


def places(question: Question, stream: str) -> list[str]:
    """Where the gate may be."""
    if question.name == OWN_GATE:
        return ["none"]
    #: There is but one such stream, so that "same" says it already.
    there = [place for place in PLACES if place != stream or stream not in ("legacy", "per-thread")]
    return [*there, "same"] if question.in_stream else there


def alone(question: Question) -> Iterator[Item]:
    """The rows of a call that is asked alone."""
    for stream in STREAMS if question.in_stream else ("",):
        for place in places(question, stream):
            yield "one", question.name, stream, place


def items(task: str) -> Iterator[Item]:
    """The rows of a task, which may be a file of rows."""
    if task.startswith(ITEMS):
        part, parts, file = task.removeprefix(ITEMS).split(" ", 2)
        rows = json.loads(Path(file).read_text(encoding="utf-8"))
        begin, end = (len(rows) * at // int(parts) for at in (int(part), int(part) + 1))
        yield from map(tuple, rows[begin:end])  # together, as rows with the same calls are often neighbours
    elif task in GROUPS:
        for question in GROUPS[task]:
            yield from alone(question)
    elif task == "limits":
        for to, source in LIMITS:
            yield "limit", "cuMemcpyAsync", to, source, "blocking", "same"
            yield "limit", "cuMemcpyAsync", to, source, "legacy", "blocking"
            yield "limit", "cuMemcpy", to, source, "blocking", "blocking"
        for name in DEPTHS:
            yield "depth", name
    else:
        for waiting in (WAITING_OWN_GATE,) if task == "held own gate" else WAITING[int(task.split()[1]) :: 6]:
            for other in OTHERS:
                yield "held", *waiting, other


def pose(machine: Machine, question: Question, stream: str, place: str) -> dict[str, Any]:
    """Ask one call while a gate is closed."""
    row = Row(machine, stream or "blocking")
    call = question.bound(machine, row)
    row.close(place)
    contexts = {"from another": machine.other_context, "from none": 0}
    with machine.current(contexts[question.given]) if question.given in contexts else nullcontext():
        answered = timed(machine, call, machine.limits.get((question.name, stream), LIMIT))
    answered["after"] = row.end()
    return answered


def timed(machine: Machine, call: Callable[[], int], seconds: float) -> dict[str, Any]:
    """Make a call; the gates open as soon as it has returned, or after the limit."""
    if machine.watch.rest():
        return {"answer": "the work behind the gate waits", "code": None}
    answered = timed_open(machine, call, seconds)
    machine.open()
    return answered


def timed_open(machine: Machine, call: Callable[[], int], seconds: float = LIMIT) -> dict[str, Any]:
    """Make a call and leave the gates closed if it returns."""
    machine.watch.arm(seconds)
    began = time.perf_counter()
    code = call()
    took, waits = time.perf_counter() - began, machine.watch.rest()
    return {"answer": "waits" if waits else "returns", "code": code, "ms": round(took * 1000, 2)}


def held(
    machine: Machine, waiting: Question, stream: str, place: str, other: Question, second_stream: str = "non-blocking"
) -> dict[str, Any]:
    """Ask a call of this thread, in a stream of a kind or in another context, while one of another thread waits."""
    elsewhere = second_stream == "another context"
    asking = machine.other_context if elsewhere else machine.context
    first = Row(machine, stream)
    call = waiting.bound(machine, first)
    made_context = machine.made("cuCtxGetCurrent") != machine.context  # the one that the waiting call destroys
    if made_context:
        first.close(place)
    with machine.current(asking):
        second = Row(machine, "non-blocking" if elsewhere else second_stream)
        asked = other.bound(machine, second)
    if not made_context:
        first.close(place)
    second.close("none")
    machine.must("cuCtxSetCurrent", asking)
    made = machine.helper.submit(call)
    time.sleep(max(BEGINS, (machine.limits.get((waiting.name, stream), 0) - LIMIT)))
    if made.done():
        answered: dict[str, Any] = {"answer": "nobody waits", "code": None, "waiting": made.result()}
    else:
        answered = timed(machine, asked, machine.limits.get((other.name, second_stream), LIMIT))
        answered["answer"] = {"waits": "held", "returns": "free"}.get(answered["answer"], answered["answer"])
        answered["waiting"] = made.result()
    answered["after"] = first.end() + second.end()
    machine.helper.submit(machine.do, "cuCtxSetCurrent", machine.context).result()
    return answered


def limit(machine: Machine, call: str, to: str, source: str, stream: str, place: str) -> dict[str, Any]:
    """The least size of a copy that waits, if any does and any does not."""

    def waits(size: int) -> bool:
        return bool(pose(machine, copy(call, to, source, size), stream, place)["answer"] == "waits")

    low, high = 1, MOST
    if waits(low) or not waits(high):
        return {"answer": "every size waits" if waits(high) else "no size waits", "code": 0, "after": []}
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if waits(middle) else (middle, high)
    return {"answer": high, "code": 0, "after": []}


def depth(machine: Machine, question: Question) -> dict[str, Any]:
    """How many calls of a kind return behind a gate before one waits."""
    row = Row(machine, "non-blocking")
    call = question.bound(machine, row)
    row.close("same")
    count, answered = 0, timed_open(machine, call)
    while answered["answer"] == "returns" and not answered["code"] and count < DEEPEST:
        count, answered = count + 1, timed_open(machine, call)
    code, answer = answered["code"], count if answered["answer"] == "waits" else f"none of {count} waits"
    return {"answer": answer, "code": code, "after": row.end()}


def warm(machine: Machine, question: Question, stream: str) -> None:
    """Make a call once without a gate: the first of its kind may load code of the driver's own, or be slow."""
    if (question.name, stream) not in machine.limits:
        took = pose(machine, question, stream, "none").get("ms", 0) / 1000
        machine.limits[question.name, stream] = max(LIMIT, PATIENCE * took)


def answer(machine: Machine, item: Item) -> dict[str, Any]:
    """Ask one row."""
    kind, *words = item
    if "another device" in words and not machine.other_device:
        return {"answer": NO_DEVICE, "code": None, "after": []}
    try:
        if kind == "limit":
            warm(machine, copy(words[0], words[1], words[2], MOST), words[3])
            return limit(machine, *words)
        question = QUESTIONS[words[0]]
        warm(machine, question, words[1] if words[1:] else "non-blocking")
        if kind == "depth":
            return depth(machine, question)
        if kind == "held":
            warm(machine, QUESTIONS[words[3]], words[4] if words[4:] and words[4] in STREAMS else "non-blocking")
        print(flush=True)  # it is alive
        if kind == "held":
            return held(machine, question, words[1], words[2], QUESTIONS[words[3]], *words[4:])
        return pose(machine, question, *words[1:])
    except (RuntimeError, AttributeError) as error:
        return {"answer": f"cannot be asked: {error}"[:160], "code": None, "after": machine.synchronize()}


def child(task: str, start: int) -> None:
    """Answer the rows of a task from a number on, a line each; a process with an error that stays ends itself."""
    machine = Machine()
    for number, item in enumerate(items(task)):
        if number >= start:
            print(json.dumps([number]), flush=True)
            answered = answer(machine, item)
            print(json.dumps([number, answered]), flush=True)
            if answered["after"]:
                break
    sys.stdout.flush()
    os._exit(0)  # whatever a real driver still has to do at exit


def facts() -> None:
    """Print what machine this is."""
    driver, version, name = Driver(), ctypes.c_int(), ctypes.create_string_buffer(100)
    calls = ("cuInit", 0), ("cuDriverGetVersion", ctypes.byref(version)), ("cuDeviceGetName", name, 100, 0)
    codes = [driver.do(*call) for call in calls]
    module = Path("/proc/driver/nvidia/version")
    kernel = module.read_text().splitlines()[0] if module.exists() else ""
    print(json.dumps({"driver": version.value, "device": name.value.decode(), "kernel module": kernel, "codes": codes}))


#: The words of the rows of each kind, but its first.
NAMES = {
    "one": ("name", "stream", "place"),
    "held": ("waiting", "stream", "place", "name", "second"),
    "limit": ("name", "to", "source", "stream", "place"),
    "depth": ("name",),
}


def question_of(row: dict[str, Any]) -> str:
    """The name of the question of a row of a recording."""
    return f"{row['call']} {row['given']}".strip() if "call" in row else str(row["name"])


def item_of(kind: str, row: dict[str, Any]) -> Item:
    """The words of a row of a recording, by which it is asked again."""
    name = question_of(row)
    return kind, *(name if word == "name" else row[word] for word in NAMES[kind] if word in row or word == "name")


class Recorder:
    """Runs the tasks in processes, several at a time, and writes their rows."""

    def __init__(self, file: Path, seconds: float) -> None:
        self.file, self.end = file, time.monotonic() + seconds
        self._rows = Path(f"{file}.rows").open("w", encoding="utf-8")  # noqa: SIM115 - open as long as the process
        self._lock, self._in_vain = threading.Lock(), 0
        #: By row: the answers of lazy loading, and of eager loading.
        self.found: dict[Item, dict[str, list[dict[str, Any]]]] = {}

    def note(self, loading: str, item: Item, answered: dict[str, Any]) -> None:
        """Write a row down."""
        with self._lock:
            self.found.setdefault(item, {}).setdefault(loading, []).append(answered)
            print(json.dumps([loading, item, answered]), file=self._rows, flush=True)

    def run(self, task: str, loading: str) -> None:
        """Ask all rows of a task, in as many processes as it takes."""
        todo, start = list(items(task)), 0
        while start < len(todo) and time.monotonic() < self.end:
            start = self._run_from(task, loading, todo, start)
        for item in todo[start:]:
            self.note(loading, item, {"answer": NO_TIME, "code": None, "after": []})

    def _run_from(self, task: str, loading: str, todo: list[Item], start: int) -> int:
        """Ask rows in one process; return the first that it has not answered."""
        settings = {"CUDA_MODULE_LOADING": loading, "CUDA_DEVICE_MAX_CONNECTIONS": "32"}
        command = [sys.executable, "-m", "campaigns.hardware.waits", "--child", task, str(start)]
        asked, began, text, errors = start - 1, start, b"", tempfile.TemporaryFile()  # noqa: SIM115 - small
        process = subprocess.Popen(command, env=os.environ | settings, stdout=subprocess.PIPE, stderr=errors)
        assert process.stdout is not None
        while True:
            left = self.end - time.monotonic()
            hung = left <= 0 or not select.select([process.stdout], [], [], min(SILENT, left))[0]
            chunk = b"" if hung else os.read(process.stdout.fileno(), 1 << 16)
            if not chunk:
                break
            *lines, text = (text + chunk).split(b"\n")
            for line in filter(None, lines):
                asked, *answers = json.loads(line)
                if answers:
                    self.note(loading, todo[asked], answers[0])
                    start = asked + 1
        if hung:
            process.kill()
        process.stdout.close()
        code = process.wait()
        if time.monotonic() >= self.end - 0.1 or (code == 0 and start == asked + 1 > began):
            return start
        errors.seek(0)
        said = errors.read().decode(errors="replace")[-400:]
        errors.close()
        if asked < began:  # no row is to blame
            print(f"{task}, {loading}: no process begins ({code}): {said}", file=sys.stderr)
            self._in_vain += 1
            return len(todo) if self._in_vain > 8 else start
        end = "hangs" if hung else f"ends its process with {code}"
        self.note(loading, todo[asked], {"answer": end, "code": None, "after": [], "stderr": said})
        return asked + 1

    def write(self, about: dict[str, Any]) -> None:
        """Write all answers: one where all are alike, else those of each loading; leave out what was not asked."""
        self._rows.close()
        rows: dict[str, list[dict[str, Any]]] = {kind: [] for kind in NAMES}
        counted = ("rows", "askings", "unequal", "differ by loading", "in vain", NO_TIME, "wait without a gate")
        counts = dict.fromkeys(counted, 0)
        for (kind, *words), by_loading in self.found.items():
            counts[NO_TIME] += any(each["answer"] == NO_TIME for group in by_loading.values() for each in group)
            answers = {
                way: answered
                for way, group in by_loading.items()
                if (answered := [[each["answer"], each["code"]] for each in group if each["answer"] != NO_TIME])
            }
            every = [each for group in answers.values() for each in group]
            if not every or every[0][0] == NO_DEVICE:
                continue
            without_gate = words[-1] == "none" and words[0] != OWN_GATE
            counts["rows"] += 1
            counts["askings"] += len(every)
            counts["unequal"] += any(each != group[0] for group in answers.values() for each in group)
            counts["differ by loading"] += len({str(group[0]) for group in answers.values()}) > 1
            counts["wait without a gate"] += without_gate and any(each[0] == "waits" for each in every)
            counts["in vain"] += any(each[1] is None for each in every)
            row: dict[str, Any] = dict(zip(NAMES[kind], words, strict=False))
            if kind in ("one", "held"):
                question = QUESTIONS[row.pop("name")]
                row = {"call": question.call, "given": question.given, **row}
            alike = len(answers) == len(LOADING) and all(each == every[0] for each in every)
            row |= {"answer": every[0]} if alike else {"answers": answers}
            after = [each["after"] for group in by_loading.values() for each in group if each["after"]]
            rows[kind].append(row | ({"after": after} if after else {}))
        save(self.file, {"about": about | {"counts": counts}, **rows})
        print(json.dumps(about | {"counts": counts}))


def main(arguments: list[str]) -> None:
    """Ask everything, and write the answers."""
    parser = argparse.ArgumentParser(prog="python -m campaigns.hardware.waits")
    parser.add_argument("file", type=Path)
    parser.add_argument("--seconds", type=float, default=225, help="stop asking after these seconds")
    parser.add_argument("--jobs", type=int, default=8, help="ask in so many processes at a time")
    parser.add_argument("--times", type=int, default=2, help="ask each row so often under each loading")
    parser.add_argument("--task", action="append", choices=TASKS, help="ask these alone; repeat it")
    parser.add_argument("--items", type=Path, help="ask the rows of this file alone, a JSON list of lists of words")
    parser.add_argument("--loading", choices=LOADING, help="ask under this loading alone")
    chosen = parser.parse_args(arguments)
    began = time.monotonic()
    asked = [sys.executable, "-m", "campaigns.hardware.waits", "--facts"]
    told = subprocess.run(asked, capture_output=True, text=True, check=True)
    recorder = Recorder(chosen.file, chosen.seconds)
    parts = range(chosen.jobs if chosen.items else 0)
    tasks = [f"{ITEMS}{part} {chosen.jobs} {chosen.items.resolve()}" for part in parts] or chosen.task or TASKS
    with ThreadPoolExecutor(chosen.jobs) as pool:
        for done in [
            pool.submit(recorder.run, task, loading)
            for _ in range(chosen.times)
            for loading in ([chosen.loading] if chosen.loading else LOADING)
            for task in tasks
        ]:
            done.result()
    recorder.write({**json.loads(told.stdout), "limit": LIMIT, "seconds": round(time.monotonic() - began, 1)})


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], int(sys.argv[3]))
    elif sys.argv[1:] == ["--facts"]:
        facts()
    else:
        main(sys.argv[1:])
