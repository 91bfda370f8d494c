"""What the audit of one wheel may cost: entries, bytes and seconds; a folder, which is there already, has no bounds."""

from __future__ import annotations

import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytest_cudalink.audit import audit, budget
from pytest_cudalink.audit.loadable import LoadableLibrary
from pytest_cudalink.audit.loader import loaded_by, resolve
from pytest_cudalink.audit.scan import scan_archive
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
    if not options:
        with wheel.open("rb") as file, pytest.raises(budget.AuditError, match=said):
            scan_archive("x-1-py3-none-any.whl", file)
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


def test_members_that_are_not_read_cost_nothing(make_wheel, monkeypatch) -> None:
    """Data of any size may lie in a wheel."""
    monkeypatch.setattr(budget, "LEAST_BYTES", 9_000)
    monkeypatch.setattr(budget, "MOST_RATIO", 1)
    path = make_wheel("x-1-py3-none-any.whl", {"x/a.py": SOURCE, "x/data": bytes(1 << 20)}, "nvidia-cuda-nvrtc-cu12")
    assert audit(path).errors == ()


def test_names_without_end(make_wheel) -> None:
    """Of very many names of libraries in one file, the first thousand count, and it is said."""
    source = "import ctypes\n" + "".join(f"ctypes.CDLL('libnvrtc.so.{n}')\n" for n in range(1001))
    found = audit(make_wheel("x-1-py3-none-any.whl", {"x/a.py": source.encode()}, "nvidia-cuda-nvrtc-cu12"))
    (error,) = (one for one in found.errors if one.kind == "unreadable")
    assert error.text == "names 1001 libraries of CUDA; expected at most 1000: the rest was not compared"
    assert 1000 <= len({need.evidence for need in found.needs}) <= 1001


def test_a_chain_of_libraries() -> None:
    """Who loads a file is found in a time that follows from the number of files; the budget is asked for each."""
    count = 300
    names = [f"{n:04}.so" for n in range(count)]
    elves = {
        name: LoadableLibrary(name, (after,), (), ("$ORIGIN",), (), frozenset(), frozenset())
        for name, after in zip(names, [*names[1:], "libc.so.6"], strict=True)
    }
    asked: list[None] = []
    found, loaders = resolve(elves, lambda: asked.append(None))
    assert len(asked) == 2 * count
    assert [found[name] for name in names[:2]] == [{names[1]: names[1]}, {names[2]: names[2]}]
    assert loaded_by(names[-1], loaders) == names[-2::-1]
