"""A test of a library that links with cuda-core."""

from cuda.core import Device, Linker, LinkerOptions, Program, ProgramOptions

CODE = 'extern "C" __global__ void twice(int *x) { *x *= 2; }'


def test_link():
    device = Device()
    device.set_current()
    arch = f"sm_{device.arch}"
    ptx = Program(CODE, "c++", ProgramOptions(arch=arch)).compile("ptx")
    linker = Linker(ptx, options=LinkerOptions(arch=arch))
    assert linker.link("cubin").get_kernel("twice")
