"""Tests in processes of their own: a crash is that test's failure, and the rest goes on."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_cudalink.plugin.isolation.parent import processes
from pytest_cudalink.report import read
from tests.nested import NO_AUTOLOAD

MODULE = """
import atexit, ctypes, os, sys, time
import pytest
from pytest_cudalink.linker import Linker, LinkerOptions, ObjectCode

def link():
    Linker(ObjectCode.from_ptx("user.ptx"), options=LinkerOptions(arch="sm_90"), backend="driver").link("cubin")

_outer = os.path.join(os.path.dirname(__file__), "outer" + os.environ.get("PYTEST_XDIST_WORKER", ""))
try:
    with open(_outer, "x") as file: file.write(str(os.getpid()))
except FileExistsError:
    pass
with open(_outer) as file: OUTER = file.read()
isolated = pytest.mark.cudalink(isolate=True)
def elsewhere(): return str(os.getpid()) != OUTER
"""


@pytest.fixture
def run(pytester: pytest.Pytester, run_pytest, samples, toolkit):
    """Run pytest on an emulated driver with a record file."""
    pytester.path.joinpath("user.ptx").write_bytes(samples["12.9/user.ptx"])

    def go(
        module: str, *arguments: str, report: bool = True, file: str | None = None, plugins: tuple[str, ...] = ()
    ) -> pytest.RunResult:
        for left in pytester.path.rglob("outer*"):  # of the run before this one
            left.unlink()
        path = pytester.makepyfile(MODULE + module)
        if file is not None:
            path.rename(pytester.path / file)
        options = ("--cudalink-driver=13.0", *(["--cudalink-report=run.jsonl"] if report else []))
        return run_pytest(*options, *arguments, plugins=plugins)

    return go


BETWEEN = """
@pytest.fixture(scope="module")
def shared():
    yield os.getpid()
    with open("torn_down", "a") as file: print(os.getpid() == int(OUTER), file=file)

def test_first(shared): assert shared == os.getpid()
@isolated
def test_isolated(shared): assert shared == os.getpid() and elsewhere()
def test_last(shared): assert shared == os.getpid()
"""
LAST = """
@pytest.fixture(scope="module", autouse=True)
def shared():
    yield
    if not elsewhere(): raise RuntimeError("no tear-down")

def test_first(): pass
@isolated
def test_isolated(): assert elsewhere()
"""


@pytest.mark.slow
def test_fixtures_of_wider_scope(run, pytester) -> None:
    """Those of a module are torn down where they were set up, on both sides of an isolated test, whose error it is."""
    pytester.makepyfile(test_a=MODULE + LAST)
    pytester.mkpydir("second").joinpath("test_second.py").write_text("def test(): pass\n")
    result = run(BETWEEN).ended(passed=6, errors=1)
    assert sorted(pytester.path.joinpath("torn_down").read_text().split()) == ["False", "True"]
    result.shows("*ERROR at teardown of test_isolated*", "E*RuntimeError: no tear-down")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "conftest"),
    [("isolated", ""), ("restarted", ""), ("isolated", "try: open('f', 'x')\nexcept FileExistsError: os._exit(4)")],
)
def test_starts_that_fail_alike(run, pytester, mode: str, conftest: str) -> None:
    """A process that does not reach its test says why, once; where two in a row fail alike, the run ends."""
    pytester.makeconftest(f"import os\n{conftest}")
    result = run(
        """
if elsewhere(): raise RuntimeError('not here')
@pytest.mark.parametrize("i", range(9))
def test_it(i): pass
""",
        *(f"--cudalink-processes={mode}", "-rN"),  # where CI is set, pytest's short summary has whole texts
    )
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.shows("cudalink: the process of this test ended with exit code 4")
    result.shows("!*cudalink: two processes in a row ended with exit code 4 *test_it*; no further*")
    assert result.stdout.str().count("E   RuntimeError: not here") == (not conftest)
    assert result.parseoutcomes()["errors"] == (1 if conftest else 2)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], []),
        (["python"], []),
        (["python", "-m", "pytest", "-x"], []),
        (["python", "bin/pytest", "-W", "error"], []),
        (["python", "-BEm", "pytest"], ["-BE"]),
        (["python", "-Wonce", "-W", "error::A", "-X", "dev", "-Xutf8=0", "-c", "pass"], None),
        (["python", "-BW", "error", "run.py"], ["-B", "-Werror"]),
        (["python", "-uix", "run.py"], ["-u"]),
        (["python", "-i", "run.py"], []),
        (["python", "--check-hash-based-pycs", "always", "-P", "-"], ["--check-hash-based-pycs", "always", "-P"]),
        (["python", "-", "-B"], []),
        (["python", "-IS", "-mpytest", "-B"], ["-IS"]),
        (["python", "-W"], ["-W"]),
    ],
)
def test_options_of_python(words: list[str], expected: list[str] | None) -> None:
    """The options of the first Python are those of the second one, but for what waits for input or skips a line."""
    whole = ["-Wonce", "-Werror::A", "-Xdev", "-Xutf8=0"]
    assert processes.interpreter_options(words) == (whole if expected is None else expected)


#: What a process can tell of how it was started; conftest and plugin change it, as those of many projects do.
OBSERVED = """
import json, os, sys

def test_it():
    main = sys.modules["__main__"]
    found = {
        "path": sys.path, "argv": sys.argv, "orig_argv": sys.orig_argv, "flags": repr(sys.flags), "cwd": os.getcwd(),
        "main": [getattr(main, "__file__", None), getattr(main.__spec__, "name", None)], "warnoptions": sys.warnoptions,
        "xoptions": repr(sys._xoptions), "environment": {
            name: value for name, value in os.environ.items()
            if name not in ("PYTEST_XDIST_TESTRUNUID", "PYTEST_XDIST_WORKER_COUNT")
        },
        "main_names": sorted(name for name in vars(main) if name.startswith("become")),
    }
    with open(os.environ["OBSERVED"], "w") as file: json.dump(found, file)
"""
CHANGING = """
import os, sys
sys.path.insert(0, "one-more")
os.environ["LENGTHENED"] = os.environ.get("LENGTHENED", "") + "x"
"""
FORMS = {
    "script": ["{bin}/pytest"],
    "module": ["{python}", "-bm", "pytest"],
    "words": ["{python}", "-Xutf8", "-BW", "ignore::ImportWarning", "-c", "import pytest; pytest.main()"],
    "safe path": ["{python}", "-P", "-X", "importtime=0", "-m", "pytest"],
    "isolated": ["{python}", "-Im", "pytest"],
    "own script": ["{python}", "run.py"],
    "another folder": ["{bin}/pytest", "--rootdir=..", "-c", "other.ini", "--import-mode=importlib"],
    "worker": ["{bin}/pytest", "-p", "xdist", "-n1"],
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "form",
    [
        pytest.param(form, id=name, marks=[pytest.mark.weekly] if name in ("module", "safe path", "own script") else [])
        for name, form in FORMS.items()
    ],
)
def test_second_processes_are_started_as_the_first(pytester, monkeypatch, form: list[str]) -> None:
    """Search path, command line, options of Python, folder and environment are those of a run in one process."""
    monkeypatch.setenv("PYTHONPATH", str(pytester.path / "plugins"), prepend=os.pathsep)
    for name, value in NO_AUTOLOAD.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("OBSERVED", str(pytester.path / "observed.json"))
    where = pytester.mkdir("suite")
    where.joinpath("test_it.py").write_text(OBSERVED)
    where.joinpath("conftest.py").write_text(f"{CHANGING}\nos.makedirs('below', exist_ok=True)\nos.chdir('below')\n")
    where.joinpath("run.py").write_text("import sys, pytest\nsys.path.insert(1, 'scripts')\npytest.main(sys.argv[1:])")
    where.joinpath("other.ini").write_text("[pytest]\npythonpath = from-ini\n")
    pytester.mkdir("plugins").joinpath("changes_all.py").write_text(CHANGING)
    plugins = ["-p", "cudalink", *([] if "-Im" in form else ["-p", "changes_all"]), "-p", "no:cacheprovider"]

    def observed(mode: str) -> dict[str, Any]:
        file = pytester.path / "observed.json"
        file.unlink(missing_ok=True)
        words = [word.format(bin=Path(sys.executable).parent, python=sys.executable) for word in form]
        command = [*words, *plugins, f"--cudalink-processes={mode}", str(where / "test_it.py")]
        done = subprocess.run(command, cwd=where, capture_output=True, text=True, check=False)
        assert file.exists(), done.stdout + done.stderr
        golden = json.loads(file.read_text().replace(f"processes={mode}", "processes=MODE"))
        return {**golden.pop("environment"), **golden}

    assert observed("isolated") == observed("shared")


@pytest.mark.slow
def test_test_that_starts_pytest(run, pytester, monkeypatch) -> None:
    """A pytest that an isolated test starts runs its own tests, here, and keeps out of the record file."""
    monkeypatch.setenv("CUDALINK_PROCESSES", "isolated")
    monkeypatch.setenv("CUDALINK_REPORT", "run.jsonl")
    pytester.makepyfile(inner="import os\ndef test_inner(): assert os.getppid() == int(os.environ['PARENT'])\n")
    run(
        """
import subprocess

def test_starts_pytest():
    assert elsewhere()
    assert "PARENT" not in os.environ, "runs itself"
    environment = {**os.environ, "PARENT": str(os.getpid())}
    command = [sys.executable, "-m", "pytest", "-p", "cudalink", "inner.py"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert "1 passed" in done.stdout, done.stdout
""",
        report=False,
    ).ended(passed=1)
    record = read(pytester.path / "run.jsonl")
    assert [test.nodeid.rpartition("::")[2] for test in record.tests] == ["test_starts_pytest"]
    assert record.run.settings["tests"] == {"value": "isolated", "source": "environment CUDALINK_PROCESSES"}


@pytest.mark.slow
def test_files_of_the_whole_run(run, pytester) -> None:
    """The run's temporary folder, its log and its debugging output are not begun again by a child."""
    run(
        """
import logging

def test_first(tmp_path_factory):
    tmp_path_factory.getbasetemp().joinpath("kept").touch()
    logging.warning("before")
@isolated
def test_isolated(tmp_path):
    assert elsewhere()
    logging.warning("inside")
def test_last(tmp_path_factory):
    assert tmp_path_factory.getbasetemp().joinpath("kept").exists()
    logging.warning("after")
""",
        "--basetemp=temporary",
        "--log-file=run.log",
        "--debug=debug.log",
    ).ended(passed=3)
    words = re.findall("before|inside|after", pytester.path.joinpath("run.log").read_text())
    assert words == ["before", "after"]
    assert "test_last" in pytester.path.joinpath("debug.log").read_text()


@pytest.mark.slow
def test_stopped_from_outside(run, pytester) -> None:
    """What a plugin raises while a child collects or runs, as a limit of time, fails that test and ends the child."""
    pytester.makeconftest(
        "import signal, pytest\ndef too_long(signum, frame): pytest.fail('took too long')\n"
        "def pytest_sessionstart(): signal.signal(signal.SIGUSR1, too_long)\n"
    )
    result = run(
        """
import signal
def hang():
    with open("pid", "w") as file: file.write(str(os.getpid()))
    os.kill(int(OUTER), signal.SIGUSR1)
    while True: signal.pause()

if elsewhere() and not os.path.exists("pid"): hang()
@isolated
def test_waits_for_the_one_that_collects(): pass
@isolated
def test_hangs():
    link()
    hang()
def test_after(): assert not elsewhere()
"""
    ).ended(passed=1, failed=1, errors=1)
    stopped = "cudalink: the process of this test was stopped: took too long"
    result.shows(stopped, stopped, "last calls of the driver:", "  cuLinkComplete answered 0")
    with pytest.raises(ProcessLookupError):
        os.kill(int(pytester.path.joinpath("pid").read_text()), 0)


@pytest.mark.slow
def test_all_outside_of_the_rootdir(run, pytester) -> None:
    """The option isolates every test, in classes and sub-folders too, which are found and keep their names."""
    pytester.mkdir("settings").joinpath("pytest.ini").write_text("[pytest]\n")
    pytester.mkdir("cases")
    arguments = ("-c", "settings/pytest.ini", "cases", "--cudalink-processes=isolated", "-k", "test", "-s")
    module = r"""
if not elsewhere(): sys.stdout.reconfigure(encoding="ascii")
class TestGroup:
    @pytest.mark.parametrize("name", ["a::b"])
    def test_method(self, name):
        assert elsewhere()
        link()

def test_fails(): assert print("echo" + "ed")

def test_crash():
    os.write(2, b"last words")
    os.write(1, b"\xff")
    os.abort()
"""
    result = run(module, *arguments, file="cases/test_there.py").ended(passed=1, failed=2)
    result.shows("cudalink: the process of this test was killed by SIGABRT")
    assert (result.stdout.str().count("echoed"), result.stderr.str().count("last words")) == (1, 1)
    result.stdout.no_fnmatch_line("*cannot be written*")
    record = read(pytester.path / "run.jsonl")
    assert {test.nodeid for test in record.tests} == {start.nodeid for start in record.starts}
    (link,) = record.links
    assert link.nodeid in {test.nodeid for test in record.tests}


def test_crashes_that_look_alike(run, pytester) -> None:
    """Two that die in one fixture end no run; each has its phase and its last words, and its process what it needs."""
    pytester.makepyfile(test_other="open('imported', 'a').write('1')\ndef test(): pass\n")
    pytester.makeconftest(
        "def pytest_runtest_logfinish(nodeid, location): pass\n"
        "def pytest_report_from_serializable(config, data): pass\n"
    )
    result = run(
        """
@pytest.fixture
def dies():
    os.write(2, b"last \\xff word\\n")
    os._exit(3)
@pytest.fixture
def dies_late():
    yield
    os._exit(3)

@isolated
def test_1(dies): pass
@isolated
def test_2(dies): pass
@isolated
def test_3(dies_late): link()
@isolated
def test_4(): assert type(sys.stdout).__name__ == "CaptureIO"
def test_5(): pass
""",
        "--capture=sys",
        "-ocudalink_events=events.jsonl",
    ).ended(passed=4, errors=3)
    result.shows("cudalink: the process of this test ended with exit code 3", "  last \ufffd word")
    result.stdout.no_fnmatch_line("last lines of stdout:")
    assert pytester.path.joinpath("imported").read_text() == "1"
    record = read(pytester.path / "run.jsonl")
    assert [crash.exitcode for crash in record.crashes] == [3, 3, 3]
    assert len(record.tests) == 6
    assert max(test.duration for test in record.tests) < 60
    (asked,) = record.asked
    assert (asked.what, asked.due, asked.happened) == ("isolation", 4, 4)
    events = pytester.path.joinpath("events.jsonl").read_text().splitlines()
    assert "cuLinkComplete" in {json.loads(line).get("call") for line in events}


@pytest.mark.apart
def test_same_seed(run) -> None:
    """An isolated test has the seed that the header names."""
    pytest.importorskip("pytest_randomly", reason="needs pytest-randomly: nox -s plugins")
    result = run(
        """
def test_seed(request): print("seed", request.config.getoption("randomly_seed"))
""",
        "--cudalink-processes=isolated",
        "-rP",
        plugins=("randomly",),
    )
    seeds = re.findall(r"seed[= ](\d+)", result.stdout.str())
    assert len(seeds) == 2
    assert len(set(seeds)) == 1


@pytest.mark.apart
def test_coverage_of_new_processes(run, pytester) -> None:
    """Where each isolated test starts a new process, the last one does not erase what the others have measured."""
    pytest.importorskip("pytest_cov", reason="needs pytest-cov: nox -s plugins")
    pytester.makepyfile(library="def one():\n    return 1\ndef two():\n    return 2\n")
    result = run(
        """
import threading
import library
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
@isolated
def test_one(): assert library.one() == 1
@isolated
def test_two(): assert library.two() == 2
""",
        "--cov=library",
        plugins=("pytest_cov",),
    ).ended(passed=2)
    result.shows("library.py * 0 *100%", "2 tests started a new process each*")


def _held() -> tuple[set[str], set[str]]:
    """Return the descriptors of this process and its children."""
    running = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii").split()
    return {path.name for path in Path("/proc/self/fd").iterdir() if path.exists()}, set(running)


# an open file that no name has yet closes with a warning
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupted_start_leaves_nothing(tmp_path, monkeypatch) -> None:
    """Wherever the start of a process of tests is interrupted, neither a pipe nor the process stays behind."""

    def command(_run: Any, _folder: Path, _paths: list[str], pipes: list[int], **_: object) -> Any:
        return ["sh", "-c", f"echo '{{\"ready\": true}}' > /dev/fd/{pipes[1]}; exec sleep 60"], {**os.environ}

    def start(point: int) -> bool:
        """Interrupt at one line of the plugin's code, or as Popen returns; False if there are fewer."""
        reached = 0

        def trace(frame: Any, event: str, _: object) -> Any:
            nonlocal reached
            ours = frame.f_code.co_filename == processes.__file__
            starts = frame.f_code is subprocess.Popen.__init__.__code__
            if (ours and event == "line") or (starts and event == "return"):
                reached += 1
                if reached == point:
                    raise KeyboardInterrupt
            return trace if ours or starts else None

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            server = processes.ServerProcess(run, tmp_path, [], mode="copies")
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(before)
        server.kill()
        return False

    monkeypatch.setattr(processes, "_command", command)
    monkeypatch.setattr(processes, "_PATIENCE", 0.01)
    run: Any = SimpleNamespace(config=SimpleNamespace(invocation_params=SimpleNamespace(dir=tmp_path)))
    held = _held()
    point = 1
    while start(point):
        assert _held() == held, point
        point += 1
    assert point > 20
    assert _held() == held


@pytest.mark.slow
def test_a_test_that_closes_every_descriptor(run, pytester) -> None:
    """Its reports arrive, and not in the file that it opens at the same number; pytest's own words do."""
    run(
        """
@isolated
def test_daemon():
    os.closerange(3, 256)
    log = os.open("log", os.O_RDWR | os.O_CREAT)
    for number in range(log + 1, 256): os.dup2(log, number)
"""
    ).ended(passed=1)
    assert "{" not in (pytester.path / "log").read_text()
