"""The CUDA runtime of cuda-bindings on an emulated driver: which driver function answers, and with what."""

import re
from types import SimpleNamespace

import pytest

from pytest_cudalink.base.tables import read_table
from pytest_cudalink.emulator.runtime.cuda_runtime import Runtime
from pytest_cudalink.emulator.runtime.cuda_runtime_arrays import Arrays

TABLE = read_table("emulator/cuda_runtime.toml")
#: Functions of the table that cuda-bindings has since 13.1 or 13.2.
LATER = {
    *("DeviceGetDevResource", "DeviceGetExecutionCtx", "StreamGetDevResource", "GraphGetId", "GraphExecGetId"),
    *("GraphNodeGetLocalId", "GraphNodeGetToolsId", "GraphNodeGetContainingGraph"),
    *("ExecutionCtxGetDevResource", "ExecutionCtxGetDevice", "ExecutionCtxGetId", "ExecutionCtxRecordEvent"),
    *("ExecutionCtxSynchronize", "ExecutionCtxWaitEvent", "ExecutionCtxDestroy", "ExecutionCtxStreamCreate"),
    *("DevResourceGenerateDesc", "DevSmResourceSplit", "DevSmResourceSplitByCount", "GreenCtxCreate"),
    *("GraphConditionalHandleCreate_v2", "LaunchHostFunc_v2"),
}
#: Types of the runtime that belong to them.
LATER_TYPES = {"cudaDevResourceDesc_t", "cudaExecutionContext_t"}
MODULE = "KIND = rt.cudaMemcpyKind\n"


def test_the_table_fits(toolkit) -> None:
    """Each function of the table is in both modules, with as many parameters; each type and member exists.

    cuda-bindings 12 has some in neither module, and that of 13.0 lacks later ones.
    """
    from cuda.bindings import driver, runtime

    def parameters(module, name: str) -> int | None:
        if toolkit.major == 12 and not hasattr(module, name):
            return None
        signature = re.match(r"\w+\((.*)\)", getattr(module, name).__doc__.split("\n")[0])[1]
        return len(re.sub(r"\[[^]]*\]", "", signature).split(",")) if signature else 0

    def there(names) -> list[str]:
        return [name for name in names if name not in LATER or hasattr(runtime, f"cuda{name}")]

    assert {*TABLE["same"], *TABLE["renamed"], *TABLE["own"]} >= LATER
    every = {**{name: name for name in TABLE["same"]}, **TABLE["renamed"]}
    for name in there(every):
        assert parameters(runtime, f"cuda{name}") == parameters(driver, f"cu{every[name]}"), name
    assert all(hasattr(Runtime, f"_{row.split()[0]}") for row in TABLE["own"].values())
    assert all(hasattr(Arrays, f"_{row.split()[0]}") for row in TABLE["arrays"].values())
    known = (*there(TABLE["own"]), *TABLE["works"], *(TABLE["arrays"] if toolkit.major > 12 else ()))
    assert all(hasattr(runtime, f"cuda{name}") for name in known)
    for ours, theirs in TABLE["numbers"].items():
        assert hasattr(driver, ours), ours
        assert hasattr(runtime, theirs) or theirs in LATER_TYPES, theirs
    for name, attributes in TABLE["properties"].items():
        for attribute in [attributes] if isinstance(attributes, str) else attributes:
            assert hasattr(runtime.cudaDeviceAttr, f"cudaDevAttr{attribute}"), (name, attribute)
    assert not (set(TABLE["own"]) | set(TABLE["arrays"])) & set(every)
    assert not set(TABLE["own"]) & set(TABLE["arrays"])


def test_functions_of_later_bindings() -> None:
    """The driver answers those that cuda-bindings 13.0 lacks; the execution context of a device is its primary one."""
    from cuda.bindings import driver, runtime

    def answers(name: str):
        return lambda *given: (driver.CUresult(0), name, given)

    counterparts = {name: TABLE["renamed"].get(name, name) for name in LATER - TABLE["own"].keys()}
    ours = SimpleNamespace(**{**vars(runtime), **{f"cuda{name}": answers(name) for name in LATER}})
    ours.cudaExecutionContext_t = float
    theirs = SimpleNamespace(**{**vars(driver), **{f"cu{name}": answers(name) for name in counterparts.values()}})
    theirs.cuInit = theirs.cuCtxSetCurrent = lambda _: (driver.CUresult(0),)
    theirs.cuDeviceGetCount = theirs.cuCtxGetCurrent = lambda: (driver.CUresult(0), 1)
    theirs.cuDevicePrimaryCtxRetain = lambda device: (driver.CUresult(0), driver.CUcontext(7 + device))
    theirs.cuStreamQuery = lambda _: (driver.CUresult(600),)
    theirs.cuCtxPushCurrent = theirs.cuCtxPopCurrent = lambda *_: (driver.CUresult(0), 1)
    theirs.cuGreenCtxCreate = lambda *_: (driver.CUresult(0), 5)
    theirs.cuCtxFromGreenCtx = lambda _: (driver.CUresult(0), driver.CUcontext(9))
    for name in ("GreenCtxDestroy", "StreamCreateWithPriority", "GraphConditionalHandleCreate"):
        setattr(theirs, f"cu{name}", answers(name))
    functions = Runtime(ours, theirs, refuse=lambda *_: pytest.fail("refused")).functions()
    for name, counterpart in counterparts.items():
        assert functions[f"cuda{name}"](0, 3) == (runtime.cudaError_t(0), counterpart, (0, 3))
    assert repr(functions["cudaDeviceGetExecutionCtx"](2)[1]) == "9.0"
    _, green = functions["cudaGreenCtxCreate"](3, 0, 0)
    for name, given, answer in (
        ("GraphConditionalHandleCreate_v2", (4, 8, 0, 0), ("GraphConditionalHandleCreate", (4, 8, 0, 0))),
        ("GraphConditionalHandleCreate_v2", (4, None, 0, 0), ("GraphConditionalHandleCreate", (4, 1, 0, 0))),
        ("ExecutionCtxStreamCreate", (11, 0, 3), ("StreamCreateWithPriority", (0, 3))),
        ("ExecutionCtxDestroy", (green,), ("GreenCtxDestroy", (5,))),
    ):
        assert functions[f"cuda{name}"](*given)[1:] == answer
    assert functions["cudaStreamQuery"](0)[0] == 600 != functions["cudaGetLastError"]()[0]


def test_every_kind_of_channel_has_a_format(toolkit) -> None:
    """Every kind of channel that CUDA 13.0 has is one of a format; later kinds are refused."""
    from cuda.bindings import driver, runtime

    kinds = {kind.name.removeprefix("cudaChannelFormatKind") for kind in runtime.cudaChannelFormatKind if kind <= 31}
    tables = [TABLE[name] for name in ("formats", "whole_formats", "block_formats")]
    served = {described[0] for table in tables for described in table.values()}
    assert kinds - served == {"None"}
    if toolkit.major > 12:
        assert served <= kinds
        formats = {format_.name for format_ in driver.CUarray_format}
        assert {f"CU_AD_FORMAT_{name}" for table in tables for name in table} <= formats


SUITE = """
# Devices, their properties, the current one of each thread, and a reset.
def test_devices():
    assert value(rt.cudaGetDeviceCount()) == 2
    assert value(rt.cudaGetDevice()) == 0
    assert int(driver.cuInit(0)[0]) == 0
    assert int(driver.cuCtxGetCurrent()[1]) == 0  # asking makes no context
    value(rt.cudaDeviceGetAttribute(rt.cudaDeviceAttr.cudaDevAttrWarpSize, 0))
    assert int(driver.cuCtxGetCurrent()[1]) == 0
    value(rt.cudaSetDevice(1))
    assert value(rt.cudaGetDevice()) == 1
    assert int(driver.cuCtxGetDevice()[1]) == 1
    found = []
    thread = threading.Thread(target=lambda: found.append(rt.cudaGetDevice()))
    thread.start(), thread.join()
    assert found == [(OK, 0)]  # each thread has its device
    assert rt.cudaSetDevice(2) == (rt.cudaError_t.cudaErrorInvalidDevice,)
    assert rt.cudaDeviceSynchronize() == (OK,)
    properties = value(rt.cudaGetDeviceProperties(0))
    assert (properties.major, properties.minor, properties.warpSize) == (8, 0, 32)
    assert properties.name.startswith(b"NVIDIA")
    assert properties.maxThreadsDim == [1024, 1024, 64]
    assert properties.totalGlobalMem == driver.cuDeviceTotalMem(0)[1]
    assert rt.cudaGetDeviceProperties(7) == (rt.cudaError_t.cudaErrorInvalidDevice, None)

def test_reset():
    pointer = value(rt.cudaMalloc(64))
    value(rt.cudaDeviceReset())
    assert value(rt.cudaMalloc(64))  # the next call makes the context again

def test_versions():
    assert value(rt.cudaDriverGetVersion()) == 13000
    assert value(rt.cudaGetErrorName(rt.cudaError_t.cudaErrorInvalidValue)) == b"cudaErrorInvalidValue"

@pytest.mark.parametrize("byte", [0, 120])
def test_a_library_has_overwritten_what_python_shares(byte):
    name = value(rt.cudaGetDeviceProperties(0)).name.rstrip(b"\\0")
    shared = id(b" ") + bytes.__basicsize__ - 1
    ctypes.memset(shared, byte, 1)
    try:
        answer = rt.cudaGetDeviceProperties(0)
    finally:
        ctypes.memset(shared, 32, 1)
    assert value(answer).name.rstrip(b"\\0") == name

# Memory with host buffers of any kind, the last error, streams and events of the runtime's types.
def test_memory():
    pointer = value(rt.cudaMalloc(16))
    assert type(pointer) is int
    source, target = bytearray(range(16)), bytearray(16)
    assert rt.cudaMemcpy(pointer, source, 16, KIND.cudaMemcpyHostToDevice) == (OK,)
    assert rt.cudaMemset(pointer, 0x1FF, 4) == (OK,)
    assert rt.cudaMemcpy(target, pointer, 16, KIND.cudaMemcpyDeviceToHost) == (OK,)
    assert target == b"\\xff" * 4 + bytes(range(4, 16))
    stream = value(rt.cudaStreamCreate())
    assert value(rt.cudaStreamGetFlags(stream)) == 0
    assert rt.cudaMemcpyAsync(target, pointer, stream=stream, kind=KIND.cudaMemcpyDefault, count=16) == (OK,)
    assert rt.cudaMemsetAsync(pointer, 0, 16, stream) == (OK,)
    assert rt.cudaMemcpy2D(target, 4, pointer, 8, 4, 2, KIND.cudaMemcpyDeviceToHost) == (OK,)
    assert target[:8] == bytes(8)
    assert rt.cudaMemcpy(0, pointer, 16, KIND.cudaMemcpyDefault) == (rt.cudaError_t.cudaErrorInvalidValue,)
    assert rt.cudaMemcpy(0, 0, 0, KIND.cudaMemcpyDefault) == (OK,)
    for digits in (b"12345678", bytearray(b"       7"), memoryview(b"00000000")):  # no addresses
        assert rt.cudaMemcpy(pointer, digits, 8, KIND.cudaMemcpyHostToDevice) == (OK,)
        assert rt.cudaMemcpy(target, pointer, 8, KIND.cudaMemcpyDeviceToHost) == (OK,)
        assert target[:8] == digits
    assert rt.cudaFree(pointer) == (OK,)
    assert rt.cudaFree(0) == (OK,)
    assert value(rt.cudaMalloc(0)) == value(rt.cudaHostAlloc(0, 0)) == 0
    shared = value(rt.cudaMalloc(size=8))
    assert type(value(rt.cudaIpcGetMemHandle(shared))) is rt.cudaIpcMemHandle_t
    host = value(rt.cudaMallocHost(8))
    assert rt.cudaFreeHost(host) == (OK,)
    free, total = value(rt.cudaMemGetInfo())
    assert 0 < free <= total

def test_boxes():
    extent = rt.cudaExtent()
    extent.width, extent.height, extent.depth = 5, 3, 2
    box = value(rt.cudaMalloc3D(extent))
    assert (box.xsize, box.ysize) == (5, 3)
    assert rt.cudaMemset3D(box, 7, extent) == (OK,)
    target = bytearray(30)
    assert rt.cudaMemcpy2D(target, 5, box.ptr, box.pitch, 5, 6, KIND.cudaMemcpyDeviceToHost) == (OK,)
    assert target == b"\x07" * 30

def test_last_error():
    error = rt.cudaError_t.cudaErrorInvalidValue
    assert rt.cudaFree(123) == (error,)
    assert rt.cudaPeekAtLastError() == rt.cudaGetLastError() == (error,)
    assert rt.cudaGetLastError() == (OK,)

def test_streams_and_events():
    stream, start, end = value(rt.cudaStreamCreateWithFlags(1)), *(value(rt.cudaEventCreate()) for _ in "12")
    assert (type(stream), type(start)) == (rt.cudaStream_t, rt.cudaEvent_t)
    assert value(rt.cudaStreamGetFlags(stream)) == 1
    for event in (start, end):
        value(rt.cudaEventRecord(event, stream))
    value(rt.cudaStreamWaitEvent(stream, end, 0))
    value(rt.cudaEventSynchronize(end))
    assert value(rt.cudaEventElapsedTime(start, end)) >= 0
    for close, handle in ((rt.cudaEventDestroy, start), (rt.cudaEventDestroy, end), (rt.cudaStreamDestroy, stream)):
        assert close(handle) == (OK,)

def test_a_conftest_may_import_first():
    import conftest
    assert value(conftest.cudaMalloc(8))
"""


def test_suite(run, pytester: pytest.Pytester) -> None:
    """Devices, memory, streams and events, also of functions that a conftest took out of the module."""
    pytester.makeconftest("from cuda.bindings.runtime import cudaMalloc\n")
    run(SUITE, "--cudalink-device=sm_80:2").assert_outcomes(passed=10)


def test_no_device(run) -> None:
    """Without a device every call says so, with as many results as the runtime gives."""
    module = """
def test_none():
    none = rt.cudaError_t.cudaErrorNoDevice
    assert rt.cudaGetDeviceCount() == (none, None)
    assert rt.cudaMalloc(8) == rt.cudaMalloc(size=8) == (none, None)
    assert rt.cudaMemGetInfo() == (none, None, None)
    assert rt.cudaDeviceSynchronize() == (none,)
"""
    run(module, "--cudalink-device=none").assert_outcomes(passed=1)


CHILDREN = """
import multiprocessing
import pytest

def child(queue):
    from cuda.bindings import runtime

    queue.put(int(runtime.cudaDeviceSynchronize()[0]))

@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_child(method):
    context = multiprocessing.get_context(method)
    queue = context.Queue()
    process = context.Process(target=child, args=(queue,))
    process.start()
    assert queue.get(timeout=60) == 0
    process.join()
"""


def test_processes_of_multiprocessing(pytester: pytest.Pytester, run_pytest, toolkit) -> None:
    """A process that multiprocessing starts has the functions too, however it is started."""
    pytester.makepyfile(CHILDREN)
    run_pytest(f"--cudalink-driver={toolkit}").assert_outcomes(passed=3)


def test_the_real_driver_keeps_its_runtime(pytester: pytest.Pytester, run_pytest, toolkit) -> None:
    """Without an emulated driver nothing is replaced, and the end of a run restores what was."""
    pytester.makepyfile(
        """
        import multiprocessing.spawn

        from cuda.bindings import runtime
        from pytest_cudalink.emulator.runtime import serve

        def test_original():
            assert "cuda_runtime" not in str(getattr(runtime.cudaMalloc, "__code__", ""))

        def test_restored():
            class Control:
                refuse = None

            original, prepare = runtime.cudaMalloc, multiprocessing.spawn.get_preparation_data
            undo = serve(Control())
            assert runtime.cudaMalloc is not original
            assert runtime.cudaMalloc.__doc__ == original.__doc__
            undo()
            assert runtime.cudaMalloc is original
            assert multiprocessing.spawn.get_preparation_data is prepare
        """
    )
    run_pytest("--cudalink-driver=absent").assert_outcomes(passed=2)
