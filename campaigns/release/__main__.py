"""Build what goes to the package index, check it, and use it: ``nox -s dist``.

    python -m campaigns.release [--short] [--require] [--built]

Exit code 1 at the first thing that fails. What this machine cannot run is named at the end; with ``--require`` that
fails, too.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from . import build, debian, places

ROOT = Path(__file__).parent.parent.parent
#: The Pythons of the classifiers in pyproject.toml; a test compares.
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
#: The release of Debian with the oldest glibc that its mirrors still have, and one with a Python that we support.
OLD, CURRENT = "bullseye", "bookworm"
PYTHON_PACKAGES = (
    *("python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib", "libc6", "libgcc-s1", "libexpat1"),
    *("zlib1g", "libffi8", "libbz2-1.0", "liblzma5", "libstdc++6", "libssl3", "libuuid1", "libsqlite3-0"),
)
DEBIAN_NAMES = {"x86_64": "amd64", "aarch64": "arm64"}


class Session:
    """The steps so far: each prints what it did and how long that took."""

    def __init__(self) -> None:
        self.not_run: list[str] = []

    def step(self, name: str, check: Callable[..., str], *arguments: object) -> None:
        """Run one step, and print what it returns."""
        began = time.monotonic()
        try:
            said = check(*arguments)
        except places.Failure as failure:
            sys.exit(f"{name}: {failure}")
        print(f"{name}: {said} ({time.monotonic() - began:.0f} s)", flush=True)

    def leave_out(self, name: str, reason: str) -> None:
        """Note that a step cannot run here."""
        self.not_run.append(f"NOT RUN: {name}: {reason}")
        print(self.not_run[-1], flush=True)


def check_files(files: list[Path]) -> str:
    """Check metadata, content and platform of what was built."""
    sdist, *wheels = files
    python = sys.executable
    scripts = Path(python).parent
    places.run(python, "-m", "twine", "check", "--strict", *files)
    places.run(scripts / "check-wheel-contents", *wheels, cwd=ROOT)
    for machine, wheel in zip(build.MACHINES, wheels, strict=True):
        shown = places.run(scripts / "auditwheel", "show", wheel)
        expected = f'"manylinux_2_17_{machine}"'
        if expected not in " ".join(shown.split()):
            raise places.Failure(f"auditwheel show {wheel.name} does not say {expected}:\n{shown}")
        code = "import sys; from pytest_cudalink.cli import main; sys.exit(main())"
        places.run(python, "-c", code, "audit", "--require=none", wheel, cwd=ROOT)
    sizes = ", ".join(f"{path.name} {path.stat().st_size // 1000} kB" for path in (sdist, *wheels))
    return f"twine, check-wheel-contents, auditwheel and cudalink audit find nothing; {sizes}"


def main() -> None:
    """Run every step that this machine can run."""
    parser = argparse.ArgumentParser(prog="python -m campaigns.release")
    parser.add_argument("--short", action="store_true", help="no wheel twice, no Python of another machine")
    parser.add_argument("--built", action="store_true", help="build nothing: take the sdist and the wheels in dist/")
    parser.add_argument("--require", action="store_true", help="fail if a step cannot run here")
    options = parser.parse_args()
    session = Session()
    if time_of_commit := os.environ.get("SOURCE_DATE_EPOCH") or build.commit_time(ROOT):
        os.environ["SOURCE_DATE_EPOCH"] = time_of_commit
    with tempfile.TemporaryDirectory(prefix="cudalink-release-") as name:
        run_steps(session, Path(name), short=options.short, built=options.built)
    print(*session.not_run, sep="\n")
    if options.require and session.not_run:
        sys.exit("steps could not run, and --require was given")


def build_and_compare(work: Path, short: bool, files: list[Path]) -> str:
    """Build into dist/, and append what was built to `files`."""
    made, different = build.build_all(ROOT, ROOT / "dist", work, short=short)
    files.extend(made)
    if different:
        raise places.Failure(f"a second build in another folder differs: {', '.join(different)}")
    what = "sdist" if short else "build"
    return f"{', '.join(path.name for path in made)}; a second {what} in another folder gives the same bytes"


def sdist_by_itself(sdist: Path, folder: Path) -> str:
    """Build a wheel as an installer does: with what the sdist asks for, by this machine's compiler."""
    places.run("uv", "build", "-q", "--wheel", "--out-dir", folder, sdist)
    (wheel,) = folder.glob("*.whl")
    return wheel.name


def describe_parts(python: Path, sdist: Path) -> str:
    """Write the SBOM of an environment with the wheel beside the sdist."""
    version = sdist.name.removeprefix("pytest_cudalink-").removesuffix(".tar.gz")
    sbom = sdist.with_name(f"pytest-cudalink-{version}.cdx.json")
    options = ("--output-reproducible", "--validate", "--output-format=JSON", "--mc-type=library")
    project = f"--pyproject={ROOT / 'pyproject.toml'}"
    places.run(Path(sys.executable).parent / "cyclonedx-py", "environment", python, *options, project, "-o", sbom)
    described = json.loads(sbom.read_text(encoding="utf-8"))
    # pyproject.toml has no version: it comes from the tag
    described["metadata"]["component"] |= {"version": version, "purl": f"pkg:pypi/pytest-cudalink@{version}"}
    sbom.write_text(json.dumps(described, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return sbom.name


def headers(folder: Path) -> Path:
    """Install the headers of the toolkit, and return the folder of cuda.h."""
    packages = ("nvidia-cuda-runtime==13.0.*", "nvidia-cuda-crt==13.0.*")
    places.run("uv", "pip", "install", "-q", "--no-deps", "--target", folder, "--python", sys.executable, *packages)
    (cuda_h,) = folder.rglob("cuda.h")
    return cuda_h.parent


def old_glibc(machine: str, wheel: Path, include: Path, folder: Path, qemu: str) -> str:
    """Run the C programs with the glibc of the old release."""
    system = debian.unpack(OLD, DEBIAN_NAMES[machine], ("libc6", "libgcc-s1"), folder)
    return places.c_programs(machine, wheel, system, include, folder, qemu)


def other_python(machine: str, wheel: Path, folder: Path, qemu: str) -> str:
    """Run the smoke test on a Python of another machine."""
    system = debian.unpack(CURRENT, DEBIAN_NAMES[machine], PYTHON_PACKAGES, folder)
    return places.other_machine(wheel, system, folder, qemu)


def run_steps(session: Session, work: Path, *, short: bool, built: bool) -> None:
    """Build, check, install and run."""
    files: list[Path] = []
    if built:
        files += [*sorted((ROOT / "dist").glob("*.tar.gz"))]
        files += [path for machine in build.MACHINES for path in (ROOT / "dist").glob(f"*_{machine}.whl")]
    else:
        session.step("build", build_and_compare, work / "build", short, files)
    session.step("check", check_files, files)
    if not short:
        session.step("a wheel from the sdist alone", sdist_by_itself, files[0], work / "by-itself")
    here = os.uname().machine
    wheels = dict(zip(build.MACHINES, files[1:], strict=True))
    for version in PYTHONS:
        if (python := places.find_python(version)) is None:
            session.leave_out(f"Python {version}", f"there is none here; 'uv python install {version}' brings one")
            continue
        folder = work / f"python{version}"
        session.step(f"Python {version}", places.bare_environment, python, wheels[here], folder)
        if version == PYTHONS[0]:
            session.step("SBOM", describe_parts, folder / "bin" / "python", files[0])
    if reason := debian.missing():
        session.leave_out("an old glibc, and the other machine", reason)
    else:
        on_debian(session, wheels, work, short=short)


def on_debian(session: Session, wheels: dict[str, Path], work: Path, *, short: bool) -> None:
    """Run each wheel with an old glibc, and that of another machine on its Python, too."""
    include = headers(work / "headers")
    for machine, wheel in wheels.items():
        qemu = ""
        if machine != os.uname().machine:
            qemu = next((path for name in places.QEMU[machine] if (path := shutil.which(name))), "")
            if not qemu:
                session.leave_out(machine, f"there is no {places.QEMU[machine][0]}; install qemu-user-static")
                continue
        name = f"C programs on {machine}, glibc of Debian {OLD}"
        session.step(name, old_glibc, machine, wheel, include, work / f"old-{machine}", qemu)
        if qemu and not short:
            session.step(f"Python on {machine}", other_python, machine, wheel, work / f"python-{machine}", qemu)


if __name__ == "__main__":
    main()
