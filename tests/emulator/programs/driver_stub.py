"""Use the cuda stub as a program would: memory, a module with a global, a stream. Prints what came of it, as JSON.

usage: driver_stub.py STUB PTX
"""

import ctypes
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

WORDS = 256


def main(path: str, ptx: str) -> None:
    """Call v2 entry points by their names; then the v1 twins of the real library, for comparison."""
    stub = ctypes.CDLL(path)
    stub.stub_cuda_describe.restype = ctypes.c_char_p
    description: dict[str, object] = json.loads(stub.stub_cuda_describe())
    device, context, version = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_int()
    assert stub.cuDriverGetVersion(ctypes.byref(version)) == 0
    assert stub.cuInit(0) == 0
    assert stub.cuDeviceGet(ctypes.byref(device), 0) == 0
    name = ctypes.create_string_buffer(64)
    assert stub.cuDeviceGetName(name, 64, device) == 0
    assert stub.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
    assert stub.cuCtxSetCurrent(context) == 0

    memory = ctypes.c_uint64()
    assert stub.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(4 * WORDS)) == 0
    assert stub.cuMemsetD32_v2(memory, ctypes.c_uint(0xDEADBEEF), ctypes.c_size_t(WORDS)) == 0
    host = (ctypes.c_uint * WORDS)()
    assert stub.cuMemcpyDtoH_v2(host, memory, ctypes.c_size_t(4 * WORDS)) == 0

    module, address, size = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_size_t(0)
    image = Path(ptx).read_bytes() + b"\0"
    assert stub.cuModuleLoadData(ctypes.byref(module), image) == 0
    result = stub.cuModuleGetGlobal_v2(ctypes.byref(address), ctypes.byref(size), module, b"table")

    real = ctypes.CDLL("libcuda.so.1")
    twins = {
        "cuMemsetD32": real.cuMemsetD32(memory, ctypes.c_uint(1), ctypes.c_size_t(WORDS)),
        "cuModuleGetGlobal": real.cuModuleGetGlobal(ctypes.byref(address), ctypes.byref(size), module, b"table"),
    }
    text = ctypes.c_char_p()
    assert stub.cuGetErrorName(222, ctypes.byref(text)) == 0
    description |= {
        "driver": version.value,
        "device": name.value.decode(),
        "memory": memory.value,
        "words": sorted({hex(word) for word in host}),
        "global": [result, size.value, address.value],
        "twins": twins,
        "error": text.value.decode() if text.value else None,
        "freed": [stub.cuModuleUnload(module), stub.cuMemFree_v2(memory)],
    }
    print(json.dumps(description))


if __name__ == "__main__":
    # the memory of another thread lies above 4 GiB; that of the first one may not, where Python has a fixed address
    with ThreadPoolExecutor(1) as pool:
        pool.submit(main, *sys.argv[1:]).result()
