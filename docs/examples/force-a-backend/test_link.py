"""One link in each test; the marker names the backend."""

import pytest

from pytest_cudalink.linker import LinkerOptions, ObjectCode

PTX = b"""
.version 8.0
.target sm_90
.address_size 64
.visible .func user_transform() { ret; }
"""


@pytest.fixture
def link(linker_factory):
    def link():
        linker = linker_factory(ObjectCode.from_ptx(PTX), options=LinkerOptions(arch="sm_90"))
        linker.link("cubin")
        return linker.backend

    return link


def test_wherever_the_run_says(link, cudalink_backend):
    assert link() == (cudalink_backend or "nvjitlink")


@pytest.mark.cudalink(backend="driver")
def test_on_the_driver(link):
    assert link() == "driver"


@pytest.mark.cudalink(backend="nvjitlink")
class TestOnNvJitLink:
    def test_link(self, link):
        assert link() == "nvjitlink"

    @pytest.mark.cudalink(backend="each")
    def test_both(self, link, cudalink_backend):
        assert link() == cudalink_backend


def test_in_the_middle_of_a_test(link, force_backend):
    force_backend("nvjitlink")
    assert link() == "nvjitlink"
    force_backend("driver")
    assert link() == "driver"
