"""Hostile texts of devices, recordings, packages and files: commands show them, and no terminal or CI runner obeys."""

from __future__ import annotations

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
COMMAND = re.compile(r"^\s*::|##\[|##vso\[", re.MULTILINE)


def recording(tmp_path: Path) -> list[str]:
    """A recording of the package, whose texts are hostile."""
    data = grade.load(grade.RECORDED[0])
    for one in data["devices"]:
        one["name"] = NASTY
    data["driver"] = NASTY
    file = tmp_path / "bad.json"
    file.write_text(json.dumps(data), encoding="utf-8")
    return ["driver", "record", "--answers", str(file)]


def recording_of_a_version(tmp_path: Path) -> list[str]:
    file = tmp_path / "bad.json"
    file.write_text(json.dumps({**grade.load(grade.RECORDED[0]), "cuda": NASTY}), encoding="utf-8")
    return ["driver", "record", "--answers", str(file)]


def no_recording(tmp_path: Path) -> list[str]:
    file = tmp_path / "bad.json"
    file.write_text(json.dumps({NASTY: NASTY, "recording": NASTY}), encoding="utf-8")
    return ["driver", "record", "--answers", str(file)]


def driver_version(_: Path) -> list[str]:
    return ["driver", "run", "--version", NASTY.replace("\0", ""), "--", "true"]


def program(_: Path) -> list[str]:
    return ["driver", "run", "--version", "13.0", "--", NASTY.replace("\0", "")]


def cell(tmp_path: Path) -> list[str]:
    """A cell that does not exist, in a file with a hostile name."""
    file = tmp_path / f"{NASTY[:-1]}.toml".replace("\0", "").replace("/", "")
    file.write_text("[cells.a]\n", encoding="utf-8")
    return ["matrix", "show", NASTY, "--file", str(file)]


def file_of_cells(tmp_path: Path) -> list[str]:
    return ["matrix", "check", "--file", str(tmp_path / NASTY[:-1].replace("\0", ""))]


def stub_symbols(tmp_path: Path) -> list[str]:
    file = tmp_path / "symbols.toml"
    file.write_text(f"[{json.dumps(NASTY[:-1])}]\n", encoding="utf-8")
    return ["stubs", "list", "--symbols", str(file)]


def toolchain(_: Path) -> list[str]:
    return ["toolchain", "path", NASTY]


def records(tmp_path: Path) -> list[str]:
    file = tmp_path / "a.jsonl"
    file.write_text(json.dumps({"event": NASTY}) + "\n", encoding="utf-8")
    return ["report", str(file), "--require-cells", NASTY]


def wheel(tmp_path: Path) -> list[str]:
    file = tmp_path / f"{NASTY[:-1]}.whl".replace("\0", "")
    file.write_bytes(b"PK")
    return ["audit", str(file)]


def code(tmp_path: Path) -> list[str]:
    file = tmp_path / f"{NASTY[:-1]}.ptx".replace("\0", "")
    file.write_bytes(b".version 8.0\n.target sm_90\n" + NASTY[:-1].encode())
    return ["can-link", str(file), "13.0"]


def unknown_command(_: Path) -> list[str]:
    return [NASTY]


ALL = (
    *(recording, recording_of_a_version, no_recording, driver_version, program, cell, file_of_cells, stub_symbols),
    *(toolchain, records, wheel, code, unknown_command),
)


@pytest.mark.parametrize("make", ALL, ids=lambda make: make.__name__)
def test_commands(make: Callable[[Path], list[str]], tmp_path, capsys) -> None:
    """Nothing reaches the terminal as it was, and no line is a command of a CI runner."""
    with suppress(SystemExit):
        cli.main(make(tmp_path))
    said = "".join(capsys.readouterr())
    assert said
    assert not OBEYED.search(said), ascii(said)
    assert not COMMAND.search(said), said


def test_doctor(monkeypatch, capsys) -> None:
    """A line of its page is one, also in colour."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(doctor, "page", lambda *_, **__: [(f"! {NASTY}", "31")])
    cli.main(["doctor"])
    said = capsys.readouterr().out
    assert not OBEYED.search(said.replace("\x1b[31m!\x1b[0m", "!", 1)), ascii(said)
    assert len(said.splitlines()) == 1
