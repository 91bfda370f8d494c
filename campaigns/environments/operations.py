"""What users of an environment do in it; its own Python runs this file, and nothing of this project is imported.

    python operations.py PLAN.json

Each operation has a fresh process, and a JSON line: its name, and what went wrong or null. Libraries are loaded as
cuda-bindings loads them where that is installed, else as cuda.pathfinder does.
"""

import contextlib
import ctypes
import importlib
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

KERNEL = 'extern "C" __global__ void k(float *p) { *p = sinf(*p); }'
HALF = """
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>
extern "C" __global__ void k(float *p) { *p = __half2float(__float2half(*p)); }
"""
TRAITS = (
    '#include <cuda/std/type_traits>\nextern "C" __global__ void k(int *p) { *p = cuda::std::is_same_v<int, int>; }'
)
PTX = b".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }\n"
PROGRAM = """
#include <cstdio>
__global__ void c(float *p) { *p = sinf(*p); }
__global__ void k(float *p) { c<<<1, 1>>>(p); }
int main() { int n; return cudaGetDeviceCount(&n) == cudaErrorInsufficientDriver; }
"""
#: How a program of numba or cuda-core asks cuda-bindings for a library, which it loads then.
ASK = {"nvrtc": ("nvrtc", "nvrtcVersion"), "nvJitLink": ("nvjitlink", "version"), "nvvm": ("nvvm", "version")}
#: The first call of a library that is or has the CUDA runtime, and what it is given besides the place of its handle.
FIRST_CALL = {
    "cublas": ("cublasCreate_v2", ()),
    "cudart": ("cudaGetDeviceCount", ()),
    "curand": ("curandCreateGenerator", (100,)),  # CURAND_RNG_PSEUDO_DEFAULT
    "cusolver": ("cusolverDnCreate", ()),
    "cusparse": ("cusparseCreate", ()),
}
#: The device of the emulated driver; every release knows it.
ARCH = "90"
#: nvJitLinkInputType.
INPUT_PTX, INPUT_LTOIR, INPUT_LIBRARY = 2, 3, 6
#: The answer of the emulated driver to a CUDA runtime that is new enough for it: it has no tables of the runtime.
NOT_SUPPORTED = 801


class Failed(RuntimeError):  # noqa: N818 (an outcome)
    """An operation that a user would see fail."""


def expect(code: int, call: str, log: bytes = b"") -> None:
    if code:
        raise Failed(f"{call} returns {code}: {log.partition(bytes(1))[0].decode(errors='replace').strip()[:300]}")


def library(name: str) -> ctypes.CDLL:
    """Load a library of the toolkit as its users do."""
    from cuda.pathfinder import load_nvidia_dynamic_lib

    if PLAN["bindings"] and name in ASK:
        module, function = ASK[name]
        try:
            bindings = importlib.import_module(f"cuda.bindings.{module}")
        except ModuleNotFoundError:  # an old cuda-bindings without this module
            bindings = None
        try:
            answer = getattr(bindings, function)() if bindings else None
        except RuntimeError as error:  # some releases ask for a driver first, which no environment brings
            if PLAN["driver"] or "driver is not found" not in str(error):
                raise
            answer = None
            if name == "nvJitLink":  # which they call on every machine that has one
                _ = ctypes.CDLL(load_nvidia_dynamic_lib(name).abs_path).nvJitLinkVersion
        if name == "nvrtc" and answer:
            expect(int(answer[0]), "nvrtcVersion")
    return ctypes.CDLL(load_nvidia_dynamic_lib(name).abs_path)


def _arguments(options: list[str]) -> ctypes.Array:
    return (ctypes.c_char_p * len(options))(*map(str.encode, options))


def _text(lib: ctypes.CDLL, name: str, handle: ctypes.c_void_p) -> bytes:
    """Call two functions: the one that says how much another one writes, and that one."""
    size = ctypes.c_size_t()
    expect(getattr(lib, f"{name}Size")(handle, ctypes.byref(size)), f"{name}Size")
    text = ctypes.create_string_buffer(max(size.value, 1))
    expect(getattr(lib, name)(handle, text), name)
    return text.raw[: size.value]


def compiled(source: str, *options: str, lto: bool = False) -> bytes:
    """Compile with NVRTC, to PTX or to LTO-IR."""
    nvrtc, program = library("nvrtc"), ctypes.c_void_p()
    expect(nvrtc.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"k.cu", 0, None, None), "create")
    words = [f"--gpu-architecture=compute_{ARCH}", "--std=c++17", *(["-dlto"] if lto else []), *options]
    if code := nvrtc.nvrtcCompileProgram(program, len(words), _arguments(words)):
        expect(code, "nvrtcCompileProgram", _text(nvrtc, "nvrtcGetProgramLog", program))
    return _text(nvrtc, "nvrtcGetLTOIR" if lto else "nvrtcGetPTX", program)


def linked(image: bytes, *options: str, kind: int = INPUT_PTX, archive: bytes = b"") -> bytes:
    link, handle = library("nvJitLink"), ctypes.c_void_p()
    words = [f"-arch=sm_{ARCH}", *options]
    expect(link.nvJitLinkCreate(ctypes.byref(handle), len(words), _arguments(words)), "nvJitLinkCreate")
    code = 0
    for of, data in ((INPUT_LIBRARY, archive), (kind, image)):
        if data and not code:
            code = link.nvJitLinkAddData(handle, of, data, ctypes.c_size_t(len(data)), b"k")
    if code := code or link.nvJitLinkComplete(handle):
        expect(code, "nvJitLink", _text(link, "nvJitLinkGetErrorLog", handle))
    return _text(link, "nvJitLinkGetLinkedCubin", handle)


def link_cudadevrt() -> None:
    """Link with the toolkit's static library, for kernels that call kernels."""
    from cuda import pathfinder

    linked(PTX, archive=Path(pathfinder.find_static_lib("cudadevrt")).read_bytes())


def headers(name: str) -> str:
    from cuda import pathfinder

    if hasattr(pathfinder, "locate_nvidia_header_directory"):
        located = pathfinder.locate_nvidia_header_directory(name)
        folder = located.abs_path if located else None
    else:
        folder = pathfinder.find_nvidia_header_directory(name)
    if not folder:
        raise Failed(f"cuda.pathfinder finds no headers of {name}")
    return f"-I{folder}"


# -- the operations


def files() -> None:
    """Find whatever a program may include, load or run of the toolkit's packages, as long as their RECORD says."""
    sizes = {path: Path(path).stat().st_size if Path(path).is_file() else -1 for path in PLAN["files"]}
    if lost := [path for path, size in PLAN["files"].items() if sizes[path] < size]:
        raise Failed(f"missing or cut off: {lost}")


def nvrtc() -> None:
    compiled(KERNEL)
    compiled(KERNEL, lto=True)


def nvrtc_headers() -> None:
    compiled(HALF, headers("cudart"))


def nvrtc_cccl() -> None:
    compiled(TRAITS, headers("cccl"), headers("cudart"))


def link_ptx() -> None:
    linked(compiled(KERNEL))


def link_ltoir() -> None:
    linked(compiled(KERNEL, lto=True), "-lto", kind=INPUT_LTOIR)


def nvvm() -> None:
    """Compile a function that calls libdevice, which cuda.pathfinder finds."""
    from cuda import pathfinder

    lib, program = library("nvvm"), ctypes.c_void_p()
    numbers = [ctypes.c_int() for _ in range(4)]
    expect(lib.nvvmIRVersion(*map(ctypes.byref, numbers)), "nvvmIRVersion")
    ir = (
        'target datalayout = "e-p:64:64:64-i1:8:8-i8:8:8-i16:16:16-i32:32:32-i64:64:64-i128:128:128-f32:32:32-f64:64:64'
        '-v16:16:16-v32:32:32-v64:64:64-v128:128:128-n16:32:64"\ntarget triple = "nvptx64-nvidia-cuda"\n'
        "declare float @__nv_sinf(float)\ndefine float @f(float %x) {\n  %y = call float @__nv_sinf(float %x)\n"
        f"  ret float %y\n}}\n!nvvmir.version = !{{!0}}\n!0 = !{{i32 {numbers[0].value}, i32 {numbers[1].value}, "
        f"i32 {numbers[2].value}, i32 {numbers[3].value}}}\n"
    ).encode()
    device = Path(pathfinder.find_bitcode_lib("device")).read_bytes()
    expect(lib.nvvmCreateProgram(ctypes.byref(program)), "nvvmCreateProgram")
    for add, data in (("nvvmAddModuleToProgram", ir), ("nvvmLazyAddModuleToProgram", device)):
        expect(getattr(lib, add)(program, data, ctypes.c_size_t(len(data)), add.encode()), add)
    words = [f"-arch=compute_{ARCH}"]
    code = lib.nvvmCompileProgram(program, len(words), _arguments(words))
    log = ctypes.create_string_buffer(4096)
    if code:
        lib.nvvmGetProgramLog(program, log)
    expect(code, "nvvmCompileProgram", log.value)


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=PLAN["scratch"])
    if done.returncode:
        said = (done.stderr or done.stdout).strip()[:300]
        raise Failed(f"{Path(command[0]).name} ends with {done.returncode}: {said}")


def _source(name: str, text: str | bytes) -> str:
    path = Path(PLAN["scratch"], name)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def nvcc() -> None:
    """Compile a program whose kernel calls another one, link it, and where there is a driver run it."""
    program, source = f"{PLAN['scratch']}/k", _source("k.cu", PROGRAM)
    run(f"{PLAN['programs']}/nvcc", source, "-arch=sm_90", "-rdc=true", "-o", program, f"-L{PLAN['programs']}/../lib")
    if PLAN["driver"]:
        run(program)


def nvcc_cccl() -> None:
    source = _source("k.cu", TRAITS)
    run(f"{PLAN['programs']}/nvcc", source, "-arch=sm_90", "-c", "-o", f"{PLAN['scratch']}/k.o")


def ptxas() -> None:
    run(PLAN["programs"] + "/ptxas", "-arch=sm_80", _source("k.ptx", PTX), "-o", f"{PLAN['scratch']}/k.cubin")


def nvdisasm() -> None:
    """Disassemble a cubin that a program brings, which needs no driver."""
    run(f"{PLAN['packages']}/nvidia/cu13/bin/nvdisasm", PLAN["cubin"])


def load(name: str) -> None:
    library(name)


def load_12(name: str, folder: str = "") -> None:
    """Load those of a wheel as programs do that are linked with them, which load nothing before."""
    for path in Path(PLAN["packages"], "nvidia", folder or name, "lib").glob(f"lib{name}*.so*"):
        ctypes.CDLL(str(path), os.RTLD_NOW)


def load_13(name: str) -> None:
    load_12(name, "cu13")


def cudnn(folder: str) -> None:
    """Let cuDNN open its parts: the first call of each does, and ends the process where the loader finds none."""
    (file,) = Path(PLAN["packages"], folder).glob("libcudnn[.-]*")
    lib = ctypes.CDLL(str(file), os.RTLD_NOW)
    for part in ("Graph", "Ops", "Cnn", "Adv"):
        expect(getattr(lib, f"cudnn{part}VersionCheck")(), part)


def loaded(path: str) -> None:
    """Load a library of a package as the loader finds what it links, with every function bound."""
    ctypes.CDLL(f"{PLAN['packages']}/{path}", os.RTLD_NOW)


def imported(name: str) -> None:
    """Import a package; that it says of itself that it may not work counts as a failure."""
    with warnings.catch_warnings():
        warnings.filterwarnings("error", r"(?s).*may not function correctly")
        if PLAN["driver"]:  # without one this is how packages say so
            warnings.filterwarnings("error", r"(?s).*bindings for CUDA \d+ not available")
        importlib.import_module(name)


def runtime() -> None:
    """Ask the CUDA runtime inside cuda-bindings for devices."""
    from cuda.bindings import runtime as cudart

    code = int(cudart.cudaGetDeviceCount()[0])
    if code != NOT_SUPPORTED:
        expect(code, "cudaGetDeviceCount")


def _asks_the_driver(call: Callable[[], object]) -> None:
    """Make a call of the CUDA runtime; it may fail only where the emulated driver has no tables of the runtime."""
    events = Path(os.environ["CUDALINK_EMULATOR_EVENTS"])
    before = events.stat().st_size if events.exists() else 0
    try:
        call()
    except Exception:
        said = events.read_bytes()[before:] if events.exists() else b""
        if b'"unsupported":true' not in said:
            raise


def begins(name: str) -> None:
    """Make the first call of a library."""
    lib, (function, rest) = library(name), FIRST_CALL[name]
    _asks_the_driver(lambda: expect(getattr(lib, function)(ctypes.byref(ctypes.c_void_p()), *rest), function))


def rmm_stream() -> None:
    """Make a stream with rmm, whose library contains the CUDA runtime."""
    stream = importlib.import_module("rmm.pylibrmm.stream")
    _asks_the_driver(stream.Stream)


def torch_cuda() -> None:
    """Let torch ask its CUDA runtime for devices, as it does before its first tensor there."""
    _asks_the_driver(importlib.import_module("torch").cuda.init)


def opened(pair: str) -> None:
    """Open a library by its name, as a package does where it uses a GPU, in a process that has loaded the toolkit's."""
    name, file = pair.split()
    library(name)
    ctypes.CDLL(file)


def links() -> None:
    """Link as cuda-core and numba-cuda do, by nvJitLink, else by the driver, and load the result."""
    try:
        cubin = linked(PTX)
    except (OSError, RuntimeError):
        if not PLAN["driver"]:
            raise
        if PLAN["overwrites"]:
            raise Failed("the link by the driver overwrites freed memory") from None
        cubin = PTX
    if PLAN["driver"]:
        image_of(cubin)


def numba_kernel() -> None:
    """Compile with numba-cuda and link, and where there is a driver load a kernel."""
    from numba import cuda, types

    def add(a: object) -> None:
        a[0] += 1.0  # type: ignore[index]

    if PLAN["driver"]:
        cuda.jit("(float64[:],)")(add)
    else:
        ptx, _ = cuda.compile(add, (types.float64[:],), cc=(9, 0), device=True, abi="c")
        linked(ptx.encode())


def image() -> None:
    """Give the driver what this environment makes for it: PTX, or cubins of it, and what its nvJitLink links."""
    image_of(compiled(KERNEL))
    if PLAN["linker"]:
        image_of(linked(compiled(KERNEL)))


def linked_image() -> None:
    """Give the driver what nvJitLink links of PTX that a program brings; the PTX for 12.2, which Python cannot call."""
    image_of(linked(PTX) if hasattr(library("nvJitLink"), "nvJitLinkCreate") else PTX)


def image_of(ptx: bytes) -> None:
    driver = ctypes.CDLL("libcuda.so.1")
    context, module = ctypes.c_void_p(), ctypes.c_void_p()
    expect(driver.cuInit(0), "cuInit")
    expect(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), "cuDevicePrimaryCtxRetain")
    expect(driver.cuCtxSetCurrent(context), "cuCtxSetCurrent")
    code = driver.cuModuleLoadData(ctypes.byref(module), ptx)
    if code and PLAN["linker"] and not ptx.startswith(b"\x7fELF"):
        code = driver.cuModuleLoadData(ctypes.byref(module), linked(ptx))
    expect(code, "cuModuleLoadData")


def pip_check() -> None:
    command = ("uv", "pip", "check", "--python", sys.executable)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if wrong := [line for line in done.stderr.splitlines() if " requires " in line]:
        raise Failed("; ".join(wrong))


def outcome(action: Callable[[], object]) -> str:
    """What goes wrong in a fresh process; empty for nothing."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        os.dup2(1, 2)
        text = ""
        try:
            action()
        except BaseException as error:  # noqa: BLE001 (whatever a user would see)
            text = f"{type(error).__name__}: {error}"[:4000]
        os.write(write, text.encode(errors="replace"))
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answers:
        text = answers.read().decode(errors="replace")
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return text if code == 0 else f"ends with {code}"


def attempt(name: str) -> str | None:
    """Do an operation; return what went wrong."""
    kind, _, about = name.partition(" ")
    return outcome(lambda: globals()[kind.replace("-", "_")](*([about] if about else [])))[:600] or None


if __name__ == "__main__":
    PLAN = json.loads(Path(sys.argv[1]).read_text())
    # some releases of cuda.pathfinder load the driver
    os.environ["CUDALINK_EMULATOR_EVENTS"] = f"{PLAN['scratch']}/events"
    with contextlib.suppress(Exception):  # the operations that need it say what is wrong
        importlib.import_module("cuda.pathfinder")
    for operation in PLAN["operations"]:
        print(json.dumps([operation, attempt(operation)]), flush=True)
