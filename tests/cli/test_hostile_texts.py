"""Hostile texts of devices, recordings, packages and files: commands show them, and no terminal or CI runner obeys."""

import json
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from pytest_cudalink import cli
from pytest_cudalink.cli import doctor
from pytest_cudalink.emulator.recorder import grade
from tests.report.samples import OBEYED

NASTY = "x\x1b[31m\x9b2J\x08\x00\u202e\r\n::error::owned\n  ::stop-commands::x\n##[group]##vso[task]\ud800"
OF_A_RUNNER = re.compile(r"^\s*::|##\[|##vso\[", re.MULTILINE)


#: What a path and a variable can hold.
NAME = NASTY[:-1].replace("\0", "")


def put(file: Path, content: str | bytes | dict[str, object]) -> str:
    """Write a file, of a dictionary as JSON, and return its path."""
    text = json.dumps(content) if isinstance(content, dict) else content
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(file)


def devices() -> dict[str, object]:
    """A recording of the package whose texts are hostile."""
    data = grade.load(grade.RECORDED[0])
    return data | {"devices": [device | {"name": NASTY} for device in data["devices"]], "driver": NASTY}


RECORD, RUN = ("driver", "record", "--answers"), ("driver", "run", "--version")
#: Commands with hostile words, and with files whose names or contents are hostile.
COMMANDS: dict[str, Callable[[Path], list[str]]] = {
    "recording": lambda at: [*RECORD, put(at / "bad.json", devices())],
    "version of a recording": lambda at: [*RECORD, put(at / "bad.json", devices() | {"cuda": NASTY})],
    "no recording": lambda at: [*RECORD, put(at / "bad.json", {NASTY: NASTY, "recording": NASTY})],
    "version of a driver": lambda _: [*RUN, NASTY.replace("\0", ""), "--", "true"],
    "program": lambda _: [*RUN, "13.0", "--", NASTY.replace("\0", "")],
    "cell": lambda at: ["matrix", "show", NASTY, "--file", put(at / f"{NAME}.toml".replace("/", ""), "[cells.a]\n")],
    "file of cells": lambda at: ["matrix", "check", "--file", str(at / NAME)],
    "symbols": lambda at: ["stubs", "list", "--symbols", put(at / "a.toml", f"[{json.dumps(NASTY[:-1])}]\n")],
    "toolchain": lambda _: ["toolchain", "path", NASTY],
    "record": lambda at: ["report", put(at / f"{NAME}.jsonl", {"event": NASTY})],
    "no record": lambda at: ["report", str(at / NAME)],
    "wheel": lambda at: ["audit", put(at / f"{NAME}.whl", b"PK")],
    "code": lambda at: ["can-link", put(at / f"{NAME}.ptx", f".version 8.0\n.target sm_90\n{NASTY[:-1]}"), "13.0"],
    "unknown command": lambda _: [NASTY],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_commands(name: str, tmp_path, capsys) -> None:
    """Nothing reaches the terminal as it was, and no line is a command of a CI runner."""
    with suppress(SystemExit):
        cli.main(COMMANDS[name](tmp_path))
    said = "".join(capsys.readouterr())
    assert said
    assert not OBEYED.search(said), ascii(said)
    assert not OF_A_RUNNER.search(said), said


def test_doctor(monkeypatch, capsys) -> None:
    """A line of its page is one, also in colour."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(doctor, "page", lambda *_, **__: [(f"! {NASTY}", "31")])
    cli.main(["doctor"])
    said = capsys.readouterr().out
    assert not OBEYED.search(said.replace("\x1b[31m!\x1b[0m", "!", 1)), ascii(said)
    assert len(said.splitlines()) == 1
