"""Test that the driver accepts our kernel."""

import scale


def test_kernel_loads():
    assert scale.load()
