"""Make a bundle: everything that ``nox -s gpu`` needs on a machine with a driver and no network.

    python -m tools.bundle OUT --ctk 13.0

A bundle is a folder, or one ``.tar``, and is made where there is a package index. It has wheels, a ``manifest.json``
with the sha256 of every file, and ``unbundle.py``, which checks and installs it with Python and pip alone. Volumes are
slices of the ``.tar``. The wheels of CUDA releases have the hashes of ``toolchains.toml``; uv resolves the other
requirements for the target's Python and platform, and pip downloads exactly what uv resolved.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform as machine
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from email.parser import BytesHeaderParser
from importlib import util
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from pytest_cudalink.base.words import counted
from pytest_cudalink.toolchains import ToolchainError, packages, releases_table
from pytest_cudalink.versions import CudaVersion
from tools.unbundle import FORMAT, MANIFEST, VOLUMES, sha256

_ROOT: Final = Path(__file__).parents[1]
MIB: Final = 1 << 20
_UNITS: Final = {"KiB": 1 << 10, "MiB": MIB, "GiB": 1 << 30}
_PLATFORM: Final = re.compile(r"manylinux_2_(\d{1,2})_(x86_64|aarch64)")
_PIN: Final = re.compile(r"^([\w.-]+)==(\S+)((?:[ \\\n]+--hash=sha256:[0-9a-f]{64})+)", re.MULTILINE)
#: glibc 2.5: the oldest that wheels name, as manylinux1.
_OLDEST_GLIBC: Final = 5
_OWN: Final = "pytest-cudalink"
#: What a library of a CUDA release is for, by the name of its wheel without the suffix of CUDA 12.
_LIBRARIES: Final = {
    "nvidia-cuda-nvrtc": "compiles CUDA C++",
    "nvidia-cuda-runtime": "the CUDA runtime and its headers",
    "nvidia-nvjitlink": "links device code",
}
#: Files that an error about the size names.
_SHOWN: Final = 6


@dataclass(frozen=True)
class Wanted:
    """What a bundle has, and for which machine."""

    releases: tuple[CudaVersion, ...]  # CUDA releases; the first is installed, and all are toolchains of the cache
    python: str  # such as "3.12"
    platform: str  # such as "manylinux_2_28_x86_64"
    without: tuple[str, ...] = ()  # packages that the machine has
    max_size: int | None = None  # bytes of all files
    volume_size: int | None = None  # bytes of each volume
    wheel: Path | None = None  # this project's wheel. Default: built from this checkout.


@dataclass(frozen=True)
class Bundle:
    """A bundle that was made."""

    path: Path  # the folder, the `.tar` or the folder of volumes
    size: int  # bytes of all files
    wheels: int
    volumes: tuple[str, ...] = ()  # names of the volumes; empty for a bundle in one piece
    without: tuple[str, ...] = ()  # what the machine must have, as requirements


@dataclass(frozen=True)
class _Pin:
    """One wheel to download: its exact version, the accepted hashes, and what it is for."""

    name: str
    version: str
    hashes: tuple[str, ...] = field(repr=False)
    purpose: str
    release: str = ""

    @property
    def line(self) -> str:
        return " ".join([f"{self.name}=={self.version}", *(f"--hash=sha256:{digest}" for digest in self.hashes)])


def default_python() -> str:
    """Return the version of the running Python, such as ``"3.12"``."""
    return f"{sys.version_info[0]}.{sys.version_info[1]}"


def default_platform() -> str:
    """Return the platform of most machines with a driver, on the processor of this one."""
    return f"manylinux_2_28_{machine.machine()}"


def _size(text: str) -> int:
    """Return the bytes of a size such as ``"60MiB"``."""
    match = re.fullmatch(r"(\d{1,9}) ?([KMG]iB)", text, re.ASCII)
    if match is None or not int(match[1]):
        msg = f"size is {text!r}; expected a number with KiB, MiB or GiB; write, for example, 60MiB"
        raise argparse.ArgumentTypeError(msg)
    return int(match[1]) * _UNITS[match[2]]


def requirements() -> dict[str, str]:
    """Return what each requirement of ``nox -s gpu`` is for, by requirement, without those that depend on a release."""
    return dict(tomllib.loads(Path(__file__).with_name("bundle.toml").read_text(encoding="utf-8"))["requirements"])


def make(
    out: Path,
    wanted: Wanted,
    tell: Callable[[str], object] = lambda _text: None,
    *,
    others: dict[str, str] | None = None,
) -> Bundle:
    """Make a bundle.

    `out`: folder to make, or a file whose name ends in ``.tar``.
    `tell`: called with a short text before each step.
    `others`: replaces `requirements`, for tests.
    Raises ToolchainError if an option does not fit, something cannot be resolved or downloaded, or the bundle is too
    large.
    """
    _check_options(out, wanted)
    out.absolute().parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.absolute().parent) as name:
        folder = Path(name) / "bundle"
        wheels = folder / "wheels"
        wheels.mkdir(parents=True)
        own = _own_wheel(wheels, wanted, tell)
        tell("resolving requirements")
        pins = _resolved(own, wanted, requirements() if others is None else others, Path(name))
        left_out = _left_out(pins, wanted.without)
        kept = [pin for pin in pins if pin not in left_out]
        tell(f"downloading {counted(len(kept), 'wheel')}")
        _download(kept, wheels, wanted)
        _describe(folder, own, kept, left_out, wanted)
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        _check_size(size, wheels, wanted)
        tell("packing")
        volumes = _place(folder, out, wanted.volume_size)
        count = sum(1 for _ in wheels.iterdir()) if wheels.is_dir() else len(kept) + 1
    left = tuple(f"{pin.name}=={pin.version}" for pin in left_out)
    return Bundle(out, size, count, volumes, left)


def _check_options(out: Path, wanted: Wanted) -> None:
    if os.path.lexists(out):
        raise ToolchainError(f"{out} exists; expected a new folder, or a new file .tar; remove it, or name another")
    if out.suffix == ".tar" and wanted.volume_size is not None:
        msg = f"{out} is one file; expected a folder for the volumes of --volume-size; leave out .tar or the option"
        raise ToolchainError(msg)
    if wanted.wheel is not None and not _is_own_wheel(wanted.wheel):
        msg = f"--wheel is {wanted.wheel}; expected a wheel of {_OWN}; name another, or leave the option out"
        raise ToolchainError(msg)
    if not re.fullmatch(r"3\.\d{1,2}", wanted.python):
        raise ToolchainError(f"--python is {wanted.python!r}; expected a version such as 3.12; correct it")
    if not _PLATFORM.fullmatch(wanted.platform):
        raise ToolchainError(
            f"--platform is {wanted.platform!r}; expected manylinux_2_N_x86_64 or manylinux_2_N_aarch64, where 2.N is "
            "the glibc of the machine; `ldd --version` prints it"
        )
    for release in wanted.releases:
        packages(release)  # raises for an unknown one


def _is_own_wheel(path: Path) -> bool:
    try:
        return parse_wheel_filename(path.name)[0] == _OWN and zipfile.is_zipfile(path)
    except InvalidWheelFilename:
        return False


def _glibc_and_processor(platform: str) -> tuple[int, str]:
    """Return 28 and ``"x86_64"`` of ``manylinux_2_28_x86_64``."""
    match = _PLATFORM.fullmatch(platform)
    assert match is not None
    return int(match[1]), match[2]


def _platforms(newest: str) -> list[str]:
    """Return every tag of wheels that run on a platform, newest first."""
    minor, processor = _glibc_and_processor(newest)
    tags = [f"manylinux_2_{number}_{processor}" for number in range(minor, _OLDEST_GLIBC - 1, -1)]
    return [*tags, *(f"{name}_{processor}" for name in ("manylinux2014", "manylinux2010", "manylinux1", "linux"))]


def _own_wheel(folder: Path, wanted: Wanted, tell: Callable[[str], object]) -> Path:
    """Put this project's wheel into a folder; return its path."""
    if wanted.wheel is not None:
        return Path(shutil.copy(wanted.wheel, folder))
    tell("building the wheel of pytest-cudalink")
    processor = _glibc_and_processor(wanted.platform)[1]
    # for every glibc since 2.17, because the target's is not known
    target = {**os.environ, "CUDALINK_WHEEL_TARGET": f"{processor}-linux-gnu.2.17"}
    _run([_uv(), "build", "-q", "--wheel", "--out-dir", str(folder), str(_ROOT)], "the wheel of this checkout", target)
    folder.joinpath(".gitignore").unlink(missing_ok=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def _uv() -> str:
    ours = Path(sys.executable).with_name("uv")
    program = str(ours) if ours.is_file() else shutil.which("uv")
    if program is None:
        raise ToolchainError("making a bundle needs uv, which resolves requirements for other machines; install uv")
    return program


def _pip() -> list[str]:
    """Return the command of pip, which is the installer that downloads wheels without installing them."""
    if util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    return [_uv(), "tool", "run", "-q", "pip", "--disable-pip-version-check"]


def _target(wanted: Wanted) -> list[str]:
    """Return pip's options for the Python and the platform of the machine."""
    options = ["--only-binary=:all:", "--implementation=cp", "--python-version", wanted.python]
    return [*options, *(f"--platform={tag}" for tag in _platforms(wanted.platform))]


def _run(command: Sequence[str], task: str, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.strip().splitlines() if not line.startswith("WARNING")]
        said = "\n".join(f"  {line}" for line in lines[-12:])
        raise ToolchainError(
            f"{task} could not be made or fetched; no bundle was written. Output of {Path(command[0]).name}:\n{said}\n"
            "  Is the package index reachable? Does every package have a wheel for this Python and platform?"
        )
    return done.stdout


def _resolved(own: Path, wanted: Wanted, others: dict[str, str], scratch: Path) -> list[_Pin]:
    """Return every wheel that the bundle needs besides our own, those of the CUDA releases first."""
    first = wanted.releases[0]
    libraries = [pin for release in dict.fromkeys(wanted.releases) for pin in _libraries(release)]
    installed = [pin for pin in libraries if pin.release == str(first)]
    bindings = f"cuda-bindings=={max(first, CudaVersion(12, 9))}.*"
    purposes = {**others, bindings: f"Python's way to CUDA {first}"}
    lines = [*purposes, *_dependencies(own), *(f"{pin.name}=={pin.version}" for pin in installed)]
    file = scratch / "requirements.in"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    minor, processor = _glibc_and_processor(wanted.platform)
    resolved = _run(
        [
            *(_uv(), "pip", "compile", "-q", "--no-header", "--no-annotate", "--generate-hashes", "--no-build"),
            *("--python-version", wanted.python, "--python-platform", f"{processor}-manylinux_2_{minor}", str(file)),
        ],
        "the requirements",
    )
    named = {canonicalize_name(Requirement(requirement).name): purpose for requirement, purpose in purposes.items()}
    known = {pin.name for pin in libraries}
    pins = []
    for name, version, hashes in _PIN.findall(resolved):
        if (plain := canonicalize_name(name)) not in known:
            accepted = tuple(re.findall(r"sha256:([0-9a-f]{64})", hashes))
            pins.append(_Pin(plain, version, accepted, named.get(plain, "a dependency of the others")))
    return [*libraries, *pins]


def _libraries(release: CudaVersion) -> list[_Pin]:
    """Return the wheels of a CUDA release, with the hashes of ``toolchains.toml``."""
    return [
        _Pin(
            str(library["name"]),
            str(library["version"]),
            tuple(library["sha256"]),
            f"CUDA {release}: {_LIBRARIES[str(library['name']).removesuffix('-cu12')]}",
            str(release),
        )
        for library in releases_table()[release]["libs"]
    ]


def _dependencies(own: Path) -> list[str]:
    """Return what our wheel requires, without its extras."""
    with zipfile.ZipFile(own) as wheel:
        name = next(member for member in wheel.namelist() if member.endswith(".dist-info/METADATA"))
        headers = BytesHeaderParser().parsebytes(wheel.read(name))
    requirements = map(Requirement, headers.get_all("Requires-Dist", []))
    return [str(requirement) for requirement in requirements if "extra" not in str(requirement.marker or "")]


def _left_out(pins: Sequence[_Pin], without: Sequence[str]) -> list[_Pin]:
    names = {pin.name for pin in pins}
    wanted = [canonicalize_name(package) for package in without]
    unknown = [package for package in wanted if package not in names]
    if unknown:
        msg = f"--without is {', '.join(unknown)}; expected packages of the bundle: {', '.join(sorted(names))}"
        raise ToolchainError(msg)
    return [pin for pin in pins if pin.name in wanted]


def _download(pins: Sequence[_Pin], folder: Path, wanted: Wanted) -> None:
    """Download wheels; each CUDA release by itself, as releases have the same package in other versions."""
    for release in dict.fromkeys(pin.release for pin in pins):
        file = folder.parent / "wanted.txt"
        file.write_text("".join(f"{pin.line}\n" for pin in pins if pin.release == release), encoding="utf-8")
        command = [*_pip(), "download", "-q", "--no-deps", "--require-hashes", "-d", str(folder), *_target(wanted)]
        _run([*command, "-r", str(file)], f"the wheels of CUDA {release}" if release else "the wheels")
        file.unlink()


def _describe(folder: Path, own: Path, kept: Sequence[_Pin], left_out: Sequence[_Pin], wanted: Wanted) -> None:
    """Write the requirements, the script that installs, and the manifest."""
    shutil.copy(Path(__file__).with_name("unbundle.py"), folder)
    pins = {(pin.name, pin.version): pin for pin in kept}
    entries: list[dict[str, Any]] = []
    for path in sorted((folder / "wheels").iterdir()):
        name, version, *_ = parse_wheel_filename(path.name)
        pin = pins.get((str(name), str(version)))
        purpose = "the project that is tested" if pin is None else pin.purpose
        entry = _entry(folder, path) | {"name": str(name), "version": str(version), "for": purpose}
        if pin is None or pin.release in ("", str(wanted.releases[0])):
            entry["requirement"] = f"{name}=={version}"
        entries.append(entry)
    lines = [f"{entry['requirement']} --hash=sha256:{entry['sha256']}\n" for entry in entries if "requirement" in entry]
    (folder / "requirements.txt").write_text("".join(lines), encoding="utf-8")
    for file, purpose in (("requirements.txt", "what is installed"), ("unbundle.py", "checks and installs")):
        entries.append(_entry(folder, folder / file) | {"for": purpose})
    manifest = {
        "format": FORMAT,
        "made": dt.datetime.now(dt.UTC).date().isoformat(),
        "version": str(parse_wheel_filename(own.name)[1]),
        "python": wanted.python,
        "platform": wanted.platform,
        "releases": [str(release) for release in dict.fromkeys(wanted.releases)],
        "without": [
            {"name": pin.name, "version": pin.version} | ({"release": pin.release} if pin.release else {})
            for pin in left_out
        ],
        "files": entries,
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")


def _entry(folder: Path, path: Path) -> dict[str, Any]:
    return {"file": path.relative_to(folder).as_posix(), "size": path.stat().st_size, "sha256": sha256(path)}


def _check_size(size: int, wheels: Path, wanted: Wanted) -> None:
    """Raise an error that names the largest wheels if the bundle is larger than it may be."""
    if wanted.max_size is None or size <= wanted.max_size:
        return
    largest = sorted(wheels.iterdir(), key=lambda path: -path.stat().st_size)
    names = [str(parse_wheel_filename(path.name)[0]) for path in largest]
    rows = [f"{path.stat().st_size / MIB:8.1f} MiB  {name}" for path, name in zip(largest, names, strict=True)]
    options, left = [], size
    for path, name in zip(largest, names, strict=True):
        if left > wanted.max_size and name != _OWN:
            options.append(f"--without {name}")
            left -= path.stat().st_size
    fits = f"which leaves {left / MIB:.1f} MiB" if left <= wanted.max_size else "which is still too much"
    most = f"{wanted.max_size / MIB:.1f} MiB (--max-size)"
    msg = "\n".join(
        [
            f"the bundle has {size / MIB:.1f} MiB; expected at most {most}. Its largest wheels:",
            *(f"  {row}" for row in rows[:_SHOWN]),
            f"  Leave out what the machine has: {' '.join(options)}, {fits}",
        ]
    )
    raise ToolchainError(msg)


def _place(folder: Path, out: Path, volume_size: int | None) -> tuple[str, ...]:
    """Move a finished bundle to its place, as folder, ``.tar`` or volumes; return the names of the volumes."""
    if out.suffix != ".tar" and volume_size is None:
        folder.chmod(0o755)
        folder.rename(out)
        return ()
    archive = folder.with_name("bundle.tar")
    with tarfile.open(archive, "w:", format=tarfile.GNU_FORMAT) as tar:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                member = tarfile.TarInfo(path.relative_to(folder).as_posix())
                member.size = path.stat().st_size
                with path.open("rb") as stream:
                    tar.addfile(member, stream)
    if volume_size is None:
        archive.rename(out)
        return ()
    split = folder.with_name("volumes")
    split.mkdir()
    entries: list[dict[str, Any]] = []
    with archive.open("rb") as stream:
        while part := stream.read(volume_size):
            path = split / f"bundle.tar.{len(entries) + 1:03}"
            path.write_bytes(part)
            entries.append(_entry(split, path))
    content = {"format": FORMAT, "sha256": sha256(archive), "volumes": entries}
    (split / VOLUMES).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    shutil.copy(folder / "unbundle.py", split)
    split.chmod(0o755)
    split.rename(out)
    return tuple(str(entry["file"]) for entry in entries)


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the bundle that the options describe; return exit code 1 if it cannot be made."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.bundle",
        description="Download the wheels that `nox -s gpu` needs on a machine with a GPU and no network. Its Python "
        "and glibc may differ from this machine's. The bundle has a manifest with hashes, and unbundle.py, which "
        "installs it.",
    )
    parser.add_argument(
        "out", metavar="OUT", type=Path, help="new folder, or new file whose name ends in .tar; it must not exist"
    )
    parser.add_argument(
        "--ctk",
        action="append",
        required=True,
        type=CudaVersion.parse,
        metavar="VERSION",
        help="CUDA release, such as 13.0; may be repeated; the first is installed",
    )
    parser.add_argument(
        "--python",
        default=default_python(),
        metavar="VERSION",
        help="Python of the machine (default: this one's version)",
    )
    parser.add_argument(
        "--platform",
        default=default_platform(),
        metavar="TAG",
        help="such as manylinux_2_28_x86_64, by the machine's glibc (default: 2.28)",
    )
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="PACKAGE",
        help="leave out a package that the machine has; may be repeated",
    )
    parser.add_argument("--max-size", type=_size, metavar="SIZE", help="fail if the bundle is larger, such as 60MiB")
    parser.add_argument("--volume-size", type=_size, metavar="SIZE", help="split into volumes of at most this size")
    parser.add_argument(
        "--wheel", type=Path, metavar="FILE", help="the wheel of this project (default: built from this checkout)"
    )
    options = parser.parse_args(arguments)
    wanted = Wanted(
        tuple(options.ctk),
        options.python,
        options.platform,
        tuple(options.without),
        options.max_size,
        options.volume_size,
        options.wheel,
    )
    try:
        made = make(options.out, wanted, lambda text: sys.stderr.write(f"{text}\n"))
    except ToolchainError as error:
        sys.stderr.write(f"bundle: {error}\n")
        return 1
    lines = [f"{made.path}: {counted(made.wheels, 'wheel')}, {made.size / MIB:.1f} MiB"]
    lines += [f"  volume {name}" for name in made.volumes]
    lines += [f"  the machine must have {package}" for package in made.without]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
