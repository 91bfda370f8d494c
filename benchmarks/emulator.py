"""Cost of the emulated driver: of loading it, of lifetime checks in links, of graphs, of many objects, of host calls.

``nox -s bench`` runs it. Each measurement is a child process on an emulated driver of the toolkit's version. What a
link through the driver costs is in ``linker.py``. One kind of object alone, so many of them::

    python benchmarks/emulator.py --grow textures 1000000
"""

from __future__ import annotations

import ctypes
import gc
import json
import mmap
import os
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import measure
from linker import driven, driver_in_context

ARCH = "sm_90"
ROUNDS = 60
CHECKS_LIMIT = 1.02
LOAD_LIMIT = 10.0  # milliseconds, with 500 look-ups of functions
LINKS_OF_A_ROUND = 5
QUESTIONS = 500
CAPTURED_NODES = 1_000_000
GRAPH_LIMIT = 10.0  # seconds of the processor, from the capture of these nodes to their end
UPDATED_NODES, DEPENDENCIES = 8_000, 20
UPDATE_LIMIT = 0.2  # seconds of the processor
JOINED_NODES = 100_000
JOIN_LIMIT = 0.2  # seconds of the processor; with n * n steps it took 1.7
FEW, MANY = 10_000, 1_000_000
MAPPINGS = 30_000  # Linux lets a process have 65,530 (vm.max_map_count)
GROWTH_LIMIT = 4.0  # how much more one of many takes than one of few: logarithms, and misses of the caches
COMPILED = 20  # modules of different PTX, and then so many of each
COMPILED_LIMIT = 0.1  # of the time that the first module of a PTX takes
HOST_CALLS = 2_000
HOST_CALL_LIMIT = 30.0  # microseconds, there and back
CLOSED_GATES = 0, 4_000  # streams that wait for a value while host functions are called
GATES_RATIO, GATES_LIMIT = 5.0, 100.0  # of the times there and back; the larger one in microseconds
IDLE_SECONDS, IDLE_LIMIT = 2.0, 0.02  # seconds of the processor for each second in which the gates stay closed


#: The answers of calls, which are made one by one.
Calls = Iterator[int]


def load() -> None:
    """Print the seconds of loading the library and of looking up functions, as cuda-bindings does."""
    names = json.loads(sys.argv[2])
    start = time.perf_counter()
    driver = ctypes.CDLL("libcuda.so.1")
    ask, address, status = driver.cuGetProcAddress_v2, c_void_p(), c_int()
    for name in names:
        ask(name.encode(), byref(address), 12000, c_uint64(0), byref(status))
    print(time.perf_counter() - start)


def serve() -> None:
    """Time a batch of links for each line on standard input, and print the seconds."""
    from pytest_cudalink.linker import sample

    driver = driver_in_context()
    codes = [(code.code + b"\0", code.name.encode()) for code in sample.compile_modules("ptx", ARCH)]
    driven(driver, "ptx", codes, ARCH)
    gc.disable()
    print("ready", flush=True)
    for _ in sys.stdin:
        start = time.perf_counter()
        for _ in range(LINKS_OF_A_ROUND):
            driven(driver, "ptx", codes, ARCH)
        print(time.perf_counter() - start, flush=True)


def _in_context(driver: ctypes.CDLL) -> tuple[c_void_p, c_void_p, c_uint64]:
    """Return the context, a stream and the address of 16 bytes; what follows is to answer 0 each time."""
    context, stream, memory = c_void_p(), c_void_p(), c_uint64()
    assert not driver.cuInit(0)
    assert not driver.cuDevicePrimaryCtxRetain(byref(context), 0)
    assert not driver.cuCtxSetCurrent(context)
    assert not driver.cuStreamCreate(byref(stream), 1)
    assert not driver.cuMemAlloc_v2(byref(memory), c_size_t(16))
    return context, stream, memory


def graphs() -> None:
    """Print the seconds of the processor for each step with captured nodes, for an update and a join, as JSON."""
    driver = ctypes.CDLL("libcuda.so.1")
    context, stream, memory = _in_context(driver)
    graph, executable, took = c_void_p(), c_void_p(), {}

    def step(name: str, *calls: int) -> None:
        nonlocal start
        assert not any(calls), (name, calls)
        took[name] = time.process_time() - start
        start = time.process_time()

    fill, size = driver.cuMemsetD8Async, c_size_t(16)
    start = time.process_time()
    assert not driver.cuStreamBeginCapture_v2(stream, 0)
    step("capture", *(fill(memory, 1, size, stream) for _ in range(CAPTURED_NODES)))
    step("end", driver.cuStreamEndCapture(stream, byref(graph)))
    step("instantiate", driver.cuGraphInstantiateWithFlags(byref(executable), graph, c_uint64(0)))
    step("launch", driver.cuGraphLaunch(executable, stream), driver.cuStreamSynchronize(stream))
    step("destroy", driver.cuGraphExecDestroy(executable), driver.cuGraphDestroy(graph))
    parameters = struct.pack("QQIIQQ", memory.value, 0, 1, 1, 16, 1)
    nodes, node = (c_void_p * UPDATED_NODES)(), c_void_p()
    assert not driver.cuGraphCreate(byref(graph), 0)
    for at in range(UPDATED_NODES):
        first = max(0, at - DEPENDENCIES)
        on = (c_void_p * DEPENDENCIES)(*nodes[first:at])
        assert not driver.cuGraphAddMemsetNode(byref(node), graph, on, c_size_t(at - first), parameters, context)
        nodes[at] = node.value
    assert not driver.cuGraphInstantiateWithFlags(byref(executable), graph, c_uint64(0))
    start = time.process_time()
    step("update", driver.cuGraphExecUpdate_v2(executable, graph, ctypes.create_string_buffer(24)))
    nodes, add = (c_void_p * JOINED_NODES)(), driver.cuGraphAddEmptyNode
    assert not any(add(byref(nodes, 8 * at), graph, None, c_size_t(0)) for at in range(JOINED_NODES))
    start = time.process_time()
    step("join", add(byref(node), graph, nodes, c_size_t(JOINED_NODES)))
    print(json.dumps(took))


def host_calls() -> None:
    """Print the seconds of each host function that does nothing, from its submission to the end of the stream.

    So many other streams as an argument says wait for values meanwhile. Then print what a second costs in which nothing
    happens, in seconds of the processor.
    """
    driver = ctypes.CDLL("libcuda.so.1")
    _, stream, _ = _in_context(driver)
    words, waiting = c_uint64(), c_void_p()
    assert not driver.cuMemHostAlloc(byref(words), c_size_t(4 * max(CLOSED_GATES)), 0)
    for at in range(int(sys.argv[2])):
        assert not driver.cuStreamCreate(byref(waiting), 1)
        assert not driver.cuStreamWaitValue32_v2(waiting, c_uint64(words.value + 4 * at), 1, 0)
    nothing, took = ctypes.CDLL(None).free, []
    for _ in range(HOST_CALLS):
        start = time.perf_counter()
        driver.cuLaunchHostFunc(stream, nothing, None)
        driver.cuStreamSynchronize(stream)
        took.append(time.perf_counter() - start)
    used = time.process_time()
    time.sleep(IDLE_SECONDS)
    print(json.dumps([took, (time.process_time() - used) / IDLE_SECONDS]))


def textures(driver: ctypes.CDLL, count: int) -> Iterator[Calls]:
    """Yield the calls that make and destroy texture objects of one piece of memory."""
    _, _, memory = _in_context(driver)
    of_memory = struct.pack("<ixxxxQiIQ", 2, memory.value, 1, 1, 16).ljust(144, b"\0")
    sampling, made = bytes(104), (c_uint64 * count)()
    yield (driver.cuTexObjectCreate(byref(made, 8 * at), of_memory, sampling, None) for at in range(count))
    yield (driver.cuTexObjectDestroy(c_uint64(texture)) for texture in made)


def arrays(driver: ctypes.CDLL, count: int) -> Iterator[Calls]:
    """Yield the calls that make and destroy arrays of 16 bytes."""
    _in_context(driver)
    sixteen, made = struct.pack("<QQiI", 16, 0, 1, 1), (c_void_p * count)()
    yield (driver.cuArrayCreate_v2(byref(made, 8 * at), sixteen) for at in range(count))
    yield (driver.cuArrayDestroy(c_void_p(array)) for array in made)


def user_objects(driver: ctypes.CDLL, count: int) -> Iterator[Calls]:
    """Yield the calls that give user objects to a graph and take them away, the first ones first."""
    _in_context(driver)
    nothing, graph, made = ctypes.CDLL(None).free, c_void_p(), (c_void_p * count)()
    assert not driver.cuGraphCreate(byref(graph), 0)
    yield (
        driver.cuUserObjectCreate(byref(made, 8 * at), None, nothing, 1, 1)
        or driver.cuGraphRetainUserObject(graph, c_void_p(made[at]), 1, 1)
        for at in range(count)
    )
    yield (driver.cuGraphReleaseUserObject(graph, c_void_p(user_object), 1) for user_object in made)


def mappings(driver: ctypes.CDLL, count: int) -> Iterator[Calls]:
    """Yield the calls that reserve addresses, map one memory there with access, and undo it."""
    _in_context(driver)
    size, handle, made = c_size_t(2 << 20), c_uint64(), (c_uint64 * count)()
    properties = struct.pack("<iiii", 1, 0, 1, 0).ljust(32, b"\0")
    assert not driver.cuMemCreate(byref(handle), size, properties, c_uint64(0))
    access = struct.pack("<iii", 1, 0, 3)
    yield (
        driver.cuMemAddressReserve(byref(made, 8 * at), size, c_size_t(0), c_uint64(0), c_uint64(0))
        or driver.cuMemMap(c_uint64(made[at]), size, c_size_t(0), handle, c_uint64(0))
        or driver.cuMemSetAccess(c_uint64(made[at]), size, access, c_size_t(1))
        for at in range(count)
    )
    yield (
        driver.cuMemUnmap(c_uint64(mapped), size) or driver.cuMemAddressFree(c_uint64(mapped), size) for mapped in made
    )


def nodes(driver: ctypes.CDLL, count: int) -> Iterator[Calls]:
    """Yield the calls that make and destroy nodes of a graph, the first ones first."""
    _in_context(driver)
    graph, made = c_void_p(), (c_void_p * count)()
    assert not driver.cuGraphCreate(byref(graph), 0)
    yield (driver.cuGraphAddEmptyNode(byref(made, 8 * at), graph, None, c_size_t(0)) for at in range(count))
    yield (driver.cuGraphDestroyNode(c_void_p(node)) for node in made)


def allocations(driver: ctypes.CDLL, count: int) -> Iterator[Calls]:
    """Yield the calls that allocate memory of the device and free it, the first first."""
    _in_context(driver)
    size, made = c_size_t(1000), (c_uint64 * count)()
    yield (driver.cuMemAlloc_v2(byref(made, 8 * at), size) for at in range(count))
    yield (driver.cuMemFree_v2(c_uint64(address)) for address in made)


def host_allocations(driver: ctypes.CDLL, count: int) -> Iterator[Calls]:
    """Yield the calls that allocate memory of the host and free it, the first first."""
    _in_context(driver)
    size, made = c_size_t(1000), (c_void_p * count)()
    yield (driver.cuMemHostAlloc(byref(made, 8 * at), size, 0) for at in range(count))
    yield (driver.cuMemFreeHost(c_void_p(address)) for address in made)


def registrations(driver: ctypes.CDLL, count: int) -> Iterator[Calls]:
    """Yield the calls that register pages of the host and unregister them, the first first."""
    _in_context(driver)
    pages = mmap.mmap(-1, 4096 * count)
    start, size = ctypes.addressof(ctypes.c_char.from_buffer(pages)), c_size_t(4096)
    yield (driver.cuMemHostRegister_v2(c_void_p(start + 4096 * at), size, 0) for at in range(count))
    yield (driver.cuMemHostUnregister(c_void_p(start + 4096 * at)) for at in range(count))


def pool_allocations(driver: ctypes.CDLL, count: int) -> Iterator[Calls]:
    """Yield the calls that allocate memory of a pool and free it, the first first."""
    _, stream, _ = _in_context(driver)
    size, made = c_size_t(1000), (c_uint64 * count)()
    yield (driver.cuMemAllocAsync(byref(made, 8 * at), size, stream) for at in range(count))
    yield (driver.cuMemFreeAsync(c_uint64(address), stream) for address in made)


def accesses(driver: ctypes.CDLL, count: int) -> Iterator[Calls]:
    """Yield the calls that fill memory in pieces, which the check of order keeps, and one of another stream behind."""
    from pytest_cudalink.emulator import control

    _, stream, _ = _in_context(driver)
    memory, other, size = c_uint64(), c_void_p(), c_size_t(16)
    assert not driver.cuMemAlloc_v2(byref(memory), c_size_t(16 * count))
    assert not driver.cuStreamCreate(byref(other), 1)
    control.attach(driver).check_order(on=True)
    fill, start = driver.cuMemsetD8Async, memory.value
    yield (fill(c_uint64(start + 16 * at), 1, size, stream) for at in range(count))
    yield (fill(c_uint64(start + 16 * at), 2, size, stream) for at in range(count))


GROWING = {
    function.__name__: function
    for function in (
        textures,
        arrays,
        user_objects,
        mappings,
        nodes,
        accesses,
        allocations,
        host_allocations,
        registrations,
        pool_allocations,
    )
}


def grow() -> None:
    """Print the processor's seconds for one of so many objects of a kind, of making and of ending them, as JSON."""
    count, took = int(sys.argv[3]), []
    gc.disable()
    for calls in GROWING[sys.argv[2]](ctypes.CDLL("libcuda.so.1"), count):
        start = time.process_time()
        assert not any(calls)
        took.append((time.process_time() - start) / count)
    print(json.dumps(took))


def compile_modules() -> None:
    """Print the seconds of the first and of a later module for each PTX, as JSON; the compiler is another process."""
    driver = ctypes.CDLL("libcuda.so.1")
    _in_context(driver)
    made: dict[int, list[float]] = {0: [], 1: []}
    for number in range(-1, COMPILED):  # the first one starts that process
        ptx = f".version 8.0\n.target {ARCH}\n.address_size 64\n.visible .entry kernel{number + 1}() {{ ret; }}\n"
        for later in range(1 + COMPILED):
            start = time.perf_counter()
            assert not driver.cuModuleLoadData(byref(c_void_p()), ptx.encode())
            made[bool(later)] += [time.perf_counter() - start] * (number >= 0)
    print(json.dumps(list(made.values())))


CHILDREN: dict[str, Callable[[], None]] = {
    "--load": load,
    "--serve": serve,
    "--graphs": graphs,
    "--grow": grow,
    "--compile": compile_modules,
    "--host-calls": host_calls,
}


def planned(lifetime: str) -> dict[str, str]:
    """Return the environment of an emulated driver of the toolkit's version."""
    from pytest_cudalink import emulator, probes

    nvjitlink = probes.nvjitlink()
    assert nvjitlink.usable, nvjitlink.obstacle
    emulation = emulator.emulation_for(nvjitlink.usable, lifetime=lifetime)
    assert not emulation.missing, emulation.missing
    return emulation.environment()


@contextmanager
def served(environment: dict[str, str]) -> Iterator[Callable[[], Callable[[], object]]]:
    """Start a child that links; yields what prepares a batch, which times itself."""
    process = subprocess.Popen(
        [sys.executable, __file__, "--serve"],
        env={**os.environ, **environment, "CUDA_CACHE_DISABLE": "1"},  # links as they are without a GPU
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None
    assert stdout is not None
    assert stdout.readline() == "ready\n"

    def batch() -> measure.Seconds:
        stdin.write("\n")
        return measure.Seconds(stdout.readline())

    yield lambda: batch
    stdin.close()
    process.wait()


def report_host_calls(report: measure.Report, environment: dict[str, str]) -> None:
    """Measure host functions without and with closed gates, in a process of their own each."""
    summaries, idle = [], 0.0
    for gates in CLOSED_GATES:
        command = [sys.executable, __file__, "--host-calls", str(gates)]
        done = subprocess.run(command, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True, check=True)
        took, idle = json.loads(done.stdout)
        summaries.append(report.row("streams", f"a host function, there and back, at {gates:,} closed gates", took))
    none, many = summaries
    report.limit("a host function, there and back", none.median * 1e6, HOST_CALL_LIMIT, "us")
    report.limit(f"the same at {max(CLOSED_GATES):,} closed gates", many.median * 1e6, GATES_LIMIT, "us")
    report.limit("the ratio of both", many.median / none.median, GATES_RATIO)
    report.limit(f"a second at {max(CLOSED_GATES):,} closed gates", idle, IDLE_LIMIT, "s of a processor")


def report_growth(report: measure.Report, environment: dict[str, str]) -> None:
    """Measure one of few and one of many objects of each kind, each in a process of its own."""
    for kind in GROWING:
        took, many = [], MAPPINGS if kind == "mappings" else MANY
        for count in (FEW, many):
            command = [sys.executable, __file__, "--grow", kind, str(count)]
            environ = {**os.environ, **environment}
            done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, text=True, check=True)
            took.append(json.loads(done.stdout))
        for what, one_of_few, one_of_many in zip(("making", "ending"), *took, strict=True):
            report.row(kind, f"{what} one of {FEW:,}", [one_of_few])
            report.row(kind, f"{what} one of {many:,}", [one_of_many], [one_of_few])
            ratio = one_of_many / one_of_few
            report.limit(f"{kind}: {what} one of {many:,} to one of {FEW:,}", ratio, GROWTH_LIMIT, "x")


def report_compilations(report: measure.Report, environment: dict[str, str]) -> None:
    """Measure modules of PTX that was compiled before."""
    command = [sys.executable, __file__, "--compile"]
    environ = {**os.environ, **environment, "CUDA_CACHE_DISABLE": "0"}
    done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, text=True, check=True)
    first, later = json.loads(done.stdout)
    of_first = report.row("modules", "the first module of a PTX", first)
    of_later = report.row("modules", "a later one", later, first)
    report.limit("a later module of a PTX to the first", of_later.median / of_first.median, COMPILED_LIMIT, "x")


def report_graphs(report: measure.Report, environment: dict[str, str]) -> None:
    """Measure large graphs once in a process of their own: they take a gigabyte."""
    command = [sys.executable, __file__, "--graphs"]
    done = subprocess.run(command, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True, check=True)
    took = json.loads(done.stdout)
    update, join = took.pop("update"), took.pop("join")
    table = f"{CAPTURED_NODES:,} captured nodes"
    for name, seconds in took.items():
        report.row(table, name, [seconds])
    report.limit(table, sum(took.values()), GRAPH_LIMIT, "s")
    what = f"updating {UPDATED_NODES:,} nodes of {DEPENDENCIES} dependencies"
    report.row("graphs", what, [update])
    report.limit(what, update, UPDATE_LIMIT, "s")
    what = f"joining {JOINED_NODES:,} nodes in one"
    report.row("graphs", what, [join])
    report.limit(what, join, JOIN_LIMIT, "s")


def main() -> int:
    """Run every measurement; return exit code 1 beyond a limit."""
    from pytest_cudalink.base.tables import read_table

    options = measure.arguments("emulator", ROUNDS, __doc__ or "")
    report = measure.Report("emulator", "The emulated driver", device="no GPU, emulated driver of the toolkit")
    off, marked = planned("off"), planned("report")
    checked = {name: value for name, value in marked.items() if not name.startswith("MALLOC_")}
    table = f"{LINKS_OF_A_ROUND} links of two PTX modules"
    with served(off) as plain, served(checked) as checks, served(marked) as marks:
        # malloc's marks make the whole process slower, which is its cost, so that they have no limit
        names = {"without lifetime checks": plain, "with lifetime checks": checks, "and malloc's marks": marks}
        times = measure.rounds(names, options.rounds)
    for name, seconds in times.items():
        report.row(table, name, seconds, times["without lifetime checks"])
    report.limit_ratio(table, times["with lifetime checks"], times["without lifetime checks"], CHECKS_LIMIT)
    asked = list(read_table("emulator/functions.toml")["functions"])[:QUESTIONS]
    asked += asked[: QUESTIONS - len(asked)]

    def loaded() -> measure.Seconds:
        command = [sys.executable, __file__, "--load", json.dumps(asked)]
        done = subprocess.run(command, env={**os.environ, **marked}, stdout=subprocess.PIPE, text=True, check=True)
        return measure.Seconds(done.stdout)

    seconds = measure.rounds({"load": lambda: loaded}, min(11, options.rounds))["load"]
    what = f"loading the driver and looking up {len(asked)} functions"
    summary = report.row("start of a process", what, seconds)
    report.limit(what, summary.median * 1e3, LOAD_LIMIT, "ms")
    report_graphs(report, off)
    report_growth(report, off)
    report_compilations(report, off)
    report_host_calls(report, off)
    return report.finish(options.json)


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] in CHILDREN:
        CHILDREN[sys.argv[1]]()
    else:
        sys.exit(main())
