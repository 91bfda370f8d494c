"""Words of texts for people: numbers with their nouns, columns, and settings written as words with commas."""

import difflib
import sys
from collections.abc import Iterable, Mapping, Sequence


def plural(number: int, singular: str, many: str | None = None) -> str:
    """Return the form of a word that suits a number; by default the plural ends in ``s``."""
    return singular if number == 1 else f"{singular}s" if many is None else many


def counted(number: int, singular: str, many: str | None = None) -> str:
    """Return a number with its noun: ``"1 link"``, ``"2 links"``; `many` is an irregular plural."""
    return f"{number} {plural(number, singular, many)}"


def either(number: int, forms: str) -> str:
    """Return the singular or the plural of ``"ONE|MANY"``; of a text without a bar, the text."""
    singular, _, many = forms.partition("|")
    return singular if number == 1 else many or singular


def and_more(number: int, noun: str = "") -> str:
    """Return ``" and 3 more"`` after what a text shows, or ``" and 3 more files"``; empty if it shows everything."""
    more = counted(number, f"more {noun}") if noun else f"{number} more"
    return f" and {more}" if number > 0 else ""


def listed(texts: Sequence[str], most: int = 6) -> str:
    """Return the first few texts, and how many more there are: ``"a, b and 3 more"``."""
    return ", ".join(texts[:most]) + and_more(len(texts) - most)


def columns(rows: Sequence[Sequence[str]], widest: int = sys.maxsize) -> list[str]:
    """Return rows as lines; a column is as wide as its longest value, but no wider than a limit."""
    widths = [min(widest, max(map(len, column))) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def read_words(text: str, known: Mapping[str, tuple[str, ...]]) -> dict[str, str]:
    """Return the value of each key that a text names.

    `text`: words such as ``key=value``, separated by commas. A value alone is that of the key ``""``; where there is no
    such key, it is the value of every key that no other word names.
    `known`: the values of each key; a value in capitals, such as ``SIZE``, stands for any.
    Raises ValueError if a word is unknown, with the nearest known one, or given twice. The message ends in what is
    expected.
    """
    chosen: dict[str, str] = {}
    for word in filter(None, (part.strip() for part in text.split(","))):
        key, _, value = word.rpartition("=")
        if key in chosen:
            raise ValueError(f"{key or value!r} comes after another value of the same; expected {form(known)}")
        values = known.get(key, () if key else next(iter(known.values())))
        if not value or not (value in values or any(word.isupper() for word in values)):
            raise ValueError(f"{word!r} is unknown; expected {form(known)}{_hint(word, known)}")
        chosen[key] = value
    everywhere = {} if "" in known or "" not in chosen else dict.fromkeys(known, chosen.pop(""))
    return {**everywhere, **chosen}


def form(known: Mapping[str, tuple[str, ...]]) -> str:
    """Return how the words are written, such as ``lifetimes=off|fail, nvjitlink=off|fail``."""
    words = ", ".join(f"{key}={'|'.join(values)}" if key else "|".join(values) for key, values in known.items())
    return words if "" in known else f"{words}, or a value alone for all"


def did_you_mean(name: str, known: Iterable[str], most: int = 1, *, alike: float = 0.6) -> str:
    """Return the nearest of some names as the end of an error about another; empty if none is near.

    `most`: how many are named.
    `alike`: how near they must be, from 0 to 1.
    """
    near = difflib.get_close_matches(name, [*known], most, alike)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def _hint(word: str, known: Mapping[str, tuple[str, ...]]) -> str:
    words = [f"{key}={value}" for key, values in known.items() for value in values]
    return did_you_mean(word, [*words, *next(iter(known.values()))])
