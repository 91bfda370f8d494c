"""Link tests of numba-cuda, through its public API: a kernel with a device function written in CUDA C++."""

from __future__ import annotations

import pytest
from numba import cuda

from pytest_cudalink import Raises, artifacts

TIMES_TWO = """
extern "C" __device__ int times_two(float* result, float x) { *result = x * 2.0f; return 0; }
"""

# numba-cuda compiles with the toolkit of the environment, and an older driver rejects its PTX
pytestmark = pytest.mark.cudalink


def kernel(**options: object):
    """A kernel that calls an external function; compiled and linked by this call."""
    source = cuda.CUSource(TIMES_TWO, name="times_two.cu")
    times_two = cuda.declare_device("times_two", "float32(float32)")

    @cuda.jit("void(float32[::1])", link=[source], **options)
    def scale(values):
        i = cuda.grid(1)
        if i < values.size:
            values[i] = times_two(values[i])

    return scale


def image(made) -> artifacts.Artifact:
    """The linked image of a kernel with one signature, inspected."""
    (overload,) = made.overloads.values()
    return artifacts.inspect(overload._codelibrary.get_cubin(cc=(9, 0)).code)


@pytest.mark.cudalink(backend="driver", driver=">=13.2", otherwise=Raises("CUDA_ERROR_UNSUPPORTED_PTX_VERSION"))
def test_kernel_on_the_driver() -> None:
    """The driver links the toolkit's PTX, if it is as new as the toolkit."""
    assert len(image(kernel()).kernels) == 1


#: A driver of CUDA 12 loads nothing that nvJitLink 13 linked.
LOADS = {"driver": ">=13.0", "otherwise": Raises("CUDA_ERROR_NO_BINARY_FOR_GPU")}


@pytest.mark.cudalink(backend="nvjitlink", **LOADS)
def test_kernel_with_lto() -> None:
    """With nvJitLink, link-time optimization is the default, and the function is inlined."""
    found = image(kernel())
    assert len(found.kernels) == 1
    assert "times_two" not in found.defined


@pytest.mark.cudalink(backend="nvjitlink", **LOADS)
def test_kernel_without_lto() -> None:
    """Without link-time optimization the function is not inlined."""
    assert "times_two" in image(kernel(lto=False)).defined


@pytest.mark.cudalink(backend="driver")
def test_lto_needs_nvjitlink() -> None:
    """On the forced driver the library raises, because it cannot optimize at link time."""
    with pytest.raises(RuntimeError, match="LTO requires nvjitlink"):
        kernel(lto=True)
