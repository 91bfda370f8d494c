"""A small library with planted bugs, each beside a twin without it: a fault sweep has to tell them apart."""

from __future__ import annotations

from collections.abc import Callable

Programs = dict[str, Callable[[], None]]


def twins() -> tuple[Programs, Programs, Callable[[Callable[[bool], None]], Callable[[bool], None]]]:
    """Return the programs with a bug, those without it, and the decorator that enters a function in both.

    The function is called with whether it is mended.
    """
    broken, mended = Programs(), Programs()

    def planted(function: Callable[[bool], None]) -> Callable[[bool], None]:
        broken[function.__name__] = lambda: function(False)
        mended[function.__name__] = lambda: function(True)
        return function

    return broken, mended, planted
