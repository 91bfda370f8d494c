"""Tests that run under schedules: what fails only when queued work is late is found, repeated and shown."""

import re
import time
from contextlib import suppress
from pathlib import Path

import pytest

from pytest_cudalink.report import read
from tests.planted import expected

ROOT = Path(__file__).parent.parent.parent
HEAD = f"""
import os, sys, time
from ctypes import byref, c_size_t, c_uint, c_uint64, c_void_p, string_at
import pytest
sys.path.insert(0, {str(ROOT)!r})
from tests.planted.error_paths import call, current_context

class Queue:
    def __init__(self):
        self.stream, self.host, self.memory = c_void_p(), c_void_p(), c_uint64()
        call("cuStreamCreate", byref(self.stream), 1)
        call("cuMemHostAlloc", byref(self.host), c_size_t(64), 0)
        call("cuMemAlloc_v2", byref(self.memory), c_size_t(64))

    def fill(self, value):
        call("cuMemsetD8Async", self.memory, c_uint(value), c_size_t(64), self.stream)

    def read(self):
        call("cuMemcpyDtoHAsync_v2", self.host, self.memory, c_size_t(64), self.stream)

    def wait(self):
        call("cuStreamSynchronize", self.stream)

    @property
    def value(self):
        return string_at(self.host, 64)[0]

    def free(self):
        self.wait()
        call("cuMemFree_v2", self.memory)
        call("cuMemFreeHost", self.host)
        call("cuStreamDestroy_v2", self.stream)

@pytest.fixture
def queue():
    with current_context():
        made = Queue()
        yield made
        made.free()
"""
#: The host reads what a copy has not written yet.
EARLY = """
def test_early(queue):
    queue.fill(7)
    queue.read()
    value = queue.value
    assert value == 7
"""
FAILURE = re.compile(
    r"^(?P<kind>\w+): \S+::(?P<name>\S+) under (?P<number>\d+) of \d+ schedules?: .*\n"
    r"  repeat: .*pytest '(?P<nodeid>\S+)' .*--cudalink-driver=13.0 .*--cudalink-schedules=(?P<asked>\S+)$",
    re.MULTILINE,
)


@pytest.fixture
def run(run_pytest, toolkit):
    """Run tests under schedules on an emulated driver."""
    return lambda tests, *arguments: run_pytest("--cudalink-driver=13.0", *arguments, module=HEAD + tests)


def failures(result: pytest.RunResult) -> list[dict[str, str]]:
    return [match.groupdict() for match in FAILURE.finditer(str(result.stdout))]


def test_failure(run) -> None:
    """The failure names the copy that was late, when and where, and the command that fails alike; the test passes."""
    result = run(EARLY, "--cudalink-schedules=4:7")
    assert result.ret == 1
    result.assert_outcomes(passed=1)
    (failure,) = failures(result)
    assert (failure["kind"], failure["name"]) == ("failed", "test_early")
    result.stdout.fnmatch_lines(
        [
            "cudalink: schedules 4:7 (from option)",
            "schedules: 4 runs of 1 test from seed 7, 1 failure",
            "failed: test_it.py::test_early under * of 4 schedules: AssertionError: assert 0 == 7",
            "  seed * with 1 of * operations displaced; time is in calls of the driver:",
            "  [*] * cuMem*Async* (stream 1) *=*| test_it.py:* in *",
            "  *: cuMem*Async*, called at *error_paths.py:* in call < test_it.py:* in *, was queued in call *, and *",
            "  >       assert value == 7",
            "  E       assert 0 == 7",
        ]
    )


def timeline(result: pytest.RunResult) -> list[str]:
    """The lines of a failure below its command."""
    lines = result.outlines
    start = next(number for number, line in enumerate(lines) if line.startswith("  repeat: "))
    return [line for line in lines[start + 1 :] if line.startswith("  ")]


def test_tests_that_do_not_run_under_schedules(run) -> None:
    """A test that queues nothing, and one that fails by itself, are counted."""
    result = run("def test_nothing(): pass\ndef test_fails(queue): assert queue is None", "--cudalink-schedules=9:1")
    result.stdout.fnmatch_lines(
        [
            "schedules: 0 runs of 0 tests from seed 1, 0 failures",
            "1 test not run under schedules: nothing that they queue can be late",
            "1 test not run under schedules: failed in a separate process",
            "1 run under a schedule left out: no test queues what can be late",
        ]
    )


def test_operations_that_no_test_has(run) -> None:
    """The run fails for a number that is too large, and not for another test that queues nothing."""
    result = run("def test_nothing(): pass\ndef test(queue): queue.fill(7)", "--cudalink-schedules=1:7@99")
    why = "1: no test has one of the operations 99"
    result.stdout.fnmatch_lines([f"The run fails because 1 of 2 runs under a schedule were made ({why}); *"])
    result.stdout.no_fnmatch_line("*no test queues what can be late*")


@pytest.mark.slow
def test_processes_that_end(run) -> None:
    """A copy that ends, and the process that makes copies, leave runs out, each for its reason."""
    module = """
FIRST = os.getpid()
def test_dies():
    if os.getpid() != FIRST: os._exit(3)
def test_kills(queue):
    queue.fill(1)
    if os.getpid() != FIRST:
        if os.path.exists("begun"): os.kill(FIRST, 9)
        open("begun", "w").close()
"""
    for option, line in (
        ("--cudalink-schedules=5", "* runs under a schedule left out: the process that runs the tests again ended"),
        ("--cudalink-fault-sweep", "1 test not swept: ended with exit code 3 in a separate process"),
    ):
        run(module, option).stdout.fnmatch_lines([line])


@pytest.mark.slow
def test_failure_that_does_not_repeat(run) -> None:
    """A test that fails for a reason that no seed decides says so."""
    test = """
from pathlib import Path
def test_other(queue):
    queue.fill(1)
    runs = len([*Path.cwd().glob("run-*")])
    Path(f"run-{runs}").touch()
    assert runs != 2
"""
    result = run(test, "--cudalink-schedules=1:1")  # the first two runs are its own, and the one without a schedule
    assert failures(result)[0]["asked"] == "1:1"
    result.stdout.fnmatch_lines(
        ["  it passed when it ran under seed 1 again: something other than the driver changes between the runs, *"]
    )


#: The process that forks copies is killed before it has reported the last one.
REPORTS_LATE = """
import subprocess, time
from pytest_cudalink.plugin.isolation import child
kill = subprocess.Popen.kill
subprocess.Popen.kill = lambda self: time.sleep(0.2) or kill(self)
plain = child.Child._reply
def late(self, **reply):
    time.sleep(0.5 * ("number" not in reply))
    return plain(self, **reply)
child.Child._reply = late
"""


@pytest.mark.slow
def test_hang(run, pytester) -> None:
    """A test that waits for what never comes is ended, its other schedules are left out, and no copy stays behind."""
    pytester.makeconftest(REPORTS_LATE)
    test = EARLY.replace("assert value == 7", "while value != 7: time.sleep(0.1)")
    result = run(test, "--cudalink-schedules=200:7", "--cudalink-processes=deadline=2")
    result.stdout.fnmatch_lines(
        [
            "198 runs under a schedule left out: after 2 that did not end; --cudalink-processes=deadline=SECONDS *",
            "hang: test_it.py::test_early under 2 of * schedules: the process was stopped: it did not end within 2 *",
        ]
    )
    deadline = time.monotonic() + 60
    while (left := copies_in(pytester.path)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == []


def copies_in(folder: Path) -> list[str]:
    """The numbers of the second processes that run in a folder."""
    names = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if b"bootstrap.py" in (process / "cmdline").read_bytes() and (process / "cwd").readlink() == folder:
                names.append(process.name)
    return names


#: The host reads a result behind the freeing of other memory, and another one with no reason at all.
FREED = """
def test_freed(queue):
    other = c_uint64()
    call("cuMemAlloc_v2", byref(other), c_size_t(64))
    queue.fill(7)
    queue.read()
    {}
    call("cuMemFree_v2", other)
    value = queue.value
    assert value == 7
"""


@pytest.mark.slow
def test_undocumented_wait(run, pytester: pytest.Pytester) -> None:
    """A test that relies on a wait which CUDA does not promise passes, and fails where only promised ones are kept."""
    test = FREED.format("")
    result = run(test, "--cudalink-schedules=6:7+promised", "--cudalink-report=run.jsonl")
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        [
            "schedules: 6 runs of 1 test from seed 7, 1 failure",
            "unpromised: test_it.py::test_freed under * of 6 schedules: AssertionError: assert 0 == 7",
            "  repeat: * --cudalink-schedules=1:*@*+promised",
            "  relies on an undocumented wait: cuMemFree_v2, called at *error_paths.py:* in call < test_it.py:* in *",
            "    It waits for all streams of the context (an H100, driver 580.159.04).",
            "    CUDA's documentation: may synchronize implicitly, except for memory of cuMemAllocAsync (*).",
            "    fix  Wait before cuMemFree, by cuStreamSynchronize or by cuEventSynchronize for an event.",
            "  seed * with 1 of 2 operations displaced; time is in calls of the driver:",
        ]
    )
    assert [finding.nodeid for finding in read(pytester.path / "run.jsonl").findings] == ["test_it.py::test_freed"]
    (failure,) = failures(result)
    again = run(test, f"--cudalink-schedules={failure['asked']}")
    assert failures(again) == [{**failure, "number": "1"}]
    assert timeline(again) == timeline(result)


@pytest.mark.slow
def test_failures_with_and_without_waits(run) -> None:
    """What fails with all waits, too, relies on none; of a process that dies, the clean run tells the waits."""
    died = FREED.format("").replace("assert value == 7", "value == 7 or os._exit(3)")
    result = run(
        EARLY + died + FREED.format("queue.wait()").replace("freed", "sound"), "--cudalink-schedules=3:7+promised"
    )
    rows = {failure["name"]: (failure["kind"], failure["asked"].endswith("+promised")) for failure in failures(result)}
    assert rows == {"test_early": ("failed", False), "test_freed": ("unpromised", True)}
    assert str(result.stdout).count("was queued in call") == 1  # a process that dies leaves no times
    result.stdout.fnmatch_lines(
        [
            "unpromised: test_it.py::test_freed under * of 3 schedules: the process ended with exit code 3",
            "  relies on an undocumented wait: cuMemFree_v2, called at *error_paths.py:* in call < test_it.py:* in *",
        ]
    )


PLANTED = """
import sys
import pytest
sys.path.insert(0, {root!r})
from tests.planted import {module}
@pytest.mark.parametrize("name", {module}.{twins})
def test(name): {module}.{twins}[name]()
"""


@pytest.mark.slow
def test_planted_bugs(run_pytest, toolkit) -> None:
    """A wrong byte and a broken rule are found, and what no byte shows is not; `test_order` runs the others."""
    module = PLANTED.format(root=str(ROOT), module="order_bugs", twins="BROKEN")
    names = ("wait_before_record", "source_freed_too_early", "freed_on_another_stream", "ring_of_staging_buffers")
    tests = (f"test_it.py::test[{name}]" for name in names)
    result = run_pytest("--cudalink-driver=13.0", "--cudalink-schedules=8:7", *tests, module=module)
    result.assert_outcomes(passed=4)
    kinds = {failure["nodeid"].partition("[")[2].rstrip("]"): failure["kind"] for failure in failures(result)}
    assert kinds == dict(zip((*names[:2], names[3]), ("failed", "violation", "failed"), strict=True))


@pytest.mark.weekly
@pytest.mark.slow
@pytest.mark.parametrize("twins", ["BROKEN", "MENDED"])
def test_planted_reliances(pytester: pytest.Pytester, run_pytest, toolkit, twins: str) -> None:
    """Each program that relies on an undocumented wait passes with it, and is found with its call; its twin never."""
    relies = expected("undocumented_waits")
    pytester.makepyfile(test_it=PLANTED.format(root=str(ROOT), module="undocumented_waits", twins=twins))
    if twins == "BROKEN":
        assert run_pytest("--cudalink-driver=13.0", "--cudalink-schedules=8:1").ret == 0
    result = run_pytest("--cudalink-driver=13.0", "--cudalink-schedules=8:1+promised")
    result.assert_outcomes(passed=len(relies))
    named = re.findall(
        r"^unpromised: \S+\[(\w+)\] .*\n  repeat: .*\n  relies on an undocumented wait: (\w+),",
        str(result.stdout),
        re.MULTILINE,
    )
    assert dict(named) == (relies if twins == "BROKEN" else {})
    assert len(failures(result)) == len(named)
