"""Properties of occupancy that hold on every device, for the kernels of the recording; run on an emulated driver."""

import sys
from ctypes import CFUNCTYPE, byref, c_int, c_size_t, c_void_p

from hypothesis import given, settings
from hypothesis import strategies as st

from campaigns.conformance.occupancy_record import DEVICE_ATTRIBUTES, kernels, ptx
from tests.emulator.cu import cuda, function, load, ok, start

start()
DEVICE = {}
for attribute in DEVICE_ATTRIBUTES:
    value = c_int()
    ok(cuda.cuDeviceGetAttribute(byref(value), attribute, 0))
    DEVICE[attribute] = value.value
ARCH = DEVICE[75] * 10 + DEVICE[76]
code, MODULE = load(ptx(ARCH).encode())
ok(code)

kernel_of = st.sampled_from(kernels(ARCH)).map(lambda kernel: function(MODULE, kernel.name)[1])
threads = st.integers(1, 1024)
shared = st.integers(0, 49152)


def active(kernel: c_void_p, block: int, dynamic: int) -> int:
    """Blocks of a kernel on one multiprocessor."""
    blocks = c_int()
    ok(cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor(byref(blocks), kernel, block, c_size_t(dynamic)))
    return blocks.value


@settings(max_examples=400, deadline=None)
@given(kernel_of, threads, threads, shared, shared)
def more_never_fits_better(kernel: c_void_p, block: int, other_block: int, dynamic: int, other: int) -> None:
    """Larger blocks, and more shared memory, leave room for as many blocks or for fewer."""
    less, more = sorted((dynamic, other))
    assert active(kernel, block, less) >= active(kernel, block, more)
    small, large = sorted((block, other_block))
    assert active(kernel, small, less) >= active(kernel, large, less)
    assert active(kernel, block, less) <= min(DEVICE[106], DEVICE[39] // (-(-block // 32) * 32))


@settings(max_examples=400, deadline=None)
@given(kernel_of, threads, st.integers(1, 32))
def available_memory_fits(kernel: c_void_p, block: int, blocks: int) -> None:
    """With what is said to be available, less what the driver reserves for each block, so many blocks do fit."""
    size = c_size_t()
    code = cuda.cuOccupancyAvailableDynamicSMemPerBlock(byref(size), kernel, blocks, block)
    assert (code == 0) == (active(kernel, block, 0) >= blocks)
    if code == 0:
        assert active(kernel, block, max(0, size.value - DEVICE.get(111, 0))) >= blocks


@settings(max_examples=150, deadline=None)
@given(kernel_of, threads, shared, st.integers(0, 64))
def no_block_is_better(kernel: c_void_p, block: int, dynamic: int, times: int) -> None:
    """No other size of a block that may be launched keeps more threads resident than the one that is recommended."""
    grid, best, most = c_int(), c_int(), c_int()
    ok(cuda.cuFuncGetAttribute(byref(most), 0, kernel))
    other = max(min(block, most.value) // 32 * 32, 1)
    arguments = (byref(grid), byref(best), kernel)
    ok(cuda.cuOccupancyMaxPotentialBlockSize(*arguments, None, c_size_t(dynamic), 0))
    assert grid.value == DEVICE[16] * (active(kernel, best.value, dynamic) if best.value else 0)
    assert best.value * active(kernel, max(best.value, 1), dynamic) >= other // 32 * 32 * active(kernel, other, dynamic)
    callback = CFUNCTYPE(c_size_t, c_int)(lambda size: size * times)
    ok(cuda.cuOccupancyMaxPotentialBlockSize(*arguments, callback, c_size_t(0), 512))
    assert best.value <= 512
    if best.value:
        assert active(kernel, best.value, best.value * times) * DEVICE[16] == grid.value


if __name__ == "__main__":
    more_never_fits_better()
    available_memory_fits()
    no_block_is_better()
    sys.stdout.write("done\n")
