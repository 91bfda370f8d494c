from cuda.core import Device


def test_allocate():
    device = Device()
    device.set_current()
    device.memory_resource.allocate(64, stream=device.default_stream).close()
