"""Answer one question of the atlas without its code: ``atlas_again.py JOB``, JSON in and out; see test_atlas_again.py.

Standard library only (cuda-tile writes Tile IR), and other sources, options and order than ``tools/atlas_worker.py``
has. Each call uses one library: a crash costs one answer.
"""

from __future__ import annotations

import ctypes
import json
import sys
from ctypes import POINTER, byref, c_char, c_char_p, c_int, c_size_t, c_uint, c_void_p
from pathlib import Path

KERNEL = """
extern "C" __device__ int twice(int value);
extern "C" __global__ void doubled(int *values) { values[threadIdx.x] = twice(values[threadIdx.x]); }
"""
FUNCTION = 'extern "C" __device__ int twice(int value) { return value << 1; }'
IR = """
target datalayout = "e-i64:64-v16:16-v32:32-n16:32:64"
target triple = "nvptx64-nvidia-cuda"
define i32 @twice(i32 %value) {
  %result = shl i32 %value, 1
  ret i32 %result
}
!nvvmir.version = !{!0}
!0 = !{i32 2, i32 0, i32 3, i32 1}
"""
TYPES = {"cubin": 1, "ptx": 2, "ltoir": 3}


def strings(*words: str) -> ctypes.Array[c_char_p]:
    return (c_char_p * len(words))(*map(str.encode, words))


def bytes_of(library: ctypes.CDLL, prefix: str, name: str, handle: c_void_p) -> bytes | int:
    """What a pair of functions ``…Size`` and ``…`` give, or the code of the one that fails."""
    size = c_size_t()
    code = getattr(library, f"{prefix}{name}Size")(handle, byref(size))
    data = (c_char * size.value)()
    return code or getattr(library, f"{prefix}{name}")(handle, data) or bytes(data)


def nvrtc(job: dict[str, str], source: str, kind: str) -> bytes | int:
    for file in Path(job["library"]).parent.glob("libnvrtc-builtins.so.*"):
        ctypes.CDLL(str(file))
    library = ctypes.CDLL(job["library"])
    program = c_void_p()
    library.nvrtcCreateProgram(byref(program), source.encode(), None, 0, None, None)
    arch = job["arch"].replace("sm_", "compute_") if kind == "ptx" else job["arch"]
    words = ["--relocatable-device-code=true", f"--gpu-architecture={arch}"]
    words += ["--dlink-time-opt"] if kind == "ltoir" else []
    code: int = library.nvrtcCompileProgram(program, len(words), strings(*words))
    return code or bytes_of(library, "nvrtcGet", {"ltoir": "LTOIR", "ptx": "PTX", "cubin": "CUBIN"}[kind], program)


def nvvm(job: dict[str, str]) -> bytes | int:
    library = ctypes.CDLL(job["library"])
    program = c_void_p()
    library.nvvmCreateProgram(byref(program))
    text = IR.replace("i32 3, i32 1", job.get("debug", "i32 3, i32 1")).encode()
    library.nvvmAddModuleToProgram(program, text, c_size_t(len(text)), None)
    words = strings("-gen-lto", f"-arch={job['arch'].replace('sm_', 'compute_')}")
    code: int = library.nvvmCompileProgram(program, 2, words)
    size = c_size_t()
    library.nvvmGetCompiledResultSize(program, byref(size))
    data = (c_char * size.value)()
    return code or library.nvvmGetCompiledResult(program, data) or bytes(data)


def link(job: dict[str, str], files: list[str], kind: str, result: str, *words: str) -> bytes | int:
    library = ctypes.CDLL(job["library"])
    suffix = "" if hasattr(library, "nvJitLinkCreate") else f"_{job['release'].replace('.', '_')}"
    begin = "__nvJitLink" if suffix else "nvJitLink"
    create, add, complete = (getattr(library, begin + name + suffix) for name in ("Create", "AddData", "Complete"))
    create.argtypes = POINTER(c_void_p), c_uint, POINTER(c_char_p)
    add.argtypes = c_void_p, c_int, c_char_p, c_size_t, c_char_p
    handle = c_void_p()
    every = [*words, *(["-lto"] if kind == "ltoir" else []), f"-arch={job['arch']}"]
    if code := create(byref(handle), len(every), strings(*every)):
        return int(code)
    contents = [Path(file).read_bytes() for file in files]  # 12.0 reads a cubin when it completes
    for number, content in enumerate(contents):
        if code := add(handle, TYPES[kind], content, len(content), b"%d" % number):
            return int(code)
    if code := complete(handle):
        return int(code)
    size = c_size_t()
    if code := getattr(library, f"{begin}GetLinked{result}Size{suffix}")(handle, byref(size)):
        return int(code)
    data = (c_char * size.value)()
    return int(getattr(library, f"{begin}GetLinked{result}{suffix}")(handle, data)) or bytes(data)


def tile(job: dict[str, str]) -> int:
    """Write Tile IR bytecode of a version: another kernel than that of tests/data/make_artifacts.py."""
    import cuda.tile as ct
    from cuda.tile import _compile, compilation

    @ct.kernel
    def doubled(values) -> None:
        at = ct.bid(0)
        ct.store(values, index=(at,), tile=ct.load(values, index=(at,), shape=(64,)) * 2)

    _compile._SUPPORTED_VERSIONS = tuple(_compile.BytecodeVersion)
    words = {"index_dtype": ct.int32, "stride_lower_bound_incl": 0, "alias_groups": (), "may_alias_internally": False}
    array = compilation.ArrayConstraint(ct.int32, 1, stride_constant=(1,), **words)
    call = compilation.CallingConvention.cutile_python_v1()
    signature = compilation.KernelSignature([array], call, symbol="doubled")
    form = {"gpu_code": "sm_120", "output_format": "tileir_bytecode", "bytecode_version": job["release"]}
    compilation.export_kernel(doubled, [signature], Path(job["out"]), **form)
    return 0


def main(job: dict[str, str]) -> int:
    """Write the result to the job's file; returns the code of the call that failed, or 0."""
    step, _, kind = job["do"].partition(" ")
    if step == "tile":
        return tile(job)
    if step == "link":
        made = link(job, job["files"].split(), kind, job["result"], *job["words"].split())
    else:
        made = nvvm(job) if step == "nvvm" else nvrtc(job, KERNEL if step == "kernel" else FUNCTION, kind)
    if isinstance(made, int):
        return made
    Path(job["out"]).write_bytes(made)
    return 0


if __name__ == "__main__":
    sys.stdout.write(f"code {main(json.loads(sys.argv[1]))}\n")
