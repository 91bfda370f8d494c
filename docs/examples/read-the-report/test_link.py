"""A test that an older driver fails, one that it skips, and one that it passes."""

import pytest

from pytest_cudalink.linker import Linker, LinkerOptions, ObjectCode


def kernel(version):
    text = f".version {version}\n.target sm_90\n.address_size 64\n.visible .func user_transform() {{ ret; }}\n"
    return ObjectCode.from_ptx(text.encode(), name="user.ptx")


def link(version):
    return Linker(kernel(version), options=LinkerOptions(arch="sm_90")).link("cubin")


def test_old_kernel():
    assert link("8.0")


def test_new_kernel():
    assert link("9.0")


@pytest.mark.cudalink(driver=">=13")
def test_on_new_drivers_only():
    assert link("9.0")
