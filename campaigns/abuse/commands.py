"""Mutated files through the real commands: records, saved reports and files of cells.

A round fails if a command ends in a traceback, if a file that it writes is not valid, or if a damaged file keeps
another cell, or itself, out of the report.
"""

import io
import json
import sys
import tempfile
import zlib
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from pytest_cudalink import cli
from pytest_cudalink.report import merge, text
from tests.report.samples import OBEYED

from .mutations import Subject
from .records import RECORDS, mutated
from .scenarios import Outcome, Scenario, Use

#: Inputs of one report; a multiple of ten, as the last digit of an input's number decides on its kind.
BATCH: Final = 100
_SOUND: Final = "the-sound-cell"
_FORMS: Final = ("html", "markdown")
_SUFFIXES: Final = {"record": ".jsonl", "saved": ".json", "cells": ".toml"}


def _command(*arguments: str) -> tuple[int, str]:
    """Run ``cudalink``; return its exit code and all that it printed."""
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out):
        code = cli.main(arguments)
    return code, out.getvalue()


def try_inputs(seed: int, numbers: Sequence[int]) -> None:
    """Use the inputs: in one report, and one command for each file of cells.

    Raises Exception whatever a command raises, and AssertionError for an answer that is wrong.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "r")
        folder.mkdir()
        (folder / "sound.jsonl").write_bytes(RECORDS[0].replace(b'"ctk-13.0"', f'"{_SOUND}"'.encode()))
        saved, records = [], []
        for number in numbers:
            kind, data = mutated(seed, number)
            path = folder / f"{number}{_SUFFIXES[kind]}"
            if number % 4:  # the others are records of one cell
                data = data.replace(b'"ctk-13.0"', f'"c{number}"'.encode())
            path.write_bytes(data)
            if kind == "cells":
                _check(path)
            else:
                (saved if kind == "saved" else records).append(path)
        if saved or records:
            _report(folder, saved, records)


def _check(path: Path) -> None:
    """Check a file of cells."""
    code, printed = _command("matrix", "check", "--file", str(path))
    assert code in (0, 1, 2), code
    assert "Traceback" not in printed, printed


def _report(folder: Path, saved: list[Path], records: list[Path]) -> None:
    """Merge the records and saved reports, in every form."""
    written = {name: folder.parent / name for name in _FORMS}
    kept = folder.parent / "kept.json"
    arguments = [f"--{name}={path}" for name, path in written.items()]
    code, printed = _command("report", str(folder), *map(str, saved), f"--save={kept}", *arguments)
    assert code in (0, 1), printed
    assert not OBEYED.search(printed), OBEYED.search(printed)
    for path in written.values():
        content = path.read_text(encoding="utf-8")
        assert not OBEYED.search(content), (path.name, OBEYED.search(content))
    assert written["html"].read_text(encoding="utf-8").count("<script") == 2

    report = json.loads(kept.read_bytes(), parse_constant=_refuse)
    cells = {cell["name"]: cell for cell in report["cells"]}
    assert len(cells[_SOUND]["outcomes"]) == 10
    assert not cells[_SOUND]["damage"]
    known = {file for cell in report["cells"] for file in cell["files"]}
    assert {str(path) for path in records} <= known, "a record is not in the report"
    told = " ".join([*report["damaged"], *(damage for cell in report["cells"] for damage in cell["damage"])])
    for path in saved:
        assert str(path) in told or code == 1, "a saved report is not in the report"
    if saved:
        code, printed = _command("report", str(folder), "-q", f"--against={saved[0]}")
        assert code in (0, 1), printed
        assert not OBEYED.search(printed)


def _refuse(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


def try_round(seed: int) -> None:
    """Use the inputs of a round together; if that fails, each alone, to name the one that it is."""
    try:
        try_inputs(seed, range(BATCH))
    except Exception:
        for number in range(BATCH):
            try:
                try_inputs(seed, [number])
            except Exception as error:
                error.add_note(f"input {number} of seed {seed}, alone")
                raise
        raise


def _records() -> Use:
    setattr(merge, "_PARALLEL_FROM", sys.maxsize)  # noqa: B010 (a constant): the campaign has processes enough
    with_rich = find_spec

    def use(_: Subject, data: bytes) -> Outcome:
        seed = zlib.crc32(data)
        # plain reports take a tenth of the time
        setattr(text, "find_spec", (lambda _: None) if seed % 5 else with_rich)  # noqa: B010 (of another module)
        try_round(seed)
        return Outcome.ACCEPTED

    return use


COMMANDS: Final = {"records": Scenario("mutated records in a report", frozenset({"ptx"}), _records, emulated=False)}
