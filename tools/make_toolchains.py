"""Write ``toolchains.toml``: for each CUDA release the newest wheels of its minor version, with their hashes.

``uv pip compile --generate-hashes`` asks the package index; `tools.new_release` runs it for a release. As a program,
this prints the bytes that each release of the file downloads.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from .package_index import default_index, files_of

ROOT = Path(__file__).parent.parent
TARGET = ROOT / "pytest_cudalink" / "data" / "toolchains.toml"
MACHINES = ("x86_64", "aarch64")
EXTRAS = TARGET.with_name("toolkit_extras.toml")
#: What the layout "libs" has, and what "ctk" has in addition.
LIBS = ("nvidia-nvjitlink", "nvidia-cuda-nvrtc", "nvidia-cuda-runtime")
CTK = {
    12: ("nvidia-cuda-nvcc", "nvidia-cuda-cccl"),
    13: ("nvidia-cuda-nvcc", "nvidia-cuda-crt", "nvidia-nvvm", "nvidia-cuda-cccl"),
}
HEAD = """\
# The wheels of each CUDA release: exact versions and the sha256 of every file of that version (one per platform).
# "libs" is what every toolchain has; "ctk" comes in addition for `--layout ctk`.
# Written by tools/make_toolchains.py. CUDA 12.7 was never published as wheels.
"""


def series(name: str, release: str) -> str:
    """What the versions of a package begin with in a release: 13.3.5 for CCCL of 13.5, which has its own numbers."""
    versions = tomllib.loads(EXTRAS.read_text(encoding="utf-8"))["versions"]
    lines = (
        line
        for version in versions
        if version.startswith(f"{release}.")
        for ones in versions[version].values()
        for line in ones
    )
    pins = [line.partition("==")[2] for line in lines if line.startswith(f"{name}==")]
    numbered = not pins or any(pin.startswith(f"{release}.") for pin in pins)
    return release if numbered else ".".join(pins[-1].split(".")[:3])


def resolve(names: tuple[str, ...], release: str, toolkit: str = "") -> list[tuple[str, str, list[str]]]:
    """Newest version of each package within a release, with hashes; with a toolkit, what that metapackage pins."""
    wanted = "".join(f"{name}=={series(name, release)}.*\n" for name in names)
    if toolkit:
        wanted += f"cuda-toolkit[cudart,nvjitlink,nvrtc]=={toolkit}\n"
    command = ["uv", "pip", "compile", "-q", "--generate-hashes", "--no-header", "--no-annotate", "-"]
    command += [] if toolkit else ["--no-deps"]
    done = subprocess.run(command, input=wanted, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    pins = re.findall(r"^([a-z0-9-]+)==(\S+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)", done.stdout, re.MULTILINE)
    return [(name, version, re.findall(r"[0-9a-f]{64}", hashes)) for name, version, hashes in pins if name in names]


def block(key: str, packages: list[tuple[str, str, list[str]]]) -> list[str]:
    """One array of tables."""
    lines = []
    for name, version, hashes in packages:
        lines += [f"[[{key}]]", f'name = "{name}"', f'version = "{version}"', "sha256 = ["]
        lines += [*(f'  "{value}",' for value in hashes), "]", ""]
    return lines


def downloads(layouts: Sequence[str]) -> dict[str, int]:
    """Most bytes of the wheels of each release of the file, over the machines, for the parts of a toolchain."""
    table = tomllib.loads(TARGET.read_text(encoding="utf-8"))["releases"]
    names = {library["name"] for entry in table.values() for part in layouts for library in entry[part]}
    files = {file.sha256: file for name in names for file in files_of(default_index(), name)}
    sizes: dict[str, int] = {}
    for release, entry in table.items():
        wheels = [files[sha256] for part in layouts for library in entry[part] for sha256 in library["sha256"]]
        by_machine = [sum(wheel.size or 0 for wheel in wheels if wheel.fits(machine)) for machine in MACHINES]
        sizes[release] = max(by_machine)
    return sizes


def entry(release: str) -> str:
    """What the file has of a release."""
    major = int(release.partition(".")[0])
    suffix = "-cu12" if major == 12 else ""
    ((_, toolkit, _),) = resolve(("cuda-toolkit",), release)
    lines = [f'[releases."{release}"]', f'toolkit = "{".".join(toolkit.split(".")[:3])}"', ""]
    for part, names in (("libs", LIBS), ("ctk", CTK[major])):
        packages = tuple(name + suffix for name in names)
        pins = resolve(packages, release, toolkit if part == "libs" else "")
        lines += block(f'releases."{release}".{part}', pins)
    return "\n".join(lines) + "\n"


def write(release: str) -> None:
    """Ask the index for a release, and write its entry; the others stay as they are."""
    _, *texts = re.split(r'^(?=\[releases\."[\d.]+"\]$)', TARGET.read_text(encoding="utf-8"), flags=re.MULTILINE)
    table = {text.split('"')[1]: text.rstrip() + "\n\n" for text in texts} | {release: entry(release)}
    ordered = [table[name] for name in sorted(table, key=lambda name: tuple(map(int, name.split("."))))]
    TARGET.write_text(HEAD + "\n" + "".join(ordered).rstrip() + "\n", encoding="utf-8")


def main() -> int:
    """Print what each release downloads."""
    libs, ctk = downloads(["libs"]), downloads(["libs", "ctk"])
    for release, size in libs.items():
        sys.stdout.write(f"{release}: libs {size / 1e6:.0f} MB, ctk {ctk[release] / 1e6:.0f} MB\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
