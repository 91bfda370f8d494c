"""The stages on an emulated driver as far as they go, and pages that are what their files generate."""

import json
import re
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from campaigns.hardware import __main__ as hardware
from campaigns.hardware import pages
from campaigns.hardware.runner import run_stage
from campaigns.hardware.stages import STAGES, Stage
from pytest_cudalink import emulator
from pytest_cudalink.emulator import preload

ROOT = Path(__file__).parents[2]
RESULTS = pages.recorded()


def on_emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give what a test starts an emulated driver of the toolkit's version."""
    for name, value in emulator.emulation_for("13.0", device="sm_90").environment().items():
        monkeypatch.setenv(name, value)


def results(**changes) -> dict[str, Any]:
    """Results of one stage on an imaginary machine."""
    stage = {
        "name": "numbers", "title": "Numbers", "command": "python -m x", "outcome": "failed", "seconds": 1.5,
        "passed": 1, "failures": ["a | b_c is *2*; expected <3>"], "skipped": [["x", "why"]],
        "tables": [{"title": "T", "columns": ["a"], "rows": [["1 | 2"]]}],
    }  # fmt: skip
    facts = {
        "date": "2026-11-22", "version": "1", "package": "/x", "packages": {"pytest": "9"}, "bundle": None,
        "driver": {"release": "580.1", "cuda": "13.0", "kind": "real", "module": "open"},
        "device": {"name": "NVIDIA X1 (80GB)", "arch": "sm_90"},
        "machine": {"system": "Linux", "processor": "p", "cores": 2, "python": "3.12"},
    }  # fmt: skip
    return {"format": 1, "facts": facts, "stages": [stage], **changes}


def test_the_page_shows_every_machine() -> None:
    """Each file agrees with the schema, stands under its name, and has its sections and a row of the list."""
    shown = pages.blocks()
    for content in RESULTS:
        pages.check(content)
        name = pages.file_name(content)
        assert (pages.FOLDER / f"{name}.json").is_file()
        assert pages.page(content) in shown["machines"]
        assert f"(#{name.replace('.', '-')})" in shown["list"]
    page = (pages.FOLDER / "index.md").read_text(encoding="utf-8")
    assert [name for name in shown if f"{{generated}} campaigns.hardware.pages {name}\n" not in page] == []
    assert "[NVIDIA X1 (80GB), 580.1](#580-1-nvidia-x1-80gb) | 13.0 | 0 of 1 |" in pages.listing([results()])


def test_a_page_names_command_and_date() -> None:
    """Each section has its command; text of a result cannot break a table."""
    shown = pages.page(results())
    assert "Measured 2026-11-22 by `python -m x` on NVIDIA X1 (80GB), driver 580.1 (CUDA 13.0)." in shown
    assert "**Failed**: 1 passed, 1 failed, 1 skipped, 1.5 s." in shown
    assert "| 1 \\| 2 |" in shown
    assert "- a \\| b\\_c is \\*2\\*; expected &lt;3>" in shown


def test_the_schema_refuses() -> None:
    """An unknown outcome, and a key that no page would show, are errors."""
    pages.check(results())
    for wrong in (results(format=2), results(more=1)):
        with pytest.raises(jsonschema.ValidationError):
            pages.check(wrong)


def test_stages_name_what_exists() -> None:
    """Every test, module and benchmark of a stage is there, and no two stages have a name."""
    assert len({stage.name for stage in STAGES}) == len(STAGES)
    for stage in STAGES:
        if stage.kind == "program":
            assert (ROOT / f"{stage.words.split()[0].replace('.', '/')}.py").is_file()
        assert all((ROOT / word).is_file() for word in stage.words.split() if word.endswith(".py"))


def test_a_stage_on_the_emulated_driver(monkeypatch, toolkit) -> None:
    """Both backends link; without numbers of a kernel the stage did not run, and says why."""
    on_emulated(monkeypatch)
    stages = {stage.name: stage for stage in STAGES}
    decided = run_stage(stages["dispatch"])
    assert (decided["outcome"], decided["failures"]) == ("passed", [])
    rows = {row[0]: row[1] for row in decided["tables"][1]["rows"]}
    assert (rows["ptx"], rows["ptx, driver forced"], rows["ltoir"]) == ("nvjitlink", "driver", "nvjitlink")
    for name, why in (("numbers", "executes no kernels"), ("touches", "through the kernel")):
        result = run_stage(stages[name])
        assert (result["outcome"], result["passed"]) == ("not run", 0)
        assert why in result["skipped"][0][1]


def test_a_stage_of_tests(monkeypatch, tmp_path: Path) -> None:
    """Passed, failed and skipped tests are counted; the skipped with their reasons."""
    file = tmp_path / "test_it.py"
    file.write_text(
        "import pytest\ndef test_a(): pass\ndef test_b(): assert 1 == 2\n"
        "@pytest.mark.parametrize('n', [1, 2])\ndef test_c(n): pytest.skip('no such GPU')\n",
        encoding="utf-8",
    )
    result = run_stage(Stage("x", "X", "tests", str(file)))
    assert (result["outcome"], result["passed"]) == ("failed", 1)
    assert result["skipped"] == [["2 of the tests", "no such GPU"]]
    assert "assert 1 == 2" in result["failures"][0]


@pytest.mark.parametrize(
    ("code", "seconds", "why"),
    [
        ("print('no result')", 60, "exit code 0 without a result"),
        ("import time; time.sleep(60)", 1, "stopped after 1 s"),
    ],
)
def test_a_stage_without_a_result_is_red(tmp_path: Path, monkeypatch, code: str, seconds: int, why: str) -> None:
    """A program that says nothing, or takes too long, is a failure with its output."""
    (tmp_path / "silent.py").write_text(code, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    result = run_stage(Stage("x", "X", "program", "silent", seconds))
    assert result["outcome"] == "failed"
    assert why in result["failures"][0]


def test_the_tests_are_the_checkouts_and_the_package_is_the_environments(tmp_path: Path, monkeypatch) -> None:
    """The command and its stages work by themselves in an environment into which a wheel was installed."""
    venv.create(tmp_path, symlinks=True)
    (site,) = tmp_path.glob("lib/python*/site-packages")
    (site / "jsonschema.py").touch()
    package = site / "pytest_cudalink.py"
    package.write_text("raise SystemExit(__file__)", encoding="utf-8")
    python = str(tmp_path / "bin" / "python")
    done = subprocess.run([python, "-m", "campaigns.hardware"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stderr == f"{package}\n"
    monkeypatch.setattr(sys, "executable", python)
    result = run_stage(Stage("x", "X", "program", "campaigns.hardware.doctor"))
    assert result["failures"] == [f"it ended with exit code 1 without a result\n{package}\n"]


def test_without_a_driver(tmp_path: Path) -> None:
    """`nox -s gpu` and the runner fail at once, before anything is installed, and say what is missing."""
    if preload.driver_exists():
        pytest.skip("this machine has a driver")
    for words in (["campaigns.hardware", "--out", str(tmp_path)], ["nox", "-s", "gpu", "--script-mode=none"]):
        command = [sys.executable, "-m", *words]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode in (1, 2)
        assert re.search(r"libcuda\.so\.1 is missing; expected an NVIDIA driver.*; run", done.stderr)
    assert not list(tmp_path.iterdir())


def test_two_runs_of_a_day_become_one_page() -> None:
    """A stage that ran again has its later result, in the order of the stages; another day is an error."""
    first, second = results(), results()
    second["stages"] = [{**second["stages"][0], "outcome": "passed"}, {**second["stages"][0], "name": "dispatch"}]
    merged = pages.merged(pages.completed(first), pages.completed(second))
    outcomes = {stage["name"]: stage["outcome"] for stage in merged["stages"]}
    assert list(outcomes) == [stage.name for stage in STAGES]
    ran = {name: outcome for name, outcome in outcomes.items() if outcome != "not run"}
    assert ran == {"dispatch": "failed", "numbers": "passed"}
    second["stages"] = [stage for stage in second["stages"] if stage["name"] == "dispatch"]
    kept = pages.merged(first, pages.completed(second))  # a stage that was not started again keeps its result
    assert [stage["outcome"] for stage in kept["stages"] if stage["name"] == "numbers"] == ["failed"]
    second["facts"]["date"] = "2026-11-23"
    with pytest.raises(ValueError, match="expected one day"):
        pages.merged(first, second)


def test_a_stage_that_was_not_started_is_red(tmp_path: Path, monkeypatch) -> None:
    """The runner's file, its sections and the list have every stage; those that were not started are not run."""
    for name, value in {"driver_exists": lambda: True, "machine_facts": lambda: results()["facts"]}.items():
        monkeypatch.setattr(f"campaigns.hardware.__main__.{name}", value)
    passed = {**results()["stages"][0], "outcome": "passed"}
    monkeypatch.setattr("campaigns.hardware.__main__.run_stage", lambda _stage: passed)
    assert hardware.main(["--out", str(tmp_path), "--stage", "numbers"]) == 0
    (file,) = tmp_path.glob("*.json")
    content = json.loads(file.read_text(encoding="utf-8"))
    assert [stage["outcome"] for stage in content["stages"]].count("not run") == len(STAGES) - 1
    assert f"1 of {len(STAGES)}" in pages.listing([content])
    shown = pages.page(content)
    assert f"1 of {len(STAGES)} stages passed." in shown
    assert "**Not run**: the stage was not started. To run it: `nox -s gpu -- --stage fatbins`." in shown
