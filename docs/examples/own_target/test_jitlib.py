"""Tests of jitlib: marked ones run on both backends under --force-backend=each."""

import jitlib
import pytest

from pytest_cudalink import Raises

PTX = """
.version {version}
.target sm_90
.address_size 64
.visible .func user_transform() {{ ret; }}
"""


def ptx(version):
    return PTX.format(version=version).encode() + b"\0"


@pytest.mark.cudalink
def test_links_on_either_backend(cudalink_backend):
    image = jitlib.link(ptx("8.0"), "sm_90")

    assert image[:4] == b"\x7fELF"
    assert jitlib.uses_driver() == (cudalink_backend == "driver")


@pytest.mark.cudalink(backend="driver", driver=">=13.9", otherwise=Raises("CUDA_ERROR_UNSUPPORTED_PTX_VERSION"))
def test_ptx_from_the_future():
    jitlib.link(ptx("9.9"), "sm_90")
