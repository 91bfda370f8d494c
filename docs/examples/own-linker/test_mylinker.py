"""A test of the linker, on whichever backend is forced."""

import pytest
from mylinker import MyLinker

PTX = b".version 8.0 .target sm_90 .address_size 64 .visible .func user_transform() { ret; }\0"

pytestmark = pytest.mark.cudalink


def test_links():
    assert MyLinker().link(PTX, "sm_90").startswith(b"\x7fELF")
