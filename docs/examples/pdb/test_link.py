"""A test that stops in the debugger."""

import pytest

from pytest_cudalink.linker import LinkerOptions, ObjectCode

PTX = b".version 8.0 .target sm_90 .address_size 64 .visible .func user_transform() { ret; }"


@pytest.mark.cudalink(backend="driver")
def test_link(linker_factory, emulated_driver):
    linker = linker_factory(ObjectCode.from_ptx(PTX), options=LinkerOptions(arch="sm_90"))
    cubin = linker.link("cubin")
    assert cubin.artifact.kernels == ("user_transform",)
