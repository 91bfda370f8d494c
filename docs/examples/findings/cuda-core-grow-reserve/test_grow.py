from cuda.core import Device, VirtualMemoryResource


def test_grow():
    device = Device()
    device.set_current()
    resource = VirtualMemoryResource(device)
    resource.modify_allocation(resource.allocate(1 << 21), 1 << 22).close()
