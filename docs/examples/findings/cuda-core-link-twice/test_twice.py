from cuda.core import Device, Linker, LinkerOptions, Program, ProgramOptions


def test_twice():
    Device().set_current()
    ptx = Program("__global__ void f() {}", "c++", ProgramOptions(arch="sm_90")).compile("ptx")
    linker = Linker(ptx, options=LinkerOptions(arch="sm_90"))
    assert linker.link("cubin")
    linker.link("cubin")
