"""A test of a library that uses numba: the current device is the first one."""

from numba import cuda


def test_current_device():
    assert cuda.current_context()
    assert cuda.gpus.current.id == 0
