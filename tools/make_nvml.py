"""Make `nvml_names.toml` from the headers of NVML and the names that real libraries export.

    python -m tools.make_nvml HEADERS EXPORTS

HEADERS is a folder of files named ``nvml-MAJOR.MINOR.h``, one for each minor of CUDA (the wheels nvidia-nvml-dev-cu12
and nvidia-nvml-dev have them); EXPORTS a folder of files named ``MAJOR.MINOR.txt`` with the names that the
libnvidia-ml.so.1 of a driver of that minor exports, one a line: 525.147.05, 535.261.03 and 550.163.01 of Debian's
non-free packages, and 580.159.04. `tools.new_release` adds the header of a new minor to what is there.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path

OUT = Path(__file__).parent.parent / "pytest_cudalink/data/emulator/nvml_names.toml"

#: Parameters of functions that the library exports and no header declares.
UNDECLARED = {
    "nvmlGetBlacklistDeviceCount": "p",
    "nvmlGetBlacklistDeviceInfoByIndex": "ip",
    "nvmlInternalGetExportTable": "pp",
    "nvmlRetry_NvRmControl": "",
}
ABOUT = """\
# Every function of libnvidia-ml.so.1: the CUDA minor whose driver is the first that exports it, its parameters (d: the
# device, p: a pointer, i: a number), and the first minor that no longer has it. Written by tools/make_nvml.py.
# 12.0, 12.2, 12.4 and 13.0 have the names of real libraries (525.147.05, 535.261.03, 550.163.01, 580.159.04). The other
# minors are those of nvml.h (there is none of 12.7): a name belongs to the first one that declares it.
"""

Minor = tuple[int, int]


def kind(parameter: str) -> str:
    """Return the letter of a parameter."""
    return "p" if "*" in parameter else "d" if parameter.startswith("nvmlDevice_t") else "i"


def declared(header: Path) -> dict[str, str]:
    """Return the functions that a header declares, with their parameters."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", header.read_text(encoding="utf-8", errors="replace"), flags=re.DOTALL)
    functions = {}
    for name, parameters in re.findall(r"nvmlReturn_t\s+DECLDIR\s+(nvml\w+)\s*\(([^)]*)\)", text):
        given = [word.strip() for word in parameters.split(",") if word.strip() not in ("", "void")]
        letters = "".join(map(kind, given))
        functions[name] = letters[:1] + letters[1:].replace("d", "p")  # a second device is only looked at for NULL
    return functions


def minor_of(file: Path) -> Minor:
    """Return the minor that a file is named after."""
    major, minor = map(int, file.stem.removeprefix("nvml-").split("."))
    return major, minor


def add(release: str, header: Path) -> list[str]:
    """Add the functions that the header of a new minor is the first to declare to the table; returns their names."""
    given = declared(header)
    known = tomllib.loads(OUT.read_text(encoding="utf-8"))["functions"]
    new = {name: [release, given[name]] for name in sorted(given.keys() - known.keys() - {"nvmlErrorString"})}
    lines = [f"{name} = {json.dumps(row)}" for name, row in sorted((known | new).items())]
    OUT.write_text("\n".join([ABOUT, "[functions]", *lines, ""]), encoding="utf-8")
    return list(new)


def main() -> int:
    """Write the table."""
    headers, exports = map(Path, sys.argv[1:])
    declarations = {minor_of(file): declared(file) for file in headers.glob("nvml-*.h")}
    exported = {minor_of(file): set(file.read_text(encoding="utf-8").split()) for file in exports.glob("*.txt")}
    parameters = UNDECLARED | {
        name: given for minor in sorted(declarations) for name, given in declarations[minor].items()
    }
    # where there is a library, its header has no say
    known = {minor: exported.get(minor) or set(declarations[minor]) for minor in declarations}
    lines = []
    for name in sorted(set().union(*known.values()) - {"nvmlErrorString"}):
        having = [minor for minor in sorted(known) if name in known[minor]]
        row = [f"{having[0][0]}.{having[0][1]}", parameters[name]]
        gone = min((minor for minor in exported if minor > having[-1]), default=None)
        if gone:
            row.append(f"{gone[0]}.{gone[1]}")
        lines.append(f"{name} = {row}".replace("'", '"'))
    OUT.write_text("\n".join([ABOUT, "[functions]", *lines, ""]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
