"""One model of a crash: isolated, under xdist or plain, a test that dies is crashed, and what is lost is listed."""

import os
import re
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from types import SimpleNamespace

import pytest

from pytest_cudalink import cli
from pytest_cudalink.report.merge import merge
from tests.nested import NO_AUTOLOAD, with_plugins

slow = pytest.mark.slow

HEAD = """
import atexit, ctypes, os, signal, subprocess, sys, threading, time
import pytest

@pytest.fixture
def dies_in_setup(): os.abort()

@pytest.fixture
def dies_in_teardown():
    yield
    os.abort()

@pytest.fixture(scope="session")
def session_dies(): os.abort()

def test_before(): pass
"""
#: A test that dies, by name, with the signal that the process of another kind than a plain one sees; None: exit code.
DEATHS = {
    "segfault": ("def test_dies(): ctypes.string_at(0)", "SIGSEGV"),
    "abort": ("def test_dies(): os.abort()", "SIGABRT"),
    "abort_in_a_thread": ("def test_dies(): threading.Thread(target=os.abort).start(); time.sleep(60)", "SIGABRT"),
    "exit_0": ("def test_dies(): os._exit(0)", None),
    "exit_3": ("def test_dies(): os._exit(3)", None),
    "killed": (
        """
def test_dies():
    subprocess.run([sys.executable, "-c", f"import os; os.kill({os.getpid()}, 9)"])
    time.sleep(60)
""",
        "SIGKILL",
    ),
    "setup": ("def test_dies(dies_in_setup): pass", "SIGABRT"),
    "teardown": ("def test_dies(dies_in_teardown): pass", "SIGABRT"),
    "session_fixture": ("def test_dies(session_dies): pass", "SIGABRT"),
    "subtests": ("def test_dies(subtests):\n    with subtests.test(): pass\n    os.abort()", "SIGABRT"),
}
ON_HOST = "cudalink: the host read or wrote an address of device memory"
#: The signals that a process can note itself.
NOTED = {"SIGSEGV", "SIGABRT"}
AFTER = "\ndef test_after(): pass\n"
ALL = HEAD + "".join(code.replace("test_dies", f"test_{name}") + "\n" for name, (code, _) in DEATHS.items()) + AFTER


@pytest.fixture
def run(pytester: pytest.Pytester, run_pytest):
    """Run pytest with a record file; return the result and the merged cell."""

    def go(module: str, *arguments: str, plugins: tuple[str, ...] = ()) -> SimpleNamespace:
        (pytester.path / "run.jsonl").unlink(missing_ok=True)  # a second run that dies would be added to the first
        result = run_pytest("--cudalink-report=run.jsonl", *arguments, module=module, plugins=plugins)
        (cell,) = merge([pytester.path / "run.jsonl"]).cells
        tests = {test.rpartition("::")[2]: letter for test, letter in cell.outcomes.items()}
        return SimpleNamespace(result=result, cell=cell, tests=tests)

    return go


def fails_on_crash(pytester: pytest.Pytester) -> bool:
    """Whether the report of the record is red for its crashes alone."""
    return cli.main(["report", str(pytester.path / "run.jsonl"), "-q", "--fail-on", "crashed"]) == 1


@pytest.mark.parametrize(
    "name",
    ["segfault", "teardown", "killed", *(pytest.param(name, marks=slow) for name in ("abort_in_a_thread", "exit_0"))],
)
def test_plain(run, pytester, name) -> None:
    """The record has the signal and the frames where a handler can run, and says why not elsewhere."""
    code, ended_by = DEATHS[name]
    ended = run(HEAD + code + AFTER, "--cudalink-driver=13.0")
    assert ended.tests == {"test_before": "P", "test_dies": "C"}
    assert ended.cell.lost == ["test_it.py::test_after"]
    assert ended.cell.fault == "the run did not finish (2 tests recorded, 1 lost)"
    assert fails_on_crash(pytester)
    (crash,) = ended.cell.crashes
    assert crash.nodeid == "test_it.py::test_dies"
    detail = ended.cell.details["test_it.py::test_dies"]
    assert "--cudalink-processes=isolated or restarted" in detail.text
    if ended_by in NOTED:
        assert crash.signal == ended_by
        assert detail.reason == f"the process ended while this test ran, by {ended_by}"
        assert crash.frames[0].startswith("Fatal Python error: ")
        assert all("_pytest" not in frame for frame in crash.frames)
        assert name == "abort_in_a_thread" or any("test_it.py" in frame for frame in crash.frames)
        assert ON_HOST not in ended.result.stderr.str()
        # what faulthandler wrote still reaches the terminal, once, with the way out
        assert ended.result.stderr.str().count("Fatal Python error") == 1
        assert "--cudalink-processes=isolated runs each test in its own\nprocess" in ended.result.stderr.str()
    else:
        assert crash.signal is None
        assert (
            "unknown: the process wrote nothing (SIGKILL, os._exit); --cudalink-processes=isolated shows it"
            in detail.text
        )


ELSEWHERE = {"isolated": ("-n2", "--cudalink-processes=isolated"), "xdist": ("-n2", "--max-worker-restart=30")}


@pytest.mark.slow
@pytest.mark.parametrize("arguments", ELSEWHERE.values(), ids=ELSEWHERE)
def test_elsewhere(run, pytester, arguments) -> None:
    """A test that dies in another process is crashed, with what ended it, and nothing is lost."""
    ended = run(ALL, *arguments, "--junitxml=junit.xml", plugins=("subtests",))
    assert ended.tests == {"test_before": "P", "test_after": "P", **{f"test_{name}": "C" for name in DEATHS}}
    assert ended.cell.finished
    assert not ended.cell.without_result
    assert fails_on_crash(pytester)
    crashes = {crash.nodeid.rpartition("::test_")[2]: crash for crash in ended.cell.crashes}
    assert len(crashes) == len(ended.cell.crashes) == len(DEATHS)
    assert {name: crash.signal for name, crash in crashes.items()} == {name: end for name, (_, end) in DEATHS.items()}
    assert crashes["exit_3"].exitcode == 3
    assert crashes["exit_0"].exitcode == 0
    for name, (_, ended_by) in DEATHS.items():
        assert bool(crashes[name].frames) == (ended_by in NOTED), name
    if "--cudalink-processes=isolated" in arguments:
        ended.result.stdout.fnmatch_lines_random(
            [
                *("*ERROR at teardown of test_teardown*", "*Fatal Python error: Segmentation fault*"),
                *("cudalink: the process of this test was killed by SIGSEGV", "*this test ended with exit code 3"),
            ]
        )
    cases = ET.parse(pytester.path / "junit.xml").iter("testcase")
    assert {case.get("name") for case in cases} == {*ended.tests}


@pytest.mark.slow
def test_rerun_after_crash(run, pytester) -> None:
    """One process runs the tests until one of them crashes it, and another one the rest."""
    module = HEAD + "@pytest.fixture(scope='session')\ndef shared(): return os.getpid()\n"
    for name in ("segfault", "exit_0"):
        module += f"def test_1_{name}(shared): assert shared == os.getpid()\n"
        module += DEATHS[name][0].replace("test_dies", f"test_{name}") + "\n"
        module += f"def test_2_{name}(shared): open('pids', 'a').write(f'{{os.getpid()}} {{shared}}\\n')\n"
        module += f"def test_3_{name}(shared): open('pids', 'a').write(f'{{os.getpid()}} {{shared}}\\n')\n"
    ended = run(module, "--cudalink-processes=restarted")
    assert ended.cell.counts == {"P": 7, "C": 2}
    assert not ended.cell.without_result
    assert fails_on_crash(pytester)
    crashes = {crash.nodeid.rpartition("::test_")[2]: crash.signal for crash in ended.cell.crashes}
    assert crashes == {"segfault": "SIGSEGV", "exit_0": None}
    # the tests between two crashes share a process and its fixtures
    first, second = (set(pytester.path.joinpath("pids").read_text().split()[at : at + 4]) for at in (0, 4))
    assert (len(first), len(second), len(first | second)) == (1, 1, 2)


def test_rerun_in_fixtures_of_wider_scope(run, pytester) -> None:
    """What is set up once is torn down once, when the run is over; what it started writes for each test."""
    module = """
import os, pytest

@pytest.fixture(scope="module")
def shared():
    open("said", "a").write("up ")
    yield os.dup(1)
    open("said", "a").write("down ")

def test_1(shared): pass
def test_2(shared): os.write(shared, b"heard\\n")
"""
    result = run(module, "--cudalink-processes=restarted", "-rP").result
    result.ended(passed=2)
    result.shows("heard")
    assert pytester.path.joinpath("said").read_text().split() == ["up", "down"]


MODES = {
    "plain": (),
    "isolated": ("--cudalink-processes=isolated",),
    "xdist": ("-n2",),
    "shared": ("--cudalink-processes=restarted",),
}


@pytest.mark.parametrize(
    "mode", ["plain", *(pytest.param(mode, marks=slow) for mode in ("xdist", "shared", "isolated"))]
)
def test_at_interpreter_exit(run, pytester, mode) -> None:
    """A process that dies after its last test is a crash outside tests; one with a single test is an error of that."""
    ended = run(f"{HEAD}def test_last(): atexit.register(os.abort)\n", *MODES[mode])
    (crash,) = ended.cell.crashes
    assert (crash.signal, crash.nodeid) == ("SIGABRT", "test_it.py::test_last" if mode == "isolated" else None)
    assert fails_on_crash(pytester)
    assert ended.result.ret != 0 or mode == "xdist"  # xdist has what it needs from the worker


@pytest.mark.parametrize(
    ("how", "mode"),
    [
        ("os.abort()", "plain"),
        ("os._exit(0)", "plain"),
        pytest.param("os._exit(0)", "isolated", marks=slow),
        pytest.param("os.abort()", "xdist", marks=slow),
    ],
)
def test_while_collecting(run, pytester, how, mode) -> None:
    """A process that dies before its first test is a crash outside tests."""
    ended = run(
        f"import os\n{how}\ndef test(): pass\n", *MODES[mode], *(("--max-worker-restart=0",) if mode == "xdist" else ())
    )
    assert ended.tests == {}
    assert ended.cell.crashes
    assert {crash.nodeid for crash in ended.cell.crashes} == {None}
    assert fails_on_crash(pytester)


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [(("-k", "before"), None), (("--collect-only",), "pytest ended with exit code 0, and no test ran")],
)
def test_deselected_tests_are_not_lost(run, arguments, fault) -> None:
    """Neither what is deselected nor what is only collected was going to run; a cell that ran nothing is incomplete."""
    ended = run(HEAD + AFTER, *arguments)
    assert not ended.cell.without_result
    assert (ended.cell.fault or None) == fault


def test_the_host_uses_device_memory(run) -> None:
    """The last words say so, at the terminal and in the record; `test_plain` reads another address."""
    module = """
import ctypes
import pytest

@pytest.fixture
def address():
    driver, context, address = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64()
    assert driver.cuInit(0) == driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert driver.cuCtxSetCurrent(context) == 0
    assert driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(64)) == 0
    return address.value

def test_dies(address): ctypes.string_at(address + 10)
"""
    ended = run(module, "--cudalink-driver=13.0")
    (crash,) = ended.cell.crashes
    assert ON_HOST in ended.result.stderr.str()
    assert crash.frames[0].startswith("Fatal Python error: ")
    assert crash.frames[1].startswith(ON_HOST)
    assert any("test_it.py" in frame for frame in crash.frames)


def test_in_a_hook_that_a_test_begins_with(run, pytester) -> None:
    """The crash is that of the test."""
    pytester.makeconftest(
        "import os, pytest\n@pytest.hookimpl(tryfirst=True)\ndef pytest_runtest_logstart(): os.abort()"
    )
    assert run("def test_dies(): pass").tests == {"test_dies": "C"}


def test_an_abort_after_a_refused_call(run) -> None:
    """Terminal and report name the call, which a library that aborts leaves unsaid; no file of events is needed."""
    module = """
import ctypes, os
def test_dies():
    cuda = ctypes.CDLL("libcuda.so.1")
    assert (cuda.cuInit(0), cuda.cuGLInit()) == (0, 801)
    os.abort()
"""
    ended = run(module, "--cudalink-driver=13.0")
    assert [crash.nodeid for crash in ended.cell.crashes if '"cuGLInit"' in crash.last_events[-1]]
    refused = "refused the last call before this crash, cuGLInit, which a real driver performs\n"
    assert f"cudalink: the emulated driver {refused}\ncudalink: the tests after" in ended.result.stderr.str()
    assert ended.cell.details["test_it.py::test_dies"].reason == (
        "the process ended while this test ran, by SIGABRT, after the emulated driver refused cuGLInit: "
        "not implemented by the emulated driver"
    )


def test_a_crash_of_a_forked_process_is_not_the_run(run) -> None:
    """A test may fork a process that dies; the run and its later crash are as ever."""
    ended = run(HEAD + "def test_forks():\n    if not os.fork(): os.abort()\n    os.wait()\n" + AFTER)
    ended.result.ended(passed=3)
    assert ended.cell.crashes == []


# -- processes that have collected


def test_isolated_tests_start_from_a_process_that_has_collected(run, pytester) -> None:
    """The module is imported by the run and by one other process, whatever the number of tests."""
    module = """
import os, pytest
open("imports", "a").write("1")
@pytest.mark.parametrize("i", range(4))
def test(i, tmp_path):
    open("folders", "a").write(f"{tmp_path} {os.getpid()}\\n")
"""
    ended = run(module, "--cudalink-processes=isolated")
    ended.result.ended(passed=4)
    ended.result.stdout.no_fnmatch_line("*started a new process each*")
    assert pytester.path.joinpath("imports").read_text() == "11"
    lines = pytester.path.joinpath("folders").read_text().split()
    assert len(set(lines)) == len(lines) == 8


@pytest.mark.slow
def test_threads_that_end_before_a_fork_are_no_hazard(run) -> None:
    """OpenBLAS, which numpy brings, ends its threads before a fork; every suite that imports numpy has them."""
    pytest.importorskip("numpy")
    module = """
import os
os.environ["OPENBLAS_NUM_THREADS"] = "4"  # more than one also where there is one processor
import numpy
a = numpy.ones((500, 500)); a @ a
assert len(os.listdir("/proc/self/task")) > 1
def test_1(): assert (a @ a)[0, 0] == 500
def test_2(): pass
"""
    ended = run(module, "--cudalink-processes=isolated")
    ended.result.ended(passed=2)
    ended.result.stdout.no_fnmatch_line("*started a new process each*")


HAZARDS = {
    "thread": ("threading.Thread(target=time.sleep, args=(60,), daemon=True).start()", "started 1 thread"),
    "process": ("subprocess.Popen(['sleep', '60'])", "started a process that still runs"),
    "driver": ("from cuda.bindings import driver; assert not driver.cuInit(0)[0]", "initialized the driver"),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "workers"), [*((name, ()) for name in HAZARDS), pytest.param("thread", ("-n2",), marks=pytest.mark.weekly)]
)
def test_where_a_copy_is_not_safe(run, name, workers) -> None:
    """Tests whose modules have started what no fork survives get a new process each; the summary adds up why."""
    code, why = HAZARDS[name]
    module = f"import subprocess, threading, time\n{code}\ndef test_1(): pass\ndef test_2(): pass\n"
    # with xdist, pytest-rerunfailures starts a thread in each process that is no worker
    options = ("--cudalink-processes=isolated", "--cudalink-driver=13.0", "-p", "no:rerunfailures")
    ended = run(module, *options, *workers)
    ended.result.ended(passed=2)
    ended.result.shows(f"2 tests started a new process each: collecting the tests {why}")


STOPS = {
    "exit": ("pytest.exit('enough', returncode=7)", 7, "*Exit: enough*"),
    "interrupt": ("raise KeyboardInterrupt", pytest.ExitCode.INTERRUPTED, "*KeyboardInterrupt*"),
    "shouldstop": ("request.session.shouldstop = 'enough'", pytest.ExitCode.INTERRUPTED, "!* enough !*"),
    "shouldfail": ("request.session.shouldfail = 'enough'", pytest.ExitCode.TESTS_FAILED, "!* enough !*"),
}


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        *(("exit", "plain"), ("exit", "shared"), ("shouldstop", "isolated")),
        *(pytest.param("exit", mode, marks=slow) for mode in ("isolated", "new process")),
        *(pytest.param("shouldfail", mode, marks=slow) for mode in ("plain", "shared")),
        pytest.param("interrupt", "isolated", marks=slow),
    ],
)
def test_a_test_that_ends_the_run(run, name, mode) -> None:
    """What ends a plain run ends one whose tests run elsewhere: nothing failed, and the rest is not run."""
    code, status, said = STOPS[name]
    stops, passes = f"def test_stops(request): {code}\n", {"test_stops": "P"} if name.startswith("should") else {}
    alone = ("--deselect=test_it.py::test_before", "--deselect=test_it.py::test_after")
    arguments = ("--cudalink-processes=isolated", *alone) if mode == "new process" else MODES[mode]
    ended = run(f"{HEAD}{stops}{AFTER}", *arguments)
    assert ended.result.ret == status
    ended.result.shows(said)
    assert ended.tests == ({} if mode == "new process" else {"test_before": "P"} | passes)
    assert ended.cell.crashes == []
    assert re.search(r"\d tests? not run(?:$|;)", ended.cell.fault)
    assert "1 failed" not in ended.result.stdout.str()


@pytest.mark.slow
def test_a_shared_process_that_left_one_of_its_own(run, pytester) -> None:
    """A forked process that outlives the crash holds the pipe of the replies; the run goes on without waiting."""
    module = f"""{HEAD}
def test_dies():
    pid = os.fork()
    if not pid: time.sleep(600); os._exit(0)
    with open("pid", "w") as file: file.write(str(pid))
    os.abort()
{AFTER}"""
    ended = run(module, "--cudalink-processes=restarted")
    os.kill(int(pytester.path.joinpath("pid").read_text()), signal.SIGKILL)  # it outlived the run, too
    assert ended.tests == {"test_before": "P", "test_dies": "C", "test_after": "P"}


@pytest.mark.apart
def test_the_thread_of_rerunfailures_is_a_hazard(run) -> None:
    """With xdist it starts a thread in each process that is no worker; the page on the plugin says so."""
    pytest.importorskip("pytest_rerunfailures", reason="needs pytest-rerunfailures: nox -s plugins")
    ended = run(
        "def test_1(): pass\ndef test_2(): pass\n", "--cudalink-processes=isolated", plugins=("xdist", "rerunfailures")
    )
    ended.result.ended(passed=2)
    ended.result.shows("2 tests started a new process each: collecting the tests started 1 thread")


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--cudalink-processes=isolated", "--cudalink-processes=restarted"])
def test_interrupted_by_the_user(run, pytester, option) -> None:
    """Ctrl-C ends the run and every process that it started."""
    pytester.makepyfile(
        test_it="""
import os, time
def test_1(): pass
def test_2():
    open("pid", "w").write(str(os.getpid()))
    time.sleep(600)
"""
    )
    # a shell that starts the tests in the background lets them ignore Ctrl-C, and all that they start
    heeds = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
    options = with_plugins(option, "--cudalink-report=run.jsonl")
    command = [sys.executable, "-c", heeds, sys.executable, "-m", "pytest", *options]
    process = subprocess.Popen(command, env={**os.environ, **NO_AUTOLOAD}, start_new_session=True)
    pid = pytester.path / "pid"
    deadline = time.monotonic() + 300
    while not (pid.exists() and pid.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait() == pytest.ExitCode.INTERRUPTED
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)
    (cell,) = merge(["run.jsonl"]).cells
    assert cell.crashes == []
    assert "not run" in cell.fault
