"""Tests that fail because an emulated driver refused a call: the section, the skip, the records and the summary."""

import pytest

from pytest_cudalink.report import read
from tests.emulator.conftest import STATE
from tests.nested import ALONE, BOTH

MODULE = """
import ctypes
import pytest
from pytest_cudalink.emulator import preload

driver = preload.emulated_driver()

def refuse(function="cuFirst"):
    driver.refuse(function, "not written yet")

def fail(function="cuFirst"):
    refuse(function)
    raise RuntimeError("801")
"""
REASON = "cudalink: needs a real driver: {} not emulated"


@pytest.fixture
def run(pytester: pytest.Pytester, run_pytest):
    """Run a module on an emulated driver; returns the result and the records' tests by name."""

    def go(module: str, *arguments: str, plugins: tuple[str, ...] = ()):
        given = ("--cudalink-driver=13.0", "--cudalink-report=run.jsonl", "-rs", *arguments)
        result = run_pytest(*given, module=MODULE + module, plugins=plugins)
        tests = {test.nodeid.rpartition("::")[2]: test for test in read(pytester.path / "run.jsonl").tests}
        return result, tests

    return go


LAUNCH = r"""
PTX = b".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }\0"

def test_launch():
    cuda = ctypes.CDLL("libcuda.so.1")
    context, module, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    assert cuda.cuInit(0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
    assert cuda.cuModuleLoadData(ctypes.byref(module), PTX) == 0
    assert cuda.cuModuleGetFunction(ctypes.byref(function), module, b"k") == 0
    assert cuda.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, None, None) == 0
"""


def test_a_failure_names_the_refused_function(run, toolkit) -> None:
    """By default the test fails as it did, and says what a real driver would have done; a quiet run counts it."""
    result, tests = run(LAUNCH)
    result.ended(failed=1)
    result.shows(
        "*- cudalink: not emulated -*",
        "cuLaunchKernel: the emulated driver does not execute kernels",
        "*--cudalink-unsupported=skip skips such tests.",
        "1 test failed because the emulated driver refused a call:",
        "  cuLaunchKernel is not emulated: 1",
        "0 of 1 test ran; 1 needs a GPU",
    )
    assert tests["test_launch"].outcome == "failed"
    assert [call["function"] for call in tests["test_launch"].refused] == ["cuLaunchKernel"]
    assert tests["test_launch"].cause["kind"] == "not_emulated"
    quiet, _ = run(LAUNCH, "-q")
    line = "1 test failed because the emulated driver refused a call: cuLaunchKernel is not emulated: 1"
    assert line in quiet.outlines
    quiet.stdout.no_fnmatch_line("*needs a GPU")


MIXED = """
import unittest
class TestUnittest(unittest.TestCase):
    def test_unittest(self): fail()
def test_passes(): refuse()
def test_two():
    refuse("cuFirst")
    refuse("cuSecond")
    fail("cuFirst")

@pytest.mark.xfail(strict=True)
def test_xpasses(): refuse()

@pytest.fixture(scope="module")
def broken(): fail("cuBroken")
def test_setup(broken): pass
def test_same_setup(broken): pass

@pytest.fixture
def breaks():
    yield
    fail("cuLate")
def test_teardown(breaks): pass

def test_skips():
    refuse()
    pytest.skip("own reason")

def test_injected():
    driver.inject("cuCtxGetCurrent", 801)
    context = ctypes.c_void_p()
    assert ctypes.CDLL("libcuda.so.1").cuInit(0) == 0
    assert ctypes.CDLL("libcuda.so.1").cuCtxGetCurrent(ctypes.byref(context)) == 0
"""
EXPECTED = {
    "test_unittest": ("unsupported", REASON.format("cuFirst is")),
    "test_passes": ("passed", ""),
    "test_two": ("unsupported", REASON.format("cuFirst, cuSecond are")),
    "test_xpasses": ("failed", "[XPASS(strict)]"),
    "test_setup": ("unsupported", REASON.format("cuBroken is")),
    "test_same_setup": ("unsupported", REASON.format("cuBroken is")),
    "test_teardown": ("unsupported", REASON.format("cuLate is")),
    "test_skips": ("skipped", "own reason"),
    "test_injected": ("failed", "AssertionError: assert 801 == 0"),
}


@pytest.mark.parametrize("arguments", [ALONE, BOTH])
def test_only_failures_are_skipped(run, pytester, arguments) -> None:
    """What passes, is skipped or injected stays as it is; `test_explained` has what belongs to which phase."""
    result, tests = run(MIXED, "--cudalink-unsupported=skip", "--junitxml=junit.xml", *arguments)
    ended = {name: (test.outcome, test.reason) for name, test in tests.items()}
    assert {name: (outcome, reason.strip()) for name, (outcome, reason) in ended.items()} == EXPECTED
    assert "5 tests were skipped because the emulated driver refused a call:" in result.outlines
    counted = dict(line.strip().split(" is not emulated: ") for line in result.outlines if line.startswith("  cu"))
    assert counted == {"cuBroken": "2", "cuFirst": "2", "cuSecond": "1", "cuLate": "1"}
    assert "3 of 9 tests ran; 5 need a GPU" in result.outlines
    assert "2 tests went on although the emulated driver refused a call: cuFirst (2)" in result.outlines
    reason = REASON.format("cuFirst, cuSecond are")
    result.shows(f"SKIPPED [[]1[]] test_it.py:*: {reason}")
    text = (pytester.path / "junit.xml").read_text()
    assert '<property name="cudalink.refused" value="cuFirst cuSecond"' in text
    assert reason in text


RUNTIME = """
import subprocess, sys
from cuda.pathfinder import load_nvidia_dynamic_lib

FILE = load_nvidia_dynamic_lib("cudart").abs_path
ALLOCATE = "ctypes.CDLL({!r}).cudaMalloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(8))".format(FILE)

def allocate(said):
    if code := eval(ALLOCATE):
        raise RuntimeError(said.format(code))

def test_process(): subprocess.run([sys.executable, "-c", "import ctypes, sys; sys.exit(" + ALLOCATE + ")"], check=True)
def test_first(): allocate("no memory")
def test_words(): allocate("reduce failed, error code: {}")
def test_pool(): allocate("cudaMallocAsync not supported with this CUDA driver/runtime version")
def test_stderr():
    print("library: CUDA error 801: operation not supported", file=sys.stderr)
    allocate("no room")
def test_silent(): allocate("no memory")
def test_silent_again(): allocate("no room")
def test_own_fault(): assert 801 == 0
def test_passes(): pass
"""


SILENT = {"test_silent", "test_silent_again"}


def test_a_compiled_cuda_runtime(run, toolkit) -> None:
    """It is refused once in a process, and repeats that: tests that say so are skipped, of others the run says so."""
    result, tests = run(RUNTIME, "--cudalink-unsupported=skip")
    named = {name for name, test in tests.items() if test.outcome == "unsupported"}
    assert named == {"test_process", "test_first", "test_words", "test_pool", "test_stderr", *SILENT}
    assert {tests[name].reason for name in named} == {REASON.format("the CUDA runtime is")}
    assert {name for name, test in tests.items() if test.outcome == "failed"} == {"test_own_fault"}
    here = tests["test_first"].nodeid
    (repeated,) = tests["test_words"].refused
    assert repeated["note"] == f"it was refused in {here}, and repeats that for as long as its process lasts"
    assert "  the CUDA runtime is not emulated: 7" in result.outlines
    line = f"the CUDA runtime of a process was refused in {here}, and refuses every later call; 1 later test without "
    assert any(printed.startswith(line) for printed in result.outlines)


ABORTS = """
import os
def test_aborts():
    refuse()
    os.abort()
def test_other():
    refuse()
    driver.inject("cuInit", 999)
    ctypes.CDLL("libcuda.so.1").cuInit(0)
    os.abort()
def test_after(): pass
"""


def test_an_abort_after_a_refused_call(run, pytester) -> None:
    """Where the refused call is the driver's last event, a crash is its effect, and its test is skipped."""
    result, tests = run(ABORTS, "--cudalink-processes=isolated", "--cudalink-unsupported=skip")
    aborts, other, after = (tests[name] for name in ("test_aborts", "test_other", "test_after"))
    assert (other.outcome, other.refused, after.outcome) == ("crashed", [], "passed")
    assert (aborts.outcome, aborts.reason) == ("unsupported", REASON.format("cuFirst is"))
    assert aborts.refused == [{"function": "cuFirst", "note": "not written yet"}]
    assert [crash.nodeid for crash in read(pytester.path / "run.jsonl").crashes] == [other.nodeid]
    result.ended(passed=1, failed=1, skipped=1)


FAILING_ALSO = """
def test_violation():
    import state
    state.State()
    fail()
def test_some(subtests):
    with subtests.test("refused"): fail()
    with subtests.test("passes"): pass
def test_bad(subtests):
    with subtests.test("refused"): fail()
    with subtests.test("fails"): assert 0
@pytest.fixture
def broken():
    yield
    raise RuntimeError
def test_torn_down(broken): fail()
"""


def test_what_fails_for_another_reason_too(run, pytester) -> None:
    """A violation fails its test, as do a subtest and a tear-down; one of which a subtest is skipped has not passed."""
    pytester.makepyfile(state=STATE)
    plugins = ("subtests",) if pytest.version_tuple < (9,) else ()
    result, tests = run(FAILING_ALSO, "--cudalink-unsupported=skip", plugins=plugins)
    quiet, _ = run(FAILING_ALSO, "--cudalink-unsupported=skip", "-q", plugins=plugins)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    outcomes = {"test_violation": "failed", "test_some": "unsupported", "test_bad": "failed", "test_torn_down": "error"}
    assert {name: test.outcome for name, test in tests.items()} == outcomes
    assert [subtest["outcome"] for subtest in tests["test_some"].subtests] == ["unsupported", "passed"]
    result.stdout.fnmatch_lines(
        ["1 test was skipped because the emulated driver refused a call:", "3 of 4 tests ran; 1 needs a GPU"]
    )
    line = "1 test was skipped because the emulated driver refused a call: cuFirst is not emulated: 1"
    assert line in quiet.outlines
