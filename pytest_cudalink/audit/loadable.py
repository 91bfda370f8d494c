"""What the audit reads of a library of Linux or Windows: what it needs, and which CUDA functions it calls or defines.

The bytes of a large file are mapped, so that little of it is in memory at once. DLLs are read by pefile (extra
``audit``). `resolve` says which files of a wheel the dynamic loader takes.
"""

import mmap
import os
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from os import PathLike
from typing import IO, Any, Final

from ..base import elf
from ..base.regular_files import open_regular
from ..compat.libraries import majors_of
from ..environment.loader_search import ORIGIN, own_folders

#: Files up to this size are read into memory.
_IN_MEMORY: Final = 16 << 20
#: So many bytes of a mapped file stay in memory while it is searched or read.
_WINDOW: Final = 8 << 20


class _MappedFile(mmap.mmap):
    """A mapped file that gives its pages back; a later read gets them from the system's cache."""

    _read = 0

    def find(self, sought: bytes, start: int = 0, end: int | None = None) -> int:  # type: ignore[override]
        """Return where some bytes begin, or -1; what was searched in vain does not stay in memory."""
        end = len(self) if end is None else min(end, len(self))
        while end - start > _WINDOW:
            stop = (start // _WINDOW + 1) * _WINDOW
            place = super().find(sought, start, min(stop + len(sought) - 1, end))
            if place >= 0:
                self.count_read(place - start)
                return place
            self._forget(start // _WINDOW * _WINDOW, _WINDOW)
            start = stop
        return super().find(sought, start, end)

    def count_read(self, size: int) -> None:
        """Give every page back after each window that was read."""
        self._read += size
        if self._read >= _WINDOW:
            self._read = 0
            self._forget(0, len(self))

    def _forget(self, start: int, size: int) -> None:
        if hasattr(mmap, "MADV_DONTNEED"):
            self.madvise(mmap.MADV_DONTNEED, start, size)


def count_read(data: elf.Buffer, size: int) -> None:
    """Note that so many bytes were read, apart from searches, and are not needed again soon."""
    if isinstance(data, _MappedFile):
        data.count_read(size)


@cache
def cuda_functions() -> dict[str, str]:
    """The functions of the stubs' catalog, each with the library that has it: every CUDA program calls some of them."""
    from ..stubs.catalog import load_catalog

    libraries = load_catalog().libraries.values()
    return {function.symbol: library.stem for library in libraries for function in library.functions}


@contextmanager
def buffer(stream: IO[bytes]) -> Iterator[elf.Buffer]:
    """Return all bytes of a stream, which is on a disk if they are many."""
    if isinstance(stream, BytesIO):
        yield stream.getvalue()  # no copy
        return
    size = stream.seek(0, os.SEEK_END)
    stream.seek(0)
    if size <= _IN_MEMORY:
        yield stream.read()
        return
    mapped = _MappedFile(stream.fileno(), size, access=mmap.ACCESS_READ)
    try:
        yield mapped
    finally:
        with suppress(BufferError):  # a consumer that ended early keeps a view; the mapping ends with it
            mapped.close()


#: Sections of constant data that hold device code or tables of the loader, and no strings.
_NO_STRINGS: Final = frozenset(
    {".nv_fatbin", ".nvFatBinSegment", ".eh_frame", ".eh_frame_hdr", ".gcc_except_table", ".interp"}
)
_PROGBITS, _ALLOCATED, _EXECUTABLE = 1, 2, 4
_MACHINES: Final = {62: "x86_64", 183: "aarch64"}
#: Names that functions of CUDA's libraries have; for symbols whose library no version names.
_CUDA_SYMBOL: Final = re.compile(rb"_{0,2}(?:cu|nv|curand)[A-Za-z]")


@dataclass(frozen=True)
class LoadableLibrary:
    """One library that a dynamic loader could load: an ELF file, or a DLL of Windows in the same terms."""

    soname: str | None
    needed: tuple[str, ...]
    rpath: tuple[str, ...]
    runpath: tuple[str, ...]
    # undefined symbols, each with the library and version that must define it; both empty without symbol versions
    undefined: tuple[tuple[str, str, str], ...]
    wanted: frozenset[str] = frozenset()  # functions of CUDA that it calls, without weak ones
    defined: frozenset[str] = frozenset()  # functions of CUDA that it defines
    weak: frozenset[str] = frozenset()  # those undefined symbols that may stay so
    # as `platform_machine` names it; empty where CUDA has no libraries, or if the caller asks for none
    machine: str = ""

    @property
    def rpaths(self) -> tuple[str, ...]:
        return self.rpath + self.runpath


def read_elf(stream: IO[bytes]) -> LoadableLibrary | None:
    """Read an ELF file; None for files that the dynamic loader would not load, such as object files and programs.

    Libraries of other byte orders and of 32 bits are None, too: CUDA has none.

    Raises ElfError if it is damaged.
    """
    with buffer(stream) as content:
        image = elf.loadable(content)
        if image is None:
            return None
        functions = cuda_functions()
        # of those that are defined, of which a library may have a million, no others count
        symbols = [symbol for symbol in image.symbols() if not symbol.is_defined or symbol.name in functions]
        undefined = [symbol for symbol in symbols if not symbol.is_defined]
        return LoadableLibrary(
            *image.linkage(),
            tuple((symbol.name, symbol.file, symbol.version) for symbol in undefined),
            frozenset(symbol.name for symbol in undefined if not symbol.is_weak and symbol.name in functions),
            frozenset(symbol.name for symbol in symbols if symbol.is_defined),
            frozenset(symbol.name for symbol in undefined if symbol.is_weak),
            _MACHINES.get(image.head.machine, ""),
        )


def read_dynamic(path: str | PathLike[str]) -> LoadableLibrary | None:
    """Read what an installed library needs, as `read_elf`, with only those undefined symbols that can be CUDA's.

    An environment with torch has 6 GB of libraries.

    Raises OSError if the file cannot be read.
    Raises ElfError if it is damaged.
    """
    with open_regular(path) as file, buffer(file) as content:
        image = elf.loadable(content)
        if image is None:
            return None
        linkage = image.linkage()
        of_cuda = [library for library in linkage.needed if majors_of(library) is not None]
        undefined = list(image.symbols(undefined_as=_CUDA_SYMBOL, files=of_cuda)) if of_cuda else []
        return LoadableLibrary(
            *linkage,
            tuple((symbol.name, symbol.file, symbol.version) for symbol in undefined),
            weak=frozenset(symbol.name for symbol in undefined if symbol.is_weak),
        )


def data_ranges(stream: IO[bytes]) -> list[tuple[int, int]]:
    """Offset and size of the sections of an ELF file that can hold constant strings, within the file."""
    with buffer(stream) as content:
        head, size = elf.read_header(content), len(content)
        sections = elf.named_sections(content, head) if head else []
    ranges = set()
    for section, name in sections:
        constant = section.kind == _PROGBITS and section.flags & _ALLOCATED and not section.flags & _EXECUTABLE
        if constant and name not in _NO_STRINGS and section.offset < size:
            ranges.add((section.offset, min(section.size, size - section.offset)))
    return _disjoint(ranges)


def _disjoint(ranges: set[tuple[int, int]]) -> list[tuple[int, int]]:
    """The ranges without what an earlier one covers: a damaged file may name the same bytes many times."""
    rest, end = [], 0
    for offset, size in sorted(ranges):
        begin = max(offset, end)
        if offset + size > begin:
            rest.append((begin, offset + size - begin))
            end = offset + size
    return rest


def is_elf(stream: IO[bytes]) -> bool:
    """Whether a stream starts with the ELF magic; rewinds the stream."""
    head = stream.read(4)
    stream.seek(0)
    return head == elf.MAGIC[:4]


def resolve(
    elves: Mapping[str, LoadableLibrary], spend: Callable[[], object] = lambda: None
) -> tuple[dict[str, dict[str, str]], dict[str, set[str]]]:
    """Return the files of the wheel that the dynamic loader takes for what each file needs, and those that load each.

    A file also finds the libraries that were loaded for those that load it. What a program opened before is not seen.

    `spend` is called for each file, and may raise.
    """
    places: dict[tuple[str, str | None], str] = {}
    for path, file in elves.items():  # links in a folder are not read: their name is the SONAME
        places[folder_of(path), file.soname] = path
    for path in elves:
        places[folder_of(path), path.rpartition("/")[2]] = path
    places_of: dict[str, dict[str, str]] = {path: {} for path in elves}
    loaders: dict[str, set[str]] = {path: set() for path in elves}
    changed = True
    while changed:
        changed = False
        for path, library in elves.items():
            spend()
            above = loaded_by(path, loaders)
            folders = searched(path, elves, above)
            for needed in set(library.needed) - set(places_of[path]):
                hits = [places[folder, needed] for folder in folders if (folder, needed) in places]
                hits += [places_of[loader][needed] for loader in above if needed in places_of[loader]]
                if hits:
                    places_of[path][needed] = hits[0]
                    loaders[hits[0]].add(path)
                    changed = True
    return places_of, loaders


def searched(path: str, elves: Mapping[str, LoadableLibrary], above: Iterable[str]) -> list[str]:
    """The folders of a wheel in which the loader looks for what a file needs or opens by name.

    ``$LIB`` and ``$PLATFORM``, which stand for something else on each machine, stay as they are.

    `above`: the files that load it.
    """
    named = own_folders(path, elves, above)
    relative = ((folder_of(file), folder) for file, folder in named if ORIGIN.match(folder))
    return [posixpath.normpath(origin.join(ORIGIN.split(folder))) for origin, folder in relative]


def folder_of(path: str) -> str:
    """The folder below site-packages into which a file of a wheel is installed."""
    return posixpath.dirname(re.sub(r"^[^/]+\.data/(?:purelib|platlib)/", "", path)) or "."


def loaded_by(path: str, loaders: Mapping[str, set[str]]) -> list[str]:
    """Every file that loads a file, directly or through others; the nearest first."""
    above = [path]
    seen = {path}
    for file in above:
        new = sorted(other for other in loaders[file] if other not in seen)
        seen.update(new)
        above += new
    return above[1:]


_SUFFIXES: Final = (".dll", ".pyd")
#: Numbers of the directories of exports, imports and delayed imports (PE format, optional header).
_TABLES: Final = (0, 1, 13)
_MOST_SYMBOLS: Final = 100_000


def is_pe(name: str, stream: IO[bytes]) -> bool:
    """Whether a file is a DLL of Windows by its name and its first bytes; rewinds the stream."""
    head = stream.read(2)
    stream.seek(0)
    return head == b"MZ" and name.lower().endswith(_SUFFIXES)


def read_pe(name: str, stream: IO[bytes]) -> LoadableLibrary:
    """Read imports and exports of a DLL, in the form of a library of Linux: the DLL stands for library and version.

    Raises ModuleNotFoundError if pefile is not installed; says which extra brings it.
    """
    with _parsed(stream) as pe:
        pe.parse_data_directories(list(_TABLES))
        needed: list[str] = []
        undefined: list[tuple[str, str, str]] = []
        wanted: set[str] = set()
        for table in ("DIRECTORY_ENTRY_IMPORT", "DIRECTORY_ENTRY_DELAY_IMPORT"):
            for entry in getattr(pe, table, ()):
                dll = entry.dll.decode("latin-1")
                needed.append(dll)
                symbols = [symbol.name.decode("latin-1") for symbol in entry.imports if symbol.name]
                undefined += [(symbol, dll, dll) for symbol in symbols]
                wanted |= {symbol for symbol in symbols if symbol in cuda_functions()}
        exports = pe.DIRECTORY_ENTRY_EXPORT.symbols if hasattr(pe, "DIRECTORY_ENTRY_EXPORT") else ()
        defined = {symbol.name.decode("latin-1") for symbol in exports if symbol.name}
    return LoadableLibrary(
        name.rpartition("/")[2],
        tuple(dict.fromkeys(needed)),
        (),
        (),
        tuple(undefined[:_MOST_SYMBOLS]),
        frozenset(wanted),
        frozenset(defined & cuda_functions().keys()),
    )


def pe_data_ranges(stream: IO[bytes]) -> list[tuple[int, int]]:
    """Offset and size of the sections of a DLL that can hold constant strings."""
    with _parsed(stream) as pe:
        constant = [section for section in pe.sections if section.Name.rstrip(b"\0") in (b".rdata", b".data")]
        return [(section.PointerToRawData, section.SizeOfRawData) for section in constant]


@contextmanager
def _parsed(stream: IO[bytes]) -> Iterator[Any]:
    try:
        import pefile
    except ModuleNotFoundError as error:
        msg = "DLLs are read by pefile, which is not installed; install pytest-cudalink[audit]"
        raise ModuleNotFoundError(msg) from error
    with buffer(stream) as data:
        # its close() would collect all garbage of the process; the map is ours
        yield pefile.PE(data=data, fast_load=True)
