"""CuPy's import and its low-level link; its own contexts need the CUDA runtime, which is not on an emulated driver."""

import ctypes
import json
import sys
from pathlib import Path

import cupy
from cupy_backends.cuda.api import driver

SAMPLES = Path(__file__).parents[3] / "tests" / "data" / "artifacts" / "13.0"

library = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
assert library.cuInit(0) == 0
assert library.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert library.cuCtxSetCurrent(context) == 0
state = driver.linkCreate()
for name in ("main.ptx", "user.ptx"):
    driver.linkAddData(state, 1, (SAMPLES / name).read_bytes().rstrip(b"\0") + b"\0", name)
image = driver.linkComplete(state)
driver.linkDestroy(state)
module = driver.moduleLoadData(image)
function = driver.moduleGetFunction(module, "apply_transform")
facts = {"version": cupy.__version__, "driver": driver.get_build_version(), "image": image[:4] == b"\x7fELF"}
json.dump({**facts, "function": bool(function)}, sys.stdout)
