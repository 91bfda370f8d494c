"""The steps of `pytest_cudalink.can_link.worker` that only the atlas takes: what other libraries make, runs, batches.

Run as a file, with the job as JSON in the only argument; prints the answer as JSON. A batch loads the library once and
answers in forked children.
"""

from __future__ import annotations

import ctypes
import json
import os
import runpy
import signal
import traceback
from ctypes import byref, c_char_p, c_int, c_size_t, c_void_p
from pathlib import Path
from typing import Any

#: By its path, because the package would bring other libraries into the process.
_WORKER = runpy.run_path(str(Path(__file__).parents[1] / "pytest_cudalink" / "can_link" / "worker.py"))
_Failure, _open_driver = _WORKER["Failure"], _WORKER["open_driver"]
_SECONDS = 60  # that one job of a batch may take


def make_fatbins(job: dict[str, Any]) -> dict[str, Any]:
    """Put what was compiled into fatbins, one entry each, with one nvFatbin."""
    if not Path(job["folder"], f"{job['units'][0]}.ptx").exists():
        raise _Failure("nvrtcCompileProgram", 0, "nothing was compiled")
    library = ctypes.CDLL(job["library"])

    def call(name: str, *arguments: Any) -> None:
        if code := getattr(library, name)(*arguments):
            raise _Failure(name, code)

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
        raise _Failure("nvrtcCompileProgram", 0, "nothing was compiled")
    if result == "LTOIR" and not hasattr(ctypes.CDLL(job["library"]), "nvJitLinkGetLinkedLTOIR"):
        raise _Failure("nvJitLinkGetLinkedLTOIR", 0, "the library does not have it")
    image = str(Path(job["folder"], f"merged.{job['kind']}"))
    done: dict[str, Any] = _WORKER["link_nvjitlink"](
        {**job, "kind": source, "inputs": inputs, "options": ["-r"], "result": result, "image": image}
    )
    return done


def compile_with_nvvm(job: dict[str, Any]) -> dict[str, Any]:
    """Compile the unit ``user`` with libNVVM, and put NVRTC's LTO-IR of ``main`` next to it."""
    folder = Path(job["folder"])
    if not (folder / "main.ltoir").exists():
        raise _Failure("nvrtcCompileProgram", 0, "nothing was compiled")
    nvvm = ctypes.CDLL(job["library"])
    program, size = c_void_p(), c_size_t()
    text = job["text"].encode()
    words = (c_char_p * 2)(f"-arch={job['arch'].replace('sm', 'compute')}".encode(), b"-gen-lto")

    def call(name: str, *arguments: Any) -> None:
        if code := getattr(nvvm, name)(*arguments):
            raise _Failure(name, code)

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
    library = _open_driver()
    given = Path(job["numbers"]).read_bytes()
    got = ctypes.create_string_buffer(b"\xff" * len(given), len(given))  # NaN
    module, kernel = c_void_p(), c_void_p()
    buffers = [ctypes.c_uint64(), ctypes.c_uint64()]
    size, count = c_size_t(len(given)), c_int(len(given) // 4)
    blocks, threads = -(-count.value // 256), 256
    pointers = [ctypes.cast(byref(one), c_void_p) for one in (*buffers, count)]
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
            raise _Failure(name, code)
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
    except _Failure as failure:
        answer = failure.answer
    except Exception:  # noqa: BLE001 (it is shown by the process that asked)
        return {"ok": False, "fault": traceback.format_exc()}
    return answer


_STEPS = {
    **_WORKER["STEPS"],
    "fatbins": make_fatbins,
    "nvvm": compile_with_nvvm,
    "merge": merge,
    "run": run,
    "batch": batch,
}


if __name__ == "__main__":
    _WORKER["answer"](_STEPS)
