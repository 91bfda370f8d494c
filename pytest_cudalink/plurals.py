"""A number with its noun, in the singular or the plural; every text for people takes both from here."""

from __future__ import annotations

__all__ = ["counted", "plural"]


def plural(number: int, one: str, many: str | None = None) -> str:
    """Return the form of a word that suits a number; by default the plural ends in ``s``."""
    return one if number == 1 else f"{one}s" if many is None else many


def counted(number: int, one: str, many: str | None = None) -> str:
    """Return a number with its noun: ``"1 link"``, ``"2 links"``; `many` is an irregular plural."""
    return f"{number} {plural(number, one, many)}"
