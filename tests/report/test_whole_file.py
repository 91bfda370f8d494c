"""A report is written as a whole or not at all."""

import errno
import os
import signal
from pathlib import Path

import pytest

from pytest_cudalink import cli
from pytest_cudalink.base import regular_files

from .samples import write

FORMS = ("html", "markdown", "save")


def test_a_file_is_replaced(tmp_path) -> None:
    """Its permissions stay, a link stays a link, and nothing else is left in the folder."""
    target, link = tmp_path / "target", tmp_path / "link"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to(target)
    regular_files.write_whole(link, "new \ud800")
    assert (target.read_text(), target.stat().st_mode & 0o777, link.is_symlink()) == ("new \\ud800", 0o640, True)
    regular_files.write_whole(tmp_path / "new", "text")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "new", "target"]


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_failure_leaves_the_old_file(failing, tmp_path, monkeypatch) -> None:
    """And no temporary one; all of the text is in that when the file system is asked whether it has it."""
    target = tmp_path / "target"
    target.write_text("old")

    def fail(file: object, *_: object) -> None:
        assert os.stat(file).st_size == 3  # noqa: PTH116 (a descriptor, too)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(*(("os.fsync",) if failing == "fsync" else (Path, "replace")), fail)
    with pytest.raises(OSError, match="No space"):
        regular_files.write_whole(target, "new")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("target", "old")]


def test_pipes_and_devices(tmp_path) -> None:
    os.mkfifo(pipe := tmp_path / "pipe")
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    regular_files.write_whole(pipe, "text")
    assert os.read(reading, 99) == b"text"
    os.close(reading)
    signal.alarm(5)  # ends this process where the pipe is waited for
    with pytest.raises(OSError, match="a pipe or a device; expected a regular file"):
        regular_files.open_regular(pipe)
    signal.alarm(0)
    with pytest.raises(IsADirectoryError):
        regular_files.open_regular(tmp_path)
    assert str(tmp_path) not in map(os.path.realpath, Path("/proc/self/fd").iterdir())
    regular_files.write_whole(Path("/dev/null"), "text")
    assert not Path("/dev/null").is_file()
    with pytest.raises(OSError, match="No space"):
        regular_files.write_whole(Path("/dev/full"), "text")


def test_which_file_is_open(tmp_path) -> None:
    """A link's is the file that it leads to; a descriptor that is closed has none."""
    (tmp_path / "link").symlink_to(tmp_path / "file")
    with (tmp_path / "file").open("w") as file, (tmp_path / "link").open() as link, Path("/dev/null").open() as other:
        known, *others = (regular_files.identity(opened.fileno()) for opened in (file, link, other))
        number = file.fileno()
    assert (known, known in others[1:]) == (others[0], False)
    assert regular_files.identity(number) is None


def test_how_long_a_file_may_be(tmp_path) -> None:
    """As long as the bound, and no byte longer; only a file can be too long."""
    (tmp_path / "a").write_bytes(b"abc")
    os.mkfifo(tmp_path / "pipe")
    answers = [regular_files.is_regular(tmp_path / name, 3) for name in ("a", "pipe", ".", "none")]
    assert (answers, regular_files.is_regular(tmp_path / "a", 2)) == ([True, False, False, False], False)
    assert regular_files.read_bounded(tmp_path / "a", 3) == b"abc"
    with pytest.raises(OSError, match="3 bytes; expected at most 2") as caught:
        regular_files.read_bounded(tmp_path / "a", 2)
    assert (caught.value.errno, caught.value.filename) == (errno.EFBIG, str(tmp_path / "a"))
    (tmp_path / "lines").write_bytes("\u00e9\r\nb\rc\n".encode())
    assert regular_files.read_text(tmp_path / "lines", 8) == "\u00e9\nb\nc\n"


def test_hashes_are_those_of_a_record(tmp_path) -> None:
    """What is no file, or no hash of a RECORD, is another file and no error."""
    (tmp_path / "a").write_bytes(b"abc")
    os.mkfifo(tmp_path / "pipe")
    digest = "ungWv48Bz-pBQUDeXa4iI7ADYaOWF3qctBD_YfIAFa0"
    assert regular_files.has_hash(tmp_path / "a", f"sha256={digest}")
    for name, text in (("a", f"sha512={digest}"), ("a", digest), ("a", "shake_128=x"), ("a", ""), ("a", "sha256=x")):
        assert not regular_files.has_hash(tmp_path / name, text), text
    assert not any(regular_files.has_hash(tmp_path / name, f"sha256={digest}") for name in ("b", "pipe", "."))


@pytest.mark.parametrize("form", FORMS)
def test_a_full_device(form, tmp_path, monkeypatch, capsys) -> None:
    """One error names the option or the variable, the other forms are written, and the terminal shows the report."""
    write(tmp_path / "r", "c", {"a": "passed"})
    others = [name for name in FORMS if name != form]
    arguments = [f"--{other}={tmp_path / other}" for other in others]
    assert cli.main(["report", str(tmp_path / "r"), f"--{form}=/dev/full", *arguments]) == 2
    captured, full = (
        capsys.readouterr(),
        "is /dev/full; it cannot be written: No space left on device; name another file\n",
    )
    assert captured.err == f"cudalink report: --{form} {full}"
    assert "1 cell, 1 test, 1 passed" in captured.out
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*others, "r"])
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", "/dev/full")
    assert cli.main(["report", str(tmp_path / "r")]) == 2
    assert "GITHUB_STEP_SUMMARY is /dev/full; it cannot be written: No space" in capsys.readouterr().err
