"""Use the cuda stub as a program would: memory, a module with a global, a stream. Prints what came of it, as JSON.

usage: python -m tests.emulator.programs.driver_stub STUB PTX
"""

import ctypes
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_uint64
from pathlib import Path

from tests.emulator.cu import cuda, get, new, ok

WORDS = 256


def main(path: str, ptx: str) -> None:
    """Call v2 entry points by their names; then the v1 twins of the real library, for comparison."""
    stub = ctypes.CDLL(path)
    stub.stub_cuda_describe.restype = c_char_p
    description: dict[str, object] = json.loads(stub.stub_cuda_describe())
    version = get(stub.cuDriverGetVersion, c_int)
    ok(stub.cuInit(0))
    ok(stub.cuCtxSetCurrent(new(stub.cuDevicePrimaryCtxRetain, new(stub.cuDeviceGet, c_int, 0))))

    memory, host = new(stub.cuMemAlloc_v2, c_uint64, c_size_t(4 * WORDS)), (c_uint * WORDS)()
    ok(stub.cuMemsetD32_v2(memory, c_uint(0xDEADBEEF), c_size_t(WORDS)))
    ok(stub.cuMemcpyDtoH_v2(host, memory, c_size_t(4 * WORDS)))

    module = new(stub.cuModuleLoadData, Path(ptx).read_bytes() + b"\0")
    address, size = get(stub.cuModuleGetGlobal_v2, c_uint64, c_size_t, module, b"table")
    twins = {
        "cuMemsetD32": cuda.cuMemsetD32(memory, c_uint(1), c_size_t(WORDS)),
        "cuModuleGetGlobal": cuda.cuModuleGetGlobal(byref(c_uint64()), byref(c_size_t()), module, b"table"),
    }
    description |= {
        "driver": version,
        "memory": memory.value,
        "words": sorted({hex(word) for word in host}),
        "global": [size, address],
        "twins": twins,
        "error": (get(stub.cuGetErrorName, 222, c_char_p) or b"").decode(),
        "freed": [stub.cuModuleUnload(module), stub.cuMemFree_v2(memory)],
    }
    print(json.dumps(description))


if __name__ == "__main__":
    # the memory of another thread lies above 4 GiB; that of the first one may not, where Python has a fixed address
    with ThreadPoolExecutor(1) as pool:
        pool.submit(main, *sys.argv[1:]).result()
