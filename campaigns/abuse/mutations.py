"""Mutated device code: input number N of a seed is the same on every machine."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

SAMPLES: Final = Path(__file__).parents[2] / "tests" / "data" / "artifacts"
#: The releases whose samples nvJitLink 13.0 links.
_RELEASES: Final = ("12.9", "13.0")
_KINDS: Final = {".o": "object", ".a": "library", **{f".{kind}": kind for kind in ("cubin", "ptx", "ltoir", "fatbin")}}
#: Values at which the reading of a number may go wrong, as fractions of the number's range and near the ends.
_EDGES: Final = (0, 1, 2, 3, 4, 7, 8, 16, 63, 64, 65, 255, 256)
_WORDS: Final = b'.visible .extern .func .entry .target .version { } ( ; /* "'.split()


@dataclass(frozen=True)
class Subject:
    """A sound image, and the sound image that it links with."""

    name: str  # the file, relative to `tests/data/artifacts`
    kind: str  # as in `pytest_cudalink.artifacts.Kind`
    data: bytes
    sibling: bytes  # of the kind `sibling_kind`; empty for an image that links alone
    sibling_kind: str
    lto: bool  # whether the link needs link-time optimization
    arch: str


def subjects() -> tuple[Subject, ...]:
    """Return every sample that has code for one architecture, with its sibling."""
    subjects = []
    for release in _RELEASES:
        for path in sorted((SAMPLES / release).iterdir()):
            kind, other = _KINDS[path.suffix], "user" if path.stem == "main" else "main"
            sibling = path.with_name(f"{other}{path.suffix}") if path.stem in ("main", "user") else None
            subjects.append(_subject(path, kind, sibling))
    main = SAMPLES / "13.0" / "main.cubin"
    subjects += [_subject(path, _KINDS[path.suffix], main) for path in sorted((SAMPLES / "nvcc").iterdir())]
    return tuple(subjects)


def _subject(path: Path, kind: str, sibling: Path | None) -> Subject:
    lto = kind == "ltoir" or path.stem.endswith("-lto")
    if lto and sibling is not None:
        sibling = sibling.with_suffix(".ltoir")
    return Subject(
        name=f"{path.parent.name}/{path.name}",
        kind=kind,
        data=path.read_bytes(),
        sibling=sibling.read_bytes() if sibling else b"",
        sibling_kind=_KINDS[sibling.suffix] if sibling else "",
        lto=lto,
        arch="sm_100" if path.stem.endswith("sm_100") else "sm_90",
    )


def _set_byte(data: bytearray, pick: random.Random) -> None:
    data[pick.randrange(len(data))] = pick.randrange(256)


def _flip_bit(data: bytearray, pick: random.Random) -> None:
    data[pick.randrange(len(data))] ^= 1 << pick.randrange(8)


def _set_number(data: bytearray, pick: random.Random, *, changed: bool = False) -> None:
    size = pick.choice((2, 4, 8))
    at = pick.randrange(max(1, len(data) - size)) // size * size
    top = 1 << 8 * size
    value = (
        int.from_bytes(data[at : at + size], "little") + pick.choice((-64, -24, -8, -1, 1, 8, 24, 64))
        if changed
        else pick.choice((*_EDGES, len(data) - 1, len(data), top // 2 - 1, top // 2, top - 1, top - 16))
    )
    data[at : at + size] = (value % top).to_bytes(size, "little")


def _fill(data: bytearray, pick: random.Random) -> None:
    at, size = pick.randrange(len(data)), pick.choice((8, 16, 64, 256))
    end = min(len(data), at + size)
    data[at:end] = bytes([pick.choice((0, 0x30, 0x7F, 0xFF))]) * (end - at)


def _cut(data: bytearray, pick: random.Random) -> None:
    del data[pick.randrange(1, len(data) + 1) :]


def _remove(data: bytearray, pick: random.Random) -> None:
    at = pick.randrange(len(data))
    del data[at : at + pick.choice((1, 4, 8, 16, 64))]


def _copy(data: bytearray, pick: random.Random) -> None:
    size = pick.choice((8, 16, 24, 64))
    source, at = pick.randrange(len(data)), pick.randrange(len(data))
    piece = data[source : source + size]
    if pick.random() < 0.5:
        data[at : at + len(piece)] = piece
    else:
        data[at:at] = piece


def _insert_word(data: bytearray, pick: random.Random) -> None:
    at = pick.randrange(len(data))
    data[at:at] = b" " + pick.choice(_WORDS) + b" "


_Mutation = Callable[[bytearray, random.Random], None]
_BINARY: Final[tuple[_Mutation, ...]] = (
    *(_set_byte, _set_byte, _flip_bit, *[_set_number] * 2, *[partial(_set_number, changed=True)] * 2),
    *(_fill, _cut, _remove, _copy),
)
_TEXT: Final[tuple[_Mutation, ...]] = (_set_byte, _flip_bit, _fill, _cut, _remove, _copy, _insert_word, _insert_word)


def mutated(chosen: tuple[Subject, ...], seed: int, numbers: range) -> Iterator[tuple[int, Subject, bytes]]:
    """Yield each number with its subject and the subject's bytes after one to three mutations."""
    for number in numbers:
        pick = random.Random(f"{seed}/{number}")
        subject = pick.choice(chosen)
        yield number, subject, damaged(subject.data, pick, _TEXT if subject.kind == "ptx" else _BINARY)


def damaged(sound: bytes, pick: random.Random, mutations: tuple[_Mutation, ...] = _BINARY) -> bytes:
    """Return bytes after one to three mutations."""
    data = bytearray(sound)
    for _ in range(pick.choice((1, 1, 1, 2, 3))):
        if data:
            pick.choice(mutations)(data, pick)
    return bytes(data)
