"""Makes a folder that looks like a CUDA toolkit of the system, from a toolchain of the cache or installed wheels."""

from __future__ import annotations

import difflib
import json
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple

from ..compat.wheels import installed_wheels
from ..versions import CudaVersion
from . import ToolchainError, find, installed

#: How a toolkit is laid out: by NVIDIA's installer, with everything below ``targets``, or by conda.
SystemLayout = Literal["lib64", "targets", "conda"]

_LAYOUTS: Final = ("lib64", "targets", "conda")
_PARTS: Final = ("lib", "include", "bin", "nvvm")
_LIBRARY: Final = re.compile(r"(?P<link>lib(?P<name>[\w-]+)(?:\.alt)?\.so)(?:\.\d[\d.]*)?")
_MACHINE: Final = {"aarch64": "sbsa-linux"}.get(platform.machine(), f"{platform.machine()}-linux")


class SystemToolkit(NamedTuple):
    """A toolkit that `make` has made."""

    version: CudaVersion
    layout: SystemLayout  # "lib64", "targets" or "conda"
    root: Path  # what `CUDA_PATH` names; the prefix of a conda layout
    lib: Path
    include: Path
    bin: Path
    # variables by which programs find it: `CUDA_PATH`, `CUDA_HOME`, `LD_LIBRARY_PATH` with this folder first; for conda
    # `CONDA_PREFIX` and `LD_LIBRARY_PATH`
    environment: dict[str, str]

    def library(self, name: str) -> Path:
        """Path of a library under its SONAME; the name is as in cuda.pathfinder: ``"cudart"``, ``"nvJitLink"``.

        Raises ToolchainError if this toolkit has no such library.
        """
        found = min(self.lib.glob(f"lib{name}.so.*"), key=lambda path: len(path.name), default=None)
        if found is None:
            known = sorted({path.name[3:].partition(".so")[0] for path in self.lib.glob("lib*.so.*")})
            msg = f"the toolkit {self.root} has no library {name!r}; it has: {', '.join(known)}"
            raise ToolchainError(msg)
        return found


def make(
    root: Path, version: str | None = None, *, layout: SystemLayout = "lib64", libraries: Sequence[str] = ()
) -> SystemToolkit:
    """Make a toolkit in a folder.

    `root`: created with its parents.
    `version`: a CUDA release in the cache of toolchains; by default that of the installed wheels, or else the newest
    one of the cache.
    `layout`: ``"lib64"``: ``lib64``, ``include``, ``bin`` and ``version.json``. ``"targets"``: as NVIDIA's installer
    does it, with ``lib64`` and ``include`` as links into ``targets/x86_64-linux``. ``"conda"``: ``lib``,
    ``targets/x86_64-linux/include``, and records in ``conda-meta``.
    `libraries`: the shared libraries that it has, such as ``["cudart", "nvrtc"]``; by default all, which may be 200 MB.
    Raises ValueError if there is no such layout.
    Raises FileExistsError if the folder exists.
    Raises ToolchainError if the release is not in the cache, or has no such library.
    """
    if layout not in _LAYOUTS:
        msg = f"the layout of the toolkit is {layout!r}; expected one of {', '.join(_LAYOUTS)}"
        raise ValueError(msg)
    release, whole, sources = _sources(version)
    _check(libraries, sources, release)
    try:
        root.mkdir(parents=True)
    except FileExistsError:
        msg = f"{root} exists already; make each toolkit in its own folder (of the fixture: place=...)"
        raise FileExistsError(msg) from None
    base = root if layout == "lib64" else root / "targets" / _MACHINE
    lib = {"lib64": root / "lib64", "targets": base / "lib", "conda": root / "lib"}[layout]
    places = {"lib": lib, "include": base / "include", "bin": root / "bin", "nvvm": root / "nvvm"}
    for part in ("lib", "include", "bin"):
        places[part].mkdir(parents=True, exist_ok=True)
    for part, source in sources:
        _put(source, places[part], libraries)
    _name_in_full(lib)
    if layout == "targets":
        (root / "lib64").symlink_to(lib.relative_to(root))
        (root / "include").symlink_to(places["include"].relative_to(root))
    if layout == "conda":
        _write_conda_meta(root, lib, whole)
    elif not (root / "version.json").exists():
        (root / "version.json").write_text(json.dumps({"cuda": {"name": "CUDA SDK", "version": whole}}))
    shown = lib if layout == "conda" else root / "lib64"
    named = {"CONDA_PREFIX": str(root)} if layout == "conda" else {"CUDA_PATH": str(root), "CUDA_HOME": str(root)}
    before = os.environ.get("LD_LIBRARY_PATH")
    environment = {**named, "LD_LIBRARY_PATH": f"{shown}{os.pathsep}{before}" if before else str(shown)}
    return SystemToolkit(release, layout, root, shown, places["include"], places["bin"], environment)


def _sources(version: str | None) -> tuple[CudaVersion, str, list[tuple[str, Path]]]:
    """Return the release, its version in full, and the folders to take, each with the part that it is."""
    if version is None and (found := list(_of_wheels())):
        whole = next(one.version for one in installed_wheels("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12"))
        return CudaVersion.parse(whole), whole, found
    if version is None:
        known = installed()
        if not known:
            msg = "no toolkit can be made: no CUDA wheels are installed, and the cache of toolchains is empty; run: "
            raise ToolchainError(f"{msg}cudalink toolchain add latest")
        chain = known[-1]
    else:
        chain = find(version)
    parts = [(part, chain.path / ("lib64" if part == "lib" else part)) for part in _PARTS]
    whole = next((one for name, one in chain.packages.items() if "cuda-runtime" in name), str(chain.version))
    return chain.version, whole, [(part, path) for part, path in parts if path.is_dir()]


def _check(wanted: Sequence[str], sources: Sequence[tuple[str, Path]], release: CudaVersion) -> None:
    """Raise an error for the name of a library that the release does not have."""
    if not wanted:
        return
    files = (path.name for part, source in sources if part != "include" for path in source.rglob("lib*.so*"))
    known = {match["name"].partition("-")[0] for name in files if (match := _LIBRARY.fullmatch(name)) is not None}
    for name in wanted:
        if name not in known:
            near = difflib.get_close_matches(name.removeprefix("lib"), known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(sorted(known))}"
            msg = f"the libraries of CUDA {release} on this machine do not include {name!r}; {hint}"
            raise ToolchainError(msg)


def _of_wheels() -> Iterator[tuple[str, Path]]:
    """Yield the folders of the installed wheels of NVIDIA: ``nvidia/cu13/lib``, or ``nvidia/cuda_runtime/lib``."""
    runtimes = ("cu13", "cuda_runtime")
    for entry in dict.fromkeys(sys.path):
        folder = Path(entry or ".") / "nvidia"
        if not any((folder / name / "lib").is_dir() for name in runtimes):
            continue
        for product in sorted(folder.iterdir()):
            yield from ((part, product / part) for part in _PARTS if (product / part).is_dir())
        return


def _put(source: Path, target: Path, wanted: Sequence[str]) -> None:
    """Copy the files of a folder into another one, of the shared libraries only those that are wanted.

    They are no hard links: to the loader, two links of one file are one library.
    """

    def skip(_folder: str, names: list[str]) -> list[str]:
        shared = {name: match["name"] for name in names if (match := _LIBRARY.fullmatch(name)) is not None}
        unwanted = [name for name, stem in shared.items() if wanted and stem.partition("-")[0] not in wanted]
        return [*unwanted, *(name for name in names if name == "__pycache__" or name.endswith(".py"))]

    shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True, ignore=skip)


def _name_in_full(lib: Path) -> None:
    """Add the links that compilers need, such as ``libcudart.so``, which wheels lack."""
    for file in sorted(lib.glob("lib*.so.*")):
        match = _LIBRARY.fullmatch(file.name)
        if match is not None and not os.path.lexists(lib / match["link"]):
            (lib / match["link"]).symlink_to(file.name)


def _write_conda_meta(root: Path, lib: Path, version: str) -> None:
    """Write the record of one package for each library, as conda does."""
    folder = root / "conda-meta"
    folder.mkdir()
    (folder / "history").write_text("")
    for file in sorted(lib.glob("lib*.so.*")):
        name = f"cuda-{file.name[3:].partition('.so')[0].lower()}"
        record = {"name": name, "version": version, "build": "0", "files": [str(file.relative_to(root))]}
        (folder / f"{name}-{version}-0.json").write_text(json.dumps(record))
