"""Tests of the kernel."""

import scale


def test_kernel_loads():
    """The driver accepts the output of the toolkit's compiler."""
    assert scale.kernel() is not None
