"""nvJitLink's contract in a run: a violation fails the test that made it, and sound links fail none."""

import pytest

from pytest_cudalink.report import read
from tests.nested import ALONE, BOTH

HEAD = """
import ctypes, os, sys
import pytest
from cuda.bindings import nvjitlink
PTX = b".version 8.0\\n.target sm_90\\n.address_size 64\\n.visible .entry k() { ret; }\\n"
OPTIONS = ["-arch=sm_90"]

def link():
    handle = nvjitlink.create(1, OPTIONS)
    nvjitlink.add_data(handle, nvjitlink.InputType.PTX, PTX, len(PTX), "k")
    nvjitlink.complete(handle)
    assert nvjitlink.get_error_log_size(handle) >= 0
    nvjitlink.get_linked_cubin(handle, bytearray(nvjitlink.get_linked_cubin_size(handle)))
    nvjitlink.destroy(handle)
    return handle

def use_destroyed():
    handle = link()
    with pytest.raises(nvjitlink.nvJitLinkError):
        nvjitlink.get_error_log_size(handle)
"""
IDLE = "def test_rests(): pass\ndef test_rests_too(): pass\n"
TESTS = f"def test_before(): link()\n{IDLE}def test_destroyed(): use_destroyed()\ndef test_after(): link()\n"
WHAT = "nvJitLink handle 2: nvJitLinkGetErrorLogSize: a call on a destroyed handle; *"


@pytest.fixture
def run(run_pytest, toolkit):
    """Run a module after `HEAD`."""
    return lambda module, *arguments: run_pytest("--cudalink-checks=nvjitlink=fail", *arguments, module=HEAD + module)


def test_violation_fails_its_test(run, pytester) -> None:
    """The test that broke the contract fails although it caught the error; the records and the summary show it."""
    result = run(TESTS, "--cudalink-report=run.jsonl").ended(passed=4, failed=1)
    result.shows(
        "*_ test_destroyed _*",
        "cudalink: 1 violation of nvJitLink's contract during this test's call:",
        WHAT,
        "called from:",
        "  *test_it.py:* in test_destroyed",
        "  *test_it.py:* in use_destroyed",
        "The handle was created at *test_it.py:* in link.",
        "It was destroyed at *test_it.py:* in link.",
        "native frames:",
        "  *cynvjitlink*",
        "1 violation of nvJitLink's contract",
        "  *::test_destroyed: 1",
    )
    result.shows("called from:", "  *test_it.py:* in test_destroyed", consecutive=True)
    records = read(pytester.path / "run.jsonl")
    (record,) = records.violations
    assert record.nodeid is not None
    assert record.nodeid.endswith("::test_destroyed")
    assert record.rule == "destroyed"
    assert [test.violations for test in records.tests] == [0, 0, 0, 1, 0]


@pytest.mark.parametrize("arguments", [ALONE, BOTH])
def test_outside_of_tests(run, arguments) -> None:
    """What no test made fails the run, is counted, and is said once, however many processes collect the file."""
    result = run("use_destroyed()\ndef test_sound(): link()\ndef test_too(): link()\n", *arguments)
    result.ended(pytest.ExitCode.TESTS_FAILED, passed=2)
    result.shows(
        "1 violation of nvJitLink's contract", "outside of tests: nvJitLink handle 1: *", "The run fails because *"
    )
    assert result.stdout.str().count("outside of tests: ") == 1


def test_handles_left_behind(run) -> None:
    """A handle that a test does not destroy is noted, and fails nothing."""
    result = run("def test_leaves(): nvjitlink.create(1, OPTIONS)\ndef test_sound(): link()\n").ended(passed=2)
    result.shows("tests left 1 nvJitLink handle that they did not destroy", "  *::test_leaves: 1")


def test_begins_after_collection(run_pytest, toolkit) -> None:
    """Where a test is the first to ask, calls are checked as long as no code has used the library before."""
    result = run_pytest(module=f"{HEAD}pytestmark = pytest.mark.cudalink\n{TESTS}")
    assert result.parseoutcomes()["failed"] == 1
    result.shows("collected * items", "cudalink: backend auto, *", "*_ test_destroyed _*", WHAT)


def test_fixture(run) -> None:
    """A test that breaks the contract on purpose consumes the violation."""
    module = """
def test_expects(nvjitlink_contract):
    use_destroyed()
    one, = nvjitlink_contract.violations
    assert nvjitlink_contract.expect() == (one,)
    assert (one.rule, one.call) == ("destroyed", "nvJitLinkGetErrorLogSize")
    assert not nvjitlink_contract.expect()
def test_asks_only(nvjitlink_contract):
    use_destroyed()
    assert len(nvjitlink_contract.violations) == 1
"""
    run(module).ended(passed=1, failed=1)
    result = run("def test_it(nvjitlink_contract): pass", "--cudalink-checks=nvjitlink=off", "-rs").ended(skipped=1)
    result.shows("*needs checks of nvJitLink's contract (found --cudalink-checks=nvjitlink=off (from option))")
