"""Every option and argument that takes a path, with paths that cannot be used."""

import argparse
import os
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from pytest_cudalink.cli import main, make_parser
from pytest_cudalink.cli.arguments import input_file, output_file, output_folder
from tests.report.samples import write

#: What a command needs besides the path that is tried.
_NEEDED: Final = {
    ("driver", "run"): ["--version", "13.0"],
    ("stubs", "build"): ["-o", "made"],
    ("stubs", "generate"): ["-o", "made"],
    ("report",): ["records"],
    ("driver", "record"): ["--answers", "file"],
}
#: The argument that a command needs besides the option that is tried.
_ARGUMENT: Final = {("matrix", "show"): "cell"}
#: Written after everything else.
_LAST: Final = {("driver", "run"): ["--", "true"]}
#: Paths that these take: a file is also a record, a folder also holds some.
_GOOD: Final[dict[tuple[str, str], set[str]]] = {
    ("stubs build", "--output"): {"folder"},
    ("stubs generate", "--output"): {"folder"},
    ("audit", "paths"): {"folder"},
    ("report", "paths"): {"folder"},
    ("report", "--against"): {"folder"},
    # an existing file is written again
    **{("report", name): {"file"} for name in ("--html", "--markdown", "--save")},
    ("driver run", "--events"): {"file"},
    ("driver record", "--output"): {"file"},
    # read only with --shard; a file that is no record is passed over
    **{(f"matrix {verb}", "--records"): {"folder", "file"} for verb in ("list", "github")},
}
#: Written, and made with their folders.
_WRITTEN: Final = {"--events", "--html", "--markdown", "--save", "--output", "out", "--to", "--venv", "--cache"}
#: An empty word is the working folder here, which is a good one.
_HERE: Final = {("report", "paths"), ("report", "--against")}


class Place(NamedTuple):
    """An option or argument that takes a path, and the words of its command."""

    command: tuple[str, ...]
    name: str

    def __str__(self) -> str:
        return f"{' '.join(self.command)} {self.name}"


def _places(parser: argparse.ArgumentParser, command: tuple[str, ...] = ()) -> Iterator[Place]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                yield from _places(below, (*command, name))
        elif action.type is Path or getattr(action.type, "__module__", "") == "pytest_cudalink.cli.arguments":
            yield Place(command, max(action.option_strings, key=len, default=action.dest))


PLACES: Final = list(_places(make_parser()))
KINDS: Final = ("missing", "folder", "file", "below a file", "circle", "empty")


def test_all_are_found() -> None:
    """The walk sees the paths of every command; a new one is tried without a word here."""
    named = ("audit paths", "driver run --events", "matrix list --file", "report --cells", "stubs build --output")
    assert {*named} <= {str(place) for place in PLACES}


@pytest.fixture
def bad(tmp_path: Path, monkeypatch) -> dict[str, str]:
    """One path of each kind. A link to itself cannot be read by any user, not even by root."""
    monkeypatch.chdir(tmp_path)
    for name in ("folder", "records"):
        (tmp_path / name).mkdir()
    write(tmp_path / "records", "cell", {"test_it": "passed"})
    (tmp_path / "file").write_text("no format has this\n")
    (tmp_path / "circle").symlink_to("circle")
    return dict(zip(KINDS, ("none/such", "folder", "file", "file/below", "circle", ""), strict=True))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", PLACES, ids=str)
def test_bad_paths(place: Place, kind: str, bad: dict[str, str], capsys) -> None:
    """Exit code 2 and one message that names the path, and what is expected in its place; no number of an error."""
    name = " ".join(place.command), place.name
    good = {"missing"} if place.name in _WRITTEN else {"empty"} if name in _HERE else set()
    if kind in good | _GOOD.get(name, set()):
        return
    path = bad[kind]
    option = [place.name, path] if place.name.startswith("-") else [path]
    verb = [_ARGUMENT[place.command]] if place.name.startswith("-") and place.command in _ARGUMENT else []
    needed = [word for word in _NEEDED.get(place.command, []) if place.name not in ("--output", "paths")]
    arguments = [*place.command, *needed, *verb, *option, *_LAST.get(place.command, [])]
    try:
        code = main(arguments)
    except SystemExit as stop:
        code = int(stop.code or 0)
    said = capsys.readouterr().err
    assert code in ((1, 2) if kind == "file" else (2,)), shlex.join(arguments)
    assert "Traceback" not in said
    assert "[Errno" not in said, said
    message = said.strip().splitlines()[-1]
    assert (path or ("is ." if place.command == ("report",) and place.name in _WRITTEN else "''")) in said, said
    if kind in ("missing", "below a file", "circle"):
        assert re.search(r"expected|give|write|run|name", message), said


FILE, PAGE = input_file("a file of cells", "write one"), input_file("a page")
RECORD = input_file("a record", or_folder=True)


@pytest.mark.parametrize(
    ("check", "path", "said"),
    [
        (FILE, "none/such", "is none/such: No such file or directory; expected a file of cells; write one"),
        (FILE, "folder", "is folder, a folder; expected a file of cells; write one"),
        (FILE, "file/below", "is file/below: Not a directory; expected a file of cells; write one"),
        (FILE, "", "is ''; expected a file of cells; correct the path"),
        (FILE, "/dev/null", "is /dev/null, a pipe or a device; expected a file of cells; "),
        (RECORD, "none/such", "is none/such: No such file or directory; expected a record; correct the path"),
        (RECORD, "circle", "is circle: Too many levels of symbolic links; expected a record"),
        (output_file, "folder", "is folder, a folder; expected a file to write; name a file in it"),
        (output_file, "file/below", "is file/below, inside of {here}/file, which is not a folder"),
        (output_folder, "file", "is file, which is not a folder; expected a folder to write into; name another"),
        (output_folder, "circle", "is circle: Too many levels of symbolic links; expected a folder"),
        (output_folder, "", "is ''; expected a folder"),
    ],
)
def test_paths_that_are_refused(bad: dict[str, str], check: Callable[[str], Path], path: str, said: str) -> None:
    """They are described with what is expected and what to do."""
    with pytest.raises(argparse.ArgumentTypeError) as caught:
        check(path)
    assert str(caught.value).startswith(said.format(here=Path.cwd()))


def test_paths_that_are_taken(bad: dict[str, str]) -> None:
    """What exists is read; a file or folder to write may be missing with its folders; - is stdout."""
    assert [FILE("file"), RECORD("folder"), RECORD("file")] == [Path("file"), Path("folder"), Path("file")]
    assert [output_file(path) for path in ("-", "file", "none/such")] == [Path("-"), Path("file"), Path("none/such")]
    assert [output_folder(path) for path in ("folder", "none/such")] == [Path("folder"), Path("none/such")]


def test_unreadable_and_unwritable(bad: dict[str, str], monkeypatch) -> None:
    """What the user may not read or write is said, before anything is done; root may do both.

    Users may write to /dev/full and /dev/stderr, and not into /dev; a command does not replace them.
    """
    monkeypatch.setattr(os, "access", lambda path, _: str(path) != "/dev")
    assert output_file("/dev/full") == Path("/dev/full")
    with pytest.raises(argparse.ArgumentTypeError, match="/dev cannot be written to"):
        output_file("/dev/new")
    monkeypatch.setattr(os, "access", lambda *_: False)
    closed = f"is folder/page; {Path.cwd()}/folder cannot be written to; expected a file to write"
    unread = "is file, which you may not read; expected a page; correct the path"
    for check, path, expected in ((PAGE, "file", unread), (output_file, "folder/page", closed)):
        with pytest.raises(argparse.ArgumentTypeError, match=re.escape(expected)):
            check(path)


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch, capsys) -> None:
    """The file and the reason, without the number of the error."""
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "a"\nversion = "1"\n', encoding="utf-8")
    (tmp_path / "matrices").touch()
    monkeypatch.chdir(tmp_path)
    assert main(["init"]) == 2
    assert capsys.readouterr().err == f"cudalink init: {tmp_path}/matrices/cells.toml: Not a directory\n"
