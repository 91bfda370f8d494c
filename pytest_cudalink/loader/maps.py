"""The files that a process has mapped into its memory: the only reader of ``/proc/self/maps``.

It needs nothing but the standard library: a child process runs this file without the package around it.
"""

from __future__ import annotations


def mapped_files(maps: str = "/proc/self/maps") -> list[str]:
    """Paths of the files in a process's memory map, each once, by address; empty where the system has no such map."""
    try:
        # newline: a path may contain a carriage return; the kernel escapes line feeds
        with open(maps, encoding="utf-8", errors="surrogateescape", newline="\n") as file:  # noqa: PTH123
            lines = file.read().split("\n")
    except OSError:
        return []
    # ADDRESSES PERMISSIONS OFFSET DEVICE INODE PATH: no field before the path has a slash
    paths = (line[line.index("/") :].removesuffix(" (deleted)") for line in lines if "/" in line)
    return list(dict.fromkeys(paths))
