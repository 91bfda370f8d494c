"""What programs have loaded, from the list that glibc's loader writes: any program, also one without Python.

``LD_DEBUG=files,libs`` makes the loader write what it maps, and what asked for it. Nothing has to be installed for
that, and children inherit it. Static programs, programs with privileges and other C libraries write no list.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from ..environment.loader_search import expanded
from .loads import LoadedObject, Opening

_LINE: Final = re.compile(r" *(\d+):\t(.*)", re.DOTALL)
_FILE: Final = re.compile(
    r"file=(?P<name>.+) \[\d+\];  "
    r"(?:(?P<how>needed by|dynamically loaded by) (?P<by>.*) \[\d+\]|(?P<event>\w+) link map)",
    re.DOTALL,
)
_SEARCH: Final = re.compile(r"find library=(.+) \[\d+\]; searching", re.DOTALL)
_TRIED: Final = re.compile(r" *trying file=(.+)", re.DOTALL)
_INIT: Final = re.compile(r"calling init: (.+)", re.DOTALL)
_START: Final = re.compile(r"(initialize program|transferring control): (.*)", re.DOTALL)
#: Most bytes that are read of the lists of one step; an import of PyTorch writes less than 2 MB.
_MOST: Final = 64 << 20


class LoadedImage(NamedTuple):
    """A program in a process, and what it loaded."""

    program: str  # as it was started; empty where its list does not say
    objects: tuple[LoadedObject, ...]  # the program and its objects, in the order in which they were loaded
    openings: tuple[Opening, ...]  # what the objects opened by `dlopen`; `Opening.through` is the object that did


class Listing(NamedTuple):
    """The programs of a step."""

    images: tuple[LoadedImage, ...]
    fault: str = ""  # why they are not all; empty where nothing speaks against it


def listing(prefix: Path, pid: int, folder: str, preloaded: Iterable[str] = ()) -> Listing:
    """Return what a program and its children have loaded, from the files ``PREFIX.PID``.

    `prefix`: what ``LD_DEBUG_OUTPUT`` names.
    `pid`: the process of the program.
    `folder`: the folder that it was started in, for relative paths.
    `preloaded`: what ``LD_PRELOAD`` names.
    """
    if sys.platform != "linux":
        return Listing((), "this system is not Linux")
    images: list[LoadedImage] = []
    files = sorted(prefix.parent.glob(f"{prefix.name}.*"))
    left = _MOST
    for file in files:
        with file.open("rb") as stream:
            content = stream.read(left + 1)
        if len(content) > left:
            return Listing(tuple(images), f"the lists of the loader have more than {_MOST >> 20} MiB")
        left -= len(content)
        images += parse(content.decode("utf-8", "surrogateescape"), folder, preloaded)
    if not any(file.name == f"{prefix.name}.{pid}" for file in files):
        what = "a static program, a program with privileges, or one of another C library than glibc"
        return Listing(tuple(images), f"the loader wrote no list: this is {what}")
    return Listing(tuple(images))


@dataclass
class _Mapped:
    """An object in the memory of a process, and what asked for it first."""

    name: str
    how: str
    by: str
    is_initialized: bool = False


@dataclass
class _Process:
    """A program in a process, as far as its list is read."""

    program: str = ""
    has_started: bool = False
    sought: str = ""
    tried: dict[str, str] = field(default_factory=dict)
    asked: dict[str, tuple[str, str]] = field(default_factory=dict)
    mapped: dict[str, _Mapped] = field(default_factory=dict)

    def forked(self) -> _Process:
        """Return what a child has from the start."""
        return deepcopy(self)

    def is_replaced(self, line: str) -> bool:
        """Whether a line shows that another program has taken the place of this one: something unknown needs a file."""
        match = _FILE.fullmatch(line)
        return self.has_started and match is not None and match["how"] == "needed by" and match["by"] not in self.mapped

    def read(self, line: str) -> None:
        """Take up one line of the list."""
        if match := _SEARCH.fullmatch(line):
            self.sought = match[1]
        elif match := _TRIED.fullmatch(line):
            self.tried[self.sought] = match[1]
        elif match := _INIT.fullmatch(line):
            if file := self.mapped.get(match[1]):
                file.is_initialized = True
        elif match := _START.fullmatch(line):
            self.program = match[2]
            self.has_started = self.has_started or match[1] == "transferring control"
        elif match := _FILE.fullmatch(line):
            name = match["name"]
            if match["how"]:
                self.asked[name] = (match["how"], match["by"])
            elif match["event"] == "generating":
                how, by = self.asked.get(name, ("", ""))
                self.mapped.setdefault(self.path(name, by), _Mapped(name, how, by))
            elif match["event"] == "destroying" and name in self.mapped and not self.mapped[name].is_initialized:
                del self.mapped[name]  # something that it needs is missing: the loader gave up

    def path(self, name: str, by: str) -> str:
        """Return the path of the file that the loader took for a name."""
        if "/" not in name:
            return self.tried.get(name, name)
        return expanded(name, by.rpartition("/")[0] or ".")

    def image(self, folder: str, preloaded: Sequence[str]) -> LoadedImage:
        """Return what the list says so far."""
        needed: dict[str, list[str]] = {}
        openings = []
        for path, file in self.mapped.items():
            if path in preloaded:
                openings.append(Opening(_absolute(path, folder), "", "LD_PRELOAD"))
            elif file.how == "needed by":
                needed.setdefault(file.by, []).append(file.name)
            elif file.how:
                openings.append(Opening(_absolute(path, folder), "", file.by))
        objects = [LoadedObject(self.program, "", tuple(needed.get(self.program, ())))] if self.program else []
        for path, file in self.mapped.items():
            linked = tuple(needed.get(path, ())) if path != self.program else ()
            # a name with a slash is a path that is linked or opened as such
            objects.append(LoadedObject(_absolute(path, folder), "" if "/" in file.name else file.name, linked))
        return LoadedImage(self.program, tuple(objects), tuple(openings))


def _absolute(path: str, folder: str) -> str:
    return os.path.join(folder, path) if "/" in path else path  # noqa: PTH118 (the path of a file that may be hostile)


def parse(text: str, folder: str = "/", preloaded: Iterable[str] = ()) -> list[LoadedImage]:
    """Return the programs of one file that the loader wrote; lines of another form count for nothing.

    `folder`, `preloaded`: as for `listing`.
    """
    preloaded = tuple(preloaded)
    images: list[LoadedImage] = []
    processes: dict[str, _Process] = {}
    for whole in text.split("\n"):
        match = _LINE.fullmatch(whole)
        if match is None:
            continue
        pid, line = match[1], match[2]
        if pid not in processes:
            # a forked child goes on in the file of its parent
            first = next(iter(processes.values()), None)
            processes[pid] = first.forked() if first is not None else _Process()
        if processes[pid].is_replaced(line):
            images.append(processes[pid].image(folder, preloaded))
            processes[pid] = _Process()
        processes[pid].read(line)
    return [*images, *(process.image(folder, preloaded) for process in processes.values())]
