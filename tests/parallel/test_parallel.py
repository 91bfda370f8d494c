"""cuda-bindings and the bundled linker in many threads on an emulated driver, for pytest-run-parallel.

The cell ctk-13.0-python-3.14t runs each test in eight threads at once, on free-threaded Python.
"""

import sys
import sysconfig
import threading
from array import array
from collections.abc import Iterator
from typing import Any

import pytest
from cuda.bindings import driver, nvjitlink, nvrtc

from pytest_cudalink.linker import Linker, LinkerOptions, ObjectCode
from pytest_cudalink.targets.base import Backend

SOURCE = b'extern "C" __global__ void kernel(int *out) { *out = 1; }'
SIZE = 4096


def ok(answer: tuple[Any, ...]) -> Any:
    """Return the result of a call of cuda-bindings that succeeded."""
    assert int(answer[0]) == 0, answer[0]
    return answer[1] if len(answer) == 2 else answer[1:]


def compiled() -> bytes:
    """Compile PTX in this thread."""
    program = ok(nvrtc.nvrtcCreateProgram(SOURCE, b"kernel.cu", 0, None, None))
    ok(nvrtc.nvrtcCompileProgram(program, 1, [b"--gpu-architecture=compute_75"]))
    text = b" " * ok(nvrtc.nvrtcGetPTXSize(program))
    ok(nvrtc.nvrtcGetPTX(program, text))
    ok(nvrtc.nvrtcDestroyProgram(program))
    return text


@pytest.fixture(scope="module")
def context() -> Iterator[driver.CUcontext]:
    """Retain the primary context; each thread makes it current."""
    ok(driver.cuInit(0))
    device = ok(driver.cuDeviceGet(0))
    yield ok(driver.cuDevicePrimaryCtxRetain(device))
    ok(driver.cuDevicePrimaryCtxRelease(device))


@pytest.fixture(autouse=True)
def clean_settings() -> None:
    """As in every other test, but without monkeypatch, for which pytest-run-parallel uses one thread."""


@pytest.fixture(autouse=True)
def threads(request: pytest.FixtureRequest) -> Iterator[set[int]]:
    """The threads that run a test: as many as the command line asks for, and the GIL stays off where it can be."""
    threads: set[int] = set()
    yield threads
    assert len(threads) == int(request.config.getoption("parallel_threads", 1))
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        assert not sys._is_gil_enabled()


def test_copies(context: driver.CUcontext, threads: set[int]) -> None:
    """Each thread gets back what it wrote, through a stream of its own."""
    threads.add(threading.get_ident())
    ok(driver.cuCtxSetCurrent(context))
    stream = ok(driver.cuStreamCreate(0))
    for number in range(10):
        source, target = array("B", bytes([number + 1]) * SIZE), array("B", bytes(SIZE))
        memory = ok(driver.cuMemAlloc(SIZE))
        ok(driver.cuMemcpyHtoDAsync(memory, source.buffer_info()[0], SIZE, stream))
        ok(driver.cuMemcpyDtoHAsync(target.buffer_info()[0], memory, SIZE, stream))
        ok(driver.cuStreamSynchronize(stream))
        assert target == source
        ok(driver.cuMemFree(memory))
    ok(driver.cuStreamDestroy(stream))


def test_two_streams_and_an_event(context: driver.CUcontext, threads: set[int]) -> None:
    """A copy that waits for an event of another stream sees what was set before it."""
    threads.add(threading.get_ident())
    ok(driver.cuCtxSetCurrent(context))
    first, second = ok(driver.cuStreamCreate(1)), ok(driver.cuStreamCreate(1))
    event = ok(driver.cuEventCreate(0))
    memory = ok(driver.cuMemAllocAsync(SIZE, first))
    ok(driver.cuMemsetD8Async(memory, 7, SIZE, first))
    ok(driver.cuEventRecord(event, first))
    ok(driver.cuStreamWaitEvent(second, event, 0))
    target = array("B", bytes(SIZE))
    ok(driver.cuMemcpyDtoHAsync(target.buffer_info()[0], memory, SIZE, second))
    ok(driver.cuMemFreeAsync(memory, second))
    ok(driver.cuStreamSynchronize(second))
    assert target.tobytes() == b"\7" * SIZE
    ok(driver.cuEventDestroy(event))
    for stream in (first, second):
        ok(driver.cuStreamDestroy(stream))


def test_modules(context: driver.CUcontext, threads: set[int]) -> None:
    """Threads compile, load and unload at once."""
    threads.add(threading.get_ident())
    ok(driver.cuCtxSetCurrent(context))
    module = ok(driver.cuModuleLoadData(compiled()))
    ok(driver.cuModuleGetFunction(module, b"kernel"))
    ok(driver.cuModuleUnload(module))


def test_links_that_no_target_steers(threads: set[int]) -> None:
    """The first of them make parts of the plugin, in whichever thread comes first."""
    threads.add(threading.get_ident())
    text = compiled()
    handle = nvjitlink.create(1, ["-arch=sm_75"])
    nvjitlink.add_data(handle, nvjitlink.InputType.PTX, text, len(text), "kernel")
    nvjitlink.complete(handle)
    image = bytearray(nvjitlink.get_linked_cubin_size(handle))
    nvjitlink.get_linked_cubin(handle, image)
    nvjitlink.destroy(handle)
    assert image[:4] == b"\x7fELF"


@pytest.mark.parametrize("backend", ["driver", "nvjitlink"])
def test_bundled_linker(context: driver.CUcontext, backend: Backend, threads: set[int]) -> None:
    """Threads link on one backend while others compile."""
    threads.add(threading.get_ident())
    ok(driver.cuCtxSetCurrent(context))
    code = ObjectCode.from_ptx(compiled())
    with Linker(code, options=LinkerOptions(arch="sm_75"), backend=backend) as linker:
        assert linker.link("cubin").code[:4] == b"\x7fELF"
