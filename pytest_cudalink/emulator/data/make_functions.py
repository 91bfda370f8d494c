"""Make `functions.toml` from the headers of CUDA: every function of cuda.h with the versions that introduced it.

    python pytest_cudalink/emulator/data/make_functions.py HEADERS/12.9 HEADERS/13.0 …

Each argument is a folder that the wheel of one release's runtime was unpacked into (``nvidia-cuda-runtime-cu12`` or
``nvidia-cuda-runtime``). Two facts come from the headers: cudaTypedefs.h names each function with its versions, as
``PFN_NAME_vVERSION`` and ``PFN_NAME_vVERSION_ptds``; cuda.h says which symbols exist. That version
number N of a function is the symbol ``NAME`` for N = 1 and ``NAME_vN`` from then on, and which symbol a per-thread
stream gets, was measured: the rule gives all 9,030 answers of cuGetProcAddress_v2 that were recorded from driver
580.159.04.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

OUT = Path(__file__).parent / "functions.toml"

#: Not in cuda.h, but exported by every driver; programs that were built against them must still load.
OTHER_HEADERS = ("cudaGL.h", "cudaEGL.h", "cudaVDPAU.h")
PROFILER = ("cuProfilerInitialize", "cuProfilerStart", "cuProfilerStop")  # cudaProfiler.h, in a wheel of its own


def read(folder: Path, name: str) -> str:
    """One header without its comments; empty if the wheel does not have it."""
    found = list(folder.rglob(name))
    text = found[0].read_text(encoding="utf-8", errors="replace") if found else ""
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", text, flags=re.DOTALL)


def main() -> int:
    """Write the table."""
    versions: dict[str, dict[int, str]] = {}
    symbols: set[str] = set(PROFILER)
    for folder in map(Path, sys.argv[1:]):
        typedefs = read(folder, "cudaTypedefs.h")
        for name, version, suffix in re.findall(r"\*PFN_(\w+?)_v(\d+)(_ptds|_ptsz)?\)\(", typedefs):
            versions.setdefault(name, {}).setdefault(int(version), "")
            if suffix:
                versions[name][int(version)] = suffix
        for header in ("cuda.h", *OTHER_HEADERS):
            text = read(folder, header)
            symbols |= set(re.findall(r"CUresult\s+CUDAAPI\s+(cu\w+)\s*\(", text))
            symbols |= set(re.findall(r"#define\s+cu\w+\s+(?:__CUDA_API_PT[DS][SZ]\()?(cu\w+)", text))
    plain = re.compile(r"\*PFN_(\w+?)_v(\d+)\)\(")
    both = {
        (name, int(version))
        for folder in map(Path, sys.argv[1:])
        for name, version in plain.findall(read(folder, "cudaTypedefs.h"))
    }
    functions = []
    for name, found in sorted(versions.items()):
        forms = sorted(version for version in found if (name, version) in both)
        streams = {version: suffix for version, suffix in sorted(found.items()) if suffix}
        per_thread = ", ".join(f'[{version}, "{suffix}"]' for version, suffix in streams.items())
        functions.append(f"{name} = {{ plain = {forms}, per_thread = [{per_thread}] }}")
        symbols |= {name if number == 1 else f"{name}_v{number}" for number in range(1, len(forms) + 1)}
        for version, suffix in streams.items():
            number = sum(form <= version for form in forms)
            symbols.add((name if number <= 1 else f"{name}_v{number}") + suffix)
    lines = [
        "# Made by make_functions.py.",
        "",
        "# Every symbol that the library exports.",
        "symbols = [",
        *(f'  "{name}",' for name in sorted(symbols)),
        "]",
        "",
        "# Each function with the driver versions that introduced a form of it: those of the plain symbols NAME,",
        "# NAME_v2, NAME_v3 … in this order, and those of the symbols for per-thread streams.",
        "[functions]",
        *functions,
        "",
    ]
    OUT.write_text("\n".join(lines), encoding="utf-8")
    sys.stdout.write(f"{len(versions)} functions, {len(symbols)} symbols\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
