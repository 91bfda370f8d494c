"""Where a command expects a file it may find a pipe, a device, a folder or a file with a hole: it says so at once."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_cudalink.cli import main
from pytest_cudalink.environment import wheels


def _sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 42)


KINDS: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "folder": Path.mkdir,
    "hole": _sparse,
}
#: A command, and the file that it reads, where that is not an argument.
COMMANDS = {
    "record": (("report", "{file}.jsonl"), "{file}.jsonl"),
    "saved report": (("report", "{file}.json"), "{file}.json"),
    "folder of records": (("report", "{folder}"), "{file}.jsonl"),
    "note": (("report", "{folder}"), "{file}.missing.txt"),
    "older": (("report", "{good}", "--against", "{file}.json"), "{file}.json"),
    "older record": (("report", "{good}", "--against", "{file}.jsonl"), "{file}.jsonl"),
    "cells of a report": (("report", "{good}", "--cells", "{file}"), "{file}"),
    "cells": (("matrix", "check", "--file", "{file}"), "{file}"),
    "durations": (("matrix", "list", "--file", "{cells}", "--shard", "1/1", "--records", "{folder}"), "{file}.jsonl"),
    "device code": (("can-link", "{file}", "12.4"), "{file}"),
    "wheel": (("audit", "{file}.whl"), "{file}.whl"),
    "library": (("audit", "{file}.so"), "{file}.so"),
    "library in a folder": (("audit", "{folder}"), "{file}.so"),
    "recording": (("driver", "record", "--answers", "{file}"), "{file}"),
    "packed recording": (("driver", "record", "--answers", "{file}.xz"), "{file}.xz"),
    "names": (("stubs", "list", "--symbols", "{file}"), "{file}"),
    "tables": (("stubs", "list", "--symbols", "{file}.toml"), "{file}.toml"),
    "pyproject": (("init", "--dry-run"), "pyproject.toml"),
    "noxfile": (("init", "--dry-run"), "noxfile.py"),
    "tox": (("init", "--dry-run"), "tox.ini"),
}


#: A file that is passed over, and those that are not named: a folder without libraries, a note of zeros.
_UNREAD = ("durations",)
_UNNAMED = ("library in a folder", "note")


@pytest.fixture(autouse=True)
def in_time() -> Iterator[None]:
    """Fail a test that waits for a pipe."""

    def fail(*_: object) -> None:
        pytest.fail("it waited")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(60)  # what waits has no end; the doctor alone takes seconds on a busy machine
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("kind", KINDS)
def test_commands(kind, name, tmp_path, monkeypatch, capsys) -> None:
    """The error names the file, and is neither a traceback nor silence."""
    arguments, file = COMMANDS[name]
    folder = tmp_path / "in"
    folder.mkdir()
    monkeypatch.chdir(folder)
    good, cells = tmp_path / "good.jsonl", tmp_path / "cells.toml"
    good.write_text(
        '{"event": "run", "time": 1.0, "schema": 1, "cell": "c"}\n'
        '{"event": "test", "time": 2.0, "nodeid": "t.py::t", "outcome": "passed"}\n'
        '{"event": "end", "time": 3.0, "exitstatus": 0}\n'
    )
    cells.write_text('[cells.a]\nctk = "13.0"\n')
    places = {"file": str(folder / "x"), "folder": str(folder), "good": str(good), "cells": str(cells)}
    KINDS[kind](folder / file.format(**places))
    try:
        code = main([argument.format(**places) for argument in arguments])
    except SystemExit as error:
        code = error.code
    said = capsys.readouterr()
    shown = said.out + said.err
    assert "Traceback" not in shown
    assert code in (0, 1, 2)
    if kind != "folder" and name not in _UNREAD:
        assert code
        assert name in _UNNAMED or Path(file.format(**places)).name in shown


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "folder"])
@pytest.mark.parametrize("file", ["METADATA", "RECORD"])
def test_metadata(kind, file, tmp_path, monkeypatch) -> None:
    """A package with such metadata counts as not installed; the doctor does not wait for it, and knows too little."""
    package = tmp_path / "nvidia_nvjitlink-99.0.dist-info"
    package.mkdir()
    if file != "METADATA":
        (package / "METADATA").write_text("Metadata-Version: 2.1\nName: nvidia-nvjitlink\nVersion: 99.0\n")
    KINDS[kind](package / file)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert not any(wheel.version == "99.0" for wheel in wheels.installed_wheels("nvidia-nvjitlink"))
    assert main(["doctor"]) in (1, 2)  # as the parts beside it are
