"""What the audit of one wheel may cost: entries, bytes and seconds; a folder, which is there already, has no bounds."""

import errno
import io
import os
import re
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytest_cudalink.audit import AuditError
from pytest_cudalink.audit import members as budget
from pytest_cudalink.audit.members import Members, members_of, members_of_archive
from pytest_cudalink.cli import main

SOURCE = b'import ctypes\nctypes.CDLL("libnvrtc.so.12")\n'


@pytest.fixture
def wheel(make_wheel) -> Path:
    """A wheel with three sources of 46 bytes, which become 10 KB in all, and METADATA."""
    return make_wheel(
        "x-1-py3-none-any.whl", {f"x/{n}.py": SOURCE + b"#" * 3500 for n in range(3)}, "nvidia-cuda-nvrtc-cu12"
    )


@pytest.mark.parametrize(
    ("limit", "value", "said"),
    [
        ("MOST_ENTRIES", 3, "has 4 entries; expected at most 3"),
        ("LEAST_BYTES", 9_000, "would become larger than 9000 bytes"),
        ("MOST_SECONDS", -1.0, "takes more than -1 seconds of processor time"),
    ],
)
@pytest.mark.parametrize("options", [[], ["--device-code"]])
def test_a_wheel_that_costs_too_much(limit, value, said, options, wheel, monkeypatch, capsys) -> None:
    """The command ends with 2 and the limit; the folder of the wheel is audited whatever it costs."""
    monkeypatch.setattr(budget, "MOST_RATIO", 1)
    assert main(["audit", str(wheel), *options]) == 0
    monkeypatch.setattr(budget, limit, value)
    assert main(["audit", str(wheel), *options]) == 2
    assert capsys.readouterr().err == f"cudalink audit: {wheel}: {said}: unpack it, and audit the folder\n"
    zipfile.ZipFile(wheel).extractall(wheel.with_suffix(""))
    assert main(["audit", str(wheel.with_suffix("")), *options]) == 0


def test_what_is_at_a_bound_fits(monkeypatch) -> None:
    """The next entry, byte and tick of the processor do not; what was not opened has no bounds."""
    clock = SimpleNamespace(process_time=lambda: clock.now, now=5.0)
    monkeypatch.setattr(budget, "time", clock)
    asked = budget.Budget("x")
    asked.spend(1 << 50)
    for size, most in ((1, budget.LEAST_BYTES), (budget.LEAST_BYTES, budget.MOST_RATIO * budget.LEAST_BYTES)):
        asked.open(size, budget.MOST_ENTRIES)
        asked.spend(most - 1)
        asked.spend(1)
        asked.spend()
        with pytest.raises(budget.AuditError, match=f"^x: would become larger than {most} bytes: unpack it, and "):
            asked.spend(1)
    asked.open(1, 0)
    clock.now += budget.MOST_SECONDS
    asked.spend()
    clock.now += 1
    with pytest.raises(budget.AuditError, match="^x: takes more than 600 seconds of processor time: unpack it, and "):
        asked.spend()
    with pytest.raises(budget.AuditError, match="^x: has 100001 entries; expected at most 100000: unpack it, and "):
        asked.open(1, budget.MOST_ENTRIES + 1)


class RecordingBudget(list):
    """What a budget is asked for."""

    def open(self, size: int, entries: int) -> None:
        self.append((size, entries))

    def spend(self, size: int = 0) -> None:
        self.append(size)


def contents(members: Members) -> dict[str, bytes]:
    """What members of a wheel or folder have; each can be read from its start."""
    contents = {}
    for name, opened in members:
        with opened() as stream:
            contents[name] = stream.read()
            stream.seek(0)
            assert stream.read() == contents[name]
    return contents


def members(path: Path, **options: bool) -> dict[str, bytes]:
    return contents(members_of(path, RecordingBudget(), **options))


def test_members_of_a_folder(tmp_path: Path) -> None:
    """Files below it, by their names; no links. A folder with wheels is refused, but not for those further down."""
    names = ["a.so", "b/c.py", "b/y.whl", "z.whl/data"]
    for name in reversed(names):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name, encoding="utf-8")
    (tmp_path / "link.so").symlink_to("a.so")
    os.mkfifo(tmp_path / "pipe")
    assert list(members(tmp_path).items()) == [(name, name.encode()) for name in names]
    for name in "xwvyu":
        (tmp_path / f"{name}.whl").touch()
    said = f"{tmp_path}: a folder with wheels, such as u.whl; expected one of files; give {tmp_path}/*.whl"
    with pytest.raises(AuditError, match=f"^{re.escape(said)}$"):
        members_of(tmp_path, RecordingBudget())


CONTENTS = {
    **{f"a.{end}": b"12345" for end in ("dll", "pyd", "PY", "fatbin", "ltoir", "lto", "cubin")},
    "a": b"\x7fELF12", "x-1.dist-info/METADATA": b"Name: x", "data": b"123456",
}  # fmt: skip


@pytest.mark.parametrize("name", ["x.whl", "x.zip", "x"])
def test_members_of_a_wheel(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Libraries, sources, METADATA and device code are read, in memory up to a bound; of others, the first bytes."""
    with zipfile.ZipFile(tmp_path / name, "w") as archive:
        for inside, content in CONTENTS.items():
            archive.writestr(inside, content)
    monkeypatch.setattr(budget, "_IN_MEMORY", 6)
    monkeypatch.setattr(budget, "_LOOKS", 4)
    asked = RecordingBudget()
    assert contents(members_of(tmp_path / name, asked)) == {**CONTENTS, "data": b"1234"}
    size = (tmp_path / name).stat().st_size
    assert asked == [(size, 10), 5, 0, 5, 5, 5, 5, 0, 5, 5, 6, 7, 0]
    assert members(tmp_path / name, every=True) == CONTENTS
    kinds = []
    for _, opened in members_of(tmp_path / name, RecordingBudget()):
        with opened() as stream:
            kinds.append(isinstance(stream, io.BytesIO))
    assert kinds == [True] * 8 + [False, True]
    with (tmp_path / name).open("rb") as file:
        assert contents(members_of_archive("x", file, RecordingBudget())) == {**CONTENTS, "data": b"1234"}


def test_members_that_become_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A member may have a size, or become so many times larger than it is packed."""
    with zipfile.ZipFile(tmp_path / "x.whl", "w") as archive:
        archive.writestr("x", bytes(100))
    for most, ratio, fits in ((100, 0, True), (99, 0, False), (0, 1, True), (99, 1, True)):
        monkeypatch.setattr(budget, "_MOST_UNPACKED", most)
        monkeypatch.setattr(budget, "_MOST_RATIO", ratio)
        if fits:
            assert members(tmp_path / "x.whl") == {"x": bytes(4)}
        else:
            with pytest.raises(zipfile.BadZipFile, match="^100 bytes would become 100; expected at most 0 times more$"):
                members(tmp_path / "x.whl")


@pytest.mark.parametrize(
    ("content", "every", "said"),
    [
        (b"\x7fELF", False, ""),
        (b"text", False, "neither a wheel nor an ELF file"),
        (b"text", True, ""),
        (None, False, "there is no such file; give a wheel, a folder or a shared library"),
        (None, True, "there is no such file; give a wheel, a folder or a shared library, an archive or device code"),
    ],
)
def test_a_single_file(content: bytes | None, every: bool, said: str, tmp_path: Path) -> None:
    """A library; where device code is looked for, any file."""
    path = tmp_path / "x"
    if content is not None:
        path.write_bytes(content)
    if not said:
        assert members(path, every=every) == {"x": content}
        return
    with pytest.raises(AuditError, match=f"^{re.escape(f'{path}: {said}')}$"):
        members(path, every=every)


def test_what_cannot_be_listed_or_is_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that cannot be listed may hold anything; a pipe is there, and is no file."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a/x.so").write_bytes(b"\x7fELF")
    (tmp_path / "b").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    scan = os.scandir

    def denied(path: str | Path) -> object:
        if Path(path).name == "b":
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", denied)
    with pytest.raises(AuditError, match=f"^{tmp_path}/b: cannot be listed: Permission denied; make it readable"):
        members(tmp_path)
    for name in ("pipe", "loop"):
        with pytest.raises(AuditError, match=f"^{tmp_path}/{name}: neither a file nor a folder; give"):
            members(tmp_path / name)
