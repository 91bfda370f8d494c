"""Words on a command line: names and verbs, with the nearest for a mistyped one; paths; and what a shell completes.

argcomplete asks the program at each TAB. A script that is made once, as shtab makes one, could not know the cells of a
project, its tags and the toolchains in the cache, which are what is worth completing.
"""

from __future__ import annotations

import argparse
import json
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..base.safe_text import say
from ..base.words import did_you_mean, listed

if TYPE_CHECKING:
    from ..matrix import Cell

#: More names than this are not listed; a command shows them all.
_MOST: Final = 20
#: Stands for stdout where a file to write is expected.
STDOUT: Final = Path("-")


def hint(name: str, known: Iterable[str], more: str = "") -> str:
    """Return the end of an error about a name: the nearest known names, else all of them; begins with ``"; "``.

    `more`: the command that lists them all, where they are many.
    """
    names = list(known)
    if near := did_you_mean(name, names, 3):
        return near
    if not names:
        return "; there are none"
    return f"; known: {listed(names, _MOST)}{more if len(names) > _MOST else ''}"


def answer(content: object, lines: Iterable[str], *, as_json: bool) -> int:
    """Print the answer of a command, as JSON or in lines; return exit code 0."""
    if as_json:
        sys.stdout.write(json.dumps(content, indent=1) + "\n")
    else:
        say("".join(f"{line}\n" for line in lines), end="")
    return 0


def append_summary(markdown: Callable[[], str]) -> list[str]:
    """Append Markdown to the summary of a GitHub job; return what is wrong. Nothing is done where there is no job."""
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if not path:
        return []
    try:
        with Path(path).open("a", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(markdown())
    except OSError as error:
        why = error.strerror or error
        return [f"GITHUB_STEP_SUMMARY is {path}; it cannot be written: {why}; expected a file that can be written"]
    return []


class CommandError(Exception):
    """Ends a command with exit code 2; `cli.main` shows the message behind the name of the command.

    `verb`: the verb that is shown, too.
    """

    def __init__(self, message: object, verb: str = "") -> None:
        super().__init__(message)
        self.verb = verb


@contextmanager
def command_errors(*kinds: type[Exception], verb: str = "") -> Iterator[None]:
    """End the command if the block raises such an error, with its message; `verb`: as of `CommandError`."""
    try:
        yield
    except kinds as error:
        raise CommandError(error, verb) from error


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
        raise CommandError(f"no cell of {file} has the tag {unknown[0]!r}{hint(unknown[0], sorted(known))}")
    chosen = select(every, tags)
    if not chosen and wanted and not (none and all(word.strip().startswith("!") for word in tags.split(","))):
        raise CommandError(f"no cell of {file} has the tags {tags!r}; known: {', '.join(sorted(known))}")
    return chosen


def add_verbs(
    parser: argparse.ArgumentParser, name: str = "verb"
) -> argparse._SubParsersAction[argparse.ArgumentParser]:
    """Add verbs to a command; the option of this name is then the chosen one.

    argparse would say that VERB is required, and not which verbs there are; `check_verb` does.
    """
    verbs = parser.add_subparsers(title=f"{name}s", dest=name, metavar=name.upper())
    parser.set_defaults(verb_names=(name, verbs.choices))
    return verbs


def check_verb(options: argparse.Namespace) -> None:
    """Raise an error if a command that has verbs was given none."""
    name, known = getattr(options, "verb_names", ("", ()))
    if name and getattr(options, name) is None:
        raise CommandError(f"{name.upper()} is missing; expected {', '.join(known)}")


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


# --- paths: each function returns a type for argparse, which names the option before the message and ends with exit
# code 2. A path is looked at and not opened: `regular_files` opens it later, and refuses what has become a pipe


def wrong_file(path: Path, expected: str, *, or_folder: bool = False) -> str:
    """Return why a path cannot be read as a file, and what is expected; empty if it can be.

    `or_folder`: whether anything does that is there, because the command says what is wrong with a file.
    """
    try:
        kind = path.stat().st_mode
    except OSError as error:
        return f"is {path}: {error.strerror}; expected {expected}"
    if or_folder:
        return ""
    if stat.S_ISDIR(kind):
        return f"is {path}, a folder; expected {expected}"
    if not stat.S_ISREG(kind):
        return f"is {path}, a pipe or a device; expected {expected}; write it to a file first"
    return "" if os.access(path, os.R_OK) else f"is {path}, which you may not read; expected {expected}"


def input_file(expected: str, remedy: str = "correct the path", *, or_folder: bool = False) -> Callable[[str], Path]:
    """Return the type of an option that names a file to read.

    `expected`: what the file is, such as ``"a file of cells"``.
    `remedy`: what to do.
    `or_folder`: as of `wrong_file`.
    """

    def of(text: str) -> Path:
        path = _path(text, expected)
        if why := wrong_file(path, expected, or_folder=or_folder):
            raise argparse.ArgumentTypeError(f"{why}; {remedy}")
        return path

    return of


def output_file(text: str) -> Path:
    """Return the path of a file to write, or `STDOUT`; its folder may be missing."""
    path = _path(text, "a file to write")
    if path == STDOUT:
        return path
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"is {path}, a folder; expected a file to write; name a file in it")
    try:
        if not stat.S_ISREG(path.stat().st_mode) and os.access(path, os.W_OK):
            return path  # a device or a pipe is not replaced: its folder may be closed, as /dev is
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        msg = f"is {path}: {error.strerror}; expected a file to write; name another"
        raise argparse.ArgumentTypeError(msg) from error
    _check_place(path, path.absolute().parent, "a file to write")
    return path


def output_folder(text: str) -> Path:
    """Return the path of a folder to write into, which may be missing."""
    path = _path(text, "a folder")
    _check_place(path, path.absolute(), "a folder to write into")
    return path


def _check_place(path: Path, folder: Path, expected: str) -> None:
    """Raise an error if a folder neither exists nor can be made, or cannot be written to."""
    try:
        there = next(place for place in (folder, *folder.parents) if os.path.lexists(place))
        kind = there.stat().st_mode
    except OSError as error:
        msg = f"is {path}: {error.strerror}; expected {expected}; correct the path"
        raise argparse.ArgumentTypeError(msg) from error
    if not stat.S_ISDIR(kind):
        inside = "" if there == path.absolute() else f", inside of {there}"
        raise argparse.ArgumentTypeError(f"is {path}{inside}, which is not a folder; expected {expected}; name another")
    if not os.access(there, os.W_OK | os.X_OK):
        raise argparse.ArgumentTypeError(f"is {path}; {there} cannot be written to; expected {expected}; name another")


def any_path(text: str) -> Path:
    """Return the path of a file or folder to read; the command says what is wrong with one, and goes on with others."""
    return _path(text, "a path")


def _path(text: str, expected: str) -> Path:
    if not text or "\0" in text:
        raise argparse.ArgumentTypeError(f"is {text!r}; expected {expected}; correct the path")
    return Path(text)
