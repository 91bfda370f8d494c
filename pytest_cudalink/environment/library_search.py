"""Where a process of an environment gets a CUDA library from: a wheel, a conda package, or the system.

What the loader searches first counts first (`loader_search`). The rest is the order of programs that load CUDA from
wheels, as cuda.pathfinder does: installed wheels, the conda prefix, what the loader finds by name, and the folders of
toolkits.
"""

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Final

from ..base.regular_files import read_bounded
from ..compat import exports
from ..compat.libraries import majors_of, stem_of
from ..versions import CudaVersion
from . import loader_search
from .conda import is_cuda_package
from .installed import Installed
from .wheels import named_toolkits, toolkit_version

_SYSTEM: Final = ("/usr/local/cuda/lib64", "/usr/local/cuda/nvvm/lib64")
#: The parts of cuDNN as others name them, and most bytes of one that does.
_PARTS: Final = re.compile(rb"libcudnn_\w+(?=\.so)")
_MOST_OPENER: Final = 16 << 20


@dataclass(frozen=True)
class Provider:
    """One copy of a CUDA library."""

    library: str  # the name under which it is loaded, such as "libnvJitLink.so.12"
    path: str
    owner: Installed | None  # None for a copy of the system
    release: CudaVersion | None  # its CUDA release, where that is known

    @property
    def stem(self) -> str:
        return stem_of(self.library)

    def __str__(self) -> str:
        return str(self.owner) if self.owner else f"{self.path} (system)"

    def is_of(self, stem: str, major: int) -> bool:
        """Whether it is a library of a CUDA major."""
        if self.stem != stem:
            return False
        return self.release.major == major if self.release else str(major) in (majors_of(self.library) or ())


class Providers:
    """The CUDA libraries of an environment, and of the system around it."""

    def __init__(self, distributions: Iterable[Installed]) -> None:
        self._owners: dict[str, list[Installed]] = {}
        self._sites: dict[str, None] = {}
        providers: dict[str, Provider] = {}
        for owner in distributions:
            if owner.manager != "conda":
                self._sites[owner.site] = None
            for path in owner.files:
                library = _loaded_as(path)
                if library is None:
                    continue
                self._owners.setdefault(path, []).append(owner)
                key = os.path.realpath(path)  # conda's links of several names lead to one file
                if key not in providers or len(library) < len(providers[key].library):
                    providers[key] = Provider(library, path, owner, release_of(stem_of(library), owner))
        self._by_file = providers
        self.all = tuple(providers.values())

    def owners(self) -> dict[str, list[Installed]]:
        """The distributions that list a library, by its path, where there are several."""
        return {path: owners for path, owners in self._owners.items() if len({owner.name for owner in owners}) > 1}

    def foreign_parts(self) -> list[str]:
        """The parts of cuDNN that a process gets from another folder than the part which opens them.

        They open each other by name: LD_LIBRARY_PATH comes before their own folder, and what is found by name after it.
        """
        own = {provider.library: provider.path for provider in self.all}
        first = next((name for name in own if stem_of(name) == "libcudnn"), None)
        if first is None:
            return []

        def path_of(stem: str) -> str:
            name = first.replace("libcudnn", stem)
            earlier = (f"{folder}/{name}" for folder in loader_search.library_path())
            later = (path for path in self.by_name if path.endswith(f"/{name}"))
            ours = own.get(name, "")
            path = next(filter(os.path.isfile, (*earlier, ours, *later)), "")
            return ours if os.path.isfile(ours) and _size(ours) == _size(path) else path  # noqa: PTH113 (of texts)

        opener = path_of("libcudnn_graph") or own[first]  # cuDNN 8 has no such part
        stems = {stem_of(name) for path in (own[first], opener) for name in parts_named_in(path)}
        parts = {path_of(stem) for stem in stems} - {""}
        return sorted(path for path in parts if Path(path).parent != Path(opener).parent)

    def of(self, stem: str, major: int, user: str) -> Provider | None:
        """The copy that a file gets; None if there is none.

        `stem`: such as ``"libnvJitLink"``.
        `major`: the CUDA major.
        `user`: path of the file that needs it.
        """
        candidates = [provider for provider in self.all if provider.is_of(stem, major)]
        for folder in loader_search.searched_first(user):
            here = [provider for provider in candidates if os.path.dirname(os.path.realpath(provider.path)) == folder]  # noqa: PTH120 (of a text)
            if here:
                return here[0]
            if (there := _first_of(_listed(folder), stem, major)) is not None:
                known = self._by_file.get(os.path.realpath(there.path))  # (conda's lib/ has links to another folder)
                # of a copy inside another distribution the file alone says a release
                return known if known in candidates and known.release else there
        wheels = [provider for provider in candidates if provider.owner and provider.owner.manager != "conda"]
        provider = next(iter(wheels or candidates), None) or _first_of(self._unlisted(), stem, major)
        return provider or _first_of(self._of_system, stem, major)

    @cached_property
    def by_name(self) -> list[str]:
        """What the loader finds without a folder."""
        return [*loader_search.found_by_name()]

    @cached_property
    def _of_system(self) -> tuple[str, ...]:
        return _system_libraries(self.by_name)

    def _unlisted(self) -> Iterator[str]:
        """The libraries where wheels have them, whose distribution has lost its metadata: programs load them still."""
        for site in self._sites:
            yield from (str(path) for path in sorted(Path(site).glob("nvidia/*/lib/*.so.*")))


def _size(path: str) -> int:
    return Path(path).stat().st_size


def _first_of(paths: Iterable[str], stem: str, major: int) -> Provider | None:
    for path in paths:
        library = _loaded_as(path)
        if library and stem_of(library) == stem and str(major) in (majors_of(library) or ()):
            return Provider(library, path, None, _system_release(stem, path))
    return None


def _loaded_as(path: str) -> str | None:
    """The SONAME by which a file is loaded, from its name; None if it is not a library of CUDA's toolkit.

    A copy that auditwheel has renamed serves its own wheel alone, and NVRTC's second build (``.alt``) NVRTC alone.
    """
    name = path.rpartition("/")[2]
    stem = stem_of(name)
    if not majors_of(name) or not name.startswith(f"{stem}.so.") or "/stubs/" in path:
        return None
    return name if stem not in ("libcuda", "libnvidia-ml") else None


def release_of(stem: str, owner: Installed) -> CudaVersion | None:
    """The CUDA release of a library, by the package that brings it; None if no table knows that version."""
    names = exports.distributions(stem).values()
    of_conda = owner.manager == "conda" and is_cuda_package(owner.name)
    for distribution in names:
        if (owner.name == distribution or of_conda) and (
            release := exports.release_of_wheel(distribution, owner.version)
        ):
            return release
    if exports.is_numbered(stem) and (owner.name in names or of_conda):
        match = re.match(r"\d{1,4}\.\d{1,4}(?=\.|$)", owner.version, re.ASCII)
        return CudaVersion.parse(match[0]) if match else None
    return None


def _system_libraries(by_name: Iterable[str]) -> tuple[str, ...]:
    """The CUDA libraries that the loader finds by name, and those of toolkits: of variables, and of /usr/local/cuda."""
    toolkits = (*(f"{root}/lib64" for _, root in named_toolkits()), *_SYSTEM)
    return tuple(dict.fromkeys([*filter(_loaded_as, by_name), *chain(*map(_listed, toolkits))]))


def parts_named_in(path: str) -> set[str]:
    """The parts of cuDNN that a file names, each as it opens them: ``"libcudnn_ops.so"``."""
    with suppress(OSError, ValueError):
        return {f"{match.decode()}.so" for match in _PARTS.findall(read_bounded(path, _MOST_OPENER))}
    return set()


def _listed(folder: str) -> list[str]:
    return [path for name in loader_search.names_in(folder) if _loaded_as(path := f"{folder}/{name}")]


def _system_release(stem: str, path: str) -> CudaVersion | None:
    """The CUDA release of a system's library: from its symbols, its full name, or the toolkit's version.json."""
    real = os.path.realpath(path)
    if release := exports.release_in(stem, real) or exports.release_of_file(real):
        return release
    version = next(filter(None, map(toolkit_version, list(Path(real).parents)[:4])), "")
    return CudaVersion.parse(version) if version else None
