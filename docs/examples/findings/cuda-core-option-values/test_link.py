from cuda.core import Device, Linker, LinkerOptions, Program, ProgramOptions


def test_link():
    Device().set_current()
    code = 'extern "C" __global__ void twice(int *x) { *x *= 2; }'
    ptx = Program(code, "c++", ProgramOptions(arch="sm_90")).compile("ptx")
    assert Linker(ptx, options=LinkerOptions(arch="sm_90")).link("cubin")
