from cuda.core import Device


def test_device():
    Device().set_current()
