"""What libFuzzer found worth keeping, and the program that feeds the reader with it."""

import re
import struct
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from zlib import crc32

from pytest_cudalink.artifacts import Artifact, _artifact, inspect, reader
from tests.artifacts import fuzz

from .test_artifacts import PTX, section_table
from .test_artifacts import field as changed

#: Samples whose damage has kept answers.
DAMAGED = (
    *("12.9/user.cubin", "13.5/user-sm_100.cubin", "13.0/main-sm_100.cubin", "13.0/user.ptx"),
    *("13.0/user.ltoir", "13.0/linked.cubin", "nvcc/user-plain.fatbin", "nvcc/user.a", "tile/add-13.5.tileir", "PTX"),
)


def test_kept_inputs() -> None:
    """Each input of the corpus is answered, and none of them is large."""
    with zipfile.ZipFile(fuzz.CORPUS) as corpus:
        inputs = [corpus.read(name) for name in corpus.namelist()]
    assert len(inputs) > 100
    assert sum(map(len, inputs)) <= fuzz.MOST
    assert all(isinstance(inspect(data), Artifact) for data in inputs)


def told(stream: bytes) -> str:
    """An answer of the native reader, in one line."""
    code, _ = _artifact(stream, 0)
    return ascii("; ".join(code.problems) or [[*vars(part).values()] for part in (code, *code.leaves)])


def damaged(image: bytes) -> Iterator[bytes]:
    """An image, cut short, at each place if it is small, and with each of its bytes one more and one less.

    Of ELF also with other words in its header, and with a section or a field of it as another section has it.
    """
    yield from (image[:at] for at in range(0, len(image), 1 + len(image) // 2000))
    for at in range(len(image)):
        for step in (1, 255):
            yield image[:at] + bytes([(image[at] + step) % 256]) + image[at + 1 :]
    if image.startswith(b"\x7fELF"):
        yield from (changed(image, at, "<H", word) for at in range(0, 64, 2) for word in (0, 1, 0xFFFF))
        count = image[60]
        sections = range(section_table(image), section_table(image) + 64 * count, 64)
        yield from (image[:at] + image[other : other + 64] + image[at + 64 :] for at in sections for other in sections)
        for field in (0, 4, 40, 44, 8, 24, 32, 48, 56):
            layout = "<I" if field in (0, 4, 40, 44) else "<Q"
            values = {struct.unpack_from(layout, image, section + field)[0] for section in sections}
            for value in sorted(values | {count - 1, count}):
                yield from (changed(image, section + field, layout, value) for section in sections)


def test_answers(samples, as_kept) -> None:
    """The reader's answers are the kept ones: of the corpus, and of damaged samples, numbers and names as a sum."""
    with zipfile.ZipFile(fuzz.CORPUS) as corpus:
        inputs = [corpus.read(name) for name in corpus.namelist()]
    counts, changes = defaultdict(list), ((name, damaged(samples.get(name, PTX))) for name in DAMAGED)
    for name, images in (("corpus", inputs), *changes):
        texts = Counter()
        for stream, count in Counter(map(reader(), images)).items():
            texts[told(stream)] += count
        for text, count in texts.items():
            counts[name, re.sub(r"0x[0-9a-f]+|\d+|[.$][\w.$]+", "#", text)].append((count, text))
    lines = (f"{name} {crc32(ascii(texts).encode()):08x} {text}\n" for (name, text), texts in sorted(counts.items()))
    as_kept(fuzz.SAMPLES.parent / "reader_answers.txt", "".join(lines))


def test_without_clang(monkeypatch, capsys) -> None:
    """Where nothing can be built, the exit code says that nothing was tried, and the reason is printed."""
    monkeypatch.setattr(fuzz.shutil, "which", lambda _: None)
    monkeypatch.setattr("sys.argv", ["fuzz"])
    assert fuzz.main() == fuzz.MISSING == 77
    assert "skipped: needs clang" in capsys.readouterr().out
