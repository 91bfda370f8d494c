"""One step of `pytest_cudalink.can_link` in a separate process: compile, link, or load.

Run as a file, with the job as JSON in the only argument; prints the answer as JSON. Imports only the standard library
and loads only the library that the job names: a crash costs one answer, and no two releases share a process.
``tools/atlas_worker.py`` has more steps.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable, Mapping
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

_NVJITLINK_INPUTS = {"cubin": 1, "ptx": 2, "ltoir": 3, "fatbin": 4}  # nvJitLinkInputType
_DRIVER_INPUTS = {"cubin": 0, "ptx": 1, "fatbin": 2, "ltoir": 5}  # CUjitInputType; 5 is CU_JIT_INPUT_NVVM
_ERROR_LOG_BUFFER, _ERROR_LOG_BUFFER_SIZE = 5, 6  # CUjit_option
_LOG_SIZE = 8192
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


def _compile(nvrtc: Any, source: str, unit: str, arch: str, kind: str) -> bytes:
    """Return one unit as one kind."""
    program, size = c_void_p(), c_size_t()

    def call(function: str, *arguments: Any) -> None:
        if code := getattr(nvrtc, function)(*arguments):
            raise Failure(function, code)

    options, getter = _COMPILE[kind]
    words = [f"-arch={arch.replace('sm', 'compute') if kind == 'ptx' else arch}", *options]
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
            code = _compile(nvrtc, source, unit, job["arch"], kind)
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


STEPS = {
    "compile": compile_units,
    "nvjitlink": link_nvjitlink,
    "driver": link_driver,
    "load": load,
}


def answer(steps: Mapping[str, Callable[[dict[str, Any]], dict[str, Any]]]) -> None:
    """Perform the step of the job in the only argument, and print its answer."""
    job = json.loads(sys.argv[1])
    try:
        found = steps[job["step"]](job)
    except Failure as failure:
        found = failure.answer
    sys.stdout.write("\n" + json.dumps(found) + "\n")


if __name__ == "__main__":
    answer(STEPS)
