"""What the loader of Windows reads of a DLL or an extension module, by pefile (extra ``audit``)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, Final

from .buffers import buffer
from .libraries import cuda_functions
from .loadable import LoadableLibrary

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
                symbols = [one.name.decode("latin-1") for one in entry.imports if one.name]
                undefined += [(symbol, dll, dll) for symbol in symbols]
                wanted |= {symbol for symbol in symbols if symbol in cuda_functions()}
        exports = pe.DIRECTORY_ENTRY_EXPORT.symbols if hasattr(pe, "DIRECTORY_ENTRY_EXPORT") else ()
        defined = {one.name.decode("latin-1") for one in exports if one.name}
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
        return [
            (section.PointerToRawData, section.SizeOfRawData)
            for section in pe.sections
            if section.Name.rstrip(b"\0") in (b".rdata", b".data")
        ]


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
