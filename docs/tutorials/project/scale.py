"""A kernel that scales an array, compiled when it is first needed."""

from cuda.core import Device, Program, ProgramOptions

SOURCE = """
extern "C" __global__ void scale(float* x, float factor, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= factor;
}
"""


def kernel():
    """Return the kernel for the current device."""
    device = Device()
    device.set_current()
    options = ProgramOptions(arch=f"sm_{device.arch}")
    return Program(SOURCE, "c++", options).compile("ptx").get_kernel("scale")
