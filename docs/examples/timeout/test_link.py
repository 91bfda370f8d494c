"""One link that takes a minute, and one that takes no time."""

import pytest

from pytest_cudalink.linker import LinkerOptions, ObjectCode

PTX = b".version 8.0 .target sm_90 .address_size 64 .visible .func user_transform() { ret; }"


@pytest.fixture
def link(linker_factory):
    return lambda: linker_factory(ObjectCode.from_ptx(PTX), options=LinkerOptions(arch="sm_90")).link("cubin")


@pytest.mark.cudalink(backend="driver")
def test_slow(link, emulated_driver):
    emulated_driver.inject("cuLinkComplete", 0, delay=60)
    link()


@pytest.mark.cudalink(backend="driver")
def test_quick(link):
    assert link()
