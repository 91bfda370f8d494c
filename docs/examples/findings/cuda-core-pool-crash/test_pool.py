from cuda.core import Device, DeviceMemoryResource, DeviceMemoryResourceOptions


def test_pool():
    device = Device()
    device.set_current()
    resource = DeviceMemoryResource(device, DeviceMemoryResourceOptions(max_size=1 << 21))
    resource.allocate(64, stream=device.default_stream).close()
    resource.close()
