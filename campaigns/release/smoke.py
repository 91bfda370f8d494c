"""What an installed wheel must do: link on an emulated driver and on nvJitLink.

`campaigns.release` copies it out of the checkout.
"""

import ctypes

from pytest_cudalink.linker import LinkerOptions, ObjectCode

PTX = b""".version 8.0
.target sm_75
.address_size 64
.visible .func (.param .b32 out) answer() { st.param.b32 [out], 42; ret; }
"""
CALLER = b""".version 8.0
.target sm_75
.address_size 64
.extern .func (.param .b32 out) answer();
.visible .entry kernel() { .reg .b32 %r<2>; { .param .b32 got; call (got), answer; ld.param.b32 %r1, [got]; } ret; }
"""


def link(linker_factory, backend: str) -> bytes:
    """Link two objects, of which one calls the other."""
    codes = ObjectCode.from_ptx(PTX, name="answer.ptx"), ObjectCode.from_ptx(CALLER, name="caller.ptx")
    linked = linker_factory(*codes, options=LinkerOptions(arch="sm_90"), backend=backend).link("cubin")
    assert linked.artifact.undefined == ()
    return bytes(linked.code)


def test_link_on_the_driver(linker_factory) -> None:
    """The driver's cuLink functions make a cubin, which the driver loads."""
    image = link(linker_factory, "driver")
    driver, context, module, kernel = ctypes.CDLL("libcuda.so.1"), *(ctypes.c_void_p() for _ in range(3))
    assert driver.cuInit(0) == 0
    assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert driver.cuCtxPushCurrent_v2(context) == 0
    assert driver.cuModuleLoadData(ctypes.byref(module), image) == 0
    assert driver.cuModuleGetFunction(ctypes.byref(kernel), module, b"kernel") == 0
    assert driver.cuModuleUnload(module) == 0
    assert driver.cuCtxPopCurrent_v2(ctypes.byref(context)) == 0
    assert driver.cuDevicePrimaryCtxRelease_v2(0) == 0


def test_link_on_nvjitlink(linker_factory) -> None:
    """NvJitLink makes a cubin."""
    assert link(linker_factory, "nvjitlink")
