"""Names that a user mistyped: the nearest known ones, or all of them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Final

__all__ = ["hint"]

#: More names than this are not listed; a command shows them all.
_MOST: Final = 20


def hint(given: str, known: Iterable[str], more: str = "") -> str:
    """Return the end of an error about a name: the nearest known names, else all of them; begins with ``"; "``.

    Parameters
    ----------
    given : str
    known : iterable of str
    more : str
        The command that lists them all, where they are many.
    """
    names = list(known)
    near = difflib.get_close_matches(given, names, 3)
    if near:
        return f"; did you mean {' or '.join(near)}?"
    if not names:
        return "; there are none"
    listed = ", ".join(names[:_MOST])
    return f"; known: {listed}" if len(names) <= _MOST else f"; known: {listed} and {len(names) - _MOST} more{more}"
