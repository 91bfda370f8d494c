"""Record which entry of a fatbin a driver takes: ``python3 campaigns/conformance/fatbin_record.py OUT.json [LIBCUDA]``.

Standard library only. Each case of fatbins.txt is put together from entries of tests/data/fatbin-entries, which nvcc
wrote. Each entry has a kernel with its own name, so a loaded module says which entry it was made from.
"""

from __future__ import annotations

import ctypes
import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from ctypes import byref, c_int, c_uint, c_void_p
from functools import partial
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any

ENTRIES = Path(__file__).parents[2] / "tests" / "data" / "fatbin-entries"
CASES_FILE = Path(__file__).with_name("fatbins.txt")
HEADER_SIZE_AT, ISA_AT, ARCH_AT, FLAGS_AT = 4, 24, 28, 40
OSABI_AT = 7
JIT_FALLBACK, FATBIN_INPUT = 10, 2
PREFER_PTX, PREFER_BINARY = 0, 1
WRAPPER_MAGIC = 0x466243B1

#: Entries in their order; after @, what is changed in one.
CASES = {
    name: entries.strip()
    for name, colon, entries in (line.partition(":") for line in CASES_FILE.read_text(encoding="utf-8").splitlines())
    if colon and name[0] != "#"
}
#: Variables of the driver that change the choice, each with the cases that are asked with it.
ENVIRONMENTS: dict[str, dict[str, str]] = {
    "": {},
    "force-ptx": {"CUDA_FORCE_PTX_JIT": "1"},
    "force": {"CUDA_FORCE_JIT": "1"},
    "no-ptx": {"CUDA_DISABLE_PTX_JIT": "1"},
    "no-jit": {"CUDA_DISABLE_JIT": "1"},
}
_WITH_VARIABLES = (
    "cubin", "ptx", "cubin-before-ptx", "old-cubin-and-ptx", "ptx-80-90", "too-new-ptx-and-cubin", "packed-zstd",
    "packed-cubin-and-ptx", "cubin-90a-ptx-90", "wrong-ptx-and-cubin", "nothing", "old-cubin", "packed-ptx-zstd",
    "raw-cubin", "raw-ptx", "raw-old-cubin", "raw-too-new-ptx", "too-new-ptx", "newer-ptx", "damaged-cubin-and-ptx",
    "ptx-90a-90", "lto-and-ptx",
)  # fmt: skip
_WITH_OPTIONS = (
    "cubin-before-ptx", "cubin", "ptx", "too-new-ptx-and-cubin", "old-cubin-and-ptx", "packed-cubin-and-ptx",
    "ptx-80-90", "wrong-ptx-and-cubin", "unknown-cubin-and-ptx", "old-cubin",
)  # fmt: skip


def _entry(text: str) -> bytes:
    """One entry, changed as the words after @ say."""
    name, _, changes = text.partition("@")
    entry = bytearray((ENTRIES / f"{name}.entry").read_bytes())
    for change in filter(None, changes.split(",")):
        _change(entry, *change.partition("=")[::2])
    return bytes(entry)


def _change(entry: bytearray, key: str, value: str) -> None:
    head = struct.unpack_from("<I", entry, HEADER_SIZE_AT)[0]
    middle = head + (len(entry) - head) // 2
    match key:
        case "isa" | "header" | "text":
            major, _, minor = value.partition(".")
            if key != "text":
                struct.pack_into("<HH", entry, ISA_AT, int(minor), int(major))
            if key != "header":
                entry[:] = entry.replace(b".version 9.0", f".version {value}".encode())
        case "target":
            at = entry.index(b".target sm_") + len(".target ")
            entry[at : at + 5] = value.encode()
        case "osabi":
            entry[head + OSABI_AT] = int(value)
        case "damaged":  # where the section headers begin
            entry[head + 40 : head + 48] = b"\xff" * 8
        case "empty":
            entry[head : head + 64] = bytes(64)
        case "wrong":
            entry[:] = entry.replace(b"ret;", b"rex;")
        case "packed-damaged":
            entry[middle : middle + 16] = bytes(0xFF ^ byte for byte in entry[middle : middle + 16])
        case _:
            places = {"arch": (ARCH_AT, "<I"), "kind": (0, "<H"), "flags": (FLAGS_AT, "<Q"), "entry": (2, "<H")}
            place, form = places[key]
            struct.pack_into(form, entry, place, int(value, 0))


def fatbin(text: str) -> bytes:
    """The fatbin of a case; behind a bar, another one follows. What is raw is the payload without a fatbin."""
    made = b""
    if text.startswith("raw "):
        entry = _entry(text.removeprefix("raw "))
        head, size = struct.unpack_from("<IQ", entry, HEADER_SIZE_AT)
        return entry[head : head + size] + b"\0"
    for part in text.split("|"):
        body = b"".join(map(_entry, part.split()))
        made += struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body
    return made


def names_of(text: str) -> list[str]:
    """Names of the kernels that a case's entries have."""
    return [entry.partition("@")[0] for entry in text.split() if entry not in ("|", "raw")]


class _Driver:
    def __init__(self, library: str) -> None:
        self.cuda = ctypes.CDLL(library)
        device, context = c_int(), c_void_p()
        assert self.cuda.cuInit(0) == 0
        assert self.cuda.cuDeviceGet(byref(device), 0) == 0
        assert self.cuda.cuDevicePrimaryCtxRetain(byref(context), device) == 0
        assert self.cuda.cuCtxSetCurrent(context) == 0

    def version(self) -> int:
        number = c_int()
        self.cuda.cuDriverGetVersion(byref(number))
        return number.value

    def arch(self) -> int:
        major, minor = c_int(), c_int()
        self.cuda.cuDeviceGetAttribute(byref(major), 75, 0)
        self.cuda.cuDeviceGetAttribute(byref(minor), 76, 0)
        return major.value * 10 + minor.value

    def _functions(self, module: c_void_p, names: list[str]) -> list[str]:
        function = c_void_p()
        return [n for n in names if self.cuda.cuModuleGetFunction(byref(function), module, n.encode()) == 0]

    def _loaded(self, names: list[str], call: str, *arguments: Any) -> list[Any]:
        """Result of a call that loads a module, and the kernels that are there."""
        module = c_void_p()
        if code := getattr(self.cuda, call)(byref(module), *arguments):
            return [code]
        found = self._functions(module, names)
        self.cuda.cuModuleUnload(module)
        return [0, *found]

    def module(self, image: bytes, names: list[str], strategy: int | None = None) -> list[Any]:
        """The answer of cuModuleLoadDataEx."""
        keys, values = (c_int * 1)(JIT_FALLBACK), (c_void_p * 1)(strategy)
        return self._loaded(names, "cuModuleLoadDataEx", image, c_uint(strategy is not None), keys, values)

    def wrapped(self, image: bytes, names: list[str], call: str) -> list[Any]:
        """The same for the structure by which objects of nvcc point to their fatbin."""
        kept = ctypes.create_string_buffer(image, len(image) + 8)
        return self._loaded(names, call, struct.pack("<IIQQ", WRAPPER_MAGIC, 1, ctypes.addressof(kept), 0))

    def library(self, image: bytes, names: list[str]) -> list[Any]:
        """Results of cuLibraryLoadData and cuLibraryGetModule, and the kernels that are there."""
        library, module = c_void_p(), c_void_p()
        if code := self.cuda.cuLibraryLoadData(byref(library), image, None, None, 0, None, None, 0):
            return [code]
        code = self.cuda.cuLibraryGetModule(byref(module), library)
        found = [] if code else self._functions(module, names)
        self.cuda.cuLibraryUnload(library)
        return [0, code, *found]

    def link(self, image: bytes, names: list[str]) -> list[Any]:
        """Results of cuLinkAddData, cuLinkComplete and of loading the result, and the kernels that are there."""
        state, out, size = c_void_p(), c_void_p(), ctypes.c_size_t()
        assert self.cuda.cuLinkCreate_v2(0, None, None, byref(state)) == 0
        code = self.cuda.cuLinkAddData_v2(
            state, FATBIN_INPUT, image, ctypes.c_size_t(len(image)), b"image", 0, None, None
        )
        answers: list[Any] = [code]
        if not code:
            answers.append(self.cuda.cuLinkComplete(state, byref(out), byref(size)))
            if not answers[1]:
                answers += self.module(ctypes.string_at(out, size.value), names)
        self.cuda.cuLinkDestroy(state)
        return answers


def _asked(library: str, ask: Callable[[_Driver], list[Any]]) -> list[Any]:
    """The answer of a new process, which begins with the driver: a crash is an answer, too."""
    receive, send = os.pipe()
    if not (child := os.fork()):
        os.close(receive)
        with os.fdopen(send, "w") as stream:
            json.dump(ask(_Driver(library)), stream)
        os._exit(0)
    os.close(send)
    with os.fdopen(receive) as stream:
        text = stream.read()
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return json.loads(text) if code == 0 else ["crash", -code]


def _asks(variables: str) -> Iterator[tuple[str, str, Callable[[_Driver], list[Any]]]]:
    """Case, name of the question and the question."""
    for case, text in CASES.items():
        image, names = fatbin(text), names_of(text)
        if variables and case not in _WITH_VARIABLES:
            continue
        yield case, "module", partial(_Driver.module, image=image, names=names)
        if variables:
            continue
        yield case, "library", partial(_Driver.library, image=image, names=names)
        if not text.startswith("raw "):
            yield case, "link", partial(_Driver.link, image=image, names=names)
        if case in _WITH_OPTIONS:
            yield case, "prefer-ptx", partial(_Driver.module, image=image, names=names, strategy=PREFER_PTX)
            yield case, "prefer-binary", partial(_Driver.module, image=image, names=names, strategy=PREFER_BINARY)
            for call in ("cuModuleLoadData", "cuModuleLoadFatBinary"):
                yield case, f"wrapped-{call}", partial(_Driver.wrapped, image=image, names=names, call=call)


def record(library: str, variables: str) -> dict[str, Any]:
    """What a driver answers to each case, in processes that have the variables."""
    cases, names, asks = zip(*_asks(variables), strict=True)
    with ThreadPool(os.cpu_count()) as pool:
        found = pool.map(partial(_asked, library), asks, chunksize=1)
    answers: dict[str, Any] = {}
    for case, name, answer in zip(cases, names, found, strict=True):
        answers.setdefault(case, {})[name] = answer
    facts = _asked(library, lambda driver: [driver.version(), driver.arch()])
    return {"cuda": facts[0], "arch": facts[1], "answers": answers}


def main() -> None:
    """Ask in one process for each set of variables, as a driver reads them once."""
    out, library = sys.argv[1], (sys.argv[2:3] or ["libcuda.so.1"])[0]
    if out in ENVIRONMENTS:
        print(json.dumps(record(library, out)))
        return
    recording: dict[str, Any] = {}
    for name, variables in ENVIRONMENTS.items():
        environment = {**os.environ, "CUDA_CACHE_DISABLE": "1", **variables}
        command = [sys.executable, __file__, name, library]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{name}: {done.returncode}\n{done.stderr}")
        found = json.loads(done.stdout.splitlines()[-1])
        recording |= {"cuda": found["cuda"], "arch": found["arch"]}
        recording.setdefault("answers", {})[name] = found["answers"]
    Path(out).write_text(json.dumps(recording, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
