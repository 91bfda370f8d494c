"""The guard against errors that stay: the test that left one fails, and the others run as if it had not."""

import xml.etree.ElementTree as ET

import pytest

from pytest_cudalink.emulator import preload
from pytest_cudalink.report import read

MODULE = """
import ctypes, os, sys
import pytest
from ctypes import byref, c_uint64, c_void_p
from pytest_cudalink.emulator import preload

cu = ctypes.CDLL("libcuda.so.1")
def ok(code): assert code == 0, code

@pytest.fixture(scope="session")
def context():
    made = c_void_p()
    ok(cu.cuInit(0))
    ok(cu.cuDevicePrimaryCtxRetain(byref(made), 0))
    ok(cu.cuCtxSetCurrent(made))
    yield made
    ok(cu.cuCtxSynchronize())

@pytest.fixture
def memory(context):
    made = c_uint64()
    ok(cu.cuMemAlloc_v2(byref(made), c_uint64(16)))
    yield made
    ok(cu.cuMemFree_v2(made))

def goes_wrong(code=700):
    preload.emulated_driver().inject("cuStreamSynchronize", code)
    cu.cuStreamSynchronize(None)

def never_ends():
    preload.emulated_driver().inject("cuStreamQuery", 600, nth=0)
"""

SUITE = """
@pytest.mark.parametrize("n", range(2))
def test_before(memory, n): pass

def test_culprit(memory): {body}

@pytest.mark.parametrize("n", range(4))
def test_after(memory, n): assert os.getpid() != 1

def test_second(memory): goes_wrong(719)

@pytest.mark.parametrize("n", range(2))
def test_last(memory, n): pass
"""

LITTLE = """
def test_before(memory): pass
def test_culprit(memory): {body}
@pytest.mark.parametrize("n", range(3))
def test_after(memory, n): pass
"""

DRIVER = "--cudalink-driver=13.0"
PLAIN, WORKERS = (), ("-n2",)
SLOW_WORKERS = pytest.param(WORKERS, id="workers", marks=pytest.mark.slow)


@pytest.fixture
def run(run_pytest):
    """Run a suite on an emulated driver."""
    return lambda suite, *arguments, plugins=(): run_pytest(DRIVER, *arguments, module=MODULE + suite, plugins=plugins)


@pytest.mark.slow
def test_groups(run, pytester: pytest.Pytester) -> None:
    """A worker with --dist=loadgroup adds the group to the node IDs; a fresh process does not, and runs the tests."""
    pytester.makeconftest(
        """
import pytest
from pytest_cudalink.plugin import pytest_private

@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    for item in items if hasattr(config, "workerinput") else ():
        pytest_private.rename(item, item.nodeid.removesuffix("@one") + "@one")
"""
    )
    suite = 'pytestmark = pytest.mark.xdist_group("one")\n' + LITTLE.format(body="goes_wrong()")
    result = run(suite, "-n2", "--dist=loadgroup", "-rA")
    result.assert_outcomes(failed=1, passed=4)
    assert "new process" not in result.stdout.str()
    result.stdout.fnmatch_lines(["PASSED *::test_after?0*one*"])


@pytest.mark.parametrize("mode", [pytest.param(PLAIN, id="plain"), SLOW_WORKERS])
def test_stop(run, mode) -> None:
    """The run stops after the test, with one sentence."""
    result = run(LITTLE.format(body="goes_wrong()"), "--cudalink-processes=sticky=stop", *mode)
    assert result.ret in (1, 2)  # xdist ends a run that is stopped with 2, as for -x
    assert result.parseoutcomes()["failed"] == 1
    assert "errors" not in result.parseoutcomes()
    assert mode == WORKERS or result.parseoutcomes()["passed"] == 1
    sentence = "cudalink: *::test_culprit left the contexts of the process with CUDA_ERROR_ILLEGAL_ADDRESS (700) !*"
    result.stdout.fnmatch_lines([f"*{sentence}"])


def test_an_open_capture(run) -> None:
    """One test fails for what an earlier one left, with its name; those after it run in a fresh process."""
    forbidden = (
        "def test_{}(context):\n    code = cu.cuMemAlloc_v2(byref(c_uint64()), c_uint64(8))\n"
        "    cu.cuDeviceGetCount(byref(ctypes.c_int()))\n    assert code != 900\n"
    )
    leaves = "def test_leaves(context):\n    made = c_void_p()\n    ok(cu.cuStreamCreate(byref(made), 1))\n"
    begins = "    ok(cu.cuStreamBeginCapture_v2(made, 0))\ndef test_plain(): pass\n"
    result = run(leaves + begins + "".join(map(forbidden.format, ("meets", "goes_on", "last"))))
    result.assert_outcomes(failed=1, passed=4)
    result.stdout.fnmatch_lines(
        ["*the open capture of *::test_leaves was met*by this test*", "  cuMemAlloc_v2 answered 900"]
    )
    result.stdout.no_fnmatch_line("  cuDeviceGetCount answered *")


def test_work_that_does_not_end(run, pytester: pytest.Pytester) -> None:
    """A test whose work goes on beyond the deadline fails; the process that waits for it is not used any more.

    What the test has is not freed, since that would wait; what the process has written is not lost.
    """
    pytester.makeconftest("def pytest_unconfigure(): print('the end')")
    body = "never_ends()\n@pytest.fixture\ndef freed(): yield type('F', (), {'__del__': lambda _: print('freed')})()"
    suite = LITTLE.format(body=body).replace("test_culprit(memory)", "test_culprit(memory, freed)")
    result = run(suite, "-s", "--cudalink-processes=deadline=1")
    result.stdout.fnmatch_lines(["the end"])
    result.stdout.no_fnmatch_line("*freed*")
    result.assert_outcomes(failed=1, passed=4)
    expected = (
        "cudalink: work on the device that this test left did not end within 1 s after its call "
        "(--cudalink-processes=deadline=SECONDS)"
    )
    assert expected in result.stdout.str()
    assert result.ret == 1


def test_other_errors(run) -> None:
    """An error that passes is not for the guard, nor one that the test saw and ended, or left in its own process."""
    run(
        """
@pytest.mark.parametrize("code", [1, 2, 201, 400, 600, 721, 999])
def test_it(memory, code): goes_wrong(code)

def test_ended(memory, emulated_driver):
    emulated_driver.inject("cuStreamSynchronize", 700)
    assert {cu.cuStreamSynchronize(None) for again in range(3)} == {700}
    emulated_driver.end_error()

@pytest.mark.cudalink(isolate=True)
def test_isolated():
    ok(cu.cuInit(0))
    goes_wrong()
    assert cu.cuStreamSynchronize(None) == 700

def test_after(memory): pass
"""
    ).assert_outcomes(passed=10)


@pytest.mark.slow
def test_every_phase(run) -> None:
    """An error of a set-up or tear-down is its test's; what the guard saw is added to a failure, expected or not."""
    result = run(
        """
@pytest.fixture
def early(memory): goes_wrong(); raise RuntimeError("early")
@pytest.fixture
def late(memory):
    yield
    goes_wrong(715)

def test_late(late): pass
def test_between(memory): pass
def test_early(early): pass

def test_own(memory):
    goes_wrong()
    assert "its own words" == ""

@pytest.mark.xfail
def test_expected(memory):
    goes_wrong(719)
    assert False

def test_after(memory): pass
""",
        "-rE",
    )
    result.assert_outcomes(errors=2, failed=2, passed=3)
    result.stdout.fnmatch_lines(
        [
            "*(715) was left*after its teardown",
            "*(700) was left*after its setup",
            "*its own words*",
            "*cudalink sticky error*",
            "*(700) was left*after its call",
            "*(719) was left*after its call",
            "*::test_late left the contexts of its process with *(715); 2 tests after it ran in a fresh process",
            "*::test_early left the contexts of its process with *(700); 1 test after it ran in a fresh process",
        ]
    )


def test_fixtures_of_the_process(run, pytester: pytest.Pytester) -> None:
    """Fixtures of the dead process are torn down with the culprit, and set up again for the others."""
    result = run(
        """
@pytest.fixture(scope="module", autouse=True)
def noted(context):
    yield
    with open("torn_down", "a") as file:
        print(os.environ["PYTEST_CURRENT_TEST"].split("::")[-1].split()[0], file=file)
    assert False, "no innocent test gets this"
"""
        + SUITE.format(body="goes_wrong()").replace("test_last", "test_lasting"),
        "-k",
        "not test_lasting",
    )
    result.assert_outcomes(failed=2, passed=6, deselected=2)
    assert str(result.stdout).count("- cudalink teardown after a sticky error -") == 3
    torn = pytester.path.joinpath("torn_down").read_text(encoding="utf-8").split()
    assert torn == ["test_culprit", "test_second"]


def test_collecting(run) -> None:
    """What collecting the tests has left is not blamed on a test: it fails the run, with one sentence."""
    result = run(
        """
made = c_void_p()
ok(cu.cuInit(0)), ok(cu.cuDevicePrimaryCtxRetain(byref(made), 0)), ok(cu.cuCtxSetCurrent(made))
goes_wrong()
def test_it(): pass
"""
    )
    result.assert_outcomes(passed=1)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["outside of tests: collecting the tests left the contexts of the process with CUDA_*"])


@pytest.mark.slow
@pytest.mark.parametrize("mode", [pytest.param(PLAIN, id="plain"), SLOW_WORKERS])
def test_results(run, pytester: pytest.Pytester, mode) -> None:
    """Each culprit fails by name, once; the others pass; records, JUnit report and exit code are those of one run."""
    files = ("--cudalink-report=run.jsonl", "--junitxml=run.xml", "--durations=3")
    result = run(SUITE.format(body="goes_wrong()"), *files, "-rf", *mode)
    result.assert_outcomes(failed=2, passed=8)
    assert result.ret == 1
    if mode != WORKERS:
        result.stdout.fnmatch_lines(
            [
                "cudalink: *700) was left in the contexts of the process by this test, seen after its call",
                "last calls of the driver:",
                "  cuMemAlloc_v2 answered 0",
                "  cuStreamSynchronize answered 700",
                "the tests after it run in a fresh process (--cudalink-processes=sticky=replace)",
                "*::test_culprit left the contexts of its process with *(700); 5 tests after it ran in a fresh process",
                "*::test_second left the contexts of its process with *(719); 2 tests after it ran in a fresh process",
            ]
        )
    record = read(pytester.path / "run.jsonl")
    assert record.end is not None
    assert record.end.counts == {"passed": 8, "failed": 2}
    assert not record.crashes
    assert not record.unfinished
    left = {sticky.nodeid.partition("::")[2]: sticky for sticky in record.sticky}
    assert {name: (sticky.code, sticky.error) for name, sticky in left.items()} == {
        "test_culprit": (700, "CUDA_ERROR_ILLEGAL_ADDRESS (700)"),
        "test_second": (719, "CUDA_ERROR_LAUNCH_FAILED (719)"),
    }
    if mode != WORKERS:
        assert [sticky.after for sticky in record.sticky] == [5, 2]
    cases = ET.parse(pytester.path / "run.xml").getroot().findall(".//testcase")
    assert len(cases) == 10
    assert [len(case.findall("failure")) for case in cases].count(1) == 2
    properties = [entry.get("value") for entry in ET.parse(pytester.path / "run.xml").iter("property")]
    assert "CUDA_ERROR_ILLEGAL_ADDRESS (700)" in properties


@pytest.mark.apart
def test_reruns(run) -> None:
    """Attempts of a test that is run again count once, and those of the culprit are not tests after it."""
    pytest.importorskip("pytest_rerunfailures", reason="needs pytest-rerunfailures: nox -s plugins")
    module = "def test_culprit(memory): goes_wrong()\ndef test_fails(): assert 0\ndef test_last(memory): pass"
    result = run(module, "--reruns=2", plugins=("rerunfailures",))
    result.assert_outcomes(errors=1, failed=1, passed=1)
    result.stdout.fnmatch_lines(
        [
            "*cudalink sticky error*",
            "*(700) was left*after its call",
            "*::test_culprit left the contexts *(700); 2 tests after it ran in a fresh process",
        ]
    )


#: Counts the questions to the contexts, and how often the driver is looked for, from one test to the next.
COUNTS = """
import pytest
from pytest_cudalink.loader import contexts

ASKED, FOUND = [0], [0]

def counted(function, count):
    def call(*arguments):
        count[0] += 1
        return function(*arguments)
    return call

contexts._first_answer = counted(contexts._first_answer, ASKED)
contexts.question = counted(contexts.question, FOUND)

def pytest_runtest_logstart():
    ASKED[0] = FOUND[0] = 0

def pytest_runtest_logfinish(nodeid):
    print("asked", nodeid.rpartition("::")[2], *ASKED, *FOUND)
"""


def test_questions(run, run_pytest, pytester: pytest.Pytester) -> None:
    """A test has one question, and another if fixtures end with it; a driver is looked for when something is loaded."""
    pytester.makeconftest(COUNTS)
    suite = (
        "def test_plain(context): pass\ndef test_next(): pass\ndef test_fixture(memory): pass\ndef test_last(): pass\n"
    )
    result = run(suite, "-s")
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(["*asked test_next 1 0", "*asked test_fixture 2 0"])

    pytester.makeconftest(
        f"{COUNTS}\nfrom pytest_cudalink.plugin.session import lifecycle\nlifecycle._DEVICE_FILES = ['/']"
    )
    module = "def test_first(): pass\ndef test_second(): pass\n"
    result = run_pytest("--cudalink-processes=sticky=replace", "-s", module=module)
    result.stdout.fnmatch_lines(["*asked test_second 0 0"])


@pytest.mark.skipif(preload.driver_exists(), reason="the header of a run asks the driver of this machine")
@pytest.mark.parametrize(("files", "asks"), [((), False), (("/dev/null",), True)], ids=["no device", "device"])
def test_without_a_driver(run_pytest, pytester: pytest.Pytester, files: tuple[str, ...], asks: bool) -> None:
    """Without a device the guard is not even imported; with one it loads no driver that no test has loaded."""
    pytester.makeconftest(f"from pytest_cudalink.plugin.session import lifecycle\nlifecycle._DEVICE_FILES = {files!r}")
    pytester.makepyfile(
        f"""
import sys
def test_it(): assert ("pytest_cudalink.loader.contexts" in sys.modules) is {asks}
def test_next(): assert "libcuda.so" not in open("/proc/self/maps").read()
"""
    )
    run_pytest("--cudalink-processes=sticky=replace").assert_outcomes(passed=2)
