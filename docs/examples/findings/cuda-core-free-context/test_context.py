from cuda.bindings import driver
from cuda.core import Device


def test_context():
    device = Device()
    device.set_current()
    used = device.memory_resource.attributes.used_mem_current
    buffer = device.memory_resource.allocate(4096, stream=device.default_stream)
    driver.cuCtxSetCurrent(None)
    del buffer
    device.set_current()
    left = device.memory_resource.attributes.used_mem_current - used
    assert left == 0
