"""Link two units, and inspect the cubin."""

from pytest_cudalink.linker import LinkerOptions, Program, ProgramOptions

MAIN = """
extern "C" __device__ float user_transform(float x);
extern "C" __global__ void apply_transform(float* x) { x[threadIdx.x] = user_transform(x[threadIdx.x]); }
"""
USER = """
extern "C" __device__ float user_transform(float x) { return x * x + 3.0f * x - 1.0f; }
"""


def compile_unit(name, source):
    options = ProgramOptions(name=name, arch="sm_90", relocatable_device_code=True)
    return Program(source, "c++", options).compile("ptx")


def test_units_link(linker_factory):
    main, user = compile_unit("main.cu", MAIN), compile_unit("user.cu", USER)
    linker = linker_factory(main, user, options=LinkerOptions(arch="sm_90"))

    cubin = linker.link("cubin")

    assert cubin.artifact.kernels == ("apply_transform",)
    assert cubin.artifact.undefined == ()
