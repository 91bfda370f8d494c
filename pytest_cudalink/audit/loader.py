"""Which files of a wheel the dynamic loader takes for the libraries that other files of it need. Pure."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping

from .loadable import LoadableLibrary


def resolve(
    elves: Mapping[str, LoadableLibrary], spend: Callable[[], object] = lambda: None
) -> tuple[dict[str, dict[str, str]], dict[str, set[str]]]:
    """For each file, the files of the wheel that the dynamic loader takes for the libraries it needs; and the reverse.

    A file's RUNPATH counts for that file alone; a file without one uses its RPATH and those of every file that loads
    it. It also finds the libraries that were loaded for these. Libraries that a program opened before are not seen.

    `spend` is called for each file, and may raise.
    """
    places: dict[tuple[str, str | None], str] = {}
    for path, elf in elves.items():  # links in a folder are not read: their name is the SONAME
        places[_folder_of(path), elf.soname] = path
    for path in elves:
        places[_folder_of(path), path.rpartition("/")[2]] = path
    found: dict[str, dict[str, str]] = {path: {} for path in elves}
    loaders: dict[str, set[str]] = {path: set() for path in elves}
    changed = True
    while changed:
        changed = False
        for path, elf in elves.items():
            spend()
            above = loaded_by(path, loaders)
            folders = _folders(path, elf.runpath or elf.rpath)
            if not elf.runpath:
                folders += [f for one in above if not elves[one].runpath for f in _folders(one, elves[one].rpath)]
            for library in set(elf.needed) - set(found[path]):
                hits = [places[folder, library] for folder in folders if (folder, library) in places]
                hits += [found[one][library] for one in above if library in found[one]]
                if hits:
                    found[path][library] = hits[0]
                    loaders[hits[0]].add(path)
                    changed = True
    return found, loaders


def _folder_of(path: str) -> str:
    """The folder below site-packages into which a file of a wheel is installed."""
    return posixpath.dirname(re.sub(r"^[^/]+\.data/(?:purelib|platlib)/", "", path)) or "."


def _folders(path: str, rpaths: tuple[str, ...]) -> list[str]:
    """The folders of those RPATHs that are relative to the file."""
    matches = [re.fullmatch(r"\$(?:ORIGIN|\{ORIGIN\})(?:/(.*))?", rpath) for rpath in rpaths]
    return [posixpath.normpath(posixpath.join(_folder_of(path), match[1] or "")) for match in matches if match]


def loaded_by(path: str, loaders: Mapping[str, set[str]]) -> list[str]:
    """Every file that loads a file, directly or through others; the nearest first."""
    above = [path]
    seen = {path}
    for one in above:
        new = sorted(other for other in loaders[one] if other not in seen)
        seen.update(new)
        above += new
    return above[1:]
