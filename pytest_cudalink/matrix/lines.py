"""Line numbers of the keys of a TOML file, which `tomllib` does not report."""

import re
import tomllib
from collections.abc import Iterator
from typing import Any, Final

#: Keys from the top of the file; the elements of arrays of tables count from 0.
Path = tuple[str | int, ...]
#: What the last line of a value of several lines has.
_CLOSING: Final = re.compile(r"[\]}]|\"\"\"|'''")
#: Most characters that are parsed in search of the ends of values; later lines of such a file remain unknown.
_MOST_PARSED: Final = 1 << 20


def lines(text: str) -> dict[Path, int]:
    """Return the line, from 1, of every table header and key of a valid TOML text; an inline table is one key."""
    numbers: dict[Path, int] = {}
    counts: dict[Path, int] = {}
    table: Path = ()
    for number, statement in _statements(text):
        content, is_header = tomllib.loads(statement), statement.lstrip().startswith("[")
        if statement.lstrip().startswith("[["):
            array = [path for path in _paths(content, counts) if isinstance(path[-1], str)][-1]
            counts[array] = counts.get(array, -1) + 1
        paths = [*_paths(content, counts, () if is_header else table)]
        if is_header:
            table = paths[-1]
        for path in paths:
            numbers.setdefault(path, number)
    return numbers


def line_of(known: dict[Path, int], path: Path) -> int | None:
    """Return the line of a key, else that of the innermost table around it; None for the file as a whole."""
    return next((known[path[:length]] for length in range(len(path), 0, -1) if path[:length] in known), None)


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield headers and assignments, each with its first line; a value may span several lines."""
    rest = text.split("\n")  # splitlines() also splits at characters that TOML allows in strings
    start = parsed = 0
    while start < len(rest):
        end = start + 1
        while end < len(rest):
            if end == start + 1 or _CLOSING.search(rest[end - 1]):
                statement = "\n".join(rest[start:end])
                parsed += len(statement)
                if parsed > _MOST_PARSED:
                    return
                if _whole(statement):
                    break
            end += 1
        yield start + 1, "\n".join(rest[start:end])
        start = end


def _whole(text: str) -> bool:
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return False
    return True


def _paths(content: dict[str, Any], counts: dict[Path, int], above: Path = ()) -> Iterator[Path]:
    """Yield the keys of a statement, each below those around it, with the current elements of arrays of tables."""
    for key, value in content.items():
        path: Path = (*above, key)
        yield path
        if path in counts:
            path = (*path, counts[path])
            yield path
        if isinstance(value, dict):
            yield from _paths(value, counts, path)
