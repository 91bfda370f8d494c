"""Fill device memory through a library that has the functions of libcuda: memset.py LIBRARY."""

import ctypes
import sys

driver = ctypes.CDLL("libcuda.so.1")
library = ctypes.CDLL(sys.argv[1])
context, memory = ctypes.c_void_p(), ctypes.c_uint64()
assert driver.cuInit(0) == 0
assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert driver.cuCtxSetCurrent(context) == 0
assert driver.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(1024)) == 0
print("cuMemsetD32_v2 returns", library.cuMemsetD32_v2(memory, 7, ctypes.c_size_t(256)))
