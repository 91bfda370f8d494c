"""Make `nvml_names.toml` from the headers of NVML and the names that a real library exports.

    python pytest_cudalink/emulator/data/make_nvml.py HEADERS EXPORTS

HEADERS is a folder of files named ``nvml-MAJOR.MINOR.h``, one for each minor of CUDA (the wheels nvidia-nvml-dev-cu12
and nvidia-nvml-dev have them); EXPORTS a file with the names that the libnvidia-ml.so.1 of driver 580.159.04 exports,
one a line.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

__all__ = ["main"]

OUT = Path(__file__).parent / "nvml_names.toml"

#: The CUDA minor of the library whose exports were recorded.
RECORDED = (13, 0)
#: Parameters of functions that the library exports and no header declares.
UNDECLARED = {
    "nvmlGetBlacklistDeviceCount": "p",
    "nvmlGetBlacklistDeviceInfoByIndex": "ip",
    "nvmlInternalGetExportTable": "pp",
}
ABOUT = """\
# Every function of libnvidia-ml.so.1: the CUDA minor whose driver is the first that exports it, its parameters (d: the
# device, p: a pointer, i: a number). Written by make_nvml.py.
# 13.0 has the names that the libnvidia-ml.so.1 of driver 580.159.04 exports. The other minors are those of nvml.h (there
# is none of 12.7): a name belongs to the first one that declares it, a name without a declaration to all of them.
# Two names that only the headers of 12.0 and 12.1 have are left out: no library is known to export them.
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
        given = [one.strip() for one in parameters.split(",") if one.strip() not in ("", "void")]
        letters = "".join(map(kind, given))
        functions[name] = letters[:1] + letters[1:].replace("d", "p")  # a second device is only looked at for NULL
    return functions


def main() -> int:
    """Write the table."""
    folder, exports = map(Path, sys.argv[1:])
    headers: dict[Minor, dict[str, str]] = {}
    for file in folder.glob("nvml-*.h"):
        major, minor = map(int, file.stem.removeprefix("nvml-").split("."))
        headers[major, minor] = declared(file)
    exported = set(exports.read_text(encoding="utf-8").split())
    minors = sorted(headers)
    parameters = UNDECLARED | {name: given for minor in minors for name, given in headers[minor].items()}
    lines = []
    for name in sorted((exported | parameters.keys()) - {"nvmlErrorString"}):
        having = [minor for minor in minors if name in headers[minor]] or minors
        since = min(having[0], RECORDED) if name in exported else having[0]
        if name in exported or since > RECORDED:
            lines.append(f'{name} = ["{since[0]}.{since[1]}", "{parameters[name]}"]')
    OUT.write_text("\n".join([ABOUT, "[functions]", *lines, ""]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
