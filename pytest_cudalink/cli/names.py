"""Names that a user mistyped or left out: the nearest known ones, or all of them; and those that a shell completes.

argcomplete asks the program at each TAB. A script that is made once, as shtab makes one, could not know the cells of a
project, its tags and the toolchains in the cache, which are what is worth completing.
"""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..base.words import listed

if TYPE_CHECKING:
    from ..matrix import Cell

#: More names than this are not listed; a command shows them all.
_MOST: Final = 20


def hint(given: str, known: Iterable[str], more: str = "") -> str:
    """Return the end of an error about a name: the nearest known names, else all of them; begins with ``"; "``.

    `more`: the command that lists them all, where they are many.
    """
    names = list(known)
    near = difflib.get_close_matches(given, names, 3)
    if near:
        return f"; did you mean {' or '.join(near)}?"
    if not names:
        return "; there are none"
    return f"; known: {listed(names, _MOST)}{more if len(names) > _MOST else ''}"


class UnknownNameError(Exception):
    """No cell has a name or a tag; the message names those that there are."""


def tagged(cells: Iterable[Cell], tags: str, file: Path, *, none: bool = False) -> list[Cell]:
    """Return the cells that --tags selects; raise an error for an unknown tag, or if no cell has the tags.

    CI rejects an empty matrix, and a misspelt tag would leave cells out without a word. With `none`, tags that only
    leave cells out may leave none.
    """
    from ..matrix import select
    from ..matrix.cells import IMPLIED_TAGS

    every = list(cells)
    known = {tag for cell in every for tag in cell.tags}
    wanted = {word.strip().removeprefix("!") for word in tags.split(",") if word.strip()}
    # the workflows that `cudalink init` writes leave out "nightly", whether or not a cell has it
    if unknown := sorted(wanted - known - {*IMPLIED_TAGS, "nightly"}):
        msg = f"no cell of {file} has the tag {unknown[0]!r}{hint(unknown[0], sorted(known))}"
        raise UnknownNameError(msg)
    found = select(every, tags)
    if not found and wanted and not (none and all(word.strip().startswith("!") for word in tags.split(","))):
        msg = f"no cell of {file} has the tags {tags!r}; known: {', '.join(sorted(known))}"
        raise UnknownNameError(msg)
    return found


def add_verbs(
    parser: argparse.ArgumentParser, name: str = "verb"
) -> argparse._SubParsersAction[argparse.ArgumentParser]:
    """Add verbs to a command; the option of this name is then the chosen one.

    argparse would say that VERB is required, and not which verbs there are; `missing_verb` does.
    """
    verbs = parser.add_subparsers(title=f"{name}s", dest=name, metavar=name.upper())
    parser.set_defaults(verb_names=(name, verbs.choices))
    return verbs


def missing_verb(options: argparse.Namespace) -> str:
    """Return what is wrong with a command that has verbs and was given none; empty if all is well."""
    name, known = getattr(options, "verb_names", ("", ()))
    if not name or getattr(options, name) is not None:
        return ""
    return f"{name.upper()} is missing; expected {', '.join(known)}"


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
