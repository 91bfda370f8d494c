#!/usr/bin/env -S uv run --script
# /// script
# requires-python = ">=3.11"
# dependencies = ["uv"]
# ///
"""Write ``toolchains.toml``: for each CUDA release the newest wheels of its minor version, with their hashes.

``uv pip compile --generate-hashes`` asks the package index; run this again when NVIDIA publishes a release.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
KNOWN = tomllib.loads((ROOT / "pytest_cudalink/compat/data/releases.toml").read_text(encoding="utf-8"))
#: Releases with wheels: no other one stands in for them.
RELEASES = tuple(release for release, known in KNOWN["releases"].items() if "stand-in" not in known)
#: What the layout "libs" has, and what "ctk" has in addition.
LIBS = ("nvidia-nvjitlink", "nvidia-cuda-nvrtc", "nvidia-cuda-runtime")
CTK = {
    12: ("nvidia-cuda-nvcc", "nvidia-cuda-cccl"),
    13: ("nvidia-cuda-nvcc", "nvidia-cuda-crt", "nvidia-nvvm", "nvidia-cuda-cccl"),
}
#: CCCL follows its own versions since CUDA 13.3.
RENUMBERED = {("nvidia-cuda-cccl", f"13.{minor}"): f"13.3.{minor}" for minor in (3, 4, 5)}
HEAD = """\
# The wheels of each CUDA release: exact versions and the sha256 of every file of that version (one per platform).
# "libs" is what every toolchain has; "ctk" comes in addition for `--layout ctk`.
# Written by tools/make_toolchains.py. CUDA 12.7 was never published as wheels.
"""


def resolve(names: tuple[str, ...], release: str, toolkit: str = "") -> list[tuple[str, str, list[str]]]:
    """Newest version of each package within a release, with hashes; with a toolkit, what that metapackage pins."""
    wanted = "".join(f"{name}=={RENUMBERED.get((name, release), release)}.*\n" for name in names)
    if toolkit:
        wanted += f"cuda-toolkit[cudart,nvjitlink,nvrtc]=={toolkit}\n"
    command = ["uv", "pip", "compile", "-q", "--generate-hashes", "--no-header", "--no-annotate", "-"]
    command += [] if toolkit else ["--no-deps"]
    done = subprocess.run(command, input=wanted, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    found = re.findall(r"^([a-z0-9-]+)==(\S+)((?: \\\n    --hash=sha256:[0-9a-f]{64})+)", done.stdout, re.MULTILINE)
    return [(name, version, re.findall(r"[0-9a-f]{64}", hashes)) for name, version, hashes in found if name in names]


def block(key: str, packages: list[tuple[str, str, list[str]]]) -> list[str]:
    """One array of tables."""
    lines = []
    for name, version, hashes in packages:
        lines += [f"[[{key}]]", f'name = "{name}"', f'version = "{version}"', "sha256 = ["]
        lines += [*(f'  "{value}",' for value in hashes), "]", ""]
    return lines


def main() -> int:
    """Ask the index and write the file."""
    lines = [HEAD]
    for release in RELEASES:
        major = int(release.partition(".")[0])
        suffix = "-cu12" if major == 12 else ""
        ((_, toolkit, _),) = resolve(("cuda-toolkit",), release)
        lines += [f'[releases."{release}"]', f'toolkit = "{".".join(toolkit.split(".")[:3])}"', ""]
        for part, names in (("libs", LIBS), ("ctk", CTK[major])):
            packages = tuple(name + suffix for name in names)
            found = resolve(packages, release, toolkit if part == "libs" else "")
            lines += block(f'releases."{release}".{part}', found)
    (ROOT / "matrices" / "toolchains.toml").write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
