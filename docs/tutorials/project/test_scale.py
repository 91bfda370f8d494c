"""Tests of the kernel."""

import scale


def test_kernel_loads():
    """The driver takes what the toolkit's compiler made."""
    assert scale.kernel() is not None
