"""What Python code of this process opens, and the programs that it starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_cudalink.process.opened_files import OpenedFiles

#: How the programs of tests begin.
LISTENING = (
    "import os, signal, threading; from pytest_cudalink.process.opened_files import OpenedFiles\n"
    "found = OpenedFiles(lambda: 'label')\n"
)


def program(text: str) -> str:
    """Run a program; returns what it prints."""
    command = [sys.executable, "-X", "faulthandler", "-c", LISTENING + text]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


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
    text = "found._label = lambda: 1 / 0; open('/dev/null').close(); print(found.is_incomplete)"
    assert program(text) == "True\n"


def test_ctrl_c_is_not_swallowed() -> None:
    """What ends a test from outside reaches the test, also while an event is noted."""
    text = """
found._label = lambda: signal.raise_signal(signal.SIGINT)
try:
    open('/dev/null')
except KeyboardInterrupt:
    print('interrupted', found.is_incomplete)
"""
    assert program(text) == "interrupted True\n"


def test_threads_and_copies_of_the_process() -> None:
    """Files of all threads are noted, while others make copies of the process, which end and can open files."""
    text = """
def work(start):
    for number in range(start, start + 200):
        try:
            open(f'/nowhere/{number}')
        except FileNotFoundError:
            pass
threads = [threading.Thread(target=work, args=(1000 * one,)) for one in range(4)]
for one in threads:
    one.start()
for _ in range(20):
    if (child := os.fork()) == 0:
        open('/dev/null').close()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
for one in threads:
    one.join()
print(len([one for one in found.files if one.startswith('/nowhere/')]), found.is_incomplete, found.programs)
"""
    assert program(text) == "800 False ['fork']\n"


def test_the_end_of_the_process() -> None:
    """A process that never stops listening ends well, even if its last objects open files."""
    text = """
class Late:
    def __del__(self, opening=os.open):
        opening('/dev/null', 0)
import builtins
builtins.late = Late()
"""
    assert program(text) == ""


def test_another_interpreter_is_not_passed_over() -> None:
    """Files that another interpreter of the process opens are not noted, and that is known."""
    text = """
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
before = found.is_incomplete
one = interpreters.create()
interpreters.run_string(one, "open('/dev/null').close()")
interpreters.destroy(one)
print(before, found.is_incomplete)
"""
    assert program(text) == "False True\n"
