"""The questions that the doctor asks this machine. Tests and other programs answer them with their own `System`."""

import importlib.util
import os
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

from .. import probes
from ..audit.environment import EnvironmentAudit, audit_environment
from ..base import elf
from ..base.install_command import Installer, installer_here
from ..environment.installed import Place, find_place, read_distributions
from ..environment.loader_search import found_by_name, is_any_reached
from ..guardrails import _pathfinder, attribution
from ..guardrails._pathfinder import ResolutionError
from ..guardrails.guard import make_item
from ..guardrails.items import ALREADY_LOADED, Fact, Item, ItemKind
from ..loader.loads import loaded_file
from ..versions import CudaVersion

#: `Copy.role` of a library that is in the process that asks.
IN_PROCESS: Final = "loaded in this process"

_LOOKUPS: Final[dict[ItemKind, str]] = {
    "headers": "locate_nvidia_header_directory",
    "static-libs": "locate_static_lib",
    "bitcode-libs": "locate_bitcode_lib",
    "binaries": "find_nvidia_binary_utility",
}
#: Prefixes that are no environment.
_OF_SYSTEM: Final = (Path("/usr"), Path("/usr/local"))
_SHADOWED: Final = ("cudart", "nvrtc", "nvJitLink")
#: The libraries that the page lists.
LIBRARIES: Final = ("cudart", "nvrtc", "nvJitLink", "nvvm", "nvfatbin")


def _is_below(path: str, prefix: Path) -> bool:
    """Whether a file is in an environment: not one of /usr/local/cuda for the Python of a system or of an image."""
    return prefix not in _OF_SYSTEM and Path(path).is_relative_to(prefix)


@dataclass(frozen=True)
class Copy:
    """Another copy of a library."""

    name: str
    path: str
    role: str  # "loaded in this process", or "first for the loader as libnvrtc.so.13"
    version: CudaVersion | None
    witness: str


class DriverFile(NamedTuple):
    """The driver library of this process."""

    kind: str | None  # "real", "emulated" or "given"; None without a driver
    path: str | None = None
    arch: str | None = None  # architecture of its device, such as "sm_90"


class System:
    """The machine and the process that ask. No answer loads a library of a toolkit into the process.

    `audit`: that of the environment; default: it is made where it is asked for.
    `arch`: of the GPU where the driver's version is given.
    """

    # programs that answer the questions themselves may not call this
    _audit: EnvironmentAudit | None = None
    _arch: str | None = None
    _place: Place | None = None
    _searched: Mapping[str, _pathfinder.Resolved | ResolutionError | None] = MappingProxyType({})

    def __init__(self, audit: EnvironmentAudit | None = None, arch: str | None = None) -> None:
        self._audit, self._arch = audit, arch

    def driver(self, cuda: Fact) -> DriverFile:
        """The driver library behind a CUDA version; without file where the version was given or faked."""
        from ..emulator import preload

        if cuda.value is None:
            return DriverFile(None)
        if cuda.stated:
            return DriverFile("given", arch=self._arch)
        kind = "emulated" if preload.emulated_driver() else "real"
        return DriverFile(kind, loaded_file("libcuda.so.1"), probes.device_arch())

    def item(self, kind: ItemKind, name: str) -> Item | None:
        """The item that a look-up finds; None where it finds none.

        Raises ResolutionError if only loading the library would answer.
        """
        if kind == "binaries" and (program := _pathfinder.program_of_wheels(name)):
            return make_item(kind, name, program, "site-packages")
        if kind == "binaries" and name not in _pathfinder.program_names():
            return None  # cuda.pathfinder 1.5.0 does not know ptxas
        found_at: Any
        try:
            found_at = self._library(name) if kind == "dynamic-libs" else _pathfinder.plain(_LOOKUPS[kind])(name)
        except ResolutionError:
            raise
        except RuntimeError:  # each look-up has its own "not found" error
            return None
        if isinstance(found_at, str):
            return make_item(kind, name, found_at, "the search for programs")
        if isinstance(found_at, _pathfinder.Resolved):
            return make_item(kind, name, found_at.path, found_at.found_via)
        return make_item(kind, name, found_at.abs_path, found_at.found_via) if found_at and found_at.abs_path else None

    def _library(self, name: str) -> _pathfinder.Resolved | None:
        """What a search for a library finds: one process answers for all that the page lists, another for the rest."""
        if name not in self._searched:
            names = LIBRARIES if name in LIBRARIES else self.other_libraries()
            self._searched = {**self._searched, **_pathfinder.resolve_all({name, *names})}
        answer = self._searched[name]
        if isinstance(answer, ResolutionError):
            raise answer
        return answer

    def other_libraries(self) -> list[str]:
        """The names of the toolkit's libraries that the page does not list."""
        return sorted(_pathfinder.library_names().difference(LIBRARIES))

    def damage(self, item: Item) -> str:
        """What is wrong with the file of a library, of which the loader would die; empty if nothing is."""
        return elf.damage(item.path)

    def lacks(self, item: Item, place: str) -> bool:
        """Whether a file that a library opens at run time is not at its place from the library's folder."""
        file = Path(item.path)
        return file.is_file() and not any((path.parent / place).exists() for path in (file, file.resolve()))

    def finds(self, item: Item, name: str) -> bool:
        """Whether programs that load a library find a file which lies in its folder, and which it opens by name.

        In wheels they do: cuda.pathfinder 1.5.0 to 1.9.1 loads the builtins of NVRTC 13.0, which has no RUNPATH, first.
        """
        if item.found_via in ("site-packages", ALREADY_LOADED) or is_any_reached(item.path, [name], found_by_name()):
            return True
        try:
            return _pathfinder.is_opened(item.name, name)
        except ResolutionError:
            return True  # not known

    def copies_in_process(self) -> Iterator[Copy]:
        """The toolkit's libraries that are loaded in this process."""
        for name, path in attribution.loaded_libraries(_pathfinder.stems()):
            fact = attribution.attribute(path)
            yield Copy(name, path, IN_PROCESS, fact.value, fact.witness)

    def copies_for_loader(self) -> Iterator[Copy]:
        """The files that the dynamic loader finds first, by file name alone.

        Raises ResolutionError if the loader cannot be asked.
        """
        for soname, path in _pathfinder.first_for_loader(_SHADOWED).items():
            name = _pathfinder.stems().get(soname.partition(".so")[0], soname)
            fact = attribution.attribute(path)
            yield Copy(name, path, f"first for the loader as {soname}", fact.value, fact.witness)

    def has_bindings(self) -> bool:
        """Whether cuda-bindings is there with its nvJitLink module; it is not imported, as it may be damaged."""
        spec = importlib.util.find_spec("cuda")
        folders = (spec and spec.submodule_search_locations) or ()
        return any(any(Path(folder, "bindings").glob("nvjitlink.*so")) for folder in folders)

    def installer(self, items: Iterable[Item]) -> Installer:
        """What installs CUDA's packages here: conda unless items are of wheels, which precede its own; pip, else uv."""
        return installer_here(by_conda=not any(item.wheel for item in items))

    def is_outside(self, item: Item) -> bool:
        """Whether an item is in a toolkit outside of this environment."""
        inside = item.wheel or item.found_via in ("site-packages", "conda", ALREADY_LOADED)
        return not inside and not _is_below(item.path, Path(sys.prefix))

    def versions(self) -> dict[str, str]:
        """The versions of the installed distributions."""
        distributions, _ = read_distributions(self._place or find_place(), files=False)
        return {distribution.name: distribution.version for distribution in distributions}

    def program(self, name: str) -> str | None:
        """The path of a program, where cuda-tile looks: the PATH, CUDA_HOME, CUDA_PATH and the usual toolkit."""
        toolkits = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
        folders = [f"{folder}/bin" for folder in toolkits if folder]
        return shutil.which(name) or shutil.which(name, path=os.pathsep.join(folders))

    def environment(self) -> EnvironmentAudit:
        """The audit of the environment."""
        return self._audit or audit_environment()


class Elsewhere(System):
    """Another environment of this machine, by the files of its prefix: none of its Python runs."""

    _place: Place

    def __init__(self, place: Place, audit: EnvironmentAudit, arch: str | None = None) -> None:
        super().__init__(audit, arch)
        self._place = place

    def item(self, kind: ItemKind, name: str) -> Item | None:
        with _pathfinder.looking_in(self._place.sites, self._place.prefix):
            return super().item(kind, name)

    def copies_in_process(self) -> Iterator[Copy]:
        return iter(())

    def has_bindings(self) -> bool:
        return "cuda-bindings" in self.versions()

    def installer(self, items: Iterable[Item]) -> Installer:
        conda = self._place.conda_meta and not any(item.wheel for item in items)
        prefix = shlex.quote(str(self._place.prefix))
        name: Literal["pip", "uv"] = "pip" if "pip" in self.versions() else "uv"
        return Installer("conda", f" --prefix {prefix}") if conda else Installer(name, f" --python {prefix}")

    def is_outside(self, item: Item) -> bool:
        inside = item.wheel or item.found_via in ("site-packages", "conda")
        return not inside and not _is_below(item.path, self._place.prefix)
