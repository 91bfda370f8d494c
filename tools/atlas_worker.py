"""The steps of the atlas in a separate process: compile, link, load, what other libraries make, runs, batches.

Run as a file, with the job as JSON in the only argument; prints the answer as JSON. Imports only the standard library
and loads only the libraries that the job names: a crash costs one answer, and no two releases share a process. A batch
loads the library once and answers in forked children.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import sys
import traceback
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

_NVJITLINK_INPUTS = {"cubin": 1, "ptx": 2, "ltoir": 3, "fatbin": 4}  # nvJitLinkInputType
_DRIVER_INPUTS = {"cubin": 0, "ptx": 1, "fatbin": 2, "ltoir": 5}  # CUjitInputType; 5 is CU_JIT_INPUT_NVVM
_ERROR_LOG_BUFFER, _ERROR_LOG_BUFFER_SIZE = 5, 6  # CUjit_option
_LOG_SIZE = 8192
#: A line of NVRTC's log: the file, without its folder and the number of the line, and what is wrong.
_ERROR = re.compile(r"([^/\s]+)\(\d+\): ((?:catastrophic )?error: .*)")
_SECONDS = 60  # that one job of a batch may take
#: Options of NVRTC for each kind, after the architecture, and what the functions that get the result are called.
_COMPILE = {
    "ptx": (["-rdc=true"], "PTX"),
    "cubin": (["-rdc=true"], "CUBIN"),
    "ltoir": (["-rdc=true", "-dlto"], "LTOIR"),
    "linked-cubin": ([], "CUBIN"),
}


class Failure(Exception):  # noqa: N818 (an answer, not an error)
    """A library returned an error; has the code and the log."""

    def __init__(self, call: str, code: int, log: str = "") -> None:
        super().__init__(call)
        self.answer: dict[str, Any] = {"ok": False, "call": call, "code": code, "log": " ".join(log.split())[:300]}


def _input_type(kind: str, types: dict[str, int]) -> int:
    return types["fatbin" if kind.startswith("fatbin") else kind.rpartition("-")[2]]


def _compile(nvrtc: Any, unit: str, source: str, job: dict[str, Any], kind: str) -> bytes:
    """Return one unit as one kind."""
    program, size = c_void_p(), c_size_t()

    def call(function: str, *arguments: Any) -> None:
        if code := getattr(nvrtc, function)(*arguments):
            nvrtc.nvrtcGetProgramLogSize(program, byref(size))
            log = ctypes.create_string_buffer(size.value + 1)
            nvrtc.nvrtcGetProgramLog(program, log)
            match = _ERROR.search(log.value.decode(errors="replace"))
            raise Failure(function, code, ": ".join(match.groups()) if match else "")

    options, getter = _COMPILE[kind]
    arch = job["arch"].replace("sm", "compute") if kind == "ptx" else job["arch"]
    words = [f"-arch={arch}", *options, *job.get("options", ())]
    call("nvrtcCreateProgram", byref(program), source.encode(), unit.encode(), 0, None, None)
    call("nvrtcCompileProgram", program, len(words), (c_char_p * len(words))(*(word.encode() for word in words)))
    call(f"nvrtcGet{getter}Size", program, byref(size))
    code = ctypes.create_string_buffer(size.value)
    call(f"nvrtcGet{getter}", program, code)
    call("nvrtcDestroyProgram", byref(program))
    return code.raw[: size.value]


def compile_units(job: dict[str, Any]) -> dict[str, Any]:
    """Compile every unit to the kinds of the job with one NVRTC."""
    # the library of 13.0 has no RUNPATH, and would not find its own built-ins
    for builtins in Path(job["library"]).parent.glob("libnvrtc-builtins.so.*"):
        ctypes.CDLL(str(builtins))
    nvrtc = ctypes.CDLL(job["library"])
    for kind in job["kinds"]:
        for unit, source in job["units"].items():
            code = _compile(nvrtc, unit, source, job, kind)
            Path(job["folder"], f"{unit}.{kind}").write_bytes(code)
    return {"ok": True}


def link_nvjitlink(job: dict[str, Any]) -> dict[str, Any]:
    """Link with one nvJitLink; 12.0 to 12.2 have the names with a suffix only. A job may ask for more than a cubin."""
    library = ctypes.CDLL(job["library"])
    handle, size = c_void_p(), c_size_t()

    def function(name: str) -> Any:
        plain = getattr(library, f"nvJitLink{name}", None)
        return plain or getattr(library, f"__nvJitLink{name}_{job['suffix']}")

    def call(name: str, *arguments: Any) -> None:
        if code := function(name)(*arguments):
            log = ""
            if handle.value and not function("GetErrorLogSize")(handle, byref(size)) and size.value:
                text = ctypes.create_string_buffer(size.value)
                function("GetErrorLog")(handle, text)
                log = text.value.decode(errors="replace")
            raise Failure(f"nvJitLink{name}", code, log)

    words = [f"-arch={job['arch']}", *(["-lto"] if job["kind"].endswith("ltoir") else []), *job.get("options", ())]
    call("Create", byref(handle), c_uint(len(words)), (c_char_p * len(words))(*(word.encode() for word in words)))
    # nvJitLink keeps pointers to names, and 12.0 and 12.1 to cubins, until it completes
    inputs = [(Path(path).read_bytes(), Path(path).name.encode()) for path in job["inputs"]]
    for data, name in inputs:
        kind = _input_type(job["kind"], _NVJITLINK_INPUTS)
        call("AddData", handle, kind, data, c_size_t(len(data)), name)
    call("Complete", handle)
    result = job.get("result", "Cubin")
    call(f"GetLinked{result}Size", handle, byref(size))
    image = ctypes.create_string_buffer(size.value)
    call(f"GetLinked{result}", handle, image)
    function("Destroy")(byref(handle))
    Path(job["image"]).write_bytes(image.raw[: size.value])
    return {"ok": True}


@cache
def open_driver() -> Any:
    """Return the driver of this process, with a current context."""
    library = ctypes.CDLL("libcuda.so.1")
    device, context = c_int(), c_void_p()
    for name, arguments in (
        ("cuInit", (0,)),
        ("cuDeviceGet", (byref(device), 0)),
        ("cuDevicePrimaryCtxRetain", (byref(context), device)),
        ("cuCtxPushCurrent_v2", (context,)),
    ):
        if code := getattr(library, name)(*arguments):
            raise Failure(name, code)
    return library


def link_driver(job: dict[str, Any]) -> dict[str, Any]:
    """Link with cuLink*."""
    library = open_driver()
    log = ctypes.create_string_buffer(_LOG_SIZE)
    state, image, size = c_void_p(), c_void_p(), c_size_t()
    options = (c_int * 2)(_ERROR_LOG_BUFFER, _ERROR_LOG_BUFFER_SIZE)
    values = (c_void_p * 2)(ctypes.addressof(log), _LOG_SIZE)

    def call(name: str, *arguments: Any) -> None:
        if code := getattr(library, name)(*arguments):
            raise Failure(name, code, log.value.decode(errors="replace"))

    call("cuLinkCreate_v2", 2, options, values, byref(state))
    inputs = [(Path(path).read_bytes(), Path(path).name.encode()) for path in job["inputs"]]
    for data, name in inputs:
        kind = _input_type(job["kind"], _DRIVER_INPUTS)
        call("cuLinkAddData_v2", state, kind, data, c_size_t(len(data)), name, 0, None, None)
    call("cuLinkComplete", state, byref(image), byref(size))
    Path(job["image"]).write_bytes(ctypes.string_at(image, size.value))
    call("cuLinkDestroy", state)
    return {"ok": True}


def load(job: dict[str, Any]) -> dict[str, Any]:
    """Load a linked image as a module, and find its kernel."""
    library = open_driver()
    module, kernel = c_void_p(), c_void_p()
    image = Path(job["image"]).read_bytes()
    if code := library.cuModuleLoadData(byref(module), c_char_p(image)):
        raise Failure("cuModuleLoadData", code)
    library.cuModuleGetFunction.argtypes = [POINTER(c_void_p), c_void_p, c_char_p]
    if code := library.cuModuleGetFunction(byref(kernel), module, job["kernel"].encode()):
        raise Failure("cuModuleGetFunction", code)
    return {"ok": True}


def make_fatbins(job: dict[str, Any]) -> dict[str, Any]:
    """Put what was compiled into fatbins, one entry each, with one nvFatbin."""
    if not Path(job["folder"], f"{job['units'][0]}.ptx").exists():
        raise Failure("nvrtcCompileProgram", 0, "nothing was compiled")
    library = ctypes.CDLL(job["library"])

    def call(name: str, *arguments: Any) -> None:
        if code := getattr(library, name)(*arguments):
            raise Failure(name, code)

    arch = job["arch"].removeprefix("sm_").encode()
    for kind, function, options in (
        ("ptx", "nvFatbinAddPTX", (b"",)),
        ("cubin", "nvFatbinAddCubin", ()),
        ("ltoir", "nvFatbinAddLTOIR", (b"",)),
    ):
        for unit in job["units"]:
            handle, size = c_void_p(), c_size_t()
            code = Path(job["folder"], f"{unit}.{kind}").read_bytes()
            call("nvFatbinCreate", byref(handle), (c_char_p * 2)(b"-64", b"-c"), c_size_t(2))
            call(function, handle, code, c_size_t(len(code)), arch, unit.encode(), *options)
            call("nvFatbinSize", handle, byref(size))
            fatbin = ctypes.create_string_buffer(size.value)
            call("nvFatbinGet", handle, fatbin)
            call("nvFatbinDestroy", byref(handle))
            Path(job["folder"], f"{unit}.fatbin-{kind}").write_bytes(fatbin.raw)
    return {"ok": True}


#: What nvJitLink merges by ``-r``: the kind of its inputs, and what it is asked for.
_MERGED = {
    "merged-cubin": ("cubin", "Cubin"),
    "merged-lto-cubin": ("ltoir", "Cubin"),
    "merged-ltoir": ("ltoir", "LTOIR"),
}


def merge(job: dict[str, Any]) -> dict[str, Any]:
    """Merge both units with the producer's own nvJitLink into code that can be linked again."""
    source, result = _MERGED[job["kind"]]
    inputs = [str(Path(job["folder"], f"{unit}.{source}")) for unit in ("main", "user")]
    if not Path(inputs[0]).exists():
        raise Failure("nvrtcCompileProgram", 0, "nothing was compiled")
    if result == "LTOIR" and not hasattr(ctypes.CDLL(job["library"]), "nvJitLinkGetLinkedLTOIR"):
        raise Failure("nvJitLinkGetLinkedLTOIR", 0, "the library does not have it")
    image = str(Path(job["folder"], f"merged.{job['kind']}"))
    return link_nvjitlink(
        {**job, "kind": source, "inputs": inputs, "options": ["-r"], "result": result, "image": image}
    )


def compile_with_nvvm(job: dict[str, Any]) -> dict[str, Any]:
    """Compile the unit ``user`` with libNVVM, and put NVRTC's LTO-IR of ``main`` next to it."""
    folder = Path(job["folder"])
    if not (folder / "main.ltoir").exists():
        raise Failure("nvrtcCompileProgram", 0, "nothing was compiled")
    nvvm = ctypes.CDLL(job["library"])
    program, size = c_void_p(), c_size_t()
    text = job["text"].encode()
    words = (c_char_p * 2)(f"-arch={job['arch'].replace('sm', 'compute')}".encode(), b"-gen-lto")

    def call(name: str, *arguments: Any) -> None:
        if code := getattr(nvvm, name)(*arguments):
            raise Failure(name, code)

    call("nvvmCreateProgram", byref(program))
    call("nvvmAddModuleToProgram", program, text, c_size_t(len(text)), b"user")
    call("nvvmCompileProgram", program, 2, words)
    call("nvvmGetCompiledResultSize", program, byref(size))
    code = ctypes.create_string_buffer(size.value)
    call("nvvmGetCompiledResult", program, code)
    call("nvvmDestroyProgram", byref(program))
    (folder / "user.nvvm-ltoir").write_bytes(code.raw[: size.value])
    (folder / "main.nvvm-ltoir").write_bytes((folder / "main.ltoir").read_bytes())
    return {"ok": True}


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Load an image, run its kernel on the numbers of one file, and write the results to another."""
    library = open_driver()
    given = Path(job["numbers"]).read_bytes()
    got = ctypes.create_string_buffer(b"\xff" * len(given), len(given))  # NaN
    module, kernel = c_void_p(), c_void_p()
    buffers = [ctypes.c_uint64(), ctypes.c_uint64()]
    size, count = c_size_t(len(given)), c_int(len(given) // 4)
    blocks, threads = -(-count.value // 256), 256
    pointers = [ctypes.cast(byref(buffer), c_void_p) for buffer in (*buffers, count)]
    launch = (blocks, 1, 1, threads, 1, 1, 0, None, (c_void_p * 3)(*pointers), None)
    image = Path(job["image"]).read_bytes()
    calls: tuple[tuple[Any, ...], ...] = (
        ("cuModuleLoadData", byref(module), c_char_p(image)),
        ("cuModuleGetFunction", byref(kernel), module, job["kernel"].encode()),
        *(("cuMemAlloc_v2", byref(buffer), size) for buffer in buffers),
        ("cuMemcpyHtoD_v2", buffers[0], given, size),
        ("cuMemcpyHtoD_v2", buffers[1], got, size),
        ("cuLaunchKernel", kernel, *launch),
        ("cuCtxSynchronize",),
        ("cuMemcpyDtoH_v2", got, buffers[1], size),
        *(("cuMemFree_v2", buffer) for buffer in buffers),
        ("cuModuleUnload", module),
    )
    for name, *arguments in calls:
        if code := getattr(library, name)(*arguments):
            raise Failure(name, code)
    Path(job["results"]).write_bytes(got.raw)
    return {"ok": True}


def batch(job: dict[str, Any]) -> dict[str, Any]:
    """Answer many jobs with one library: as many in each forked child as the batch says.

    A child that ends costs the answer to the job at work. The next child begins with that job, so that what counts is
    how it ends alone.
    """
    jobs = json.loads(Path(job["jobs"]).read_text(encoding="utf-8"))
    if job["library"]:
        ctypes.CDLL(job["library"])  # children share it
    answers: list[dict[str, Any]] = []
    while len(answers) < len(jobs):
        answers += _in_child(jobs[len(answers) : len(answers) + job["each"]])
    return {"ok": True, "answers": answers}


def _in_child(jobs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the answers that a forked child gave; if it gave none, how it ended is the answer to the first job."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)  # libraries print
        os.dup2(silent, 2)
        for job in jobs:
            signal.alarm(_SECONDS)
            answer = _answer(job)
            os.write(writer, json.dumps(answer).encode() + b"\n")
            if not answer["ok"] and job["step"] == "run":
                break  # an error of a kernel stays in the process
        os._exit(0)  # whatever libraries do at the end of a process is no answer
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as pipe:
        lines = [line for line in pipe if line.endswith("\n")]
    _, status = os.waitpid(child, 0)
    if not lines:
        code = os.waitstatus_to_exitcode(status)
        name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return [{"ok": False, "crashed": True, "call": name, "code": code, "log": ""}]
    return [json.loads(line) for line in lines]


def _answer(job: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any]
    try:
        answer = _STEPS[job["step"]](job)
    except Failure as failure:
        answer = failure.answer
    except Exception:  # noqa: BLE001 (it is shown by the process that asked)
        return {"ok": False, "fault": traceback.format_exc()}
    return answer


_STEPS = {
    "compile": compile_units,
    "nvjitlink": link_nvjitlink,
    "driver": link_driver,
    "load": load,
    "fatbins": make_fatbins,
    "nvvm": compile_with_nvvm,
    "merge": merge,
    "run": run,
    "batch": batch,
}


def main() -> None:
    """Perform the step of the job in the only argument, and print its answer."""
    job = json.loads(sys.argv[1])
    try:
        answer = _STEPS[job["step"]](job)
    except Failure as failure:
        answer = failure.answer
    sys.stdout.write("\n" + json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
