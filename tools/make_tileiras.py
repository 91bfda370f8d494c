"""Measure which tileiras compiles which Tile IR bytecode for which GPU, and write ``data/tileiras.toml``.

``python -m tools.make_tileiras FOLDER…`` takes a folder ``…/nvidia/cu13`` for each release, into which pip installed
``cuda-toolkit[nvcc,nvvm,tileiras]`` of that release. tileiras of 13.1 looks for libnvvm in another place than its
wheel: link ``nvvm/lib64/libnvvm.so`` to ``lib/libnvvm.so.4`` first.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from pytest_cudalink.compat.tileiras import Tileiras
from pytest_cudalink.versions import CudaVersion

ROOT = Path(__file__).parents[1]
DATA = ROOT / "pytest_cudalink" / "data" / "tileiras.toml"
SAMPLES = ROOT / "tests" / "data" / "artifacts" / "tile"
#: Also those that no tileiras has a name for.
ARCHITECTURES = (
    *("sm_75", "sm_80", "sm_86", "sm_87", "sm_88", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_100a", "sm_100f"),
    *("sm_103", "sm_103a", "sm_107", "sm_110", "sm_110a", "sm_120", "sm_120a", "sm_120f", "sm_121", "sm_121a"),
)


def answers(folder: Path) -> tuple[str, dict[tuple[str, str], str]]:
    """Return the version of a tileiras, and what it says of each bytecode for each GPU; empty where it compiles."""
    program = folder / "bin" / "tileiras"
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    matched = re.search(r"V(\d+\.\d+\.\d+)", said)
    assert matched is not None, said
    found = {}
    with tempfile.TemporaryDirectory() as work:
        for sample in sorted(SAMPLES.glob("*.tileir")):
            for arch in ARCHITECTURES:
                command = [str(program), "--gpu-name", arch, str(sample), "-o", f"{work}/cubin"]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                error = (done.stderr or done.stdout).strip().splitlines() or [f"exit code {done.returncode}"]
                found[sample.stem.removeprefix("add-"), arch] = error[0] if done.returncode else ""
    return matched[1], found


def main(folders: list[str]) -> None:
    """Measure, check that the rule of the table has no exception, and write the table."""
    measured = dict(answers(Path(folder)) for folder in folders)
    releases = {wheel: CudaVersion(*map(int, wheel.split(".")[:2])) for wheel in measured}
    first = {}
    for arch in ARCHITECTURES:
        served = [
            releases[wheel] for wheel, one in measured.items() if "" in [one[key] for key in one if key[1] == arch]
        ]
        if served:
            first[arch] = min(served)
    table = Tileiras(first, (), "")
    for wheel, found in measured.items():
        for (version, arch), error in found.items():
            if table.compiles(CudaVersion.parse(version), releases[wheel], arch) == bool(error):
                msg = f"tileiras {wheel}, bytecode {version}, {arch}: the rule has an exception: {error or 'it works'}"
                raise ValueError(msg)
    count = sum(map(len, measured.values()))
    versions = sorted({version for found in measured.values() for version, _ in found})
    DATA.write_text(
        "# The first CUDA release whose tileiras compiles for a GPU. It reads bytecode of its own release and of\n"
        f"# older ones: {count} compilations of a kernel of cuda-tile 1.7.0, on a CPU, had no exception.\n"
        "# Made by `python -m tools.make_tileiras`; do not edit.\n\n"
        f'measured = "{datetime.now(UTC):%Y-%m-%d}"\nwheels = {json.dumps(list(measured))}\n'
        f"bytecode = {json.dumps(versions)}\nasked = {json.dumps(ARCHITECTURES)}\n\n[first]\n"
        + "".join(f'{arch} = "{release}"\n' for arch, release in first.items()),
        encoding="utf-8",
    )


if __name__ == "__main__":
    main(sys.argv[1:])
