"""Text that a terminal or a parser would obey, in the plugin's own header, summary, JUnit properties and records."""

import json
import xml.etree.ElementTree as ET

import pytest

from pytest_cudalink.report import read
from tests.emulator.conftest import STATE
from tests.report.samples import OBEYED

MODULE = r"""
import pytest
from pytest_cudalink.plugin.records import LEDGER
from pytest_cudalink.plugin.run import run_of
NASTY = "\ud800\x00\x1b[31m\x1b]0;owned\x07\u202e\u200b]]>"

@pytest.fixture
def outside(request):
    run = run_of(request.config)
    book = run.part(LEDGER)
    book.outside.problems.append(f"a problem {NASTY}")
    book.outside.missing[f"driver {NASTY}"] += 1
    book.outside.unsupported[f"target {NASTY}"] = NASTY
    book.outside.links[f"{NASTY}/driver"] += 1

def test_fails(outside, record_property):
    record_property("cudalink.more", NASTY)
    raise AssertionError(NASTY)
"""


def test_header_summary_junit_and_record(pytester: pytest.Pytester, run_pytest) -> None:
    """Escapes are shown; the XML is valid; the record keeps the text as it was."""
    pytester.makepyfile(MODULE)
    pytester.makeconftest(
        "def pytest_cudalink_facts(config): return {'fact \\x1b[31m\\u202e': 'value \\x1b]0;owned\\x07'}"
    )
    result = run_pytest("--cudalink-report=run.jsonl", "--junitxml=j.xml", "--tb=no", "-rN", "-v")
    shown = [line for line in result.outlines if "fact" in line or "problem" in line or "target" in line]
    assert any("fact \\x1b[31m\\u202e" in line for line in shown), result.outlines
    assert any("a problem \\ud800\\x00\\x1b[31m\\x1b]0;owned\\x07\\u202e\\u200b]]>" in line for line in shown)
    assert not OBEYED.search("".join(shown))
    properties = ET.parse(pytester.path / "j.xml").findall("testsuite/testcase/properties/property")
    assert any("owned" in entry.get("value") for entry in properties)
    (test,) = read(pytester.path / "run.jsonl").tests
    assert test.reason == "AssertionError: \ud800\x00\x1b[31m\x1b]0;owned\x07\u202e\u200b]]>"


CHILD = r"""
import subprocess, sys
NASTY = "\x1b[31m\x9b2J\r\n::error::owned\u202e"

def test_refused():
    code = "import ctypes; d = ctypes.CDLL('libcuda.so.1'); d.cuInit(0); d.cuGLInit()"
    subprocess.run([sys.executable, "-c", code, NASTY])
    raise RuntimeError("libcuda.so")

def test_broken():
    code = "import sys; sys.path.append('.'); import state; state.State()"
    subprocess.run([sys.executable, "-c", code, NASTY])
"""


@pytest.mark.slow
def test_processes_of_tests(pytester: pytest.Pytester, run_pytest, toolkit) -> None:
    """Command lines of processes, in the sections of a test and in the summary."""
    pytester.makepyfile(CHILD, state=STATE)
    result = run_pytest("--cudalink-driver=13.0", "--tb=short", "--show-capture=no", "-rfE")
    said = str(result.stdout) + str(result.stderr)
    assert result.ret == 1
    assert "owned" in said
    assert not OBEYED.search(said), ascii(said)
    assert not [line for line in said.splitlines() if line.lstrip().startswith("::error")]


def test_option_of_a_recording(pytester: pytest.Pytester, run_pytest) -> None:
    """An error of a value names what it found in a file."""
    device = {"arch": "sm_\x1b[31m\n::error::owned", "name": "x", "memory": 1, "attributes": {}}
    content = {"cuda": "13.0", "driver": "", "devices": [device]}
    pytester.path.joinpath("bad.json").write_text(json.dumps(content), encoding="utf-8")
    result = run_pytest("--cudalink-driver=13.0", "--cudalink-device=bad.json")
    said = str(result.stderr)
    assert (result.ret, "sm_\\x1b[31m" in said, "\x1b" in said) == (pytest.ExitCode.USAGE_ERROR, True, False)
    assert not [line for line in result.errlines if line.startswith("::error")]
