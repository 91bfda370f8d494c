"""A sample of two modules, linked as PTX and as LTO-IR, with a proof of each result; ``cudalink demo`` prints it.

The kernel ``apply_transform`` calls ``user_transform``, which is compiled separately: y = x² + 3x - 1, clipped at 0.
Linked as PTX the call stays; linked as LTO-IR with LTO it is inlined. The image proves that without a GPU; on a GPU the
results of the kernel prove it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from .. import probes
from ..base.install_command import install_command
from ..compat.architectures import parse_architecture
from ..probes import libcuda
from ..targets.base import Backend
from ..versions import CudaVersion

if TYPE_CHECKING:
    from . import ObjectCode

#: The ways of linking the sample.
MODES = ("ptx", "ltoir")

KERNEL = "apply_transform"
ELEMENTS = 65_536
TOLERANCE = 1e-5
_FALLBACK_ARCH = "sm_90"

MAIN_SOURCE = """\
extern "C" __device__ float user_transform(float x);

extern "C" __global__ void apply_transform(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = user_transform(x[i]);
}
"""

USER_SOURCE = """\
extern "C" __device__ float user_transform(float x) {
  float y = x * x + 3.0f * x - 1.0f;
  return y > 0.0f ? y : 0.0f;
}
"""

#: Both units as one, which needs no link.
WHOLE_SOURCE = USER_SOURCE + MAIN_SOURCE.partition("\n")[2]


#: A test as a library has it: it knows nothing of pytest-cudalink. The README shows it.
SKEW_TEST = """\
from cuda.bindings import driver, nvrtc


def test_kernel_loads():
    source = b"__global__ void k() {}"
    _, program = nvrtc.nvrtcCreateProgram(source, b"", 0, [], [])
    nvrtc.nvrtcCompileProgram(program, 0, [])
    _, size = nvrtc.nvrtcGetPTXSize(program)
    image = bytes(size)
    nvrtc.nvrtcGetPTX(program, image)
    driver.cuInit(0)
    _, context = driver.cuDevicePrimaryCtxRetain(0)
    driver.cuCtxSetCurrent(context)
    error, _ = driver.cuModuleLoadData(image)
    assert not error, error.name
"""

#: The architecture of its kernel, that of the emulated driver's default device.
SKEW_ARCH = "sm_90"


@dataclass(frozen=True)
class Machine:
    """What the sample is linked and run on."""

    arch: str  # the architecture to link for
    device: str | None  # the architecture of device 0
    driver: CudaVersion | None
    nvjitlink: CudaVersion | None
    emulated: bool  # whether the driver is emulated, so that it runs no kernels

    @property
    def runs_the_image(self) -> bool:
        """Whether the device can run an image for `arch`."""
        return self.device is not None and self.device == self.arch.rstrip("af") and not self.emulated


@dataclass(frozen=True)
class Outcome:
    """The result of one way of linking."""

    mode: str  # "ptx" or "ltoir"
    ok: bool
    text: str  # the proof, or the error
    why: str = ""  # the reason for the backend; empty if the link failed


def compile_modules(mode: str, arch: str) -> tuple[ObjectCode, ObjectCode]:
    """Return both units, compiled to relocatable ``"ptx"``, ``"ltoir"`` or ``"cubin"``."""
    from . import Program, ProgramOptions

    codes = []
    for name, source in (("main.cu", MAIN_SOURCE), ("user.cu", USER_SOURCE)):
        options = ProgramOptions(name=name, arch=arch, relocatable_device_code=True)
        with Program(source, "c++", options) as program:
            codes.append(program.compile(mode))  # type: ignore[arg-type]
    return codes[0], codes[1]


def compile_kernel() -> bytes:
    """Return both units, compiled by NVRTC as one to PTX that a driver can load; its NUL included.

    Raises RuntimeError if NVRTC or cuda-bindings is missing; names what to install.
    """
    from . import Program, ProgramOptions

    with Program(WHOLE_SOURCE, "c++", ProgramOptions(name="kernel.cu", arch=SKEW_ARCH)) as program:
        return program.compile("ptx").code.rstrip(b"\0") + b"\0"


def link_sample(mode: str, arch: str, backend: Backend | None = None) -> tuple[ObjectCode, str]:
    """Compile and link the sample; returns the cubin and the reason for its backend."""
    from . import Linker, LinkerOptions

    with Linker(*compile_modules(mode, arch), options=LinkerOptions(arch=arch), backend=backend) as linker:
        return linker.link("cubin"), str(linker.decision)


def prove(mode: str, image: ObjectCode) -> Outcome:
    """Return the proof from the image alone: LTO has inlined the call, and a plain link has not."""
    artifact = image.artifact
    expected = 1 if mode == "ltoir" else 2
    sections = len(artifact.text_sections)
    undefined = ", ".join(artifact.undefined) or "none"
    facts = f"{sections} .text section(s), expected {expected}; undefined symbols: {undefined}"
    ok = sections == expected and not artifact.undefined and KERNEL in artifact.kernels and not artifact.problems
    return Outcome(mode, ok, facts)


def launch(image: bytes, elements: int = ELEMENTS) -> float:
    """Run the kernel on device 0 and compare with NumPy.

    Returns the largest deviation, relative to the tolerance: up to 1.0 is a match with rtol = atol = 1e-5.
    Raises RuntimeError if a driver call fails, or NumPy is missing.
    """
    try:
        import numpy  # noqa: ICN001 (only with a GPU)
    except ImportError as error:
        raise RuntimeError(f"comparing results on the GPU needs NumPy; {install_command('numpy')}") from error
    generator = numpy.random.default_rng(1)
    x = generator.uniform(-8.0, 8.0, elements).astype(numpy.float32)
    y = numpy.full(elements, numpy.nan, numpy.float32)
    call = libcuda.call
    device, context, module, function = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    call("cuCtxPushCurrent_v2", context)
    buffers = [ctypes.c_uint64(), ctypes.c_uint64()]
    try:
        call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(image))
        call("cuModuleGetFunction", ctypes.byref(function), module, KERNEL.encode())
        for buffer in buffers:
            call("cuMemAlloc_v2", ctypes.byref(buffer), ctypes.c_size_t(x.nbytes))
        call("cuMemcpyHtoD_v2", buffers[0], ctypes.c_void_p(x.ctypes.data), ctypes.c_size_t(x.nbytes))
        call("cuMemcpyHtoD_v2", buffers[1], ctypes.c_void_p(y.ctypes.data), ctypes.c_size_t(y.nbytes))
        count = ctypes.c_int(elements)
        pointers = [ctypes.cast(ctypes.byref(argument), ctypes.c_void_p) for argument in (*buffers, count)]
        arguments = (ctypes.c_void_p * 3)(*pointers)
        grid, block = -(-elements // 256), 256
        call("cuLaunchKernel", function, grid, 1, 1, block, 1, 1, 0, None, arguments, None)
        call("cuCtxSynchronize")
        call("cuMemcpyDtoH_v2", ctypes.c_void_p(y.ctypes.data), buffers[1], ctypes.c_size_t(y.nbytes))
    finally:
        for buffer in buffers:
            if buffer.value:
                call("cuMemFree_v2", buffer)
        if module.value:
            call("cuModuleUnload", module)
        call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))
        call("cuDevicePrimaryCtxRelease_v2", device)
    wide = x.astype(numpy.float64)
    expected = numpy.maximum(wide * wide + 3.0 * wide - 1.0, 0.0)
    deviation: Any = numpy.abs(y - expected) / (TOLERANCE + TOLERANCE * numpy.abs(expected))
    return float("inf") if numpy.isnan(deviation).any() else float(deviation.max())


def describe_machine(arch: str | None = None) -> Machine:
    """Return what the sample will be linked and run on.

    `arch`: default: that of the device, else sm_90.
    Raises ValueError if the architecture is unknown.
    """
    if arch is not None:
        parse_architecture(arch)
    device, driver, nvjitlink = probes.device_arch(), probes.driver_version(), probes.nvjitlink_version()
    return Machine(arch or device or _FALLBACK_ARCH, device, driver, nvjitlink, libcuda.is_emulated())


def link_and_prove(
    mode: str, machine: Machine, backend: Backend | None = None, progress: Callable[[str], object] = lambda _text: None
) -> Outcome:
    """Link the sample one way, and prove the result: from the image, and on the GPU if the machine can run it.

    `mode`: one of `MODES`.
    `backend`: forces the linker.
    `progress`: called with the name of each step that takes a while.
    """
    progress(f"linking {mode} …")
    try:
        image, why = link_sample(mode, machine.arch, backend)
    except (RuntimeError, ValueError) as error:
        return Outcome(mode, ok=False, text=f"{type(error).__name__}: {error}")
    outcome = replace(prove(mode, image), why=why)
    if not outcome.ok or not machine.runs_the_image:
        return outcome
    progress(f"launching {mode} …")
    try:
        deviation = launch(image.code)
    except RuntimeError as error:
        return replace(outcome, ok=False, text=f"{outcome.text}; linked, but not run: {error}")
    verdict = f"{ELEMENTS} values on the GPU, largest deviation {deviation:.3f} of the tolerance {TOLERANCE:g}"
    return replace(outcome, ok=deviation <= 1.0, text=f"{outcome.text}; {verdict}")
