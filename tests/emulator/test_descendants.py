"""Violations and refused calls that no phase of a test sees: in processes that it starts, and after the last report."""

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest

from pytest_cudalink import cli
from pytest_cudalink.emulator import notes
from tests.emulator.conftest import STATE
from tests.nested import ALONE, BOTH, ISOLATED, XDIST

WAYS = pytest.mark.parametrize("workers", [ALONE, BOTH])

CHILDREN = '''
import multiprocessing, os, subprocess, sys, time
import pytest

BAD = "import state; state.State()"

@pytest.mark.parametrize("number", range(3))
def test_good(number): pass

def test_subprocess():
    subprocess.run([sys.executable, "-c", BAD], check=True)

def test_grandchild():
    program = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]], check=True)"
    subprocess.run([sys.executable, "-c", program, BAD], check=True)

def test_fork():
    pid = os.fork()
    if not pid:
        import state
        state.State()
        os.kill(os.getpid(), 9)
    os.waitpid(pid, 0)

def bad():
    import state
    state.State()

@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_multiprocessing(method):
    process = multiprocessing.get_context(method).Process(target=bad)
    process.start()
    process.join()

def test_xfails():
    subprocess.run([sys.executable, "-c", BAD], check=True)
    pytest.xfail("hides nothing")

def test_expected(driver_lifetimes):
    subprocess.run([sys.executable, "-c", BAD], check=True)
    (violation,) = driver_lifetimes.expect()
    assert "import state" in violation.process and violation.test == "test_children.py::test_expected"

OBJECT = """
import ctypes
cu, made, free = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: None)
assert cu.cuUserObjectCreate(ctypes.byref(made), None, free, 1, 1) == 0
assert (cu.cuUserObjectRelease(made, 1), cu.cuUserObjectRelease(made, 1)) == (0, 0)
"""

def test_user_object(driver_lifetimes):
    subprocess.run([sys.executable, "-c", OBJECT], check=True)
    (violation,) = driver_lifetimes.expect()
    assert violation.rule == "CUuserObject" and violation.what == "used after cuUserObjectRelease"
    assert violation.history[0] == "user object 1 was destroyed by cuUserObjectRelease, called from:", violation
    assert all("cuUserObjectRelease" in place for place in (violation.history[1], violation.native_stack[0]))
'''


@pytest.mark.slow
@WAYS
def test_children(suite, workers) -> None:
    """A violation in a process fails the test that started it, by whatever way, and names the process."""
    result = suite(*workers, test_children=CHILDREN)
    result.assert_outcomes(passed=5, failed=6)
    result.stdout.fnmatch_lines_random(
        [
            "cudalink: 1 lifetime violation during this test's call:",
            "process * (* -c import state; state.State()): link state 1: CU_JIT_LOG_VERBOSE: option value changed, *",
        ]
    )


#: Each breaks the rule once in each process that loads it, before the first test begins.
EARLY = """
import pytest
from state import State

State(201)
def pytest_addoption(): State(202)
@pytest.hookimpl(tryfirst=True)
def pytest_configure(): State(203)
def pytest_sessionstart(): State(204)
def pytest_report_header(): State(205)
def pytest_collection(): State(206)
@pytest.hookimpl(trylast=True)
def pytest_collection_finish(): State(207)
"""


@pytest.mark.parametrize("workers", [ALONE, XDIST, ISOLATED])
def test_early(suite, pytester, workers) -> None:
    """A violation in any hook of a conftest fails the run, is shown and recorded; a copy does not count it again."""
    result = suite("--cudalink-report=run.jsonl", *workers, conftest=EARLY, test_good=GOOD)

    result.assert_outcomes(passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    record = (pytester.path / "run.jsonl").read_text()
    seen = [
        f"option value changed, noticed by cuLinkDestroy; expected 0x1, found {number:#x}" for number in range(201, 208)
    ]
    shown = [result.stdout.str().count(text) for text in seen]
    written = [sum('"event": "violation"' in line and text in line for line in record.splitlines()) for text in seen]
    if workers == XDIST.values[0]:
        assert (min(shown), min(written)) >= (1, 1)
    else:
        assert (shown, written) == ([1] * len(seen), [1] * len(seen))


def test_a_run_that_only_shows(suite) -> None:
    """A conftest that breaks the rule fails it, too, although pytest ignores how its session ends."""
    result = suite("--fixtures", conftest="from state import State\nState(201)", test_good=GOOD)

    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert "found 0xc9" in result.stdout.str()


CHANGED = "link state 1: CU_JIT_LOG_VERBOSE: option value changed"
GOOD = "def test_good(): pass\n"
HEAD = "import atexit, os, subprocess, sys, threading, time\nimport pytest\nfrom state import State\n"
LATE = {
    "sessionfinish": "@pytest.hookimpl(trylast=True)\ndef pytest_sessionfinish(): State()",
    "terminal_summary": "def pytest_terminal_summary(): State()",
    "unconfigure": "@pytest.hookimpl(trylast=True)\ndef pytest_unconfigure(): State()",
    "cleanup": "def pytest_configure(config): config.add_cleanup(State)",
    "atexit": "atexit.register(State)",
    "thread": """
def later():
    ENDED.wait()
    State()
    DONE.set()

ENDED, DONE = threading.Event(), threading.Event()
threading.Thread(target=later).start()

def pytest_unconfigure():
    ENDED.set()
    DONE.wait()
""",
    "python_ends": "sys.kept_until_the_end = [State()]",
    "child": """
@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(): subprocess.run([sys.executable, "-c", "import state; state.State()"], check=True)
""",
    "forked_at_exit": """
@atexit.register
def fork():
    pid = os.fork()
    if not pid:
        State()
        os._exit(0)
    os.waitpid(pid, 0)
""",
}
#: Ways to run that the slow tier has: they differ in what Python still does.
SLOW = ("sessionfinish", "terminal_summary", "cleanup", "thread", "forked_at_exit")


@pytest.mark.parametrize("late", [pytest.param(late, marks=[pytest.mark.slow] * (late in SLOW)) for late in LATE])
def test_late(suite, pytester, late) -> None:
    """A violation after the plugin's last hook changes the exit code; a line names process, violation and fix."""
    result = suite("--cudalink-report=run.jsonl", conftest=HEAD + LATE[late], test_good=GOOD)
    result.assert_outcomes(passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert result.stderr.str().count(CHANGED) == 1
    violations = (pytester.path / "run.jsonl").read_text().count('"event": "violation"')
    assert violations == (late != "python_ends")  # then no Python is left to write it
    result.stderr.fnmatch_lines(
        ["cudalink: process *(*): *. Keep the memory that cuLinkCreate was given until cuLink*"]
    )


@pytest.fixture
def late_plugins(pytester) -> Callable[..., Mapping[str, str]]:
    """Make a plugin of each way, loaded where a condition holds; returns what a line says of the violation of each."""

    def make(names: Iterable[str], condition: str) -> Mapping[str, str]:
        numbers = {name: 99 if name == "child" else 200 + number for number, name in enumerate(sorted(names))}
        for name, number in numbers.items():
            own = HEAD.replace("from state import State", f"import state\ndef State(): return state.State({number})")
            pytester.makepyfile(**{f"late_{name}": own + LATE[name]})
        loaded = [f"late_{name}" for name in numbers]
        pytester.makeconftest(f"import os\nif {condition}:\n    pytest_plugins = {loaded}\n")
        said = "option value changed, noticed by cuLinkDestroy; expected 0x1, found"
        return {name: f"{said} {number:#x}\n" for name, number in numbers.items()}

    return make


#: A process that has used the driver cannot use it in a fork.
TOGETHER = {*LATE} - {"thread", "forked_at_exit"}


@pytest.mark.slow
@pytest.mark.parametrize("late", [{*TOGETHER, "thread"}, {"forked_at_exit"}], ids=["together", "fork"])
def test_late_in_a_worker(suite, late_plugins, monkeypatch, late) -> None:
    """The controller of xdist fails for what its workers do after they have handed their results over."""
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)  # where this test itself runs in a worker
    lines = late_plugins(late, '"PYTEST_XDIST_WORKER" in os.environ')
    result = suite("-n1", test_good=GOOD)
    result.assert_outcomes(passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    shown = result.stdout.str() + result.stderr.str()
    assert {name: shown.count(line) for name, line in lines.items()} == dict.fromkeys(late, 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tests", "late"),
    [(1, TOGETHER), (2, TOGETHER), (2, {"forked_at_exit"}), (2, {"thread"})],
    ids=["one", "copies", "fork", "no copies"],
)
def test_late_in_an_isolated_test(suite, late_plugins, late, tests) -> None:
    """An isolated test fails for what its process does after the last report, forked or started."""
    lines = late_plugins(late, 'os.path.exists("first") or os.mknod("first")')  # not in the first process
    test = f"import pytest\n@pytest.mark.parametrize('number', range({tests}))\ndef test_good(number): pass\n"
    result = suite("--cudalink-processes=isolated", test_good=test)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    least = {name: 1 if name == "terminal_summary" else tests for name in late}  # copies show none
    shown = {name: min(result.stdout.str().count(line), least[name]) for name, line in lines.items()}
    assert shown == least


BAD = "import state; state.State()"
BREAKS = STATE.replace("import pytest", "") + "State()"
REFUSING = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
sys.exit((cuda.cuInit(0), cuda.cuGLInit()) == (0, 801))
"""
REFUSED = """
import subprocess, sys

def test_refused():
    for _ in range(3):
        done = subprocess.run([sys.executable, "program.py"])
    assert done.returncode == 0

def test_other():
    assert False

def test_passes():
    subprocess.run([sys.executable, "program.py"])
"""


LOADING = """
import ctypes, sys
cuda, context, module = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_void_p()
assert (cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)) == (0, 0)
assert cuda.cuCtxSetCurrent(context) == 0
ptx = b".version 42.0\\n.target sm_50\\n.address_size 64\\n.visible .entry k() { ret; }"
sys.exit(cuda.cuModuleLoadData(ctypes.byref(module), ptx) == 222)
"""
IMAGES = """
import subprocess, sys

def test_skew():
    subprocess.run([sys.executable, "loads.py"], check=True)
def test_other():
    assert 0
"""


def test_refused_images(suite, pytester) -> None:
    """Code that a driver refused in a process explains the failure of the test that started it, and of no other."""
    pytester.makepyfile(loads=LOADING)
    result = suite(test_skew=IMAGES)

    result.assert_outcomes(failed=2)
    shown = [line for line in result.outlines if line.startswith(("error  ", "why    "))]
    assert len(shown) == 2
    assert shown[0].startswith("error  CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222): cuModuleLoadData of PTX ISA 42.0")
    assert "reads PTX up to ISA" in shown[1]


@WAYS
def test_refused_calls(suite, pytester, workers) -> None:
    """A call that was refused in a process explains the failure of the test that started it, and of no other."""
    pytester.makepyfile(program=REFUSING)
    result = suite("--cudalink-unsupported=skip", *workers, test_refused=REFUSED)
    result.assert_outcomes(skipped=1, failed=1, passed=1)
    result.stdout.fnmatch_lines(["1 test was skipped because the emulated driver refused a call:", "  cuGLInit *: 1"])
    if not workers:
        result = suite(test_refused=REFUSED)
        result.assert_outcomes(failed=2, passed=1)
        assert result.stdout.str().count("python program.py)") == 3


@pytest.fixture
def driver_run(pytester, toolchain):
    """Run a program with `cudalink driver run`, next to `state.py`."""
    toolchain("13.0")
    pytester.makepyfile(state=STATE)
    start = [sys.executable, "-m", cli.__name__, "driver", "run", "--version", "13.0"]

    def run(*command: str, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*start, *options, "--", *command], capture_output=True, text=True, check=False)

    return run


COMMANDS = {
    "program": (sys.executable, "-c", BAD),
    "shell": ("sh", "-c", f"{sys.executable} -c '{BAD}'; true"),
    "fork": (sys.executable, "-c", f"import os; os.fork() and os.wait() or exec({BAD!r}); os._exit(0)"),
}


@pytest.mark.parametrize(
    "command", [pytest.param(command, marks=[pytest.mark.slow] * (command != "program")) for command in COMMANDS]
)
def test_driver_run(driver_run, command) -> None:
    """`cudalink driver run` ends with 1 for a violation of its program or a process below it, and says why."""
    done = driver_run(*COMMANDS[command])
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("cudalink driver run: process ")
    assert f"{CHANGED}, noticed by cuLinkDestroy; expected 0x1, found 0x63. Keep the memory " in done.stderr


@pytest.mark.slow
def test_driver_run_keeps_an_exit_code(driver_run) -> None:
    """Another exit code, a signal and the mode `report` stay what they are."""
    assert driver_run(sys.executable, "-c", f"{BAD}; raise SystemExit(7)").returncode == 7
    assert driver_run("sh", "-c", "kill -9 $$").returncode == -signal.SIGKILL
    done = driver_run(sys.executable, "-c", BAD, options=("--checks=report",))
    assert done.returncode == 0
    assert CHANGED in done.stderr
    done = driver_run(sys.executable, "-c", BAD, options=("--checks=off",))
    assert (done.returncode, done.stderr) == (0, "")


def test_driver_run_passes_signals_on(tmp_path) -> None:
    """A signal reaches the program; one that kills the command takes the program with it."""
    program = "import signal, sys\nsignal.signal(15, lambda *_: sys.exit(8))\nprint(1, flush=True)\nsignal.pause()"
    command = [sys.executable, "-m", cli.__name__, "driver", "run", "--version", "13.0", "--", sys.executable, "-c"]
    for number, code in ((signal.SIGTERM, 8), (signal.SIGKILL, -signal.SIGKILL)):
        with subprocess.Popen([*command, program], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout.readline() == "1\n"
            process.send_signal(number)
            assert process.stdout.read() == ""  # its other end is closed
            assert process.wait() == code


DRIVER_RUN = f"""
import subprocess, sys

def test_starts(monkeypatch):
    command = [sys.executable, "-m", "{cli.__name__}", "driver", "run", "--version", "12.9", "--toolchains=never"]
    assert subprocess.run([*command, "--", sys.executable, "-c", "{BAD}"]).returncode == 1
"""


@pytest.mark.slow
def test_driver_run_in_a_test(suite) -> None:
    """Its violations are those of the test that started it, too."""
    result = suite(test_run=DRIVER_RUN)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["process * (*): " + CHANGED + "*"])


def test_plain_program(on_driver, tmp_path) -> None:
    """A program for which no process looks writes each violation, up to ten, and ends with 1 instead of 0."""
    program = STATE.replace("import pytest", "") + "for _ in range(12): State()\nsys.exit(int(os.environ['CODE']))"
    for code, lifetime, expected in (("0", "fail", 1), ("7", "fail", 7), ("0", "report", 0)):
        done = on_driver("13.0", "-c", f"import os, sys\n{program}", lifetime=lifetime, env={"CODE": code}, fresh=True)
        assert done.returncode == expected, done.stderr
        assert done.stderr.count("CU_JIT_LOG_VERBOSE: option value changed") == 10
        assert re.match(r"cudalink: process \d+ \(\S+ -c import os, sys", done.stderr)


REFUSED_TWICE = """
import ctypes
cuda, room = ctypes.CDLL("libcuda.so.1"), ctypes.create_string_buffer(8)
context, module, kernel = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
assert cuda.cuInit(0) == cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == cuda.cuCtxSetCurrent(context) == 0
ptx = b".version 8.0\\n.target sm_50\\n.address_size 64\\n.visible .entry k() { ret; }"
assert cuda.cuModuleLoadData(ctypes.byref(module), ptx) == 0
assert cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"k") == 0
assert cuda.cuDeviceGetLuid(room, room, 0) == 801  # as a real driver
for _ in range(2):
    assert cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, None, None) == 801
    assert cuda.cuGLInit() == 801
"""
REFUSED_WITH = "was refused with CUDA_ERROR_NOT_SUPPORTED (801)"
SAID = [
    f"cuLaunchKernel {REFUSED_WITH}: the emulated driver does not execute kernels. Run this program on a real driver.",
    f"cuGLInit {REFUSED_WITH}: not implemented by the emulated driver. Run this program on a real driver.",
]


def test_a_plain_program_says_what_was_refused(on_driver, driver_run) -> None:
    """A line on stderr names each function that a real driver would perform, once, also for `cudalink driver run`."""
    nasty = "\x1b[31m\r\n::error::x"
    alone = on_driver("13.0", "-c", REFUSED_TWICE, nasty)
    started = driver_run("sh", "-c", '"$0" -c "$1" "$2" && "$0" -c "$1"', sys.executable, REFUSED_TWICE, nasty)
    for done in (alone, started):
        assert done.returncode == 0, done.stderr
        assert "\x1b" not in done.stderr
        assert [line.partition("): ")[2] for line in done.stderr.splitlines()] == SAID


OTHER = """
import os, subprocess, sys

def test_server_of_another_test():
    environment = {**os.environ, "PYTEST_CURRENT_TEST": "x::y (call)"}
    subprocess.run([sys.executable, "-c", "import state; state.State()"], env=environment)
"""


def test_another_test_started_it(suite) -> None:
    """A process that an earlier test has started fails the run, with the name of that test."""
    result = suite(test_server=OTHER)
    result.assert_outcomes(passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["outside of tests: process *: link state 1: *", "The process was started by x::y."])


def test_notes_without_a_folder(on_driver, monkeypatch) -> None:
    """Where no folder can be written to, the file is one in memory; a file of another kind is left alone."""
    with monkeypatch.context() as patch:
        patch.setattr(notes.tempfile, "mkstemp", lambda **_: (_ for _ in ()).throw(FileNotFoundError()))
        mine = notes.Notes("")
    assert mine.path.startswith("/proc/")
    assert on_driver("13.0", "-c", BREAKS, lifetime="fail", env={notes.VARIABLE: mine.path}).returncode == 0
    (note,) = mine.take_counted()
    assert (note["violation"], note["option"]) == (1, "CU_JIT_LOG_VERBOSE")
    assert mine.end() == []


def test_a_file_of_another_kind(on_driver, tmp_path) -> None:
    """A variable that names another file changes nothing there: the violation is on stderr."""
    other = tmp_path / "mine"
    other.write_bytes(bytes(5000))
    for path in (other, tmp_path / "nowhere"):
        done = on_driver("13.0", "-c", BREAKS, lifetime="fail", env={notes.VARIABLE: str(path)})
        assert (done.returncode, CHANGED in done.stderr) == (1, True)
    assert other.read_bytes() == bytes(5000)
    assert [*tmp_path.iterdir()] == [other]


def test_notes(tmp_path, monkeypatch) -> None:
    """Lines are taken once, whole lines alone, also uncounted ones in a last look; a lost file is an empty one."""
    monkeypatch.setattr(notes.scratch, "root", lambda: tmp_path)
    mine = notes.Notes("")
    assert Path(mine.path).parent == tmp_path
    assert mine.take_counted() == mine.take() == []
    notes.pass_on(mine.path, [{"a": 1}, {"b": 2}])
    assert mine.take_counted() == [{"a": 1}, {"b": 2}]
    assert mine.take_counted() == mine.take() == []
    with Path(mine.path).open("ab") as file:
        file.write(b'{"c": 3}\nnonsense\n{"d"')
    assert mine.take_counted() == []
    assert mine.take() == [{"c": 3}]
    with Path(mine.path).open("ab") as file:
        file.write(b": 4}\n")
    assert mine.end() == [{"d": 4}]
    assert mine.end() == [] == list(tmp_path.iterdir())
    with pytest.raises(FileNotFoundError):
        notes.pass_on(mine.path, [{}])
