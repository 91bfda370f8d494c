"""The first test needs a driver, the second one also a device that runs kernels."""

import jit
import pytest


@pytest.mark.cudalink(backend="driver")
def test_loads():
    assert jit.load()


def test_launches():
    jit.launch(jit.load())
