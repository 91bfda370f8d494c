"""Make `functions.toml` from the headers of CUDA: every function with the versions that introduced it.

`tools.new_release` runs it with the toolchain of each release. Two facts come from the headers: the files Typedefs.h
name each function with its versions, as ``PFN_NAME_vVERSION`` and ``PFN_NAME_vVERSION_ptds``; the others say which
symbols exist. That version number N of a function is the symbol ``NAME`` for N = 1 and ``NAME_vN`` from then on, and
which symbol a per-thread stream gets, was measured: the rule gives all 9,030 answers of cuGetProcAddress_v2 that were
recorded from driver 580.159.04.

A driver exports the names of its own release's headers, but for those of `OF_OTHER_SYSTEMS` and `NOT_EXPORTED`, and
besides them those of `WITHOUT_HEADER` and the debugger's. That gives exactly the dynamic symbols of libcuda.so.1 of
525.147.05 (12.0), 535.261.03 (12.2), 550.163.01 (12.4) and 580.159.04 (13.0), which `tests/data/exports.toml` lists;
the other releases follow the rule.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

OUT = Path(__file__).parent.parent / "pytest_cudalink/data/emulator/functions.toml"

HEADERS = ("cuda.h", "cudaGL.h", "cudaEGL.h", "cudaVDPAU.h", "cudaProfiler.h")
TYPEDEFS = ("cudaTypedefs.h", "cudaGLTypedefs.h", "cudaEGLTypedefs.h", "cudaVDPAUTypedefs.h", "cudaProfilerTypedefs.h")
#: In the headers, and in no driver of Linux for x86-64.
OF_OTHER_SYSTEMS = {"cuEventCreateFromEGLSync", "cuWGLGetDevice"}
#: In the headers, and given by cuGetProcAddress alone.
NOT_EXPORTED = {"cuGetProcAddress_v2_ptsz"}
#: In every driver from 12.0 on, and in no header of the runtime's wheel.
WITHOUT_HEADER = {
    "cuEGLApiInit",
    "cuGLMapBufferObjectAsync_v2_ptsz",
    "cuGLMapBufferObject_v2_ptds",
    "cuMemGetAttribute",
    "cuMemGetAttribute_v2",
    "cuProfilerInitialize",
    "cuProfilerStart",
    "cuProfilerStop",
}
#: The line from which on the table is written by hand.
BY_HAND = "# What the emulated driver does with a symbol, written by hand"
#: Functions whose forms with the same parameters the emulated driver answers alike. Others have such forms, too:
#: it answers one of them otherwise, as cuStreamBatchMemOp, or not at all.
ANSWERED_ALIKE = (
    *("cuCtxDestroy", "cuDeviceGetUuid", "cuDevicePrimaryCtxReset", "cuEventDestroy"),
    *("cuEventElapsedTime", "cuGraphAddNode", "cuGraphInstantiate", "cuGraphNodeSetParams", "cuIpcOpenMemHandle"),
    *("cuLinkAddData", "cuLinkAddFile", "cuLinkCreate", "cuMemHostRegister", "cuStreamDestroy"),
)
#: What a debugger looks for in the process: variables with their sizes, and functions. Those of 13.0 came after 12.4.
DEBUGGER_VARIABLES = {
    "cudbgApiClientPid": (4, "12.0"),
    "cudbgApiClientRevision": (4, "12.0"),
    "cudbgAttachHandlerAvailable": (4, "12.0"),
    "cudbgDebuggerCapabilities": (4, "12.0"),
    "cudbgDebuggerInitialized": (4, "12.0"),
    "cudbgDetachSuspendedDevicesMask": (4, "12.0"),
    "cudbgEnableIntegratedMemcheck": (4, "12.0"),
    "cudbgEnableLaunchBlocking": (4, "12.0"),
    "cudbgEnablePreemptionDebugging": (4, "12.0"),
    "cudbgInjectionPath": (4096, "12.0"),
    "cudbgIpcFlag": (4, "12.0"),
    "cudbgReportDriverApiErrorFlags": (4, "12.0"),
    "cudbgReportedDriverApiErrorCode": (8, "12.0"),
    "cudbgReportedDriverApiErrorFuncNameAddr": (8, "12.0"),
    "cudbgReportedDriverApiErrorFuncNameSize": (8, "12.0"),
    "cudbgReportedDriverApiErrorNameAddr": (8, "13.0"),
    "cudbgReportedDriverApiErrorNameSize": (8, "13.0"),
    "cudbgReportedDriverApiErrorSource": (4, "13.0"),
    "cudbgReportedDriverApiErrorStringAddr": (8, "13.0"),
    "cudbgReportedDriverApiErrorStringSize": (8, "13.0"),
    "cudbgReportedDriverInternalErrorCode": (8, "12.0"),
    "cudbgResumeForAttachDetach": (4, "12.0"),
    "cudbgRpcEnabled": (4, "12.0"),
    "cudbgSessionId": (4, "12.0"),
    "cudbgUseExternalDebugger": (4, "12.0"),
}
DEBUGGER_FUNCTIONS = {
    "cudbgApiAttach": "12.0",
    "cudbgApiDetach": "12.0",
    "cudbgApiInit": "12.0",
    "cudbgGetAPI": "12.0",
    "cudbgGetAPIVersion": "12.0",
    "cudbgMain": "12.0",
    "cudbgReportDriverApiError": "12.0",
    "cudbgReportDriverInternalError": "12.0",
}


def read(folder: Path, name: str) -> str:
    """One header without its comments; empty if the wheel does not have it."""
    paths = list(folder.rglob(name))
    text = paths[0].read_text(encoding="utf-8", errors="replace") if paths else ""
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)


def number(release: str) -> int:
    """A release as the driver writes it: 12040 for 12.4."""
    major, minor = map(int, release.split("."))
    return major * 1000 + minor * 10


class Headers:
    """What the headers of all releases say.

    `versions`: the suffix of each version of each function; empty for one without a per-thread form.
    `plain`: functions with the versions that have a plain form.
    `first`: the first release that has a symbol.
    `parameters`: the types and names that a version of a function takes.
    """

    def __init__(self, folders: list[Path]) -> None:
        self.versions: dict[str, dict[int, str]] = {}
        self.plain: set[tuple[str, int]] = set()
        self.parameters: dict[tuple[str, int], str] = {}
        self.first: dict[str, int] = dict.fromkeys(WITHOUT_HEADER, 12000)
        for folder in sorted(folders, key=lambda folder: number(folder.name)):
            for typedefs in (read(folder, name) for name in TYPEDEFS):
                self._take_versions(typedefs)
            for text in (read(folder, name) for name in HEADERS):
                names = re.findall(r"CUresult\s+CUDAAPI\s+(cu\w+)\s*\(", text)
                names += re.findall(r"#define\s+cu\w+\s+(?:__CUDA_API_PT[DS][SZ]\()?(cu\w+)", text)
                for symbol in names:
                    self.first.setdefault(symbol, number(folder.name))
        for name in OF_OTHER_SYSTEMS:
            del self.versions[name], self.first[name]

    def _take_versions(self, typedefs: str) -> None:
        forms = re.findall(r"\*PFN_(\w+?)_v(\d+)(_ptds|_ptsz)?\)\s*\(([^;]*)\)\s*;", typedefs)
        for name, version, suffix, parameters in forms:
            known = self.versions.setdefault(name, {})
            known.setdefault(int(version), "")
            if suffix:
                known[int(version)] = suffix
            else:
                self.plain.add((name, int(version)))
                self.parameters[name, int(version)] = " ".join(parameters.split())


def forms_of(headers: Headers, name: str) -> list[int]:
    """The versions of a function that have a plain form."""
    return sorted(version for version in headers.versions[name] if (name, version) in headers.plain)


def twins_of(headers: Headers) -> list[str]:
    """The rows of forms that are answered as the next one."""
    rows = []
    for name in ANSWERED_ALIKE:
        for place, (version, following) in enumerate(pairwise(forms_of(headers, name)), 1):
            if headers.parameters[name, version] == headers.parameters[name, following]:
                rows.append(f'{name}{f"_v{place}" if place > 1 else ""} = "{name}_v{place + 1}"')
    return rows


def functions_of(headers: Headers) -> list[str]:
    """The rows of the functions; the symbols of their forms are added to the headers' own."""
    rows = []
    for name, suffixes in sorted(headers.versions.items()):
        forms = forms_of(headers, name)
        streams = {version: suffix for version, suffix in sorted(suffixes.items()) if suffix}
        per_thread = ", ".join(f'[{version}, "{suffix}"]' for version, suffix in streams.items())
        rows.append(f"{name} = {{ plain = {forms}, per_thread = [{per_thread}] }}")
        own = {name if place == 1 else f"{name}_v{place}": version for place, version in enumerate(forms, 1)}
        for version, suffix in streams.items():
            place = sum(form <= version for form in forms)
            own.setdefault((name if place <= 1 else f"{name}_v{place}") + suffix, version)
        for symbol, version in own.items():
            # a driver may have a function before the headers do
            headers.first[symbol] = max(12000, min(version, headers.first.get(symbol, version)))
    return rows


def symbols_of(first: dict[str, int]) -> list[str]:
    """The lines of the symbols, by release."""
    releases: dict[str, list[str]] = {"never": sorted(NOT_EXPORTED)}
    for symbol, version in sorted(first.items(), key=lambda item: (item[1], item[0])):
        if symbol not in NOT_EXPORTED:
            releases.setdefault(f'"{version // 1000}.{version % 1000 // 10}"', []).append(symbol)
    lines = []
    for release, names in releases.items():
        lines += [f"{release} = [", *(f'  "{name}",' for name in names), "]"]
    return lines


def write(folders: Iterable[Path]) -> None:
    """Write the table from folders with headers, each named after its release; keep what is written by hand."""
    _, by_hand, traits = OUT.read_text(encoding="utf-8").partition(BY_HAND)
    headers = Headers(list(folders))
    functions = functions_of(headers)
    lines = [
        "# Made by tools/make_functions.py, which names the sources.",
        "",
        "# Every symbol, by the first release whose driver exports it; never: only cuGetProcAddress gives it.",
        "[symbols]",
        *symbols_of(headers.first),
        "",
        "# The debugger's, by the same: functions, and variables with their sizes in bytes.",
        "[debugger]",
        *(f'{name} = {{ since = "{since}" }}' for name, since in sorted(DEBUGGER_FUNCTIONS.items())),
        *(
            f'{name} = {{ since = "{since}", size = {size} }}'
            for name, (size, since) in sorted(DEBUGGER_VARIABLES.items())
        ),
        "",
        "# Each function with the driver versions that introduced a form of it: those of the plain symbols NAME,",
        "# NAME_v2, NAME_v3 … in this order, and those of the symbols for per-thread streams.",
        "[functions]",
        *functions,
        "",
        "# Forms that the emulated driver answers as the next form, which takes the same parameters.",
        "[twins]",
        *twins_of(headers),
        "",
    ]
    OUT.write_text("\n".join(lines) + f"\n{by_hand}{traits}", encoding="utf-8")
