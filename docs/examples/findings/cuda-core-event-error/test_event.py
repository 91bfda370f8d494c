from cuda.core import Device


def test_event():
    device = Device()
    device.set_current()
    device.create_event().close()
