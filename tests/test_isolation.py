"""Tests in processes of their own: a crash is that test's failure, and the rest goes on."""

from __future__ import annotations

import pytest

from pytest_cudalink.report import read

MODULE = """
import ctypes, os, sys, time
import pytest
from pytest_cudalink.linker import Linker, LinkerOptions, ObjectCode

def link():
    Linker(ObjectCode.from_ptx("user.ptx"), options=LinkerOptions(arch="sm_90"), backend="driver").link("cubin")

OUTER = os.environ.setdefault("OUTER_PROCESS", str(os.getpid()))
isolated = pytest.mark.cudalink(isolate=True)
def elsewhere(): return str(os.getpid()) != OUTER
"""


@pytest.fixture
def run(pytester: pytest.Pytester, samples, toolkit, monkeypatch):
    """Run pytest on an emulated driver with a record file."""
    for name in ("CUDALINK_FORCE_BACKEND", "CUDALINK_POLICY", "CUDALINK_DRIVER", "CUDALINK_REPORT", "OUTER_PROCESS"):
        monkeypatch.delenv(name, raising=False)
    pytester.path.joinpath("user.ptx").write_bytes(samples["12.9/user.ptx"])

    def go(module: str, *arguments: str) -> pytest.RunResult:
        pytester.makepyfile(MODULE + module)
        options = (
            "--cudalink-driver=13.0",
            "--cudalink-report=run.jsonl",
            "-p",
            "no:hypothesispytest",
            "-p",
            "no:randomly",
        )
        return pytester.runpytest_subprocess(*options, *arguments)

    return go


CRASHES = """
def test_before(): assert not elsewhere()

@isolated
def test_segfault():
    link()
    ctypes.string_at(0)

@isolated
def test_exit(): os._exit(7)

@isolated
@pytest.mark.parametrize("i", [1, 2])
def test_passes(i):
    assert elsewhere()
    link()

@isolated
def test_fails(): assert "this" == "that"

@isolated
def test_skips(): pytest.skip("for a reason")

@isolated
@pytest.mark.xfail(reason="known")
def test_xfails(): raise RuntimeError

@pytest.fixture
def dies(): os.kill(os.getpid(), 9)

@isolated
def test_killed_in_setup(dies): pass

def test_after():
    assert not elsewhere()
    link()
"""


@pytest.mark.parametrize("arguments", [(), ("-n2",)], ids=["alone", "xdist"])
def test_crashes_are_contained(run, pytester, arguments) -> None:
    """Signals and exits fail their own test; every other outcome is as it would be."""
    result = run(CRASHES, "-v", "-rA", "--junitxml=junit.xml", *arguments)
    result.assert_outcomes(passed=4, failed=3, errors=1, skipped=1, xfailed=1)
    result.stdout.fnmatch_lines(["cudalink: the process of this test was killed by SIGSEGV"])
    result.stdout.fnmatch_lines(["last calls of the driver:", '*"call":"cuLinkComplete"*'])
    result.stdout.fnmatch_lines(["*Fatal Python error: Segmentation fault*"])
    result.stdout.fnmatch_lines(["cudalink: the process of this test ended with exit code 7"])
    result.stdout.fnmatch_lines(["cudalink: the process of this test was killed by SIGKILL"])
    result.stdout.fnmatch_lines(["E*assert 'this' == 'that'"])

    found = read(pytester.path / "run.jsonl")
    outcomes = {test.nodeid.rpartition("::")[2]: test.outcome for test in found.tests}
    assert outcomes == {
        "test_before": "passed",
        "test_segfault": "failed",
        "test_exit": "failed",
        "test_passes[1]": "passed",
        "test_passes[2]": "passed",
        "test_fails": "failed",
        "test_skips": "skipped",
        "test_xfails": "xfailed",
        "test_killed_in_setup": "error",
        "test_after": "passed",
    }
    assert len(found.tests) == len(found.starts) == 10
    crashes = {crash.nodeid.rpartition("::")[2]: (crash.signal, crash.exitcode) for crash in found.crashes}
    assert crashes == {
        "test_segfault": ("SIGSEGV", None),
        "test_exit": (None, 7),
        "test_killed_in_setup": ("SIGKILL", None),
    }
    assert len(found.links) == 4
    assert {test.nodeid.rpartition("::")[2]: test.links for test in found.tests}["test_passes[1]"] == 1
    assert found.end is not None
    assert 'tests="10"' in pytester.path.joinpath("junit.xml").read_text()


def test_all(run) -> None:
    """``--cudalink-isolate`` isolates every test, in classes and sub-folders too."""
    result = run(
        """
class TestGroup:
    @pytest.mark.parametrize("name", ["a::b", "c"])
    def test_method(self, name): assert elsewhere()

def test_function(): assert elsewhere()
def test_crash(): os.abort()
""",
        "--cudalink-isolate",
        "-k",
        "test",
    )
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(["cudalink: the process of this test was killed by SIGABRT"])


def test_fixtures_of_wider_scope(run) -> None:
    """Fixtures of a module are torn down where they were set up, on both sides of an isolated test."""
    result = run(
        """
@pytest.fixture(scope="module")
def shared():
    yield os.getpid()
    print("torn down in", os.getpid() == int(OUTER))

def test_first(shared): assert shared == os.getpid()
@isolated
def test_isolated(shared): assert shared == os.getpid() and elsewhere()
def test_last(shared): assert shared == os.getpid()
""",
        "-s",
    )
    result.assert_outcomes(passed=3)
    assert result.stdout.str().count("torn down in True") == 1


def test_isolated_last_in_its_module(run, pytester) -> None:
    """The next module finds nothing left over."""
    pytester.mkpydir("second").joinpath("test_second.py").write_text("def test(): pass\n")
    result = run(
        """
@pytest.fixture(scope="module", autouse=True)
def shared(): yield

def test_first(): pass
@isolated
def test_isolated(): pass
"""
    )
    result.assert_outcomes(passed=3)


def test_captured_output(run) -> None:
    """What an isolated test prints is shown with its failure."""
    result = run("@isolated\ndef test_prints():\n    print('a word')\n    assert False\n")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*Captured stdout call*", "a word"])


def test_child_that_cannot_start(run, pytester) -> None:
    """A process that does not get as far as the test says why."""
    result = run("if elsewhere(): raise RuntimeError('not here')\n@isolated\ndef test_it(): pass\n")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(
        ["cudalink: the process of this test ended with exit code *", "*RuntimeError: not here*"]
    )
