from cuda.bindings import driver

try:
    from cuda.core import Device
except ImportError:  # before 0.5.0
    from cuda.core.experimental import Device


def test_free():
    device = Device()
    device.set_current()
    stream = device.create_stream()
    source, target = (device.memory_resource.allocate(64, stream=stream) for _ in range(2))
    driver.cuMemsetD8Async(int(source.handle), 7, 64, stream.handle)
    target.copy_from(source, stream=stream)
    del source  # its memory can be given out again
    other = device.memory_resource.allocate(64, stream=device.default_stream)
    driver.cuMemsetD8(int(other.handle), 0, 64)
    stream.sync()
    read = bytearray(64)
    driver.cuMemcpyDtoH(read, int(target.handle), 64)
    assert read == bytes([7]) * 64
