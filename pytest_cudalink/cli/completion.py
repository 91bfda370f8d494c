"""Words that a shell offers for the command: argcomplete's hook, and the values of options.

argcomplete asks the program at each TAB. A script that is made once, as shtab makes one, could not know the cells of a
project, its tags and the toolchains in the cache, which are what is worth completing.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from typing import Any


def complete(parser: argparse.ArgumentParser) -> None:
    """Answer the shell and end the process, where argcomplete is installed."""
    try:
        import argcomplete
    except ImportError:
        return
    argcomplete.autocomplete(parser, always_complete_options="long")


def offer(action: argparse.Action, values: Callable[[argparse.Namespace], Iterable[object]]) -> None:
    """Complete an option or argument with values, which may depend on the options before it.

    Nothing is offered where they cannot be found out: a shell has no place for an error.
    """

    def completer(parsed_args: argparse.Namespace, **_: Any) -> list[str]:
        try:
            return list(map(str, values(parsed_args)))
        except Exception:  # noqa: BLE001 (a file with errors, another user's cache, …: all of them leave no words)
            return []

    action.completer = completer  # type: ignore[attr-defined]
