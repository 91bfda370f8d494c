"""What a run leaves behind: the record file, JUnit properties, header and summary, whatever happens to it."""

import json
import sys
import xml.etree.ElementTree as ET

import pytest
from jsonschema import Draft202012Validator

from pytest_cudalink.plugin.records.ledger import Totals
from pytest_cudalink.plugin.session import lifecycle
from pytest_cudalink.report import Recording, Writer, read, records
from pytest_cudalink.report.cell_run import BAD
from pytest_cudalink.report.merge import merge
from tests.nested import ALONE, BOTH
from tests.plugin.by_hand import begun

LINK = """
import os
import pytest
from pytest_cudalink import Raises
from pytest_cudalink.linker import Linker, LinkerOptions, ObjectCode

def link(backend=None, name="user.ptx"):
    options = LinkerOptions(arch="sm_90", check_inputs=False)
    Linker(ObjectCode.from_ptx(name), options=options, backend=backend).link("cubin")
"""


@pytest.fixture
def run(pytester: pytest.Pytester, run_pytest, samples, toolkit):
    """Run pytest with a record file on an emulated driver; gives the result and what the file says, checked."""
    pytester.path.joinpath("user.ptx").write_bytes(samples["12.9/user.ptx"])
    pytester.path.joinpath("new.ptx").write_bytes(samples["13.5/user.ptx"])
    validator = Draft202012Validator(records.schema())

    def go(module: str, *arguments: str, plugins: tuple[str, ...] = ()) -> tuple[pytest.RunResult, Recording]:
        given = ("--cudalink-driver=13.0", "--cudalink-report=run.jsonl", *arguments)
        result = run_pytest(*given, module=LINK + module, plugins=plugins)
        path = pytester.path / "run.jsonl"
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                validator.validate(json.loads(line))
        return result, read(path)

    return go


def outcomes(recording: Recording) -> dict[str, list[str]]:
    """Outcomes by the name of the test, in the order of the attempts."""
    by_name: dict[str, list[str]] = {}
    for test in recording.tests:
        by_name.setdefault(test.nodeid.rpartition("::")[2], []).append(test.outcome)
    return by_name


OUTCOMES = """
@pytest.fixture
def broken(): raise RuntimeError("no set-up")
@pytest.fixture
def breaks():
    yield
    raise RuntimeError("no tear-down")

def test_passes(): link("driver"), link("nvjitlink"), link("driver")
def test_fails(): assert False, "first line\\nsecond"
def test_skips(): pytest.skip("no reason")
@pytest.mark.xfail(reason="known", strict=False)
def test_xfails(): raise RuntimeError
@pytest.mark.xfail(reason="known", strict=False)
def test_xpasses(): pass
def test_setup(broken): pass
def test_teardown(breaks): pass
def test_skips_and_breaks(breaks): pytest.skip("no reason")
@pytest.mark.cudalink(driver=">=13.2")
def test_missing(): pass
@pytest.mark.cudalink(driver=">=13.2")
def test_also_missing(): pass
@pytest.mark.cudalink(driver=">=13.5", otherwise=Raises("CUDA_ERROR_UNSUPPORTED_PTX_VERSION"))
def test_documented(): link("driver", "new.ptx")
"""

EXPECTED = {
    "test_passes": ["passed"],
    "test_fails": ["failed"],
    "test_skips": ["skipped"],
    "test_xfails": ["xfailed"],
    "test_xpasses": ["xpassed"],
    "test_setup": ["error"],
    "test_teardown": ["error"],
    "test_skips_and_breaks": ["error"],
    "test_missing": ["skipped"],
    "test_also_missing": ["skipped"],
    "test_documented": ["passed"],
}


@pytest.mark.parametrize("arguments", [ALONE, BOTH])
def test_every_outcome(run, pytester, arguments) -> None:
    """Each test once, with its outcome, links, and what was documented or missing; the same in other processes."""
    result, record = run(OUTCOMES, "--junitxml=junit.xml", "-v", *arguments)
    assert outcomes(record) == EXPECTED
    tests = {test.nodeid.rpartition("::")[2]: test for test in record.tests}
    assert tests["test_passes"].backends == {"driver": 2, "nvjitlink": 1}
    assert tests["test_passes"].links == 3
    assert "first line" in tests["test_fails"].reason
    assert "second" not in tests["test_fails"].reason
    assert "second" in tests["test_fails"].longrepr
    assert tests["test_skips"].reason == "no reason"
    assert tests["test_skips_and_breaks"].reason == "RuntimeError: no tear-down"
    assert tests["test_xfails"].reason == "known"
    assert tests["test_missing"].reason == "cudalink: needs driver >= 13.2 (found 13.0, emulated)"
    assert tests["test_missing"].missing == "driver >= 13.2"
    assert tests["test_documented"].documented == {
        "requirement": "driver >= 13.5",
        "raises": "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
    }
    assert {test.worker for test in record.tests} == ({"gw0"} if arguments else {None})
    assert len(record.starts) == len(EXPECTED)
    assert record.unfinished == []
    assert record.end.exitstatus == 1
    assert record.end.counts == {"passed": 2, "failed": 1, "skipped": 3, "xfailed": 1, "xpassed": 1, "error": 3}
    results = sorted((link.nodeid.rpartition("::")[2], link.backend, link.result) for link in record.links)
    assert results == [
        ("test_documented", "driver", "LinkError: CUDA_ERROR_UNSUPPORTED_PTX_VERSION"),
        ("test_passes", "driver", "ok"),
        ("test_passes", "driver", "ok"),
        ("test_passes", "nvjitlink", "ok"),
    ]
    first = record.links[0]
    assert first.inputs[0]["kind"] == "ptx"
    assert first.versions["driver"] == "13.0"
    # one section: links by target and backend, documented failures, and what skipped tests would need
    result.shows(
        "*= cudalink =*",
        "bundled: 4 links (3 on the driver, 1 on nvJitLink)",
        "1 test failed as documented (driver >= 13.5 not met): CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
        "  test_it.py::test_documented",
        "2 tests were skipped: they need driver >= 13.2",
        consecutive=True,
    )
    result.stdout.no_fnmatch_line("*cudalink guard rails*")
    suite = ET.parse(pytester.path / "junit.xml").getroot().find("testsuite")
    of_suite = {entry.get("name"): entry.get("value") for entry in suite.findall("properties/property")}
    assert of_suite["cudalink.driver"] == "13.0, emulated (cuDriverGetVersion)"
    by_test = {
        case.get("name"): {entry.get("name"): entry.get("value") for entry in case.findall("properties/property")}
        for case in suite.findall("testcase")
    }
    assert by_test["test_passes"] == {"cudalink.links": "bundled/driver=2 bundled/nvjitlink=1"}
    assert by_test["test_missing"] == {"cudalink.missing": "driver >= 13.2"}
    assert by_test["test_documented"]["cudalink.documented"] == "driver >= 13.5: CUDA_ERROR_UNSUPPORTED_PTX_VERSION"
    assert by_test["test_fails"] == {}


def test_environment(run, toolkit, pytester, monkeypatch) -> None:
    """The first line says what was asked for, what was found, and where; a file is begun again, through a link too."""
    monkeypatch.setenv("CUDALINK_CELL", "a-cell")
    pytester.path.joinpath("elsewhere.jsonl").write_text("old\n")
    pytester.path.joinpath("run.jsonl").symlink_to("elsewhere.jsonl")
    result, record = run("def test(): pass\n", "--cudalink-device=sm_80")
    result.stdout.no_fnmatch_line("*= cudalink =*")
    environment = record.run
    assert environment.cell == "a-cell"
    assert environment.python == ".".join(map(str, sys.version_info[:3]))
    assert (environment.pytest, record.asked) == (pytest.__version__, [])
    assert "--cudalink-report=run.jsonl" in environment.argv
    assert environment.settings["driver"] == {"value": "13.0", "source": "option"}
    assert environment.settings["policy"]["source"] == "default"
    assert environment.versions["driver"] == {
        "requested": "13.0",
        "found": "13.0",
        "source": "cuDriverGetVersion",
        "kind": "emulated",
    }
    assert environment.versions["driver_release"]["found"] == "580.65.06"
    assert environment.versions["nvjitlink"]["found"] == str(toolkit)
    assert "libnvJitLink" in environment.versions["nvjitlink"]["source"]
    assert environment.versions["warp-lang"]["kind"] == "absent"
    assert environment.arch == {"requested": "sm_80", "found": "sm_80"}
    assert pytester.path.joinpath("run.jsonl").is_symlink()
    assert outcomes(read(pytester.path / "elsewhere.jsonl")) == {"test": ["passed"]}
    assert "old" not in pytester.path.joinpath("elsewhere.jsonl").read_text().splitlines()


#: What changes the end of a run: a conftest, or the body of a test; then the exit code, and what the report says.
LATE = {
    "after the session": (
        (
            "@pytest.hookimpl(wrapper=True, tryfirst=True)\n"
            "def pytest_sessionfinish(session): session.exitstatus = (yield) or 1"
        ),
        *("pass", 1, "no test failed: a plugin"),
    ),
    "as pytest ends": ("def pytest_unconfigure(): raise RuntimeError", "pass", 1, "an internal error"),
    "in the place of pytest": (
        "@pytest.hookimpl(wrapper=True)\ndef pytest_cmdline_main(): return (yield) or 8",
        *("pass", 8, "the process ended with exit code 8"),
    ),
    "in a test": ("", "pytest.exit('enough', returncode=0)", 0, "1 test began without a result: "),
}


@pytest.mark.parametrize(("conftest", "test", "code", "fault"), LATE.values(), ids=LATE)
def test_whatever_ends_a_run_late(run, pytester, conftest, test, code, fault) -> None:
    """After the hooks of this plugin, too, and the report believes it: no test has failed."""
    pytester.makeconftest(f"import pytest\n{conftest}\n")
    result, _ = run(f"def test_first(): pass\ndef test_one(): {test}\n")
    assert result.ret == code
    (cell,) = merge([pytester.path / "run.jsonl"]).cells
    assert fault in cell.fault
    assert not set(cell.counts) & BAD


FIRST = "def test_one(): assert False\ndef test_two(): pass\n"


TIMED = """
import ctypes, gc, signal, weakref

class Cycle:
    def __init__(self): self.itself = self
class Limit(weakref.ref): _as_parameter_ = signal.SIGALRM  # what C takes for it

def fail(*_): pytest.fail("took too long")

def test_leaves():
    global limit
    driver, made = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    assert driver.cuInit(0) == driver.cuDevicePrimaryCtxRetain(ctypes.byref(made), 0) == 0
    assert driver.cuCtxSetCurrent(made) == driver.cuLinkCreate_v2(0, None, None, ctypes.byref(made)) == 0
    gc.disable()
    signal.signal(signal.SIGALRM, fail)
    limit = Limit(Cycle(), ctypes.CDLL(None)["raise"])

@pytest.fixture
def skips(): yield; test_leaves(); pytest.skip("too late")

def test_skips(skips): pass
def test_goes_on(): gc.enable()
"""


def test_a_limit_of_time_while_garbage_is_collected(run) -> None:
    """A signal, as of pytest-timeout, is the failure of the test that left the garbage, and the run goes on."""
    result, recording = run(TIMED)
    result.ended(passed=3, errors=2)
    result.shows("ERROR *::test_leaves - Failed: took too long")
    assert outcomes(recording) == {"test_leaves": ["error"], "test_skips": ["error"], "test_goes_on": ["passed"]}


@pytest.mark.slow
def test_the_record_of_an_earlier_run(run, pytester, monkeypatch) -> None:
    """A run replaces it once it has run its tests; a failure is not lost to a run of other tests."""
    path = pytester.path / "run.jsonl"
    run(FIRST)
    assert run(FIRST, "-k", "two")[0].ret == 0
    (cell,) = merge([path]).cells
    assert cell.counts == {"F": 1, "P": 1}
    assert "begins another run of the same cell; expected one run in a file" in cell.fault
    run("def test_one(): pass\ndef test_two(): pass\ndef test_three(): pass\n")
    (cell,) = merge([path]).cells
    assert (cell.counts, cell.fault) == ({"P": 3}, "")
    run(FIRST, "-k", "two")
    (cell,) = merge([path]).cells
    assert (cell.counts, cell.fault) == ({"P": 1}, "")
    monkeypatch.setenv("CUDALINK_CELL", "c")  # has one run, and begins without a record
    run(FIRST, "-k", "two")
    run("def test_one(): pass\ndef test_two(): pass\n", "-k", "one")
    (cell,) = merge([path]).cells
    assert (cell.counts, "expected one run in a file" in cell.fault) == ({"P": 2}, True)


def test_the_record_of_a_run_that_goes_on(run, pytester, run_pytest) -> None:
    """Another run is refused, and the record is whole."""
    with Writer(pytester.path / "run.jsonl", truncate=True) as first:
        first.write(records.RunRecord(run="1"))
        result = run_pytest("--cudalink-report=run.jsonl")
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines(
            "*--cudalink-report is run.jsonl (from option), and another run has not finished its *"
        )
    assert read(pytester.path / "run.jsonl").run.run == "1"


@pytest.mark.parametrize("arguments", [ALONE, pytest.param(("-n1",), id="xdist", marks=pytest.mark.slow)])
def test_files_subtests_and_links_outside_of_tests(run, pytester, arguments) -> None:
    """Files that cannot be imported have their reason, subtests stand with their test, and a module's links count."""
    pytester.makepyfile(
        test_broken="import nothing_of_this_name", test_left='import pytest; pytest.importorskip("nope")'
    )
    module = """
link("driver")

def test_group(subtests):
    for i in range(2):
        with subtests.test("part", i=i, name="it's", pair="'a', 1"):
            assert i != 1
"""
    options = ("--continue-on-collection-errors", *arguments)
    result, record = run(module, *options, plugins=("subtests",))
    *files, test = sorted(record.tests, key=lambda test: "::" in test.nodeid)
    assert {file.nodeid: (file.outcome, file.reason) for file in files} == {
        "test_broken.py": ("error", "ModuleNotFoundError: No module named 'nothing_of_this_name'"),
        "test_left.py": ("skipped", "could not import 'nope': No module named 'nope'"),
    }
    assert (test.outcome, test.links, "subtest" in test.reason) == ("failed", 0, True)
    assert test.subtests == [
        {"description": "part i=0 name=it's pair='a', 1", "outcome": "passed"},
        {"description": "part i=1 name=it's pair='a', 1", "outcome": "failed"},
    ]
    assert [link.nodeid for link in record.links] == [None]
    result.shows("bundled: 1 link (1 on the driver)")


@pytest.mark.apart
def test_reruns(run) -> None:
    """Each attempt is recorded, with its own links."""
    pytest.importorskip("pytest_rerunfailures", reason="needs pytest-rerunfailures: nox -s plugins")
    module = """
tries = []
@pytest.mark.flaky(reruns=3)
def test_flaky():
    tries.append(1)
    for _ in tries: link("driver")
    assert len(tries) == 3
"""
    _, record = run(module, plugins=("rerunfailures",))
    assert outcomes(record) == {"test_flaky": ["rerun", "rerun", "passed"]}
    assert [test.attempt for test in record.tests] == [1, 2, 3]
    assert [test.links for test in record.tests] == [1, 2, 3]
    assert [start.attempt for start in record.starts] == [1, 2, 3]


@pytest.mark.apart
def test_repeated_after_a_crash(run, pytester) -> None:
    """An attempt in another worker is distinguished from the one that crashed."""
    pytest.importorskip("pytest_rerunfailures", reason="needs pytest-rerunfailures: nox -s plugins")
    module = """
def test_crashes_once():
    if not os.path.exists("crashed"):
        open("crashed", "w").close()
        time.sleep(1)  # the other plugin tells its controller of the test in a thread
        os.kill(os.getpid(), 9)
"""
    _, record = run("import time\n" + module, "-n1", "--reruns=1", plugins=("rerunfailures",))
    expected = [("gw0", 1), ("gw1", 1)]
    assert [(start.worker, start.attempt) for start in record.starts] == expected
    assert [(test.worker, test.attempt) for test in record.tests] == expected
    assert outcomes(record) == {"test_crashes_once": ["crashed", "passed"]}
    assert record.unfinished == []


def test_unwritable_report(pytester, run_pytest) -> None:
    """A file that cannot be written is a usage error that names it."""
    pytester.path.joinpath("folder").mkdir()
    result = run_pytest("--cudalink-report=folder", module="def test(): pass")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*cudalink: --cudalink-report is folder (from option); it cannot be written: *"])


def test_switched_off(run, pytester) -> None:
    """``-ocudalink_properties=off`` leaves the JUnit report as it was, -q has no summary; the record file knows all."""
    result, record = run(OUTCOMES, "--junitxml=junit.xml", "-ocudalink_properties=off", "-q")
    result.stdout.no_fnmatch_line("*= cudalink =*")
    assert "cudalink." not in pytester.path.joinpath("junit.xml").read_text().replace("cudalink.jsonl", "")
    assert next(test for test in record.tests if test.nodeid.endswith("test_passes")).links == 3


def test_a_violation_in_an_attempt_that_was_repeated() -> None:
    """The run fails although the test passed then; not where violations are only reported."""
    run, totals = begun(lifetime="fail", order="fail", jitlink_contract="report"), Totals()
    assert lifecycle._run_again(run, totals) == []
    totals.violations_of_tests["jitlink-contract"]["c"] += 1
    totals.violations_of_tests["order"]["z"] += 0
    assert lifecycle._run_again(run, totals) == []
    for check, test in (("lifetimes", "a"), ("wait", "b"), ("order", "a")):
        totals.violations_of_tests[check][test] += 1
    (why,) = lifecycle._run_again(run, totals)
    assert why.startswith("The run fails because of violations in a, b, which passed when run again: ")
    assert lifecycle._run_again(begun(lifetime="report", order="report", jitlink_contract="off"), totals)[0].startswith(
        "The run fails because of violations in c, b, which"
    )


@pytest.mark.parametrize("check", ["lifetimes", "order", "jitlink-contract", "deadlock", "wait"])
def test_which_violations_fail_nothing(check: str) -> None:
    """Those of a check whose own mode is `report`; a deadlock and a hidden wait always fail."""
    settings = {"lifetimes": "lifetime", "order": "order", "jitlink-contract": "jitlink_contract"}
    modes = dict.fromkeys(settings.values(), "report")
    assert begun(**modes).settings.allows(check) is (check in settings)
    assert begun(**modes | {settings.get(check, "order"): "fail"}).settings.allows(check) is False
