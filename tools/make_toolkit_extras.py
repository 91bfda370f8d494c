"""Write ``toolkit_extras.toml``: what each extra of each version of cuda-toolkit requires, read from the package index.

Run ``python -m tools.make_toolkit_extras`` after a new release of cuda-toolkit.
"""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Mapping
from email import message_from_bytes
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pytest_cudalink.compat.package_index import RangeFile, default_index, files_of

__all__ = ["main", "table_of", "written"]

_TARGET = Path(__file__).parent.parent / "pytest_cudalink/audit/toolkit_extras.toml"


def table_of(metadata: bytes) -> dict[str, list[str]]:
    """The requirements of each extra in the METADATA of one version, on NVIDIA's packages; markers are dropped."""
    extras: dict[str, set[str]] = {}
    for line in message_from_bytes(metadata).get_all("Requires-Dist") or []:
        requirement = Requirement(str(line))
        name = canonicalize_name(requirement.name)
        marker = str(requirement.marker or "")
        extra = marker.rpartition("extra == ")[2].strip("\"'")
        if "extra == " in marker and extra != "all" and name.startswith("nvidia-"):
            extras.setdefault(extra, set()).add(f"{name}{requirement.specifier}")
    return {extra: sorted(lines) for extra, lines in sorted(extras.items())}


def written(table: Mapping[str, Mapping[str, list[str]]]) -> str:
    """The table as the text of the data file."""
    lines = [
        "# What each extra of cuda-toolkit requires, by version of cuda-toolkit, without markers.",
        "# Made by `python -m tools.make_toolkit_extras` from the package index; do not edit.",
    ]
    for version, extras in table.items():
        lines += ["", f'[versions."{version}"]']
        lines += [
            f"{extra} = [{', '.join(f'{chr(34)}{one}{chr(34)}' for one in ones)}]" for extra, ones in extras.items()
        ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Read the index and write the file; returns the exit code."""
    table = {}
    for file in files_of(default_index(), "cuda-toolkit"):
        if file.version.is_prerelease or file.version.release[0] < 12:
            continue
        with zipfile.ZipFile(RangeFile(file)) as archive:
            (name,) = (one for one in archive.namelist() if one.endswith(".dist-info/METADATA"))
            table[str(file.version)] = table_of(archive.read(name))
    _TARGET.write_text(written(table), encoding="utf-8")
    sys.stdout.write(f"{_TARGET}: {len(table)} versions of cuda-toolkit\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
