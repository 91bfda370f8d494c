"""``cudalink demo``: the two-module job of the field, linked both ways and proved.

The kernel ``apply_transform`` calls ``user_transform``, which is compiled on its own: y = x² + 3x - 1, clipped at 0.
Linked as PTX the call stays; linked as LTO-IR with LTO it is inlined. Without a GPU the image proves it; with one the
results do.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .. import probes
from ..compat.architectures import parse_architecture
from ..environment.facts import driver_is_emulated
from ..probes import libcuda

if TYPE_CHECKING:
    from . import ObjectCode
    from .dispatch import BackendName

__all__ = [
    "KERNEL",
    "MAIN_SOURCE",
    "USER_SOURCE",
    "Outcome",
    "compile_modules",
    "launch",
    "link_sample",
    "prove",
    "run",
]

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


@dataclass(frozen=True)
class Outcome:
    """What became of one way of linking.

    Attributes
    ----------
    mode : str
        ``"ptx"`` or ``"ltoir"``.
    ok : bool
    text : str
        The proof, or what is wrong.
    """

    mode: str
    ok: bool
    text: str


def compile_modules(mode: str, arch: str) -> tuple[ObjectCode, ObjectCode]:
    """Compile both units to ``"ptx"``, ``"ltoir"`` or ``"cubin"``, relocatable."""
    from . import Program, ProgramOptions

    codes = []
    for name, source in (("main.cu", MAIN_SOURCE), ("user.cu", USER_SOURCE)):
        options = ProgramOptions(name=name, arch=arch, relocatable_device_code=True)
        with Program(source, "c++", options) as program:
            codes.append(program.compile(mode))  # type: ignore[arg-type]
    return codes[0], codes[1]


def link_sample(mode: str, arch: str, backend: BackendName | None = None) -> tuple[ObjectCode, str]:
    """Compile and link the sample; returns the cubin and the reason for the backend that was taken."""
    from . import Linker, LinkerOptions

    options = LinkerOptions(name=f"demo-{mode}", arch=arch, link_time_optimization=mode == "ltoir")
    with Linker(*compile_modules(mode, arch), options=options, backend=backend) as linker:
        return linker.link("cubin"), str(linker.decision)


def prove(mode: str, image: ObjectCode) -> Outcome:
    """Prove from the image alone that LTO inlined the call, and that a plain link did not."""
    found = image.artifact
    expected = 1 if mode == "ltoir" else 2
    sections = len(found.text_sections)
    undefined = ", ".join(found.undefined) or "none"
    facts = f"{sections} .text section(s), expected {expected}; undefined symbols: {undefined}"
    ok = sections == expected and not found.undefined and KERNEL in found.kernels and not found.problems
    return Outcome(mode, ok, facts)


def launch(image: bytes, elements: int = ELEMENTS) -> float:
    """Run the kernel on device 0 and compare with NumPy.

    Returns
    -------
    float
        The largest deviation, relative to the tolerance: up to 1.0 is a match with rtol = atol = 1e-5.

    Raises
    ------
    RuntimeError
        If the driver refuses something, or NumPy is missing.
    """
    try:
        import numpy  # noqa: ICN001 (only with a GPU)
    except ImportError as error:
        msg = "comparing results on the GPU needs NumPy; pip install numpy"
        raise RuntimeError(msg) from error
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


def run(arch: str | None = None, backend: BackendName | None = None, write: Callable[[str], object] = print) -> int:
    """Run the demo and report; the exit code is 1 if something does not match.

    Parameters
    ----------
    arch : str, optional
        Default: that of the device, else sm_90.
    backend : str, optional
        Force the linker of the PTX link; LTO-IR always needs nvJitLink.
    write : callable
        Gets each line of the report.

    Raises
    ------
    ValueError
        If there is no such architecture.
    """
    if arch is not None:
        parse_architecture(arch)
    device = probes.device_arch()
    arch = arch or device or _FALLBACK_ARCH
    emulated = driver_is_emulated()
    on_gpu = device is not None and device == arch.rstrip("af") and not emulated
    driver = probes.driver_version()
    facts = {
        "driver": f"CUDA {driver}{' (emulated)' if emulated else ''}" if driver else None,
        "device": device,
        "nvJitLink": probes.nvjitlink_version(),
        "arch": arch,
    }
    write(", ".join(f"{name}: {value or 'none'}" for name, value in facts.items()))
    failures = 0
    for mode in ("ptx", "ltoir"):
        _progress(f"linking {mode} …")
        try:
            image, why = link_sample(mode, arch, backend if mode == "ptx" else None)
        except (RuntimeError, ValueError) as error:
            why, outcome = "not linked", Outcome(mode, ok=False, text=f"{type(error).__name__}: {error}")
        else:
            outcome = prove(mode, image)
            if outcome.ok and on_gpu:
                outcome = _prove_on_gpu(outcome, image)
        _progress("")
        failures += not outcome.ok
        what = "PTX without LTO" if mode == "ptx" else "LTO-IR with LTO"
        write(f"{'ok  ' if outcome.ok else 'FAIL'} {what}: {outcome.text}")
        write(f"     {why}")
    if not on_gpu:
        reason = "the driver is emulated and runs no kernels" if emulated else "no GPU of that architecture"
        write(f"{reason}: proved from the images, nothing was launched")
    return 1 if failures else 0


def _prove_on_gpu(proved: Outcome, image: ObjectCode) -> Outcome:
    """What the results on the GPU add to the proof from the image."""
    _progress(f"launching {proved.mode} …")
    try:
        deviation = launch(image.code)
    except RuntimeError as error:
        return Outcome(proved.mode, ok=False, text=f"{proved.text}; linked, but not run: {error}")
    verdict = f"{ELEMENTS} values on the GPU, largest deviation {deviation:.3f} of the tolerance {TOLERANCE:g}"
    return Outcome(proved.mode, deviation <= 1.0, f"{proved.text}; {verdict}")


def _progress(text: str) -> None:
    """Show what is going on, on a terminal only."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[2K{text}")
        sys.stderr.flush()
