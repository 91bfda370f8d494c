"""What an image costs follows from its size, whatever it claims; and every buffer is taken."""

import array
import inspect as signatures
import json
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_cudalink.artifacts import inspect

from .test_artifacts import CUBIN

#: Memory that a process takes for its first call, and by which the system rounds.
CONSTANT = 4 << 20
#: The goal is 0.1 s, which benchmarks check; these inputs took more than 20 s, or did not end.
SECONDS = 2.0
#: What the flags of Mercury's sections say.
FLAGS = {0x70000083: 0x10000000, 0x70000085: 0x10000000}


def elf(sections: list[tuple[int, int, int, int, int, int, int, int]], content: bytes, machine: int = 190) -> bytes:
    """An ELF image: name, type, offset, size, link, info, alignment, entry size of each section; the names are first.

    Offsets count in the content.
    """
    header = struct.Struct("<16sHHIQQQIHHHHHH")
    table = header.size + len(content) + -len(content) % 8
    count = len(sections) + 1
    ident = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    head = header.pack(ident, 1, machine, 1, 0, 0, table, 90, 64, 0, 0, 64, count, 1)
    rows = [
        struct.pack(
            "<IIQQQQIIQQ", name, kind, FLAGS.get(kind, 0), 0, header.size + offset, size, link, info, align, entry
        )
        for name, kind, offset, size, link, info, align, entry in sections
    ]
    return head + content.ljust(table - header.size, b"\0") + bytes(64) + b"".join(rows)


def fatbin(payload: bytes) -> bytes:
    """A fatbin with one open entry."""
    entry = struct.pack("<HHIQIIHHIIIQQQ", 2, 0x101, 64, len(payload), 0, 0, 0, 0, 90, 0, 0, 0x11, 0, 0)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entry) + len(payload)) + entry + payload


def nested_fatbins(count: int = 497) -> bytes:
    """Fatbins, each in the one before."""
    image = b""
    for _ in range(count):
        image = fatbin(image)
    return image


def sections_with_one_name(count: int = 4000) -> bytes:
    """Sections that share a long name."""
    name = b"\0" + b"n" * (256 << 10) + b"\0"
    return elf([(0, 3, 0, len(name), 0, 0, 1, 0), *[(1, 8, 0, 0, 0, 0, 1, 0)] * count], name)


def symbols_with_one_name(count: int = 20_000) -> bytes:
    """Global functions that share a long name."""
    name = b"\0" + b"n" * (1 << 20) + b"\0"
    name += bytes(-len(name) % 8)
    table = struct.pack("<IBBHQQ", 1, 0x12, 0x10, 0xFFF1, 0, 0) * count
    strings = (0, 3, 0, len(name), 0, 0, 1, 0)
    return elf([strings, (0, 2, len(name), len(table), 1, 0, 8, 24)], name + table)


def symbol_tables_at_one_place(count: int = 4000) -> bytes:
    """Mercury's symbol tables, all over the same bytes."""
    table = struct.pack("<IBBHQQ", 0, 0x12, 0, 0xFFF1, 0, 0) * 20_000
    names = bytes(8)
    return elf([(0, 3, 0, 8, 0, 0, 1, 0), *[(0, 0x70000085, 8, len(table), 1, 0, 8, 24)] * count], names + table)


def fatbins_at_one_place(count: int = 4000) -> bytes:
    """Sections of a host object over the same fatbin."""
    names = b"\0.nv_fatbin\0".ljust(16, b"\0")
    content = fatbin(CUBIN)
    sections = [(0, 3, 0, 16, 0, 0, 1, 0), *[(1, 1, 16, len(content), 0, 0, 8, 0)] * count]
    return elf(sections, names + content, machine=62)


def register_counts_for_everybody(count: int = 2000) -> bytes:
    """Sections of which each one asks for the registers of all symbols."""
    names = b"\0.nv.merc.nv.info\0".ljust(24, b"\0")
    symbols = struct.pack("<IBBHQQ", 0, 0x12, 0, 0xFFF1, 0, 0) * 50_000
    info = (1, 0x70000083, 0, 0, 2, 0, 4, 0)
    sections = [(0, 3, 0, 24, 0, 0, 1, 0), (0, 2, 24, len(symbols), 1, 0, 8, 24), *[info] * count]
    return elf(sections, names + symbols)


COSTLY = (
    *(nested_fatbins, sections_with_one_name, symbols_with_one_name, symbol_tables_at_one_place),
    *(fatbins_at_one_place, register_counts_for_everybody),
)

#: Prints the seconds and the bytes that inspecting a file takes, and whether it has problems.
CHILD = """
import json, resource, sys, time
from pytest_cudalink.artifacts import inspect
inspect(b"")
data = open(sys.argv[1], "rb").read()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.process_time()
found = inspect(data)
took = time.process_time() - start
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps([took, 1024 * (after - before), bool(found.problems or any(leaf.problems for leaf in found.leaves))]))
"""


def cost(image: bytes, folder: Path) -> tuple[float, int, bool]:
    """Seconds of computing and bytes of memory that an image takes in a separate process; whether it is refused."""
    file = folder / "image"
    file.write_bytes(image)
    done = subprocess.run([sys.executable, "-c", CHILD, file], capture_output=True, text=True, check=True)
    seconds, memory, refused = json.loads(done.stdout)
    return seconds, memory, refused


@pytest.mark.parametrize("made", COSTLY)
def test_claims_cost_nothing(made: Callable[[], bytes], tmp_path: Path) -> None:
    """What an image says of itself is refused before it takes more time and memory than its bytes."""
    image = made()
    seconds, memory, refused = cost(image, tmp_path)
    assert refused
    assert seconds < SECONDS
    assert memory <= 4 * len(image) + CONSTANT


def test_many_names(tmp_path: Path) -> None:
    """A text of nothing but declarations is sound; its names take a few times its size."""
    image = b".version 9.0\n.target sm_90\n" + b".extern .func f;\n" * 200_000
    seconds, _, refused = cost(image, tmp_path)
    assert not refused
    assert seconds < SECONDS


def test_nesting_is_bounded() -> None:
    """Eight images may lie inside each other, which no tool writes; the ninth is not looked at."""
    image = CUBIN
    for _ in range(7):
        image = fatbin(image)
    assert inspect(image).problems == ()
    assert "more than 8 images lie inside each other" in inspect(fatbin(image)).problems[0]


@pytest.mark.parametrize(
    "buffer",
    [
        bytearray(CUBIN), memoryview(bytearray(CUBIN)),
        memoryview(b"".join(bytes([byte, 0]) for byte in CUBIN))[::2],
        memoryview(CUBIN[::-1])[::-1],
        memoryview(CUBIN).cast("B", (8, len(CUBIN) // 8)),
        memoryview(CUBIN).cast("Q"), array.array("H", CUBIN),
    ],
    ids=["bytearray", "writable", "strided", "reversed", "rows", "words", "array"],
)  # fmt: skip
def test_every_buffer_is_taken(buffer) -> None:
    """The bytes of a buffer count, however it lies in memory and whatever its format is."""
    assert inspect(buffer) == inspect(CUBIN)


@pytest.mark.parametrize("shift", range(8))
def test_every_alignment(shift: int) -> None:
    """An image inside an archive begins at any even byte; inside a fatbin at any byte."""
    padded = fatbin(CUBIN)
    entry = struct.pack("<HHIQIIHHIIIQQQ", 3, 0x101, 64 + shift, 0, 0, 0, 0, 0, 90, 0, 0, 0x11, 0, 0) + bytes(shift)
    image = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entry) + len(padded) - 16) + entry + padded[16:]
    assert inspect(image).parts[1] == inspect(CUBIN)


def test_inspecting_loads_the_library_first() -> None:
    """Importing the package opens no library, and imports no ctypes."""
    code = (
        "import sys; import pytest_cudalink.artifacts as artifacts; assert 'ctypes' not in sys.modules; "
        "loaded = lambda: 'libcudalink-artifacts' in open('/proc/self/maps').read(); "
        "assert not loaded(); artifacts.inspect(b''); assert loaded()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_copy_that_was_not_built(monkeypatch, tmp_path: Path) -> None:
    """Without the library there is one clear error."""
    from pytest_cudalink import artifacts
    from pytest_cudalink.artifacts import ReaderError

    assert "ReaderError" in (signatures.getdoc(inspect) or "")
    artifacts.reader.cache_clear()
    monkeypatch.setattr(artifacts, "_FILE", tmp_path / "missing.so")
    with pytest.raises(ReaderError, match="the reader of device code is not built: .*missing.so is missing"):
        inspect(b"")
