"""The library rejects what is not PTX."""

import jitlog


def test_wrong_input():
    link = jitlog.Link()
    link.add(b"no PTX\0")
    link.close()
