"""Pass if nvJitLink is new enough, and fail as documented if it is not."""

import pytest

from pytest_cudalink import Raises
from pytest_cudalink.linker import Linker, LinkerOptions, ObjectCode

PTX = b"""
.version 9.2
.target sm_90
.address_size 64
.visible .func user_transform() { ret; }
"""


@pytest.mark.cudalink(nvjitlink=">=13.2", otherwise=Raises("NVJITLINK_ERROR_PTX_COMPILE"))
def test_new_ptx():
    options = LinkerOptions(arch="sm_90", check_inputs=False)
    Linker(ObjectCode.from_ptx(PTX), options=options, backend="nvjitlink").link("cubin")
