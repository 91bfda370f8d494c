"""Write ``data/requires.toml``: what NVIDIA's packages require of each other, read from the package index.

`tools.new_release` runs it. With ``--check``, as each week, it writes nothing and ends with 1 if the file differs from
the index. The newest version of each counts, which an installer takes.
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from collections.abc import Mapping, Sequence
from email import message_from_bytes
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from .package_index import default_index, files_of, metadata_of

_DATA = Path(__file__).parent.parent / "pytest_cudalink" / "data"
_TARGET = _DATA / "requires.toml"
_EXTRAS = _DATA / "toolkit_extras.toml"
#: Packages with libraries of CUDA that cuda-toolkit does not require.
_PRODUCTS = (
    "nvidia-cublasmp-cu13",
    "nvidia-cudnn-cu12",
    "nvidia-cudnn-cu13",
    "nvidia-cudss-cu12",
    "nvidia-cudss-cu13",
    "nvidia-cusolvermp-cu13",
)
#: What the newest version requires, and versions that wheels of today still allow do not: an installer may take these.
_NEWEST_ALONE = {"nvidia-cublas": "nvidia-cuda-nvrtc", "nvidia-cublas-cu12": "nvidia-cuda-nvrtc-cu12"}


def required(metadata: bytes) -> set[str]:
    """The packages of NVIDIA that the METADATA of one version requires without an extra."""
    requirements = map(Requirement, map(str, message_from_bytes(metadata).get_all("Requires-Dist") or []))
    names = {canonicalize_name(need.name) for need in requirements if "extra" not in str(need.marker or "")}
    return {name for name in names if name.startswith("nvidia-")}


def packages() -> list[str]:
    """The packages to look at: those that any cuda-toolkit requires, and other products."""
    table = tomllib.loads(_EXTRAS.read_text(encoding="utf-8"))["versions"]
    lines = {line for extras in table.values() for lines in extras.values() for line in lines}
    return sorted({*_PRODUCTS, *(canonicalize_name(Requirement(line).name) for line in lines)})


def read_index() -> dict[str, list[str]]:
    """What the newest version of each package requires."""
    table = {}
    for package in packages():
        wheels = [
            file for file in files_of(default_index(), package) if not (file.yanked or file.version.is_prerelease)
        ]
        # up to CUDA 12 some packages have wheels for Windows alone
        newest = [wheel for wheel in wheels if "-win" not in wheel.name][-1:]
        if requires := sorted(
            {name for file in newest for name in required(metadata_of(file))} - {_NEWEST_ALONE.get(package)}
        ):
            table[package] = requires
    return table


def written(table: Mapping[str, Sequence[str]]) -> str:
    """The table as the text of the data file."""
    lines = [
        "# The packages of NVIDIA that the newest version of each package requires; extras do not count, nor does",
        "# NVRTC for cuBLAS, whose older versions do not require it. pytest_cudalink/audit/wheel/declared.py reads it.",
        "# Made by `nox -s new-release` from the package index; do not edit.",
        "",
    ]
    lines += [f"{package} = {json.dumps(ones)}" for package, ones in table.items()]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the index, and write the file or compare it; returns the exit code."""
    parser = argparse.ArgumentParser(description="What NVIDIA's packages require of each other.")
    parser.add_argument("--check", action="store_true", help="compare the file with the index, and write nothing")
    options = parser.parse_args(arguments)
    table = read_index()
    if options.check:
        known = tomllib.loads(_TARGET.read_text(encoding="utf-8"))
        different = [package for package in {**known, **table} if known.get(package) != table.get(package)]
        for package in different:
            sys.stderr.write(f"{_TARGET}: {package} requires {table.get(package, [])} by the index\n")
        return 1 if different else 0
    _TARGET.write_text(written(table), encoding="utf-8")
    sys.stdout.write(f"{_TARGET}: {len(table)} packages\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
