"""Twelve links on the driver."""

import pytest

from pytest_cudalink.linker import LinkerOptions, ObjectCode

PTX = b".version 8.0 .target sm_90 .address_size 64 .visible .func user_transform() { ret; }"


@pytest.mark.cudalink(backend="driver")
@pytest.mark.parametrize("number", range(6))
def test_link(number, linker_factory):
    linker = linker_factory(ObjectCode.from_ptx(PTX), options=LinkerOptions(arch="sm_90"))
    assert linker.link("cubin")
