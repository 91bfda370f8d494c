"""A small library with planted bugs, each beside a twin without it: a fault sweep has to tell them apart."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeVar

Within = TypeVar("Within")
Programs = dict[str, Callable[[], None]]


def twins(
    within: Callable[[], AbstractContextManager[Within]],
) -> tuple[Programs, Programs, Callable[[Callable[[Within, bool], None]], Callable[[Within, bool], None]]]:
    """Return the programs with a bug, those without it, and the decorator that enters a function in both.

    The function is called with what it uses, which is freed behind it, and with whether it is mended.
    """
    broken, mended = Programs(), Programs()

    def planted(function: Callable[[Within, bool], None]) -> Callable[[Within, bool], None]:
        def run(*, is_mended: bool) -> None:
            with within() as use:
                function(use, is_mended)

        broken[function.__name__] = lambda: run(is_mended=False)
        mended[function.__name__] = lambda: run(is_mended=True)
        return function

    return broken, mended, planted
