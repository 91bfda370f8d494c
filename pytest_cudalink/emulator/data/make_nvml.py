"""Write ``nvml_names.toml`` from the nvml.h of each CUDA minor and the names that a real libnvidia-ml exports.

    python make_nvml.py HEADERS EXPORTS > nvml_names.toml

HEADERS is a folder of ``nvml-MAJOR.MINOR.h`` (the wheels nvidia-nvml-dev and nvidia-nvml-dev-cu12 have them), EXPORTS a
file with the names of the libnvidia-ml.so.1 of driver 580.159.04, one a line. Run by hand when a CUDA minor comes out.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

__all__ = ["main"]

#: The CUDA minor of the real library.
RECORDED = (13, 0)
ABOUT = """\
# Every function of libnvidia-ml.so.1, by the CUDA minor whose driver is the first that exports it. Written by make_nvml.py.
# 13.0 is what the libnvidia-ml.so.1 of driver 580.159.04 exports. The other minors are those of nvml.h, which has no
# 12.7: a name belongs to the first one that declares it, and one that only the real library has to all of them.
"""

Minor = tuple[int, int]


def declared(header: Path) -> dict[str, bool]:
    """Return the functions that a header declares, and whether the first parameter of each is a device."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", header.read_text(encoding="utf-8", errors="replace"), flags=re.DOTALL)
    found = re.findall(r"\bDECLDIR\s+(nvml\w+)\s*\(\s*([\w ]*)", text)
    return {name: first.startswith("nvmlDevice_t") for name, first in found}


def table(title: str, groups: dict[Minor, list[str]]) -> list[str]:
    """Return a table of names by minor, in lines of at most 120 characters."""
    lines = ["", f"[{title}]"]
    for minor, names in sorted(groups.items()):
        row, rows = " ", []
        for name in sorted(names):
            if len(row) + len(name) + 4 > 120:
                rows.append(row)
                row = " "
            row += f' "{name}",'
        lines += [f'"{minor[0]}.{minor[1]}" = [', *rows, row, "]"]
    return lines


def main() -> int:
    """Print the tables."""
    folder, exports = map(Path, sys.argv[1:])
    headers: dict[Minor, dict[str, bool]] = {}
    for file in folder.glob("nvml-*.h"):
        major, minor = map(int, file.stem.removeprefix("nvml-").split("."))
        headers[major, minor] = declared(file)
    exported = exports.read_text(encoding="utf-8").split()
    minors = sorted(headers)
    of_a_device = {name: device for minor in minors for name, device in headers[minor].items()}
    device: dict[Minor, list[str]] = {}
    other: dict[Minor, list[str]] = {}
    gone: dict[Minor, list[str]] = {}
    for name in sorted({*of_a_device, *exported} - {"nvmlErrorString"}):
        having = [minor for minor in minors if name in headers[minor]]
        since = having[0] if having else minors[0]
        if name in exported:
            since = min(since, RECORDED)
        elif since <= RECORDED:
            gone.setdefault(next(minor for minor in minors if minor > having[-1]), []).append(name)
        (device if of_a_device.get(name) else other).setdefault(since, []).append(name)
    lines = [*table("device", device), *table("other", other), *table("gone", gone)]
    print(ABOUT + "\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
