from cuda.core import Device, Linker, LinkerOptions, Program, ProgramOptions


def test_cycle():
    Device().set_current()
    ptx = Program("__global__ void f() {}", "c++", ProgramOptions(arch="sm_90")).compile("ptx")
    cycle = [Linker(ptx, options=LinkerOptions(arch="sm_90"))]
    cycle.append(cycle)
    del cycle
    __import__("gc").collect()
