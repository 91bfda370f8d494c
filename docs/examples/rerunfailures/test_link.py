"""The first attempt of the link fails, as on a driver that is out of memory once."""

import pytest

from pytest_cudalink.linker import LinkerOptions, ObjectCode

PTX = b".version 8.0 .target sm_90 .address_size 64 .visible .func user_transform() { ret; }"
ATTEMPTS = []


@pytest.fixture
def link(linker_factory):
    def link():
        linker_factory(ObjectCode.from_ptx(PTX), options=LinkerOptions(arch="sm_90")).link("cubin")

    return link


@pytest.mark.cudalink(backend="driver")
def test_link(link, emulated_driver):
    ATTEMPTS.append(1)
    if len(ATTEMPTS) == 1:
        emulated_driver.inject("cuLinkAddData", "CUDA_ERROR_OUT_OF_MEMORY")
    link()
