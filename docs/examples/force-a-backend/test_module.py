"""Every test of this module links on nvJitLink."""

import pytest

from pytest_cudalink.linker import LinkerOptions, ObjectCode

pytestmark = pytest.mark.cudalink(backend="nvjitlink")

PTX = b".version 8.0 .target sm_90 .address_size 64 .visible .func user_transform() { ret; }"


def test_first(linker_factory):
    linker = linker_factory(ObjectCode.from_ptx(PTX), options=LinkerOptions(arch="sm_90"))
    assert linker.link("cubin")
