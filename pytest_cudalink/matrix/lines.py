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
    prefix: Path = ()
    for number, statement in _statements(text):
        if statement.lstrip().startswith("[["):
            keys = _resolve(_keys(tomllib.loads(statement)), counts)
            counts[keys] = counts.get(keys, -1) + 1
            prefix = (*keys, counts[keys])
        elif statement.lstrip().startswith("["):
            prefix = _resolve(_keys(tomllib.loads(statement)), counts)
        else:
            for keys in _leaves(tomllib.loads(statement)):
                for length in range(1, len(keys) + 1):
                    numbers.setdefault((*prefix, *keys[:length]), number)
        for length in range(1, len(prefix) + 1):
            numbers.setdefault(prefix[:length], number)
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


def _keys(content: dict[str, object]) -> list[str]:
    """Return the keys of a header: one for each level."""
    keys = []
    level: Any = content
    while level:
        if isinstance(level, dict):
            ((key, level),) = level.items()
            keys.append(key)
        else:
            level = level[0]
    return keys


def _resolve(keys: list[str], counts: dict[Path, int]) -> Path:
    """Return a header's keys with the current element of each array of tables; the last key is unchanged."""
    path: Path = ()
    for position, key in enumerate(keys):
        path = (*path, key)
        if position < len(keys) - 1 and path in counts:
            path = (*path, counts[path])
    return path


def _leaves(content: dict[str, object]) -> Iterator[Path]:
    for key, value in content.items():
        if isinstance(value, dict) and value:
            yield from ((key, *rest) for rest in _leaves(value))
        else:
            yield (key,)
