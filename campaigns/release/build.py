"""Build the sdist and the wheels twice, in different folders, and compare their bytes."""

import hashlib
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

#: Machines of the wheels, as uname names them.
MACHINES = ("x86_64", "aarch64")
#: The oldest glibc of the wheels.
FLOOR = "2.17"


def target(machine: str) -> str:
    """The target of zig for a machine."""
    return f"{machine}-linux-gnu.{FLOOR}"


def commit_time(root: Path) -> str | None:
    """The time of the last commit, for SOURCE_DATE_EPOCH; None outside a checkout."""
    command = ["git", "-C", str(root), "log", "-1", "--format=%ct"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def _build(kind: str, source: Path, output: Path, target: str = "") -> Path:
    """Build one sdist or wheel with the tools of this environment, and return it."""
    output.mkdir(parents=True, exist_ok=True)
    before = set(output.iterdir())
    command = [sys.executable, "-m", "build", "--no-isolation", f"--{kind}", "--outdir", str(output), str(source)]
    env = {**os.environ, "CUDALINK_WHEEL_TARGET": target}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    (made,) = set(output.iterdir()) - before
    return made


def _unpacked(sdist: Path, folder: Path) -> Path:
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (built,) = folder.iterdir()
    return built


def differences(before: Iterable[Path], other: Iterable[Path]) -> list[str]:
    """Files of two folders whose name or bytes differ."""
    first, second = (
        {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths} for paths in (before, other)
    )
    return sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))


def build_all(root: Path, dist: Path, work: Path, *, short: bool) -> tuple[list[Path], list[str]]:
    """Build the sdist of a checkout and the wheels of that sdist into `dist`, and all again elsewhere.

    `root`: the checkout.
    `dist`: where the files go that are published; those of earlier builds are removed.
    `work`: folder for all else.
    `short`: whether the second build leaves out the wheels.
    Returns the files, and the names of those that differ in the second build.
    """
    dist.mkdir(exist_ok=True)
    for old in dist.glob("pytest[_-]cudalink-*"):
        old.unlink()
    sdist = _build("sdist", root, dist)
    twice = () if short else MACHINES
    second = work / "second"
    # folders whose names have not the same length: a path in a library would show
    jobs = [
        *(
            ("wheel", _unpacked(sdist, work / f"one-{machine}"), work / f"made-{machine}", target(machine))
            for machine in MACHINES
        ),
        *(("wheel", _unpacked(sdist, work / f"another-folder-{r}"), second / r, target(r)) for r in twice),
        ("sdist", _unpacked(sdist, work / "from-sdist"), second / "sdist", ""),
    ]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        made = list(pool.map(lambda job: _build(*job), jobs))
    wheels = [path.replace(dist / path.name) for path in made[: len(MACHINES)]]
    first = [sdist, *wheels[: len(twice)]]
    return [sdist, *wheels], differences(first, made[len(MACHINES) :])
