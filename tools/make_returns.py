"""Make `returns.toml` from the headers of CUDA: the errors that the documentation of each function lists.

`tools.new_release` runs it with the toolchain of a release, whose cuda.h and nvrtc.h document a function above its
declaration. What older headers said stays in the table where the newer ones do not document the function: it has 11.8,
12.9 and 13.5 so far.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from pytest_cudalink.emulator import faults

OUT = Path(__file__).parent.parent / "pytest_cudalink/data/emulator/returns.toml"
ABOUT = """\
# The errors that the documentation of each function of cuda.h and nvrtc.h lists as what it returns, up to {last},
# without the two that every function of the driver has, CUDA_ERROR_DEINITIALIZED and CUDA_ERROR_NOT_INITIALIZED, and
# without CUDA_ERROR_NOT_READY and NVRTC_ERROR_NO_PCH_CREATE_ATTEMPTED, which are none; then the names of NVRTC's.
# Made by tools/make_returns.py.
"""
#: A comment of documentation, and the function that it is of.
DOCUMENTED = re.compile(
    r"/\*\*((?:(?!\*/).)*)\*/\s*(?:__CUDA_DEPRECATED\s+)?CUresult\s+CUDAAPI\s+(\w+)\s*\(", re.DOTALL
)
LEFT_OUT = {0, 3, 4, 600}
DOCUMENTED_BY_NVRTC = re.compile(r"/\*\*((?:(?!\*/).)*)\*/\s*nvrtcResult\s+(nvrtc\w+)\s*\(([^;]*)\);", re.DOTALL)
NO_PCH_WANTED = "NVRTC_ERROR_NO_PCH_CREATE_ATTEMPTED"
#: What a stand-in in `loader/jitlink/native/jitlink_calls.c` passes on.
MOST_PARAMETERS = 6


def listed(header: str) -> dict[str, list[int]]:
    """Return the errors of each function of a header, in the order of its documentation."""
    by_function = {}
    for comment, function in DOCUMENTED.findall(header):
        _, returns, rest = comment.partition("\\return")
        # up to the next paragraph with a command of its own
        names = re.findall(r"\b(CUDA_ERROR_\w+)", re.split(r"\\(?:note|sa|par|remark)", rest, maxsplit=1)[0])
        codes = dict.fromkeys(faults.code_of(name) for name in names)
        if returns:
            by_function[function] = [code for code in codes if code not in LEFT_OUT]
    return by_function


def listed_by_nvrtc(header: str) -> tuple[dict[str, list[int]], dict[str, int]]:
    """Return the same of nvrtc.h, and the numbers of its errors."""
    numbers = {name: int(number) for name, number in re.findall(r"\b(NVRTC_ERROR_\w+) = (\d+)", header)}
    by_function = {}
    for comment, function, parameters in DOCUMENTED_BY_NVRTC.findall(header):
        assert parameters.count(",") < MOST_PARAMETERS, f"{function}: a stand-in would lose parameters"
        names = re.findall(r"\\link #nvrtcResult (NVRTC_ERROR_\w+)", comment)
        by_function[function] = [numbers[name] for name in names if name != NO_PCH_WANTED]
    return by_function, numbers


def write(folder: Path) -> None:
    """Add the headers in a folder, which is named after their release, to the table."""
    known = tomllib.loads(OUT.read_text(encoding="utf-8"))
    (header,), (of_nvrtc,) = folder.rglob("cuda.h"), folder.rglob("nvrtc.h")
    compiler, codes = listed_by_nvrtc(of_nvrtc.read_text(encoding="utf-8"))
    numbers = known.pop("nvrtcResult") | codes
    table = known | listed(header.read_text(encoding="utf-8")) | compiler
    lines = [f"{function} = {codes}\n" for function, codes in sorted(table.items())]
    lines += ["\n[nvrtcResult]\n", *(f"{name} = {number}\n" for name, number in numbers.items())]
    OUT.write_text(ABOUT.format(last=folder.name) + "".join(lines), encoding="utf-8")
