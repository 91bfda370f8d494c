"""Toolchains: the libraries of any CUDA release, unpacked from NVIDIA's wheels into the user's cache.

A toolchain is a folder ``toolchains/13.0`` of the cache with ``include/`` and ``lib64/`` (nvJitLink, NVRTC, cudart), or
``toolchains/13.0-ctk`` that looks like an installed toolkit, with ``bin/``, ``nvvm/`` and ``version.json``. It is made
in a temporary folder and then renamed, so that the cache never has half of one. A toolchain is downloaded once: one
process fetches what a run needs before it begins, and the others wait.
"""

import importlib.util
import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import urlsplit

from ..base.progress import progress, run_and_tell
from ..base.tables import read_table
from ..compat.releases import STAND_INS, not_a_branch
from ..versions import CudaVersion
from . import folders
from .folders import ToolchainError as ToolchainError
from .folders import UntrustedError as UntrustedError

Layout = Literal["libs", "ctk"]
_LAYOUTS: Final[tuple[Layout, ...]] = ("libs", "ctk")
#: The program that downloads wheels; None for the one that is there.
_Program = Literal["uv", "pip"] | None
#: Called with a short text whenever there is news.
_Tell = Callable[[str], object]
#: What `add` downloads for a release, from the smallest to the largest; `python -m tools.make_toolchains` adds
#: up the wheels of each on the package index (2026-11-23).
DOWNLOADS: Final[dict[Layout, str]] = {"libs": "44 to 133 MB", "ctk": "65 to 235 MB"}

_MANIFEST = "toolchain.json"
#: Most bytes of a manifest; that of the largest toolchain has 2 KB.
_MOST_MANIFEST: Final = 1 << 20
#: What wheels have besides the files of a toolkit; folders of CCCL have names such as ``__algorithm``.
_OF_PYTHON: Final = shutil.ignore_patterns("__init__.py", "__pycache__")
#: Names of `version.json` in an installed toolkit, by the package that brings the component.
_COMPONENTS: Final = {
    "nvidia-cuda-runtime": ("cuda_cudart", "CUDA Runtime (cudart)"),
    "nvidia-cuda-nvrtc": ("cuda_nvrtc", "CUDA NVRTC"),
    "nvidia-nvjitlink": ("libnvjitlink", "CUDA nvJitLink"),
    "nvidia-cuda-nvcc": ("cuda_nvcc", "CUDA NVCC"),
    "nvidia-cuda-cccl": ("cuda_cccl", "CUDA C++ Core Compute Libraries"),
    "nvidia-cuda-crt": ("cuda_crt", "CUDA CRT"),
    "nvidia-nvvm": ("libnvvm", "CUDA NVVM"),
}


class Toolchain(NamedTuple):
    """The libraries of one CUDA release in the cache."""

    version: CudaVersion
    path: Path  # its folder
    layout: Layout  # "libs", or "ctk" for one that looks like an installed toolkit
    packages: dict[str, str]  # versions of the wheels that it was made from, by name

    @property
    def lib(self) -> Path:
        return self.path / "lib64"

    @property
    def include(self) -> Path:
        return self.path / "include"

    def library(self, name: str) -> Path:
        """Path of a library, which is named as in cuda.pathfinder: ``"nvJitLink"``, ``"nvrtc"``, ``"cudart"``.

        Raises ToolchainError if this toolchain has no such library; the message lists those that it has.
        """
        files = sorted(self.lib.glob(f"lib{name}.so.*"))
        if not files:
            known = sorted(path.name[3:].partition(".so")[0] for path in self.lib.glob("lib*.so.*"))
            raise ToolchainError(f"the toolchain {self.path} has no library {name!r}; it has: {', '.join(known)}")
        return files[0]


def cache_root() -> Path:
    """Folder of the cache: ``$CUDALINK_CACHE``, else ``pytest-cudalink`` in the user's cache folder.

    On Linux that is ``$XDG_CACHE_HOME``, or ``~/.cache`` where the variable is unset or relative.
    """
    if given := os.environ.get("CUDALINK_CACHE"):
        return Path(given).expanduser().absolute()
    if sys.platform == "linux":
        # what platformdirs answers; every run with an emulated driver asks, and would pay for its import
        caches, home = (Path(os.environ.get(name, "")) for name in ("XDG_CACHE_HOME", "HOME"))
        if caches.is_absolute() or home.is_absolute():
            return (caches if caches.is_absolute() else home / ".cache") / "pytest-cudalink"
    from platformdirs import user_cache_path

    return user_cache_path("pytest-cudalink", appauthor=False)


@cache
def releases_table() -> dict[CudaVersion, dict[str, Any]]:
    """Return the entry of each release in ``toolchains.toml``: its wheels and their hashes."""
    return {CudaVersion.parse(name): entry for name, entry in read_table("toolchains.toml")["releases"].items()}


def releases() -> tuple[CudaVersion, ...]:
    """Every CUDA release that has wheels, oldest first."""
    return tuple(sorted(releases_table()))


def _release(version: str | tuple[int, int]) -> CudaVersion:
    if not isinstance(version, str):
        return CudaVersion(*version)
    try:
        release = max(releases()) if version == "latest" else not_a_branch(version)
    except ValueError as error:
        raise ToolchainError(str(error)) from error
    if version.count(".") > 1:
        msg = f"{version!r} has three numbers, and a toolchain has the newest wheels of its release; write {release}"
        raise ToolchainError(msg)
    return release


def _entry(version: str | tuple[int, int]) -> dict[str, Any]:
    """Return the entry of a release; an error without wheels of it."""
    release = _release(version)
    if fault := _fault(release):
        raise ToolchainError(fault)
    return releases_table()[release]


def packages(version: str | tuple[int, int]) -> dict[str, str]:
    """Exact versions of the wheels of a release's libraries, by name.

    Raises ToolchainError if there are no wheels of that release.
    """
    return {library["name"]: library["version"] for library in _entry(version)["libs"]}


def toolkit_version(version: str | tuple[int, int]) -> str:
    """Version of the metapackage ``cuda-toolkit`` of a release, such as ``"13.0.3"``.

    Raises ToolchainError if there are no wheels of that release.
    """
    return str(_entry(version)["toolkit"])


def folder(version: str | tuple[int, int], layout: Layout = "libs") -> Path:
    """Folder of the toolchain of a release, whether it exists or not."""
    return cache_root() / "toolchains" / _name(_release(version), layout)


def _name(version: CudaVersion, layout: Layout) -> str:
    return f"{version}-ctk" if layout == "ctk" else str(version)


def check_cache() -> bool:
    """Return whether the cache can be read; raise an error if another user could have changed it.

    Raises UntrustedError with the command that mends it.
    """
    root = cache_root()
    if there := folders.check_folder(root):
        folders.check_parents(root)
    return there


def _read(folder: Path) -> Toolchain | None:
    """Return the toolchain of a folder; None if there is none or it is incomplete.

    Raises UntrustedError if another user could have changed it, or its manifest disagrees with it.
    """
    if not (check_cache() and folders.check_folder(folder.parent) and folders.check_folder(folder)):
        return None
    try:
        manifest = json.loads(folders.read_start(folder / _MANIFEST, _MOST_MANIFEST))
        kit = Toolchain(CudaVersion.parse(manifest["version"]), folder, manifest["layout"], dict(manifest["packages"]))
        sizes = dict(manifest.get("libraries", {}))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    _check_content(kit, sizes)
    return kit


def _check_content(toolchain: Toolchain, sizes: dict[str, int]) -> None:
    """Raise an error if a toolchain is not what its manifest says, or has files of another user."""
    if toolchain.layout not in ("libs", "ctk") or _name(toolchain.version, toolchain.layout) != toolchain.path.name:
        raise _disagrees(toolchain.path, f"its manifest says {toolchain.version} in the layout {toolchain.layout!r}")
    for entry in list(os.scandir(toolchain.path)):
        if entry.is_symlink():
            raise _disagrees(toolchain.path, f"{entry.name} is a symbolic link")
        folders.check_entry(Path(entry.path), entry.stat())
    actual = {}
    for entry in list(os.scandir(toolchain.lib)) if toolchain.lib.is_dir() else ():
        status = entry.stat(follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            if os.path.basename(target := os.readlink(entry.path)) != target:  # noqa: PTH115, PTH119 (a text)
                raise _disagrees(toolchain.path, f"lib64/{entry.name} leads out of its folder, to {target}")
            continue
        folders.check_entry(Path(entry.path), status)
        actual[entry.name] = status.st_size
    for name, size in sizes.items():
        if actual.get(name) != size:
            has = f"{actual[name]} bytes" if name in actual else "nothing"
            raise _disagrees(toolchain.path, f"lib64/{name} should have {size} bytes and has {has}")


def _disagrees(folder: Path, reason: str) -> UntrustedError:
    version, _, layout = folder.name.partition("-")
    option = f" --layout {layout}" if layout else ""
    command = f"rm -r {shlex.quote(str(folder))}; cudalink toolchain add {version}{option}"
    return UntrustedError(f"{folder} is not the toolchain that its name promises: {reason}. Run: {command}")


def installed() -> list[Toolchain]:
    """Every toolchain of the cache, oldest release first.

    Raises UntrustedError if another user could have changed one, or its manifest disagrees with it.
    """
    folder = cache_root() / "toolchains"
    if not (check_cache() and folders.check_folder(folder)):
        return []
    kits = (_read(path) for path in folder.iterdir() if not path.name.startswith("."))
    return sorted((kit for kit in kits if kit is not None), key=lambda kit: (kit.version, kit.layout != "libs"))


def find(version: str | tuple[int, int], layout: Layout | None = None) -> Toolchain:
    """The toolchain of a release.

    `version`: ``"13.0"``, ``"latest"`` or ``(13, 0)``.
    `layout`: by default either layout is returned, ``"libs"`` first.
    Raises ToolchainError if it is not in the cache, or cannot be trusted; the message has the command that fetches or
    mends it.
    """
    release = _release(version)
    for kept_as in _LAYOUTS if layout is None else (layout,):
        if (kit := _read(folder(release, kept_as))) is not None:
            return kit
    what = f"the toolchain of CUDA {release}" + (" in the layout 'ctk'" if layout == "ctk" else "")
    option = " --layout ctk" if layout == "ctk" else ""
    remedy = _fault(release) or f"run: cudalink toolchain add {release}{option}"
    raise ToolchainError(f"{what} is not in {cache_root() / 'toolchains'}; {remedy}")


def library_path(version: str | tuple[int, int], library: str = "nvJitLink") -> Path:
    """Path of a library of one CUDA release.

    Raises ToolchainError if the cache does not have that release (the message names ``cudalink toolchain add
    VERSION``), or if the release has no such library.
    """
    return find(version).library(library)


def _fault(release: CudaVersion) -> str:
    """Why a release cannot have a toolchain; empty if it can."""
    if release in releases_table():
        return ""
    known = ", ".join(map(str, releases()))
    if release in STAND_INS:
        before = max(listed for listed in releases_table() if listed < release)
        return f"NVIDIA published no wheels of CUDA {release}; use {before} or {STAND_INS[release]} (known: {known})"
    return f"no wheels of CUDA {release} are known; known: {known}"


def remove(version: str | tuple[int, int]) -> list[Path]:
    """Delete a release from the cache, in both layouts; returns the deleted folders.

    Raises ToolchainError if the cache does not have it, or if it cannot be deleted.
    """
    release = _release(version)
    check_cache()
    gone = []
    for layout in _LAYOUTS:
        place = folder(release, layout)
        if place.is_dir():
            with folders.locked(*_lock_file(place)):
                # renamed first, so that no process finds half of it
                dying = place.parent / f".dying-{place.name}"
                shutil.rmtree(dying, ignore_errors=True)  # left by a killed process
                try:
                    dying.mkdir(mode=0o700)
                    place.rename(dying / place.name)
                    shutil.rmtree(dying)
                except OSError as error:
                    raise ToolchainError(f"{place} cannot be deleted: {error}") from error
                finally:
                    shutil.rmtree(dying, ignore_errors=True)
            gone.append(place)
    if not gone:
        raise ToolchainError(f"the toolchain of CUDA {release} is not in {cache_root() / 'toolchains'}")
    return gone


def add(
    version: str | tuple[int, int], layout: Layout = "libs", installer: _Program = None, tell: _Tell | None = None
) -> Toolchain:
    """Fetch a release into the cache, unless the cache has it; returns its toolchain.

    `layout`: ``"libs"``, or ``"ctk"`` for a folder that looks like an installed toolkit.
    `installer`: the program that downloads the wheels and checks their sha256: ``"uv"`` or ``"pip"``. Default: uv where
    it is installed, else pip.
    `tell`: called with a short text whenever there is news of the download.
    Raises ToolchainError if there are no wheels of that release, the installer fails, or the cache cannot be written.
    """
    _entry(version)  # an error without wheels
    release, place = _release(version), folder(version, layout)
    if (present := _read(place)) is not None:
        return present
    try:
        return _fetch(release, layout, installer, place, tell)
    except OSError as error:
        where = f"{place.parent}: {error}; $CUDALINK_CACHE names another"
        raise ToolchainError(f"the toolchain of CUDA {release} cannot be put into {where}") from error


def _fetch(release: CudaVersion, layout: Layout, installer: _Program, place: Path, tell: _Tell | None) -> Toolchain:
    folders.make_folder(place.parent)
    check_cache()
    with folders.locked(*_lock_file(place)):
        for left in place.parent.glob(f".{place.name}-????????"):  # left by a killed process
            shutil.rmtree(left, ignore_errors=True)
        if (present := _read(place)) is not None:  # another process made it while we waited
            return present
        scratch = place.parent / f".{place.name}-{os.getpid():08x}"
        try:
            scratch.mkdir(mode=0o700)
            _make(release, layout, scratch, installer, tell)
            if place.exists():  # without a manifest: incomplete
                shutil.rmtree(place)
            (scratch / "new").rename(place)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return find(release, layout)


def _make(release: CudaVersion, layout: Layout, scratch: Path, installer: _Program, tell: _Tell | None) -> None:
    entry = releases_table()[release]
    packages = [*entry["libs"], *(entry["ctk"] if layout == "ctk" else ())]
    requirements = scratch / "requirements.txt"
    lines = [
        " ".join([f"{row['name']}=={row['version']}", *(f"--hash=sha256:{value}" for value in row["sha256"])])
        for row in packages
    ]
    requirements.write_text("\n".join(lines) + "\n", encoding="utf-8")
    site, new = scratch / "site", scratch / "new"
    arguments = ["--no-deps", "--require-hashes", "--target", str(site), "-r", str(requirements)]
    run_installer([*_installer(installer), *arguments], release, tell)
    new.mkdir()
    # nvidia/cu13/lib of CUDA 13, nvidia/nvjitlink/lib of CUDA 12
    for component in sorted(site.glob("nvidia/*/")):  # of a file that two wheels have, the same one stays
        for part in component.iterdir():
            if part.is_dir() and not part.name.startswith((".", "__")):
                place = new / ("lib64" if part.name == "lib" else part.name)
                shutil.copytree(part, place, ignore=_OF_PYTHON, copy_function=os.rename, dirs_exist_ok=True)
    versions = {row["name"]: row["version"] for row in packages}
    if layout == "ctk":
        _name_in_full(new / "lib64", versions)
    for library in sorted((new / "lib64").glob("lib*.so.*")):
        plain = library.with_name(library.name.partition(".so")[0] + ".so")
        if not plain.exists():
            plain.symlink_to(library.name)
    if layout == "ctk":
        (new / "version.json").write_text(_version_json(entry["toolkit"], versions), encoding="utf-8")
    libraries = {path.name: path.lstat().st_size for path in sorted((new / "lib64").iterdir()) if not path.is_symlink()}
    manifest = {"version": str(release), "layout": layout, "packages": versions, "libraries": libraries}
    (new / _MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n", encoding="utf-8")
    folders.own_only(new)


def _name_in_full(folder: Path, versions: dict[str, str]) -> None:
    """Name libraries as an installed toolkit does, ``libnvrtc.so.13`` being a link to ``libnvrtc.so.13.0.88``.

    cuda-bindings reads the version of NVRTC from the name of the file.
    """
    for package, name in (
        ("nvidia-cuda-nvrtc", "nvrtc"),
        ("nvidia-nvjitlink", "nvJitLink"),
        ("nvidia-cuda-runtime", "cudart"),
    ):
        version = versions.get(package) or versions[f"{package}-cu12"]
        for library in folder.glob(f"lib{name}.so.[0-9]*"):
            full = library.with_name(f"lib{name}.so.{version}")
            library.rename(full)
            library.symlink_to(full.name)


def _version_json(toolkit: str, packages: dict[str, str]) -> str:
    """Content of ``version.json``, which gives the version of an installed toolkit."""
    content = {"cuda": {"name": "CUDA SDK", "version": toolkit}}
    for package, version in packages.items():
        key, name = _COMPONENTS[package.removesuffix("-cu12")]
        content[key] = {"name": name, "version": version}
    return json.dumps(content, indent=3) + "\n"


def _installer(wanted: _Program) -> list[str]:
    """Command of uv or pip that installs wheels; the caller adds what and where."""
    if wanted != "pip":
        ours = Path(sys.executable).with_name("uv")
        uv = str(ours) if ours.is_file() else shutil.which("uv")
        if uv:
            return [uv, "pip", "install", "-q", "--no-build", "--python", sys.executable]
    if wanted != "uv" and importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "install", "-q", "--only-binary=:all:", "--disable-pip-version-check"]
    needed = wanted or "uv or pip"
    msg = f"fetching wheels needs {needed}; neither PATH nor the folder of {sys.executable} has it; install uv"
    raise ToolchainError(msg)


def run_installer(command: Sequence[str], release: CudaVersion, tell: _Tell | None = None) -> None:
    """Run the command that fetches the wheels of a release.

    `tell`: called with a short text whenever there is news of the download.
    Raises ToolchainError if the command fails, with the end of its output.
    """
    if tell is None:
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 (a command of ours)
        code, output = done.returncode, done.stderr
    else:
        code, output = run_and_tell(command, tell)
    if code:
        said = "\n".join(f"  {line}" for line in output.strip().splitlines()[-12:])
        raise ToolchainError(
            f"the wheels of CUDA {release} could not be fetched; nothing was changed. "
            f"Output of {Path(command[0]).name}:\n{said}\n"
            "  Is the package index reachable? Is there a wheel for this platform (Linux x86-64 and aarch64)?"
        )


def _lock_file(folder: Path) -> tuple[Path, str]:
    """Folder and name of the lock file of one toolchain."""
    return folder.parent, f".{folder.name}.lock"


#: Variables that name the package index, by the program that reads them, the first that counts first.
_INDEX: Final = {"uv": ("UV_DEFAULT_INDEX", "UV_INDEX_URL"), "pip": ("PIP_INDEX_URL",)}
_MB: Final = 1_000_000


def provide(versions: Sequence[CudaVersion], say: _Tell) -> list[str]:
    """Fetch the releases that the cache lacks, and show the progress.

    `say`: called with a sentence before each wait.
    Returns a sentence on each that this process fetched or waited for.
    Raises ToolchainError if one cannot be fetched; the message names the command that fetches it.
    """
    return [fetched for version in versions if (fetched := _provide(version, say)) is not None]


def _provide(version: CudaVersion, say: _Tell) -> str | None:
    place = folder(version)
    with suppress(ToolchainError):
        find(version, "libs")
        return None
    began = time.perf_counter()
    try:
        source = _source()
        if folders.is_locked(*_lock_file(place)):
            say(f"waiting for the process that fetches the toolchain {version} into {place}")
        else:
            say(f"fetching the toolchain {version} ({DOWNLOADS['libs']}) from {source} into {place}")
        with progress(f"fetching toolchain {version}") as step:
            made = add(version, tell=step.say)
    except ToolchainError as error:
        if isinstance(error.__cause__, OSError):  # of the cache, which no network mends; the error names the variable
            raise
        fetched = f"`cudalink toolchain add {version}` puts it into {cache_root()}"
        raise ToolchainError(f"{error}\nWith a network, {fetched}; $CUDALINK_CACHE names another cache") from error
    size = sum(path.stat().st_size for path in made.path.rglob("*") if path.is_file() and not path.is_symlink())
    how = f"{size / _MB:.0f} MB on the disk, {time.perf_counter() - began:.0f} s"
    return f"toolchain {version} was fetched from {source} ({how}) into {made.path}"


def _source() -> str:
    """Return the package index that the installer reads, without the password that its address may have."""
    installer = Path(_installer(None)[0]).name
    for name in _INDEX["uv" if installer == "uv" else "pip"]:
        if match := re.search(r"\w+://\S+", os.environ.get(name, "")):
            address = urlsplit(match[0])
            return address._replace(netloc=address.netloc.rpartition("@")[2]).geturl()
    return f"the package index of {'uv' if installer == 'uv' else 'pip'}"
