"""Tests that leave real errors in the contexts of their process: a suite for the guard, run by ``test_sticky_gpu.py``.

It needs a driver with a device, ctypes and pytest alone. The culprits neither wait for their kernel nor look at its
result, so that they pass without the guard, and every test after the first of them fails.
"""

import ctypes
from collections.abc import Iterator
from ctypes import byref, c_uint64, c_void_p

import pytest

PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry illegal() { .reg .b64 %a; mov.u64 %a, 16; st.global.u32 [%a], 7; ret; }
.visible .entry misaligned(.param .u64 p) {
  .reg .b64 %a; ld.param.u64 %a, [p]; add.s64 %a, %a, 1; st.global.u32 [%a], 7; ret;
}
.visible .entry trapped() { trap; ret; }
.visible .entry endless(.param .u64 p) {
  .reg .b64 %a; .reg .b32 %v; .reg .pred %q;
  ld.param.u64 %a, [p];
again: ld.volatile.global.u32 %v, [%a]; setp.ne.u32 %q, %v, 7; @%q bra again; ret;
}
.visible .entry slow_illegal() {
  .reg .b64 %a, %t, %e; .reg .pred %q;
  mov.u64 %e, %clock64; add.s64 %e, %e, 400000000;
again: mov.u64 %t, %clock64; setp.lt.s64 %q, %t, %e; @%q bra again;
  mov.u64 %a, 16; st.global.u32 [%a], 7; ret;
}
.visible .entry nothing() { ret; }
"""
NON_BLOCKING = 1

cu = ctypes.CDLL("libcuda.so.1")


def ok(code: int) -> None:
    """Fail on anything but CUDA_SUCCESS."""
    assert code == 0, code


class Device:
    """A context, memory, a stream and the kernels."""

    def __init__(self) -> None:
        self.context, self.module, self.stream, self.memory = c_void_p(), c_void_p(), c_void_p(), c_uint64()
        ok(cu.cuInit(0))
        ok(cu.cuDevicePrimaryCtxRetain(byref(self.context), 0))
        ok(cu.cuCtxSetCurrent(self.context))
        ok(cu.cuModuleLoadData(byref(self.module), PTX))
        ok(cu.cuStreamCreate(byref(self.stream), NON_BLOCKING))
        ok(cu.cuMemAlloc_v2(byref(self.memory), ctypes.c_size_t(256)))
        ok(cu.cuMemsetD8_v2(self.memory, 0, ctypes.c_size_t(256)))
        ok(cu.cuCtxSynchronize())

    def launch(self, name: str, stream: c_void_p | None = None, *, pointer: bool = False) -> None:
        """Launch a kernel, and do not wait for it."""
        function = c_void_p()
        ok(cu.cuModuleGetFunction(byref(function), self.module, name.encode()))
        parameters = (c_void_p * 1)(ctypes.addressof(self.memory)) if pointer else None
        ok(cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, parameters, None))


@pytest.fixture(scope="session")
def device() -> Iterator[Device]:
    made = Device()
    yield made
    ok(cu.cuModuleUnload(made.module))
    ok(cu.cuDevicePrimaryCtxRelease_v2(0))


def works(device: Device) -> None:
    """Use the device as an innocent test does."""
    more = c_uint64()
    ok(cu.cuMemAlloc_v2(byref(more), ctypes.c_size_t(1024)))
    device.launch("nothing")
    ok(cu.cuCtxSynchronize())
    ok(cu.cuMemFree_v2(more))


@pytest.mark.parametrize("n", range(3))
def test_before(device: Device, n: int) -> None:
    works(device)


def test_illegal_access(device: Device) -> None:
    device.launch("illegal")


@pytest.mark.parametrize("n", range(5))
def test_after_illegal(device: Device, n: int) -> None:
    works(device)


def test_misaligned(device: Device) -> None:
    device.launch("misaligned", pointer=True)


def test_after_misaligned(device: Device) -> None:
    works(device)


def test_trap(device: Device) -> None:
    device.launch("trapped")


def test_after_trap(device: Device) -> None:
    works(device)


def test_late_in_another_stream(device: Device) -> None:
    """The kernel runs for some 0.2 s in a stream of which the null stream knows nothing."""
    device.launch("slow_illegal", device.stream)


def test_after_late(device: Device) -> None:
    works(device)


def test_endless(device: Device) -> None:
    device.launch("endless", device.stream, pointer=True)


def test_after_endless(device: Device) -> None:
    works(device)
