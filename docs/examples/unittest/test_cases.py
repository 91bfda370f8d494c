"""Links in the tests of a unittest.TestCase."""

import unittest

import pytest

from pytest_cudalink import Raises
from pytest_cudalink.linker import Linker, LinkerOptions, ObjectCode

PTX = b".version %s .target sm_90 .address_size 64 .visible .func user_transform() { ret; }"


def link(version):
    options = LinkerOptions(arch="sm_90", check_inputs=False)
    with Linker(ObjectCode.from_ptx(PTX % version), options=options) as linker:
        linker.link("cubin")
        return linker.backend


@pytest.mark.cudalink(backend="driver")
class TestOnTheDriver(unittest.TestCase):
    def test_links(self):
        self.assertEqual(link(b"8.0"), "driver")

    @pytest.mark.cudalink(backend="nvjitlink")
    def test_elsewhere(self):
        self.assertEqual(link(b"8.0"), "nvjitlink")

    @pytest.mark.cudalink(driver=">=13.2", otherwise=Raises("CUDA_ERROR_UNSUPPORTED_PTX_VERSION"))
    def test_new_ptx(self):
        link(b"9.2")


class TestWithFixtures(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def take_fixtures(self, force_backend):
        self.force_backend = force_backend

    def test_switch(self):
        self.force_backend("nvjitlink")
        self.assertEqual(link(b"8.0"), "nvjitlink")
