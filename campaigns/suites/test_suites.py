"""The runner of published suites: files, commands, counts, causes, expectations, and one suite run for real."""

import re
import subprocess
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from campaigns.suites import __main__ as runner
from campaigns.suites import expectations, hardware
from campaigns.suites.definitions import Suite, suites
from campaigns.suites.results import FileResult, TestResult, counts_of, results_of
from pytest_cudalink.report import records

pytestmark = pytest.mark.slow
DEFINITION = {
    "name": "s",
    "folder": "here",
    "files": ("tests/**/test_*.py",),
    "packages": (),
    "drivers": ("13.0",),
    "backends": ("auto",),
    "timeout": 60.0,
    "options": ("-p", "no:randomly"),
    "skip": {"tests/cython/*": "a reason"},
}


def checkout(tmp_path: Path, **files: str) -> Path:
    """A checkout with test files, by name."""
    for name, text in files.items():
        file = tmp_path / "here" / "tests" / name.replace("__", "/")
        file = file.with_suffix(".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path


SUITE = """
import os, pytest
def test_passes(): pass
def test_fails(): assert 0
def test_refused():
    from pytest_cudalink.emulator import preload
    preload.emulated_driver().refuse("cuLaunchKernel", "it executes no kernels")
    assert 0
"""


def test_a_run(tmp_path: Path, monkeypatch, capsys) -> None:
    """Each file is a process; one that hangs or dies is reported; too few passed tests fail the run."""
    root = checkout(
        tmp_path,
        test_some=SUITE,
        test_dies="def test_before(): pass\ndef test_dies():\n    import os\n    os.abort()\n",
        test_hangs="def test_hangs():\n    import time\n    time.sleep(600)\n",
        test_broken="import nothing_of_this_name\n",
    )
    monkeypatch.setattr(runner, "suites", lambda: {"s": Suite(**DEFINITION)})
    monkeypatch.setattr(expectations, "EXPECTED", tmp_path / "expected.toml")
    arguments = [str(root), "--timeout=8", "--files", "--failures", "--records", str(tmp_path / "records")]
    assert runner.main([*arguments, "--write-expected"]) == 0
    files = (tmp_path / "records" / "13.0" / "s").glob("*.jsonl")
    counts = {file.stem: counts_of(results_of(records.read(file))) for file in files}
    assert counts["s-tests-test_some"] == {"passed": 1, "failed": 1, "unsupported": 1, "launch": 1}
    assert counts["s-tests-test_dies"] == {"passed": 1, "crashed": 1}
    assert counts["s-tests-test_broken"] == {"error": 1}
    said = capsys.readouterr().out
    assert "died of signal 6" in said
    assert "timeout after 8 s" in said
    assert "    1  not emulated: cuLaunchKernel" in said
    assert re.search(r"^tests/test_some\.py .* 50\.0 %$", said, re.MULTILINE)  # of those that launch no kernel
    assert expectations.read_expected() == {("s", "13.0", "auto"): 2}
    tests = root / "here" / "tests"
    for done in ("hangs", "broken"):
        (tests / f"test_{done}.py").unlink()
    file = tests / "test_some.py"
    file.write_text(SUITE.replace("def test_passes(): pass", "def test_passes(): assert 0"))
    assert runner.main([str(root), "--timeout=8"]) == 1
    assert "s 13.0 auto: 1 passed, expected 2" in capsys.readouterr().out
    assert runner.main([str(root), "--timeout=8", "--write-expected"]) == 1
    assert "say why with --because REASON" in capsys.readouterr().out
    assert expectations.read_expected() == {("s", "13.0", "auto"): 2}


def test_a_lower_count_keeps_its_reason_and_every_count_its_commit(tmp_path: Path, monkeypatch) -> None:
    """The reason stands in a row that is below its best, until it no longer is; the commit is that of the run."""
    monkeypatch.setattr(expectations, "EXPECTED", tmp_path / "expected.toml")
    passed = TestResult("f::p", "passed")

    def row(tests: int, commits: dict[str, str], because: str) -> tuple[int, int, str, str]:
        expectations.write_expected([FileResult("s", "13.0", "auto", "f", tests=[passed] * tests)], commits, because)
        (row,) = expectations.read_rows()
        return row["passed"], row["best"], row["commit"], row.get("because", "")

    assert row(4, {"s": "1a2b"}, "not lowered") == (4, 4, "1a2b", "")
    assert row(2, {"s": "3c4d"}, 'its "skips"') == (2, 4, "3c4d", 'its "skips"')
    assert row(3, {}, "not lowered") == (3, 4, expectations.UNKNOWN, 'its "skips"')
    assert row(4, {}, "not lowered") == (4, 4, expectations.UNKNOWN, "")


def test_every_row_of_the_file_has_a_commit_and_a_reason_to_be_below_its_best() -> None:
    """A row without a commit says that it was not kept. The rows are those of suites on their drivers and backends."""
    known = suites()
    for row in expectations.read_rows():
        assert row["commit"]
        assert bool(row.get("because")) == (row["passed"] < row["best"])
        assert row["driver"] in known[row["suite"]].drivers
        assert row["backend"] in known[row["suite"]].backends


def test_no_row_of_the_file_fell_without_a_reason() -> None:
    """No commit left a row with fewer passed tests than an earlier one, unless it has a reason and its best."""
    file = expectations.EXPECTED
    git = ["git", "-C", str(file.parent), "log", "--format=%H", "--", file.name]
    commits = subprocess.run(git, capture_output=True, text=True, check=True).stdout.split()
    best: Counter[tuple[str, str, str]] = Counter()
    for commit in commits:
        shown = ["git", "-C", str(file.parent), "show", f"{commit}:./{file.name}"]
        printed = subprocess.run(shown, capture_output=True, text=True, check=False).stdout
        for row in tomllib.loads(printed).get("run", []):
            best[key_of(row)] = max(best[key_of(row)], row["passed"])
    assert [row for row in expectations.read_rows() if row["best"] < best[key_of(row)]] == []


def key_of(row: dict[str, str]) -> tuple[str, str, str]:
    """A row's suite, driver and backend."""
    return row["suite"], row["driver"], row["backend"]


def test_a_wrong_checkout(tmp_path: Path, capsys) -> None:
    """A folder without a suite is refused, with what is looked for."""
    assert runner.main([str(tmp_path)]) == 2
    assert "cuda_core" in capsys.readouterr().out


def test_a_wrong_verdict(tmp_path: Path, monkeypatch, capsys) -> None:
    """A test that passes on one side only is wrong in the kept verdicts, and in a later run; a refused one is not."""
    root = checkout(tmp_path, test_some=SUITE)
    real = tmp_path / "records" / "real" / "s" / "s-tests-test_some.jsonl"
    monkeypatch.setattr(hardware, "RECORDED", tmp_path / "recorded" / "verdicts.json.xz")
    monkeypatch.setattr(hardware, "kept", hardware.kept.__wrapped__)  # read again each time
    for module in (runner, hardware):
        monkeypatch.setattr(module, "suites", lambda: {"s": Suite(**DEFINITION)})
    assert runner.main([str(root), "--records", str(tmp_path / "records")]) == 0
    real.parent.mkdir(parents=True)
    emulated = (tmp_path / "records" / "13.0" / "s" / real.name).read_text()
    real.write_text(emulated.replace('"unsupported"', '"passed"'))
    assert hardware.main([str(tmp_path / "records")]) == 0
    assert "| s | 3 | 1 | 1 | 0 | 1 | 0 | 0 | 0 |" in hardware.blocks()["table"]
    assert runner.main([str(root)]) == 0
    real.write_text(re.sub('"(failed|unsupported)"', '"passed"', emulated))
    assert hardware.main([str(tmp_path / "records")]) == 1
    capsys.readouterr()
    assert runner.main([str(root)]) == 1
    assert "s: s-tests-test_some::test_fails: failed here, passed on the GPU" in capsys.readouterr().out
    assert runner.main([str(root), "--pytest=--unknown"]) == 1
    assert "s: tests/test_some.py: not run here; expected 3 tests, as on the GPU" in capsys.readouterr().out
    (root / "here" / "tests" / "test_some.py").write_text("import nothing_of_the_kind")
    assert runner.main([str(root)]) == 1
    assert "s: tests/test_some.py: finished here; expected 3 tests, as on the GPU" in capsys.readouterr().out
