"""Record which entry of a fatbin a driver takes: ``python -m campaigns.conformance.fatbin_record OUT.json``.

Each case of fatbins.txt is put together from entries of tests/data/fatbin-entries, which nvcc
wrote. Each entry has a kernel with its own name, so a loaded module says which entry it was made from.
"""

import ctypes
import json
import os
import signal
import struct
import sys
from collections.abc import Iterator
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from pytest_cudalink.emulator.recorder.execute import Interpreter, Program, execute

ENTRIES = Path(__file__).parents[2] / "tests" / "data" / "fatbin-entries"
CASES_FILE = Path(__file__).with_name("fatbins.txt")
HEADER_SIZE_AT, ISA_AT, ARCH_AT, FLAGS_AT = 4, 24, 28, 40
OSABI_AT = 7
JIT_FALLBACK, FATBIN_INPUT = 10, 2
PREFER_PTX, PREFER_BINARY = 0, 1
WRAPPER_MAGIC = 0x466243B1

#: Entries in their order; after @, what is changed in one.
_LINES = [line.partition(":") for line in CASES_FILE.read_text(encoding="utf-8").splitlines() if line[:1] != "#"]
CASES = {name: entries.strip() for name, colon, entries in _LINES if colon}
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


#: Calls before each question; `execute` numbers values by their calls, so that the next one is "$3".
_START: Program = [["cuInit", 0], ["cuDevicePrimaryCtxRetain", ["o", "H"], 0], ["cuCtxSetCurrent", "$1"]]
_FACTS: Program = [
    ["cuDriverGetVersion", ["o", "i"]],
    *(["cuDeviceGetAttribute", ["o", "i"], attribute, 0] for attribute in (75, 76)),
]


def _module(names: list[str], call: str, *arguments: Any, before: int = 3) -> Program:
    """Load a module by a call, and look for kernels."""
    looks = [["cuModuleGetFunction", ["o", "H"], f"${before}", f"'{name}"] for name in names]
    return [[call, ["o", "h"], *arguments], *looks]


def _asks(variables: str) -> Iterator[tuple[str, str, Program]]:
    """Case, name of the question, and what is called for it behind `_START`."""
    for case, text in CASES.items():
        image, names = f"!{case}", names_of(text)
        if variables and case not in _WITH_VARIABLES:
            continue
        yield case, "module", _module(names, "cuModuleLoadDataEx", image, 0, 0, 0)
        if variables:
            continue
        library = ["cuLibraryLoadData", ["o", "h"], image, 0, 0, 0, 0, 0, 0]
        yield case, "library", [library, *_module(names, "cuLibraryGetModule", "$3", before=4)]
        if not text.startswith("raw "):
            link: Program = [
                ["cuLinkCreate_v2", 0, 0, 0, ["o", "h"]],
                ["cuLinkAddData_v2", "$3", FATBIN_INPUT, image, f"#{case}", "'image", 0, 0, 0],
                ["cuLinkComplete", "$3", ["o", "Q"], ["o", "Q"]],
            ]
            yield case, "link", [*link, *_module(names, "cuModuleLoadDataEx", "$5", 0, 0, 0, before=6)]
        if case in _WITH_OPTIONS:
            for name, strategy in (("prefer-ptx", PREFER_PTX), ("prefer-binary", PREFER_BINARY)):
                option = 1, ["L", "i", [JIT_FALLBACK]], ["L", "Q", [strategy]]
                yield case, name, _module(names, "cuModuleLoadDataEx", image, *option)
            for call in ("cuModuleLoadData", "cuModuleLoadFatBinary"):
                # the structure by which objects of nvcc point to their fatbin
                yield case, f"wrapped-{call}", _module(names, call, ["L", "Q", [WRAPPER_MAGIC | 1 << 32, image, 0]])


def _answer(calls: Program, answers: list[Any]) -> list[Any]:
    """The codes up to the first error, and the kernels that are there; or the signal."""
    if answers[-1][0] == "signal":
        return ["crash", int(signal.Signals[answers[-1][1]])]
    outcome: list[Any] = []
    for call, (code, *_) in zip(calls, answers[len(_START) :], strict=True):
        if call[0] == "cuModuleGetFunction":
            outcome += [] if code else [call[3][1:]]
        elif call[0] != "cuLinkCreate_v2":
            outcome.append(code)
            if code:
                break
    return outcome


def _answers(calls: Program) -> list[Any]:
    """The answers of a process that begins with the driver, which reads its variables once."""
    return execute([*_START, *calls], Interpreter(ctypes.CDLL("libcuda.so.1"), lambda case: fatbin(CASES[case])))


def record(variables: str) -> dict[str, Any]:
    """What a driver answers to each case, in processes that have the variables."""
    set_variables = partial(os.environ.update, CUDA_CACHE_DISABLE="1", **ENVIRONMENTS[variables])
    cases, names, asks = zip(*_asks(variables), strict=True)
    with get_context("fork").Pool(initializer=set_variables) as pool:
        *results, facts = pool.map(_answers, [*asks, _FACTS], chunksize=1)
    answers: dict[str, Any] = {}
    for case, name, calls, answered in zip(cases, names, asks, results, strict=True):
        answers.setdefault(case, {})[name] = _answer(calls, answered)
    cuda, major, minor = (value for _, value in facts[len(_START) :])
    return {"cuda": cuda, "arch": 10 * major + minor, "answers": answers}


def main() -> None:
    """Ask with each set of variables, and write one file."""
    recordings = {name: record(name) for name in ENVIRONMENTS}
    recording = {**recordings[""], "answers": {name: row["answers"] for name, row in recordings.items()}}
    Path(sys.argv[1]).write_text(json.dumps(recording, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
