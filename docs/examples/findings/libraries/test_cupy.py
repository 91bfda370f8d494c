"""What CuPy compiles and links without the CUDA runtime, which no emulated driver carries: NVRTC, links of PTX."""

import ctypes
import importlib.util
from pathlib import Path

import pytest

# releases before 14 do not look in wheels; the NVRTC of 13.0 does not find its builtins
for name in ("libcudart.so.1[23]", "libnvrtc-builtins.so.1*", "libnvrtc.so.1[23]"):
    for folder in importlib.util.find_spec("nvidia").submodule_search_locations:
        for path in Path(folder).glob(f"*/lib/{name}"):
            ctypes.CDLL(str(path), ctypes.RTLD_GLOBAL)

import cupy  # noqa: E402
from cupy_backends.cuda.api import driver  # noqa: E402
from cupy_backends.cuda.libs import nvrtc  # noqa: E402

CODE = 'extern "C" __global__ void twice(int *x) { *x *= 2; }'
PTX = 1  # CU_JIT_INPUT_PTX


@pytest.fixture(autouse=True)
def context():
    library, found = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    assert library.cuInit(0) == 0
    assert library.cuDevicePrimaryCtxRetain(ctypes.byref(found), 0) == 0
    assert library.cuCtxSetCurrent(found) == 0
    yield
    assert library.cuDevicePrimaryCtxRelease_v2(0) == 0


def compiled(code):
    program = nvrtc.createProgram(code, "code.cu", [], [])
    try:
        nvrtc.compileProgram(program, ["-arch=compute_80"])
        return nvrtc.getPTX(program)
    finally:
        nvrtc.destroyProgram(program)


def linked(ptx):
    state = driver.linkCreate()
    try:
        driver.linkAddData(state, PTX, ptx if isinstance(ptx, bytes) else ptx.encode(), "code.ptx")
        return driver.linkComplete(state)
    finally:
        driver.linkDestroy(state)


def test_compile():
    assert compiled(CODE)


def test_bad_source():
    with pytest.raises(nvrtc.NVRTCError):
        compiled("nonsense")


def test_link():
    module = driver.moduleLoadData(linked(compiled(CODE)))
    assert driver.moduleGetFunction(module, "twice")
    driver.moduleUnload(module)


def test_bad_ptx():
    with pytest.raises(driver.CUDADriverError):
        linked(b"nonsense\0")


def test_undefined():
    with pytest.raises(driver.CUDADriverError):
        linked(compiled('extern "C" __device__ int f(); extern "C" __global__ void k(int *x) { *x = f(); }'))


def test_link_state():
    linker = cupy.cuda.function.LinkState()
    linker.add_ptr_data(compiled(CODE), "code.ptx")
    assert linker.complete()[:4] == b"\x7fELF"


def test_raw_module():
    assert cupy.RawModule(code=CODE, options=("-std=c++17",)).get_function("twice")


def test_jitify():
    assert cupy.RawModule(code=CODE, options=("-std=c++17",), jitify=True).get_function("twice")
