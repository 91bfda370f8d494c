"""The recorded answers of a real driver, against those of the emulated one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from campaigns.conformance.compare import RECORDED, differences, explained, reasons
from pytest_cudalink import emulator

pytestmark = pytest.mark.slow

recorded = json.loads(RECORDED.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def replayed(toolchain, pytestconfig, once):
    """Every case on an emulated driver of the same version, release and architecture."""
    toolchain("13.0")
    toolchain("12.9")  # the compiler for targets that CUDA 13 dropped
    planned = emulator.emulation_for("13.0", release=recorded["driver"], device=recorded["arch"])

    def record(folder: Path) -> None:
        command = [sys.executable, "-m", "campaigns.conformance.record", str(folder / "found.json")]
        subprocess.run(command, env={**os.environ, **planned.environment()}, check=True, cwd=pytestconfig.rootpath)

    return json.loads((once("conformance", record) / "found.json").read_text(encoding="utf-8"))


def test_recording(replayed) -> None:
    """The cases are those of the recording, of every kind, from one driver."""
    assert replayed["cases"].keys() == recorded["cases"].keys()
    assert len(recorded["cases"]) >= 80
    assert (replayed["driver"], replayed["cuda"], replayed["arch"]) == (recorded["driver"], "13.0", "sm_90")


def test_crashes_are_answers(replayed) -> None:
    """Where the real driver died, the emulated one refuses the input: 200 with a sentence in the log."""
    for name, rows in recorded["cases"].items():
        for number, row in enumerate(rows):
            if "signal" not in row:
                continue
            answer = replayed["cases"][name][number]
            assert answer["code"] == 200, name
            assert "real driver may crash" in answer["error"] or "not recognized" in answer["error"], name


def test_every_difference_has_its_reason(replayed) -> None:
    """Nothing crashes, codes and their order are the recorded ones; else what differs is listed, and nothing more."""
    assert not [name for name, rows in replayed["cases"].items() if any("signal" in row for row in rows)]
    assert not {"call", "code", "error", "image", "state"} & {field for entry in reasons() for field in entry["fields"]}
    unlike = [
        diff for name, rows in recorded["cases"].items() for diff in differences(name, rows, replayed["cases"][name])
    ]
    assert [difference for difference in unlike if explained(difference) is None] == []
    used = {explained(difference) for difference in unlike}
    assert [entry["reason"] for entry in reasons() if entry["reason"] not in used] == []
