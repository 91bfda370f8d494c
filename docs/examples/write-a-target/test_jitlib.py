"""A test of a project that uses jitlib."""

import jitlib
import pytest


@pytest.mark.cudalink
def test_links():
    assert jitlib.link(b".version 8.0 .target sm_90 .address_size 64 .visible .func f() { ret; }\0")
