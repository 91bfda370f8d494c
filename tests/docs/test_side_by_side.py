"""The page of comparisons shows all figures, and its answers are those of today's driver."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def bench(monkeypatch):
    """Import a module of benchmarks/, which is a folder of scripts."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")

    def module(name: str) -> ModuleType:
        return importlib.import_module(name)

    return module


@pytest.fixture
def page(bench) -> ModuleType:
    return bench("side_by_side")


@pytest.fixture
def data(page) -> dict[str, Any]:
    return json.loads(page.DATA.read_text(encoding="utf-8"))


def row(median: float, low: float, high: float, rounds: int = 9) -> dict[str, Any]:
    return {"table": "a", "name": "b", "median": median, "low": low, "high": high, "least": low, "rounds": rounds}


def test_all_figures_are_shown(page) -> None:
    """The page has each table that the figures make."""
    text = page.DATA.with_suffix(".md").read_text(encoding="utf-8")
    assert set(re.findall(r"{generated} benchmarks.side_by_side (\S+)", text)) == page.blocks().keys()


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"),
    [
        (row(2, 1.9, 2.1), row(1, 0.9, 1.1), "behind"),
        (row(1, 0.9, 1.1), row(2, 1.9, 2.1), "ahead"),
        (row(1, 0.9, 1.2), row(1.1, 1.0, 1.2), "even"),
        (row(1.05, 1.05, 1.05, 1), row(1, 1, 1, 1), "even"),
        (row(3, 3, 3, 1), row(1, 1, 1, 1), "behind"),
    ],
)
def test_verdicts(page, ours: dict[str, Any], theirs: dict[str, Any], verdict: str) -> None:
    """A side is ahead beyond the middle half of the rounds; one round decides large differences only."""
    assert page.Comparison("case", "a", "b", ours, theirs).verdict == verdict


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (2.06e-9, "2.06 ns"),
        (4.89e-4, "489 µs"),
        (0.0932, "93.2 ms"),
        (1.424, "1.42 s"),
        (42.93, "42.9 s"),
        (170, "170 s"),
    ],
)
def test_times_have_three_digits(page, seconds: float, text: str) -> None:
    assert page.time_text(seconds) == text


@pytest.mark.parametrize(
    ("real", "answer", "kind"),
    [
        ("222, with the reason in the log", "222, with the reason in the log", "same"),
        ("222, with the reason in the log", "0, without the reason in the log", "succeeds"),
        ("0, 0, 0, 1", "0, 0, 0, 0", "succeeds"),
        ("0, 0, 0, 1", "0, 0, 801, 0", "another error"),
        ("201", "1", "another error"),
        ("[0, 0, 0], the bytes", "cuInit: 1", "another error"),
        ("4 fields, True", "NVMLError_InvalidArgument: Invalid Argument", "another error"),
        ("0, status 2, NULL", "0, status 0, an address", "succeeds"),
        ("0, 201", "no such function: cuDevicePrimaryCtxRelease_v2", "not there"),
        ("1", "crash: SIGSEGV", "crashes"),
        ("1", "no answer in 60 s", "crashes"),
    ],
)
def test_answers_are_classified(page, real: str, answer: str, kind: str) -> None:
    """Success where the real driver has an error is kept apart from another error."""
    assert page.classify(real, answer) == kind


def test_emulated_driver_answers_as_the_page_says(toolkit, bench, data, tmp_path) -> None:
    """The same questions, asked today of the emulated driver, have the answers of the page."""
    answers = bench("answers")
    answers.write_inputs(tmp_path)
    for name, unit in (("main", "main"), ("function", "user")):  # the driver of the page reads no newer PTX
        shutil.copy(ROOT / "tests" / "data" / "artifacts" / "13.0" / f"{unit}.ptx", tmp_path / f"{name}.ptx")
    command = [sys.executable, str(ROOT / "benchmarks" / "questions.py"), str(tmp_path)]
    done = subprocess.run(command, env={**os.environ, **answers.emulated()}, capture_output=True, text=True, check=True)
    said = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    expected = data["answers"]["answers"]["emulated driver"]
    absent = ("ModuleNotFoundError", "ImportError", bench("questions").NO_LIBRARY)
    installed = {name: answer for name, answer in said.items() if not answer.startswith(absent)}
    assert {*expected} - {*installed} <= {"cuda_core", "pynvml", "runtime"}  # of other distributions
    assert installed == {name: expected[name] for name in installed}
