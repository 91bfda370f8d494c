"""Numba-cuda compiles eagerly, which links and loads the kernel."""

import json
import sys

from numba import cuda, float32

device = cuda.get_current_device()


@cuda.jit(device=True)
def square(x):
    """One device function, inlined or linked."""
    return x * x


@cuda.jit((float32[:], float32[:]))
def kernel(source, target):
    """Compiled for this signature at once."""
    at = cuda.grid(1)
    if at < source.size:
        target[at] = square(source[at])


facts = {"capability": list(device.compute_capability), "signatures": len(kernel.signatures)}
facts["registers"] = next(iter(kernel.overloads.values())).regs_per_thread
json.dump(facts, sys.stdout)
