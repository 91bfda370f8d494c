"""Line numbers of the keys of a TOML file, which `tomllib` does not report."""

import re
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

#: Keys from the top of the file; the elements of arrays of tables count from 0.
Path = tuple[str | int, ...]
#: A string or a comment of TOML.
_TEXT: Final = re.compile(
    r"\x22{3}(?:\\[\s\S]|[^\\])*?\x22{3,5}|'{3}[\s\S]*?'{3,5}|\x22(?:\\.|[^\x22\\\n])*\x22|'[^'\n]*'|#[^\n]*"
)


def without_texts(text: str) -> str:
    """Return a TOML text with a letter for each string and comment; every line stays a line."""
    return _TEXT.sub(lambda match: "s" + "\n" * match[0].count("\n"), text)


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
    whole, starts, depth = text.split("\n"), [], 0  # splitlines() also splits at characters that TOML allows in strings
    for number, code in enumerate(without_texts(text).split("\n")):
        if not depth and (code.lstrip().startswith("[") or "=" in code):
            starts.append(number)
        depth += sum((sign in "[{") - (sign in "]}") for sign in code)
    for start, end in pairwise([*starts, len(whole)]):
        yield start + 1, "\n".join(whole[start:end])


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
