"""Does the driver take our kernel?"""

import scale


def test_kernel_loads():
    assert scale.load()
