"""Write ``toolkit_extras.toml``: what each extra of each version of cuda-toolkit requires, read from the package index.

`tools.new_release` runs it. With ``--check``, as each week, it writes nothing and ends with 1 if the file differs from
the index. The doctor takes a wheel's release from the file.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Mapping, Sequence
from email import message_from_bytes
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from .package_index import default_index, files_of, metadata_of

_TARGET = Path(__file__).parent.parent / "pytest_cudalink/data/toolkit_extras.toml"


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
        "# Made by `nox -s new-release` from the package index; do not edit.",
    ]
    for version, extras in table.items():
        lines += ["", f'[versions."{version}"]']
        lines += [
            f"{extra} = [{', '.join(f'{chr(34)}{package}{chr(34)}' for package in ones)}]"
            for extra, ones in extras.items()
        ]
    return "\n".join(lines) + "\n"


def read_index() -> dict[str, dict[str, list[str]]]:
    """The table of each version of cuda-toolkit from 12.0 on in the index; a few kilobytes of each are transferred."""
    table = {}
    for file in files_of(default_index(), "cuda-toolkit"):
        if file.version.is_prerelease or file.version.release[0] < 12:
            continue
        table[str(file.version)] = table_of(metadata_of(file))
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the index, and write the file or compare it; returns the exit code."""
    parser = argparse.ArgumentParser(description="What each extra of each version of cuda-toolkit requires.")
    parser.add_argument("--check", action="store_true", help="compare the file with the index, and write nothing")
    options = parser.parse_args(arguments)
    table = read_index()
    if options.check:
        known = tomllib.loads(_TARGET.read_text(encoding="utf-8"))["versions"]
        different = [version for version in {**known, **table} if known.get(version) != table.get(version)]
        for version in different:
            sys.stderr.write(f"{_TARGET}: cuda-toolkit {version} is not as in the index\n")
        return 1 if different else 0
    _TARGET.write_text(written(table), encoding="utf-8")
    sys.stdout.write(f"{_TARGET}: {len(table)} versions of cuda-toolkit\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
