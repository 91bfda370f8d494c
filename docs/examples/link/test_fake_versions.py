"""Test what would happen on a machine with other versions."""

import pytest

from pytest_cudalink.linker import Linker, LinkerOptions, ObjectCode

PTX = b"""
.version 8.0
.target sm_90
.address_size 64
.visible .func user_transform() { ret; }
"""


def test_old_driver_beside_a_new_toolkit(fake_versions):
    fake_versions(driver="12.9", nvjitlink="13.0")
    code = ObjectCode.from_ptx(PTX, name="user.ptx")

    with pytest.raises(RuntimeError, match="matching major versions"):
        Linker(code, options=LinkerOptions(arch="sm_90", link_time_optimization=True))


def test_input_from_the_future(fake_versions):
    fake_versions(driver=None, nvjitlink="13.0")
    code = ObjectCode.from_ptx(PTX.replace(b"8.0", b"9.2"), name="user.ptx")

    with pytest.raises(RuntimeError, match="made for CUDA 13.2, linker understands up to 13.0: install"):
        Linker(code, options=LinkerOptions(arch="sm_90"))
