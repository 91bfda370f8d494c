"""Link two units of LTO-IR, and print which linker was chosen and why."""

from pytest_cudalink.linker import Linker, LinkerOptions, Program, ProgramOptions

SOURCES = {
    "main.cu": 'extern "C" __device__ int next(int);\nextern "C" __global__ void step(int* x) { *x = next(*x); }',
    "user.cu": 'extern "C" __device__ int next(int x) { return x + 1; }',
}

codes = []
for name, source in SOURCES.items():
    options = ProgramOptions(name=name, arch="sm_90", relocatable_device_code=True)
    codes.append(Program(source, "c++", options).compile("ltoir"))

with Linker(*codes, options=LinkerOptions(name="step", arch="sm_90")) as linker:
    cubin = linker.link("cubin")

print(linker.decision)
print(f"kernels: {', '.join(cubin.artifact.kernels)}; functions left: {len(cubin.artifact.text_sections)}")
