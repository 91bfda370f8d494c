"""Make `returns.toml` from the headers of CUDA: the errors that the documentation of each function lists.

    python -m tools.make_returns HEADERS/12.9 HEADERS/13.0

Each argument is a folder, named after a release, that the wheel of its runtime was unpacked into
(``nvidia-cuda-runtime-cu12`` or ``nvidia-cuda-runtime``). Its cuda.h documents a function above its declaration; of a
function with several releases the newest one counts.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from pytest_cudalink.emulator import faults

OUT = Path(__file__).parent.parent / "pytest_cudalink/data/emulator/returns.toml"
ABOUT = """\
# The errors that the documentation of each function of cuda.h lists as what it returns, up to {last}, without the two
# that every function has, CUDA_ERROR_DEINITIALIZED and CUDA_ERROR_NOT_INITIALIZED, and without CUDA_ERROR_NOT_READY,
# which is none. Made by tools/make_returns.py.
"""
#: A comment of documentation, and the function that it is of.
DOCUMENTED = re.compile(
    r"/\*\*((?:(?!\*/).)*)\*/\s*(?:__CUDA_DEPRECATED\s+)?CUresult\s+CUDAAPI\s+(\w+)\s*\(", re.DOTALL
)
LEFT_OUT = {0, 3, 4, 600}


def listed(header: str) -> dict[str, list[int]]:
    """Return the errors of each function of a header, in the order of its documentation."""
    found = {}
    for comment, function in DOCUMENTED.findall(header):
        _, returns, rest = comment.partition("\\return")
        # up to the next paragraph with a command of its own
        names = re.findall(r"\b(CUDA_ERROR_\w+)", re.split(r"\\(?:note|sa|par|remark)", rest, maxsplit=1)[0])
        codes = dict.fromkeys(faults.code_of(name) for name in names)
        if returns:
            found[function] = [code for code in codes if code not in LEFT_OUT]
    return found


def main() -> int:
    """Write the table."""
    folders = sorted(map(Path, sys.argv[1:]), key=lambda folder: tuple(map(int, folder.name.split("."))))
    table: dict[str, list[int]] = {}
    for folder in folders:
        (header,) = folder.rglob("cuda.h")
        table.update(listed(header.read_text(encoding="utf-8")))
    lines = [f"{function} = {codes}\n" for function, codes in sorted(table.items())]
    OUT.write_text(ABOUT.format(last=folders[-1].name) + "".join(lines), encoding="utf-8")
    sys.stdout.write(f"{len(table)} functions\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
