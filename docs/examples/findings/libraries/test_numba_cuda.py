"""What numba-cuda, or numba-cuda-mlir where it is installed, compiles and links without a launch.

PTX, C++, LTO-IR, the device runtime, and links that fail.
"""

import gc
from importlib.util import find_spec

import pytest

# chosen by what is installed: an import that fails must not fall back on the other library
if find_spec("numba_cuda_mlir"):
    from numba_cuda_mlir import cuda
else:
    from numba import cuda

CODE = """extern "C" __device__ int twice(int *result, int value) { *result = 2 * value; return 0; }"""
TWICE = cuda.declare_device("twice", "int32(int32)")


def compiled(link=(), **options):
    @cuda.jit("void(int32[::1])", link=list(link), **options)
    def kernel(values):
        values[0] = TWICE(values[0])

    return kernel


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "twice.cu"
    path.write_text(CODE)
    return str(path)


def test_kernel():
    @cuda.jit("void(float32[::1])")
    def kernel(values):
        values[cuda.grid(1)] *= 2

    assert kernel.overloads


@pytest.mark.parametrize("lto", [False, True])
def test_source(source, lto):
    assert compiled([source], lto=lto).overloads


@pytest.mark.parametrize("option", ["debug", "lineinfo"])
def test_debug(source, option):
    assert compiled([source], **{option: True}, opt=option != "debug").overloads


def test_device_runtime():
    @cuda.jit("void(int32[::1])")
    def kernel(values):
        cuda.cg.this_grid().sync()
        values[0] = 1

    assert kernel.overloads


def test_undefined():
    with pytest.raises(Exception, match="(?i)undefined|unresolved"):
        compiled()


def test_bad_input(tmp_path):
    path = tmp_path / "bad.ptx"
    path.write_text(".version 7.0\n.target sm_80\n.address_size 64\nnonsense\n")
    with pytest.raises(Exception, match="(?i)syntax|ptx|nonsense"):
        compiled([str(path)])


def test_many(source):
    for _ in range(10):
        compiled([source])
        gc.collect()
