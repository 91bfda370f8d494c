"""A number with its noun, in the singular or the plural; every text for people takes both from here."""

from __future__ import annotations

from collections.abc import Sequence


def plural(number: int, one: str, many: str | None = None) -> str:
    """Return the form of a word that suits a number; by default the plural ends in ``s``."""
    return one if number == 1 else f"{one}s" if many is None else many


def counted(number: int, one: str, many: str | None = None) -> str:
    """Return a number with its noun: ``"1 link"``, ``"2 links"``; `many` is an irregular plural."""
    return f"{number} {plural(number, one, many)}"


def and_more(number: int, noun: str = "") -> str:
    """Return ``" and 3 more"`` after what a text shows, or ``" and 3 more files"``; empty if it shows everything."""
    more = counted(number, f"more {noun}") if noun else f"{number} more"
    return f" and {more}" if number > 0 else ""


def listed(texts: Sequence[str], most: int = 6) -> str:
    """Return the first few texts, and how many more there are: ``"a, b and 3 more"``."""
    return ", ".join(texts[:most]) + and_more(len(texts) - most)
