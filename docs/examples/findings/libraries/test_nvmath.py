"""What nvmath-python links of its device functions: LTO-IR of cuFFTDx and cuBLASDx, in kernels of numba-cuda."""

import numpy as np
import pytest
from numba import cuda

device = pytest.importorskip("nvmath.device")


def fft_function():
    return device.fft(
        fft_type="c2c", size=32, precision=np.float32, direction="forward", execution="Thread", compiler="numba"
    )


def test_version():
    import nvmath

    assert nvmath.__version__


def test_fft():
    function = fft_function()

    @cuda.jit("void(complex64[::1])", link=getattr(function, "files", ()))
    def kernel(values):
        held = cuda.local.array(shape=(32,), dtype=np.complex64)
        function(held)
        values[0] = held[0]

    assert kernel.overloads
