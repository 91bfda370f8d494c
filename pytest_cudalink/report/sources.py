"""Which file of a checkout stands behind a path that a process opened, be it there or installed from there."""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from ..regular_files import read_bounded
from .origin import declared_name

__all__ = ["Sources"]

#: Folders below the root that hold no file of the project.
_NOT_OURS: Final = frozenset((".git", ".nox", ".tox", ".venv", ".cudalink", ".pytest_cache", "site-packages"))
#: Where the packages of a checkout lie.
_PACKAGES: Final = ("", "src", "python", "lib")
_SIZE: Final = 16 << 20


class Sources:
    """Maps paths to names of files in the checkout.

    Parameters
    ----------
    root : Path
        The root of the checkout.
    project : Path
        The folder with the project's ``pyproject.toml``.

    Attributes
    ----------
    unknown : set of str
        Files that were installed from the checkout, or may have been, and are not those of the checkout.
    """

    def __init__(self, root: Path, project: Path) -> None:
        self._root = os.path.realpath(root)
        self._start = self._root + os.sep
        self._outside = tuple(
            one + os.sep
            for given in {sys.prefix, sys.base_prefix}
            for one in {given, os.path.realpath(given)}
            if one != self._root and self._is_foreign(one)
        )
        self._project = project
        self._real_folder = cache(os.path.realpath)
        self._links: dict[str, str] = {}
        self._installed: dict[str, str] | None = None
        self.unknown: set[str] = set()

    def _is_foreign(self, folder: str) -> bool:
        """Whether a folder of Python is not one that the checkout lies in."""
        return not self._start.startswith(folder + os.sep)

    def names(self, path: str) -> set[str]:
        """Return the files of the checkout behind a path, relative to its root, with ``/``; often none."""
        if path.startswith(self._outside):  # most paths: Python's own, and the packages of the environment
            packages, found_packages, rest = path.partition(f"-packages{os.sep}")
            if not found_packages:
                return set()
            top = packages + found_packages + rest.partition(os.sep)[0]
            real = self._links.get(top)
            if real is None:
                real = self._links[top] = os.path.realpath(top)
            if not real.startswith(self._start):  # else a link into the checkout
                return self._source_of_installed(path)
        folder, _, name = path.rpartition(os.sep)
        folder = str(self._real_folder(folder))
        if folder.endswith("__pycache__"):
            folder, name = folder.rpartition(os.sep)[0], f"{name.partition('.')[0]}.py"
        path = f"{folder}{os.sep}{name}"
        if "site-packages" in folder or "dist-packages" in folder:
            return self._source_of_installed(path)
        found = set()
        for one in {path, os.path.realpath(path)}:
            if one.startswith(self._start):
                relative = one[len(self._start) :]
                if _NOT_OURS.isdisjoint(Path(relative).parts) and os.path.isfile(one):  # noqa: PTH113
                    found.add(relative.replace(os.sep, "/"))
        return found

    def _source_of_installed(self, path: str) -> set[str]:
        """Return the source of an installed file of the project; note it as unknown if there is none like it."""
        if self._installed is None:
            self._installed = self._find_installed()
        if not self._installed:
            return set()
        folder, _, name = path.rpartition(os.sep)
        if folder.endswith("__pycache__"):
            folder, name = folder.rpartition(os.sep)[0], f"{name.partition('.')[0]}.py"
        path = f"{self._real_folder(folder)}{os.sep}{name}"
        relative = self._installed.get(path)
        if relative is None:
            return set()
        content = _content(path)
        for folder in _PACKAGES:
            source = os.path.join(self._root, folder, relative)  # noqa: PTH118
            for base in {source, str(self._project / folder / relative)}:
                if content is not None and _content(base) == content:
                    return {os.path.relpath(base, self._root).replace(os.sep, "/")}
        self.unknown.add(relative.replace(os.sep, "/"))
        return set()

    def _find_installed(self) -> dict[str, str]:
        """Return the installed files of the project, and of other projects of the checkout, as they are installed."""
        declared = (declared_name(self._project) or "").lower().replace("-", "_").replace(".", "_")
        found: dict[str, str] = {}
        for packages in {str(self._real_folder(one)) for one in sys.path if one.endswith("-packages")}:
            with suppress(OSError):
                for entry in os.scandir(packages):
                    if entry.name.endswith(".dist-info") and self._is_ours(entry.path, declared):
                        found |= {os.path.join(packages, one): one for one in _recorded(entry.path)}  # noqa: PTH118
        return found

    def _is_ours(self, metadata: str, declared: str) -> bool:
        """Whether a distribution was installed from the checkout, or has the name of its project."""
        if declared and metadata.rpartition(os.sep)[2].lower().startswith(f"{declared}-"):
            return True
        if not os.path.exists(f"{metadata}{os.sep}direct_url.json"):  # noqa: PTH110 (once for each distribution)
            return False
        place = Path(metadata)
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            address = urlsplit(json.loads(read_bounded(place / "direct_url.json", _SIZE))["url"])
            folder = os.path.realpath(unquote(address.path))
            return address.scheme == "file" and (folder + os.sep).startswith(self._start)
        return False


def _recorded(metadata: str) -> list[str]:
    """Return the files of a distribution, relative to the folder of packages."""
    with suppress(OSError, ValueError):
        import csv

        text = read_bounded(Path(metadata, "RECORD"), _SIZE).decode("utf-8")
        return [row[0] for row in csv.reader(text.splitlines()) if row and ".dist-info/" not in row[0]]
    return []


def _content(path: str) -> bytes | None:
    with suppress(OSError, ValueError):
        return read_bounded(Path(path), _SIZE)
    return None
