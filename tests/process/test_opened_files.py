"""What Python code of this process opens, and the programs that it starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_cudalink.process.opened_files import OpenedFiles


@pytest.fixture
def opened():
    """What is opened during a test."""
    found = OpenedFiles(lambda: "label")
    yield found
    found.close()


def test_files(opened, tmp_path, monkeypatch) -> None:
    """Files by each way to open them, relative ones from the working folder; not numbers, nor what comes after."""
    (tmp_path / "a").write_text("a")
    monkeypatch.chdir(tmp_path)
    os.close(os.open(b"a", os.O_RDONLY))
    Path("b").write_text("b")
    with open("a", encoding="utf-8") as file:  # noqa: PTH123
        os.fdopen(os.dup(file.fileno())).close()
    assert [one for one in opened.files if one.startswith(str(tmp_path))] == [
        str(tmp_path / "a"),
        str(tmp_path / "b"),
    ] or (set(opened.files) >= {str(tmp_path / "a"), str(tmp_path / "b")})
    assert opened.files[str(tmp_path / "b")] == "label"
    opened.close()
    opened.close()
    Path("c").write_text("c")
    assert str(tmp_path / "c") not in opened.files
    assert not opened.is_incomplete


def test_several_listen(opened, tmp_path) -> None:
    """A run within a run hears the same, and takes nothing away from the outer one."""
    inner = OpenedFiles(lambda: None)
    (tmp_path / "x").write_text("")
    inner.close()
    (tmp_path / "y").write_text("")
    assert str(tmp_path / "x") in inner.files
    assert str(tmp_path / "y") not in inner.files
    assert {str(tmp_path / "x"), str(tmp_path / "y")} <= set(opened.files)


def test_programs(opened) -> None:
    """Programs by name, and copies of this process."""
    assert opened.programs == []
    subprocess.run([sys.executable, "-c", ""], check=True)
    assert os.waitstatus_to_exitcode(os.system("true")) == 0
    if (child := os.fork()) == 0:
        os._exit(0)
    os.waitpid(child, 0)
    assert opened.programs == [Path(sys.executable).name, "true", "fork"]


def test_a_lost_event_is_known() -> None:
    """An error while an event is noted, such as a folder that was deleted, is not passed over."""
    program = (
        "import os, tempfile; from pytest_cudalink.process.opened_files import OpenedFiles\n"
        "found = OpenedFiles(lambda: 1 / 0); open('/dev/null').close(); print(found.is_incomplete)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout == "True\n"
