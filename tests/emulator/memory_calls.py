"""What child programs of the tests of memory share: the driver's functions for memory through ctypes."""

import ctypes
from ctypes import byref, c_int, c_size_t, c_uint, c_uint64, c_ushort, c_void_p
from typing import Any

from tests.emulator.cu import cuda, get, ok

MIB = 1 << 20
#: CUmemLocationType.
NOWHERE, DEVICE, HOST, HOST_NUMA = range(4)
PINNED, MANAGED = 1, 2
POSIX_FILE = 1


class Location(ctypes.Structure):
    """CUmemLocation."""

    _fields_ = (("type", c_int), ("id", c_int))


class PoolProperties(ctypes.Structure):
    """CUmemPoolProps."""

    _fields_ = (
        ("type", c_int),
        ("handle_types", c_int),
        ("location", Location),
        ("security", c_void_p),
        ("max_size", c_size_t),
        ("usage", c_ushort),
        ("reserved", ctypes.c_ubyte * 54),
    )


class PhysicalProperties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = (
        ("type", c_int),
        ("handle_types", c_int),
        ("location", Location),
        ("security", c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    )


class Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = (("location", Location), ("flags", c_int))


class Handle(ctypes.Structure):
    """CUipcMemHandle and CUipcEventHandle."""

    _fields_ = (("reserved", ctypes.c_ubyte * 64),)


for _name, _types in {
    "cuMemAllocAsync": [c_void_p, c_size_t, c_void_p],
    "cuMemAllocFromPoolAsync": [c_void_p, c_size_t, c_void_p, c_void_p],
    "cuMemFreeAsync": [c_uint64, c_void_p],
    "cuMemAddressReserve": [c_void_p, c_size_t, c_size_t, c_uint64, c_uint64],
    "cuMemAddressFree": [c_uint64, c_size_t],
    "cuMemCreate": [c_void_p, c_size_t, c_void_p, c_uint64],
    "cuMemRelease": [c_uint64],
    "cuMemMap": [c_uint64, c_size_t, c_size_t, c_uint64, c_uint64],
    "cuMemUnmap": [c_uint64, c_size_t],
    "cuMemSetAccess": [c_uint64, c_size_t, c_void_p, c_size_t],
    "cuMemRetainAllocationHandle": [c_void_p, c_uint64],
    "cuMemExportToShareableHandle": [c_void_p, c_uint64, c_int, c_uint64],
    "cuMemImportFromShareableHandle": [c_void_p, c_uint64, c_int],
    "cuMemPoolImportFromShareableHandle": [c_void_p, c_uint64, c_int, c_uint64],
    "cuMemPoolExportPointer": [c_void_p, c_uint64],
    "cuMemAllocManaged": [c_void_p, c_size_t, c_uint],
    "cuMemPrefetchAsync": [c_uint64, c_size_t, c_int, c_void_p],
    "cuMemPrefetchAsync_v2": [c_uint64, c_size_t, Location, c_uint, c_void_p],
    "cuMemRangeGetAttribute": [c_void_p, c_size_t, c_int, c_uint64, c_size_t],
    "cuPointerGetAttribute": [c_void_p, c_int, c_uint64],
    "cuPointerSetAttribute": [c_void_p, c_int, c_uint64],
    "cuMemGetAddressRange_v2": [c_void_p, c_void_p, c_uint64],
    "cuMemHostAlloc": [c_void_p, c_size_t, c_uint],
    "cuMemHostRegister_v2": [c_void_p, c_size_t, c_uint],
    "cuIpcGetMemHandle": [c_void_p, c_uint64],
    "cuIpcOpenMemHandle_v2": [c_void_p, Handle, c_uint],
    "cuIpcCloseMemHandle": [c_uint64],
}.items():
    getattr(cuda, _name).argtypes = _types


def left() -> int:
    """Bytes that the device has left, as cuMemGetInfo says."""
    return int(get(cuda.cuMemGetInfo_v2, c_size_t, None))


def new_pool(
    location: tuple[int, int] = (DEVICE, 0), kind: int = PINNED, handle_types: int = 0, size: int = 0
) -> c_void_p:
    """A new pool."""
    properties = PoolProperties(type=kind, handle_types=handle_types, location=Location(*location), max_size=size)
    return c_void_p(get(cuda.cuMemPoolCreate, byref(properties)))


def from_pool(pool: c_void_p, size: int) -> tuple[int, int]:
    """Code and address of an allocation from a pool."""
    address = c_uint64(1)
    return cuda.cuMemAllocFromPoolAsync(byref(address), size, pool, None), address.value


def write(address: int, text: bytes) -> None:
    """Copy bytes to the device."""
    source = ctypes.create_string_buffer(text)
    ok(cuda.cuMemcpyHtoD_v2(address, ctypes.addressof(source), len(text)))


def read(address: int, size: int) -> bytes:
    """Bytes of the device."""
    out = ctypes.create_string_buffer(size)
    ok(cuda.cuMemcpyDtoH_v2(ctypes.addressof(out), address, size))
    return out.raw


def reserve(size: int, alignment: int = 0, hint: int = 0) -> tuple[int, int]:
    """Code and address of a reserved range."""
    address = c_uint64()
    return cuda.cuMemAddressReserve(byref(address), size, alignment, hint, 0), address.value


def physical(size: int, location: tuple[int, int] = (DEVICE, 0), handle_types: int = 0) -> tuple[int, int]:
    """Code and handle of physical memory."""
    handle = c_uint64()
    properties = PhysicalProperties(type=PINNED, handle_types=handle_types, location=Location(*location))
    return cuda.cuMemCreate(byref(handle), size, byref(properties), 0), handle.value


def give_access(address: int, size: int, flags: int = 3, location: tuple[int, int] = (DEVICE, 0)) -> int:
    """Code of cuMemSetAccess for one location."""
    access = Access(Location(*location), flags)
    return int(cuda.cuMemSetAccess(address, size, byref(access), 1))


def pointer_value(attribute: int, address: int, kind: Any = c_uint64) -> tuple[int, int]:
    """Code and value of an attribute of a pointer."""
    value = kind()
    return cuda.cuPointerGetAttribute(byref(value), attribute, address), value.value
