"""The order in which threads take the driver's locks, compared with the table in `locks.h`."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from elftools.elf.elffile import ELFFile

from pytest_cudalink import emulator

PACKAGE = Path(emulator.__file__).parents[1]
SOURCES = sorted([*PACKAGE.glob("emulator/native/[!n]*.[ch]"), *PACKAGE.glob("emulator/native/n[!v]*.[ch]")])
#: A lock that is defined, alone or in a structure, with the names of global ones.
DEFINED = re.compile(
    r"^(?:(?:static )?pthread_(?:mutex|rwlock)_t |STATIC_LOCK\()(\w+)(?: = |\))|^  pthread_mutex_t lock;", re.MULTILINE
)


def table() -> dict[str, int]:
    """The row of each lock."""
    text = (PACKAGE / "base" / "native" / "locks.h").read_text(encoding="utf-8").partition("#pragma")[0]
    rows = [line.strip() for line in text.splitlines() if line.startswith("     ")]
    each = {row: number for number, row in enumerate(rows) if row.startswith("each ")}
    return each | {name: number for number, row in enumerate(rows) if row not in each for name in row.split()}


def defined() -> set[str]:
    """Every lock of the driver's own files, by the names of the table."""
    pool = PACKAGE / "emulator" / "worker" / "native"
    each = {"link_state": "each state of link_state", "pool": "each worker of pool"}
    return {
        each[file.stem] if file.suffix == ".h" and not match[1] else file.stem
        for file in (*SOURCES, pool / "pool.h", pool / "pool.c")
        for match in DEFINED.finditer(file.read_text(encoding="utf-8"))
    }


def names_of_places() -> dict[range, str]:
    """The lock at each place in the driver."""
    owners = {
        match[1]: file.stem
        for file in SOURCES
        for match in DEFINED.finditer(file.read_text(encoding="utf-8"))
        if match[0].startswith("pthread_")  # others find it by its name
    }
    places, file = {}, ""
    with (emulator.library_folder() / "libcuda.so.1").open("rb") as library:
        for symbol in ELFFile(library).get_section_by_name(".symtab").iter_symbols():
            if symbol["st_info"]["type"] == "STT_FILE":
                file = Path(symbol.name).stem
            elif symbol["st_info"]["type"] == "STT_OBJECT":
                place = range(symbol["st_value"], symbol["st_value"] + symbol["st_size"])
                places[place] = "each worker of pool" if symbol.name == "workers" else owners.get(symbol.name, file)
    return places


def out_of_order(pairs: Sequence[tuple[int, int]]) -> Iterator[str]:
    """Pairs of locks that were taken against the table, from places in the driver."""
    rows, places = table(), names_of_places()
    for pair in pairs:
        held, taken = (
            next((name for place, name in places.items() if at in place), "") if at else "each state of link_state"
            for at in pair
        )
        if rows[held] >= rows[taken]:
            yield f"{taken} was taken under {held}"
