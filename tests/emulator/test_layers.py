"""The C of the emulated driver, the reader of device code below it, and what watches this process keep to their floors.

`FLOORS` in the module of sources of each package names them.
"""

import re
import shutil
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

from native_build import driver, sources
from pytest_cudalink import artifacts, emulator, loader
from pytest_cudalink.loader import jitlink

NATIVE = Path(emulator.__file__).parent / "native"
READER = Path(artifacts.__file__).parent / "native"
WATCH = Path(jitlink.__file__).parent / "native"
LOADER = Path(loader.__file__).parent / "native"
#: C that several parts are compiled with; it lies below them all.
SHARED = sources.SHARED
#: Below the floors: the types. Beside them: libraries that are one file each.
BASE, LIBRARIES = "abi", ("alias", "absent")
#: The files of the driver, of NVML, which lie in the driver's folder, of the reader, and of the library that watches
#: libnvJitLink, each low to high; and those of the libraries that look at the process.
DRIVER_ORDER, NVML_ORDER, READER_ORDER, WATCH_ORDER = (
    list(chain.from_iterable(floors))
    for floors in (driver.FLOORS, driver.NVML_FLOORS, sources.READER_FLOORS, sources.JITLINK_FLOORS)
)
LOADER_ORDER = ["gates", "last_words", "loads"]


def code(file: Path) -> str:
    """What a file says besides comments and texts."""
    text = re.sub(r"/\*.*?\*/", "", file.read_text(encoding="utf-8"), flags=re.DOTALL)
    return re.sub(r'(?<!include )"(\\.|[^"\\\n])*"', '""', text)


def unknown(folder: Path, order: list[str]) -> Iterator[str]:
    """Files without a place, and places without a file."""
    there = {file.stem for file in folder.glob("*.[ch]")}
    elsewhere = {*LIBRARIES, *DRIVER_ORDER, *NVML_ORDER, *WATCH_ORDER, *LOADER_ORDER}
    yield from (f"{name} stands on no floor" for name in sorted(there - {BASE, *order, *elsewhere}))
    yield from (f"{name} stands on a floor, and there is no such file" for name in order if name not in there)


def without_header(folder: Path, order: list[str]) -> Iterator[str]:
    """Sources without a header that define more than what a header below them declares."""
    headers = "".join(code(file) for _, file in files(folder, order) if file.suffix == ".h")
    declared = set(re.findall(r"\bcl_\w+", headers))
    for name in order:
        file = folder / f"{name}.c"
        if not file.exists() or file.with_suffix(".h").exists():
            continue
        # what stands at the beginning of a line and has a body; a macro in capitals makes exported functions
        for match in re.finditer(
            r"^(?!static\b|EXPORT\b|[A-Z_]+\()[A-Za-z_][^;{}#=]*\)\s*\{", code(file), re.MULTILINE
        ):
            hook = re.search(r"\bcl_\w+(?=\()", match[0])
            if "__attribute__((constructor)) static" not in match[0] and not (hook and hook[0] in declared):
                yield f"{name}.c has no header, and defines {match[0].splitlines()[0]}"


def files(folder: Path, order: list[str]) -> Iterator[tuple[int, Path]]:
    """The headers and sources that there are, each with its place; those of one name are at the same."""
    for place, name in enumerate([BASE, *order]):
        yield from ((place, file) for file in (folder / f"{name}.h", folder / f"{name}.c") if file.exists())


def headers_below(folder: Path) -> Iterator[Path]:
    """The headers that lie below every file of a folder: those that parts share, and for the driver the reader's."""
    yield from sorted(SHARED.glob("*.h"))
    yield from () if (folder / "bytes.h").exists() else sorted(READER.glob("*.h"))


def upward_includes(folder: Path, order: list[str]) -> Iterator[str]:
    """Includes that do not go down; so there is no circle of them."""
    places = {file.name: -1 for file in headers_below(folder)}
    places |= {f"{name}.h": place for place, name in enumerate([BASE, *order])}
    for place, file in files(folder, order):
        for header in re.findall(r'^#include "(\w+\.h)"', code(file), re.MULTILINE):
            own = file.suffix == ".c" and header == f"{file.stem}.h"
            if header not in places:
                yield f"{file.name} includes {header}, which stands on no floor"
            elif places[header] >= place and not own:
                yield f"{file.name} includes {header}, which does not stand below it"


def upward_uses(folder: Path, order: list[str]) -> Iterator[str]:
    """Uses of what a file above declares, with an include or without; so there is no circle of calls."""
    owners: dict[str, tuple[int, str]] = {}
    for place, file in chain(((-1, file) for file in headers_below(folder)), files(folder, order)):
        for name in re.findall(r"\b(?:cl|art)_\w+", code(file)) if file.suffix == ".h" else ():
            owners.setdefault(name, (place, file.name))
    for place, file in files(folder, order):
        for name in sorted(set(re.findall(r"\b(?:cl|art)_\w+", code(file)))):
            owner, header = owners.get(name, (0, ""))
            if not header:
                yield f"{file.name} uses {name}, which no header declares"
            elif owner > place:
                yield f"{file.name} uses {name} of {header}, which does not stand below it"


def problems(folder: Path, order: list[str] = DRIVER_ORDER) -> list[str]:
    """Everything in which a folder of C, by default the driver's, does not keep to the floors."""
    checks = (unknown, without_header, upward_includes, upward_uses)
    return [*chain.from_iterable(check(folder, order) for check in checks)]


@pytest.mark.parametrize(
    ("folder", "order"),
    [
        (NATIVE, DRIVER_ORDER),
        (NATIVE, NVML_ORDER),
        (READER, READER_ORDER),
        (WATCH, WATCH_ORDER),
        (LOADER, LOADER_ORDER),
    ],
)
def test_floors(folder: Path, order: list[str]) -> None:
    """No file looks up, and a file that offers something says so in its own header."""
    assert problems(folder, order) == []


#: By folder of C and order: a file, what is added to it, and the problem that it makes.
BREAKS = [
    # the reader knows nothing of the driver
    (READER, READER_ORDER, "ptx.c", '#include "cubin.h"', "includes cubin.h, which does not stand below it"),
    (READER, READER_ORDER, "bytes.c", '#include "image.h"', "includes image.h, which stands on no floor"),
    # NVML uses those files of the driver that say what the device is, and no other
    (NATIVE, NVML_ORDER, "nvml_clocks.c", '#include "blocks.h"', "includes blocks.h, which stands on no floor"),
    (NATIVE, DRIVER_ORDER, "event_log.h", '#include "calls.h"', "includes calls.h, which does not stand below it"),
    (
        NATIVE,
        DRIVER_ORDER,
        "symbols.c",
        "int cl_initialized;",
        "uses cl_initialized of calls.h, which does not stand below it",
    ),
    (NATIVE, DRIVER_ORDER, "config.c", "int cl_secret(void);", "uses cl_secret, which no header declares"),
    (NATIVE, DRIVER_ORDER, "link.c", "int offered(void) {}", "has no header, and defines int offered(void) {"),
    (NATIVE, DRIVER_ORDER, "graphics.c", "", "stands on no floor"),
]


@pytest.mark.parametrize(("source", "order", "name", "added", "problem"), BREAKS, ids=[row[2] for row in BREAKS])
def test_what_breaks_them(tmp_path: Path, source: Path, order: list[str], name: str, added: str, problem: str) -> None:
    """Each way to leave the floors is the only problem of a copy in which something was added to one file."""
    folder = Path(shutil.copytree(source, tmp_path / "native"))
    with (folder / name).open("a", encoding="utf-8") as file:
        file.write(f"{added}\n")
    assert problems(folder, order) == [f"{name if added else Path(name).stem} {problem}"]


def test_a_missing_file_is_seen(tmp_path: Path) -> None:
    """A floor without its file is seen."""
    folder = Path(shutil.copytree(NATIVE, tmp_path / "native"))
    (folder / "procaddr.c").unlink()
    assert problems(folder) == ["procaddr stands on a floor, and there is no such file"]
