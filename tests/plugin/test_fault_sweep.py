"""A fault sweep of a run: each call of each test fails in turn, and what is wrong then fails the run."""

import re
from pathlib import Path

import pytest

from pytest_cudalink.report import read
from tests.planted import expected

ROOT = Path(__file__).parent.parent.parent
HEAD = f"""
import sys
import pytest
sys.path.insert(0, {str(ROOT)!r})
from tests.planted import error_paths as planted

@pytest.fixture
def context():
    with planted.current_context():
        yield
"""
FINDING = re.compile(
    r"^(?P<kind>\S+): (?P<function>\w+) \(call \d+\).*\n  repeat: .*pytest '\S+\[(?P<name>\w+)\]'.*=(?P<fault>\S+)$",
    re.MULTILINE,
)


PLANTED = expected("error_paths")
#: Every fourth planted bug for the gate, and all of them.
PLANTED_NAMES = [
    pytest.param((*PLANTED,)[::4], id="few"),
    pytest.param((*PLANTED,), id="all", marks=pytest.mark.weekly),
]
#: A test with one finding.
COUNTS = (
    "import ctypes, os, shutil, pytest\ncuda = ctypes.CDLL('libcuda.so.1')\n"
    "def test_first(): cuda.cuInit(0), cuda.cuDeviceGetCount(ctypes.byref(ctypes.c_int()))\n"
)
COUNT = "--cudalink-fault-sweep=cuDeviceGetCount"


@pytest.fixture
def swept(run_pytest, toolkit):
    """Sweep the calls of a module on an emulated driver."""
    given = ("--cudalink-driver=13.0", "--cudalink-fault-sweep")
    return lambda module, *arguments: run_pytest(*given, *arguments, module=module)


@pytest.fixture
def sweep(swept):
    """Sweep some functions of the library."""

    def go(twins: str, names: tuple[str, ...], *arguments: str) -> pytest.RunResult:
        test = f"@pytest.mark.parametrize('name', {names})\ndef test(context, name): planted.{twins}[name]()\n"
        return swept(f"{HEAD}\n{test}", *arguments)

    return go


def findings(result: pytest.RunResult) -> list[dict[str, str]]:
    return [match.groupdict() for match in FINDING.finditer(str(result.stdout))]


def test_finding(sweep) -> None:
    """A finding names call, code and place, and the command that finds it alone; the test itself has passed."""
    result = sweep("BROKEN", ("two_buffers",), "--cudalink-fault-sweep=cuMemAlloc")
    assert result.ret == 1
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        [
            "fault sweep: 6 runs of 1 test, 1 finding",
            (
                "leak: cuMemAlloc_v2 (call 5) failed with *, called at *error_paths.py:* in call <*: "
                "a clean run frees what this one left: 1 x allocation that only the end of its context freed (64*"
            ),
            "  repeat: *pytest 'test_it.py::test[[]two_buffers[]]' *--cudalink-driver=13.0 --cudalink-fault-sweep=5:2",
        ]
    )
    result.stdout.no_fnmatch_line("*no test calls*")
    assert [finding["fault"] for finding in findings(result)] == ["5:2"]


@pytest.mark.slow
def test_repeating_a_finding(sweep) -> None:
    """Its run is red at a terminal; the fault that no program survives finds nothing. `test_repeat` has the command."""
    again = sweep("BROKEN", ("two_buffers",), "--cudalink-fault-sweep=5:2", "--color=yes")
    again.stdout.fnmatch_lines(
        ["*[[]31m*[[]1mThe run fails because of 1 finding of the fault sweep.*", "*[[]31m====* *1 passed*"]
    )
    again.stdout.fnmatch_lines(["fault sweep: 1 run of 1 test, 1 finding"])
    for stays in ("5:46:device", "5:700"):
        dead = sweep("BROKEN", ("two_buffers",), f"--cudalink-fault-sweep={stays}")
        dead.stdout.fnmatch_lines(["fault sweep: 1 run of 1 test, 0 findings"])  # nothing can be freed any more


def test_copies_have_the_device_for_themselves(swept) -> None:
    """What the process of pytest still holds, and what copies take at the same time, no copy lacks."""
    module = (
        f"{HEAD}\nfrom tests.emulator.cu import allocate, cuda, start\n"
        "@pytest.fixture(scope='session')\n"
        "def held():\n"
        "    start()\n"
        "    yield allocate(40 << 20)\n"
        "def test(held): assert cuda.cuStreamSynchronize(None) == 0\n"
        "def test_that_keeps_it(held): pass\n"
    )
    result = swept(module, "--cudalink-device=memory=64MiB", "--cudalink-fault-sweep=cuStreamSynchronize")
    result.stdout.fnmatch_lines(["fault sweep: * runs of * tests, 0 findings"])
    assert result.ret == 0


def test_output_of_runs_side_by_side(swept, pytester: pytest.Pytester) -> None:
    """Each run of a test has its output in its own file, which no other run reads as its own."""
    module = """
        import ctypes, os
        FILE = os.fstat(1).st_ino
        cuda = ctypes.CDLL("libcuda.so.1")
        def is_passed_on(number):
            try: return os.get_inheritable(number)
            except OSError: return False
        def test():
            passed_on = [number for number in os.listdir("/proc/self/fd") if is_passed_on(int(number))]
            with open("files", "a", encoding="utf-8") as files:
                files.write(f"{os.fstat(1).st_ino == FILE}{sorted(passed_on)}\\n")
            assert cuda.cuInit(0) == 0
        """
    swept(module, "--capture=fd")
    files = pytester.path.joinpath("files").read_text(encoding="utf-8").splitlines()
    assert files[0].startswith("True")  # of the test itself
    assert set(files[1:]) == {files[0].replace("True", "False")}  # and programs inherit no more of them


TWINS = """
import pytest

class Item(pytest.Item):
    def runtest(self): assert self.right

class File(pytest.File):
    def collect(self):
        for right in (True, False):
            item = Item.from_parent(self, name="same")
            item.right = right
            yield item

def pytest_collect_file(file_path, parent):
    return File.from_parent(parent, path=file_path) if file_path.suffix == ".items" else None
"""


@pytest.mark.slow
def test_items_of_one_name(pytester: pytest.Pytester, run_pytest, toolkit) -> None:
    """No process runs one test in the place of another that has its name; the reason is shown."""
    pytester.makeconftest(TWINS)
    pytester.makefile(".items", "")
    swept = run_pytest("--cudalink-driver=13.0", "--cudalink-fault-sweep")
    swept.stdout.fnmatch_lines(["*2 tests*: several tests have its name: another process finds a test by its name; *"])
    isolated = run_pytest("--cudalink-driver=13.0", "--cudalink-processes=isolated")
    assert isolated.ret != pytest.ExitCode.OK
    assert "ERROR: cudalink: several tests have its name: another process finds " in str(isolated.stdout)


@pytest.mark.slow
def test_exceptions_of_doctests_and_subtests(swept) -> None:
    """What a doctest or a subtest raises, or a doctest gets, names the cause as any exception does."""
    module = f"""
        '''
        >>> from tests.planted import error_paths as planted
        >>> with planted.current_context(): planted.call("cuCtxSynchronize")
        '''
        import sys
        sys.path.insert(0, {str(ROOT)!r})
        def gives():
            '''
            >>> from tests.planted import error_paths as planted
            >>> with planted.current_context(): planted.cuda.cuCtxSynchronize()
            0
            '''
        def test(subtests):
            from tests.planted import error_paths as planted
            with planted.current_context(), subtests.test("one"):
                planted.call("cuCtxSynchronize")
        """
    options = ("--cudalink-fault-sweep=cuCtxSynchronize", "-ocudalink_fault_budget=1", "--doctest-modules")
    result = swept(module, *options, "-psubtests")
    result.stdout.fnmatch_lines(["fault sweep: 3 runs of 3 tests, 0 findings"])


def test_errors_that_something_has_noticed(swept, pytester: pytest.Pytester) -> None:
    """A warning that a clean run does not log notices an error, although the test drops it from caplog.

    A call that the driver refuses explains a later error, whose frames leak nothing; its own error is no fault.
    """
    module = """
        import ctypes, logging
        cuda = ctypes.CDLL("libcuda.so.1")
        def ok(result): assert result == 0, f"CUDA error {result}"
        class Buffer:
            def __init__(self):
                self.at = ctypes.c_uint64()
                ok(cuda.cuMemAlloc_v2(ctypes.byref(self.at), ctypes.c_size_t(64)))
            def __del__(self): cuda.cuMemFree_v2(self.at)
        def test_warns(caplog):
            if cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(ctypes.c_int())): logging.warning("go on without")
            caplog.clear()
        def test_is_refused():
            ok(cuda.cuInit(0))
            context = ctypes.c_void_p()
            ok(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
            ok(cuda.cuCtxSetCurrent(context))
            assert cuda.cuGLInit() == 801
            buffer = Buffer()
            ok(cuda.cuCtxSynchronize())
            cuda.cuCtxEnablePeerAccess(context, 0)  # its own
        """
    # as rerunfailures does
    pytester.makeconftest("def pytest_runtest_makereport(item, call): item.__dict__.setdefault('_', []).append(call)")
    result = swept(module, "--cudalink-fault-sweep=cuDeviceGetCount,cuCtxSynchronize,cuCtxEnablePeerAccess")
    result.stdout.fnmatch_lines(["fault sweep: 6 runs of 2 tests, 0 findings"])


def test_repeating_a_file_outside_of_the_root(pytester: pytest.Pytester, run_pytest, toolkit) -> None:
    """The ID of a test of another folder, such as of --pyargs, names no file; the command does."""
    root = pytester.mkdir("root")
    file = pytester.mkdir("other") / "test_it.py"
    file.write_text(COUNTS, encoding="utf-8")
    options = ("--cudalink-driver=13.0", "--cudalink-fault-sweep=2:1")
    kept = pytester.path / "mine.jsonl"
    kept.touch()
    result = run_pytest(*options, f"--rootdir={root}", str(file))
    words = f"-p cudalink *{options[0]} --rootdir={root} {options[1]}"
    result.stdout.fnmatch_lines([f"  repeat: *pytest 'other/test_it.py::test_first' {words}"])
    result.stdout.no_fnmatch_line("*no test makes a call*")
    assert kept.exists()  # notes have such a name


@pytest.mark.slow
def test_functions_and_budget(sweep, pytester: pytest.Pytester) -> None:
    """A user may choose functions, limit the runs of a test, or share them; the summary says what is left out."""
    options = ("--cudalink-fault-sweep=cuMemAlloc,cuMemFree", "-ocudalink_fault_budget=5")
    result = sweep("BROKEN", ("two_buffers",), *options)
    result.stdout.fnmatch_lines(
        [
            "fault sweep: 5 runs of 1 test, 2 findings",
            "5 runs with a fault left out: cudalink_fault_budget=5; raise it to fail more calls",
        ]
    )
    # a part of the runs finds a part of what is wrong, and writes no baseline of it
    share = ("-ocudalink_fault_budget=5:1/2", "-ocudalink_fault_baseline=known.txt")
    shared = sweep("BROKEN", ("two_buffers",), options[0], *share)
    shared.stdout.fnmatch_lines(
        [
            "fault sweep: 3 runs of 1 test, 1 finding",
            "5 runs with a fault left out: cudalink_fault_budget=5; raise it to fail more calls",
            "2 runs with a fault left out: 1/2 of cudalink_fault_budget leaves them to the others",
            "1 baseline not written: each of the 2 machines finds a part; write it without :K/N",
        ]
    )
    assert not pytester.path.joinpath("known.txt").exists()


@pytest.mark.slow
def test_loop(swept, pytester: pytest.Pytester) -> None:
    """Of the calls of a loop six fail, and the summary counts the others; another call of the loop counts apart."""
    module = """
        import ctypes
        cuda = ctypes.CDLL("libcuda.so.1")
        def loop():
            for _ in range(20):
                assert cuda.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) == 0, "cuDeviceGetCount"
        def test():
            cuda.cuInit(0)
            loop()
            loop()
        """
    result = swept(module, "--cudalink-fault-sweep=cuDeviceGetCount", "--cudalink-report=run.jsonl")
    assert result.ret == 0
    assert read(pytester.path / "run.jsonl").asked[1].due == 24 + 56
    result.stdout.fnmatch_lines(
        [
            "fault sweep: 24 runs of 1 test, 0 findings",
            "56 runs with a fault left out: 6 calls by the same lines fail; cudalink_fault_budget=0 fails all",
        ]
    )


@pytest.mark.slow
def test_more_calls_than_a_sweep_knows(swept) -> None:
    """A call beyond those that the driver lists is not failed; the summary says so, and the run fails."""
    module = """
        import ctypes
        def test():
            cuda = ctypes.CDLL("libcuda.so.1")
            for _ in range(16_386):
                assert cuda.cuInit(0) == 0, "cuInit"
        """
    result = swept(module, "-ocudalink_fault_budget=1")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["2 runs with a fault left out: a sweep knows the first 16384 calls of a test"])


def test_all_codes(swept) -> None:
    """With `all`, a call fails with each code that its documentation lists, alone and from there on, and is lost."""
    module = "import ctypes\ndef test():\n    assert ctypes.CDLL('libcuda.so.1').cuInit(0) == 0, 'cuInit'"
    result = swept(module, "--cudalink-fault-sweep=all", "-ocudalink_fault_baseline=known.txt")
    result.stdout.fnmatch_lines(
        [f"fault sweep: {4 + 1 + 4} runs of 1 test, 0 findings", "there was no baseline; wrote *known.txt with 0 lines"]
    )


@pytest.mark.slow
def test_calls_of_the_linker(swept) -> None:
    """A sweep of nvJitLink lets its calls fail, too, but not what it calls: a handle that stays is a leak."""
    module = """
        from cuda.bindings import nvjitlink
        PTX = b".version 8.0\\n.target sm_90\\n.address_size 64\\n.visible .entry k() { ret; }\\n"
        def test():
            handle = nvjitlink.create(1, ["-arch=sm_90"])
            nvjitlink.add_data(handle, nvjitlink.InputType.PTX, PTX, len(PTX), "k")
            nvjitlink.destroy(handle)
        """
    result = swept(module, "--cudalink-fault-sweep=likely+nvJitLink")
    result.stdout.fnmatch_lines(
        [
            "fault sweep: 3 runs of 1 test, 1 finding",
            (
                "leak: nvJitLinkAddData (call 3) failed with NVJITLINK_ERROR_INTERNAL, called at test_it.py:* in "
                "test: a clean run frees what this one left: 1 x nvJitLink handle"
            ),
            "  repeat: *pytest '*::test' -p cudalink *--cudalink-driver=13.0 --cudalink-fault-sweep=3:6+nvJitLink",
        ]
    )
    again = swept(module, "--cudalink-fault-sweep=3:6+nvJitLink")
    again.stdout.fnmatch_lines(["fault sweep: 1 run of 1 test, 1 finding"])


COMPILER = """
import pytest
from contextlib import ExitStack
from cuda.bindings import nvrtc

def call(function, *arguments):
    code, *values = getattr(nvrtc, function)(*arguments)
    if code:
        raise RuntimeError(f"{function} failed with {code.name}")
    return values[0] if values else None

def made():
    return call("nvrtcCreateProgram", b"__global__ void k() {}", b"k.cu", 0, [], [])

def ptx_of(program):
    ptx = b" " * call("nvrtcGetPTXSize", program)
    call("nvrtcGetPTX", program, ptx)
    return ptx

def broken():
    program = made()
    nvrtc.nvrtcAddNameExpression(program, b"k")  # the program ignores whether it fails
    if nvrtc.nvrtcCompileProgram(program, 0, [])[0]:
        raise RuntimeError("the kernel has a mistake")  # which may not be why
    assert ptx_of(program)
    call("nvrtcDestroyProgram", program)  # left out where a call has failed

def mended():
    with ExitStack() as stack:
        program = made()
        stack.callback(call, "nvrtcDestroyProgram", program)
        call("nvrtcAddNameExpression", program, b"k")
        call("nvrtcCompileProgram", program, 0, [])
        assert ptx_of(program)

@pytest.mark.parametrize("twin", ["broken", "mended"])
def test(twin): globals()[twin]()
"""


@pytest.mark.slow
def test_calls_of_the_compiler(swept) -> None:
    """A sweep of NVRTC finds a program that stays, an error that is ignored, and one that is not reported."""
    result = swept(COMPILER, "--cudalink-fault-sweep=likely+NVRTC")
    result.stdout.fnmatch_lines(
        [
            "fault sweep: 14 runs of 2 tests, 5 findings",
            "leak: nvrtcCompileProgram (call 3) failed with NVRTC_ERROR_OUT_OF_MEMORY, *: 1 x NVRTC program (and in *",
            "  repeat: *pytest '*::test[[]broken[]]' * --cudalink-driver=13.0 --cudalink-fault-sweep=3:1+NVRTC",
        ]
    )
    rows = {(finding["name"], finding["kind"], finding["function"]) for finding in findings(result)}
    assert rows == {
        *(("broken", "leak", f"nvrtc{name}") for name in ("CompileProgram", "GetPTXSize", "GetPTX")),
        ("broken", "swallowed", "nvrtcAddNameExpression"),
        ("broken", "no-cause", "nvrtcCompileProgram"),
    }


@pytest.mark.slow
def test_baseline(sweep, pytester: pytest.Pytester) -> None:
    """It is written once, next to the ini file; its findings pass, others fail; what is mended can leave."""
    ini = pytester.mkdir("settings") / "pytest.ini"
    ini.write_text("[pytest]\ncudalink_fault_baseline = known.txt", encoding="utf-8")
    options = ("--cudalink-fault-sweep=cuMemAlloc,cuCtxSynchronize", f"-c{ini}", "--rootdir=.")
    result = sweep("BROKEN", ("two_buffers",), *options)
    assert (result.ret, len(findings(result))) == (1, 1)
    known = ini.parent / "known.txt"
    result.stdout.fnmatch_lines(
        [
            f"there was no baseline; wrote {known} with 1 line: they fail this run, and no later one",
            "1 run with a fault left out: no test calls cuCtxSynchronize",
        ]
    )
    (line,) = known.read_text(encoding="utf-8").splitlines()[1:]
    assert re.match(r"leak cuMemAlloc_v2 \S+error_paths.py in call < ", line)
    assert sweep("BROKEN", ("two_buffers",), *options).ret == 0
    other = sweep("BROKEN", ("every_error_is_one",), *options)
    assert other.ret == 1
    assert [finding["kind"] for finding in findings(other)] == ["no-cause"]
    other.stdout.no_fnmatch_line("not found any more*")  # the test makes no such call
    mended = sweep("MENDED", ("two_buffers",), *options)
    mended.stdout.fnmatch_lines([f"not found any more in these tests, and can leave known.txt: {line}"])


@pytest.mark.slow
def test_hidden_waits_join_the_baseline(swept, pytester: pytest.Pytester) -> None:
    """A call on an error path that waits where `no_wait` forbids it is a finding, and passes once it is known."""
    module = f"""{HEAD}
from tests.planted import hidden_waits
from tests.planted.error_paths import DriverError, call
from tests.planted.order_bugs import Pieces

@pytest.mark.cudalink(no_wait=["cuCtxSynchronize"])
def test_hot():
    with Pieces():
        memory = hidden_waits.device()
        try:
            call("cuStreamQuery", None)
        except DriverError:
            call("cuMemFree_v2", memory)
            raise
"""
    option = "--cudalink-fault-sweep=cuStreamQuery"
    again = swept(module, option)
    assert again.ret == 1
    again.stdout.fnmatch_lines(["violation: cuStreamQuery (call *) failed *: *no_wait, noticed by cuMemFree_v2: *"])
    baseline = "-ocudalink_fault_baseline=known.txt"
    assert [swept(module, option, baseline).ret for _ in range(2)] == [1, 0]
    (line,) = pytester.path.joinpath("known.txt").read_text(encoding="utf-8").splitlines()[1:]
    assert line.startswith("violation cuStreamQuery ")


@pytest.mark.slow
def test_going_on_after_an_interruption(swept, pytester: pytest.Pytester) -> None:
    """An interrupted sweep goes on with its own functions, and sweeps no test twice; what it found counts."""
    module = COUNTS + (
        "def test_second():\n"
        "    assert cuda.cuInit(0) == cuda.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) == 0, 'cuDeviceGetCount'\n"
        "    if not os.path.exists('mended'): raise KeyboardInterrupt\n"
    )
    result = swept(module, COUNT)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(
        [
            "cudalink: 2 runs with a fault, 1 finding: *::test_first",
            "fault sweep: 2 runs of 1 test, 1 finding",
            "the sweep was interrupted; go on with --cudalink-fault-sweep=resume",
            "  resume: *pytest *-p cudalink *--cudalink-driver=13.0 --cudalink-fault-sweep=resume",
        ]
    )
    pytester.path.joinpath("mended").touch()
    again = swept(module, "--cudalink-fault-sweep=resume")
    again.stdout.fnmatch_lines(
        ["cudalink: 2 runs with a fault, 0 findings: *::test_second", "fault sweep: 4 runs of 2 tests, 1 finding"]
    )
    again.stdout.no_fnmatch_line("cudalink: *::test_first")
    assert findings(again) == findings(result)
    over = swept(module, "--cudalink-fault-sweep=resume")
    over.stderr.fnmatch_lines(["*--cudalink-fault-sweep=resume finds no sweep in pytest's cache*"])


@pytest.mark.parametrize("name", ["option", "main.jsonl"])
def test_interruption_whose_notes_are_lost(swept, pytester: pytest.Pytester, name: str) -> None:
    """A sweep that could not note all says so, and no command that would go on without it."""
    pytester.mkdir(".pytest_cache").joinpath("d/cudalink-fault-sweep", name).mkdir(parents=True)
    result = swept(COUNTS + "def test_second(): raise KeyboardInterrupt", COUNT)
    result.stdout.fnmatch_lines(
        ["the sweep was interrupted, and what it has found could not be kept in pytest's cache", "swallowed: *"]
    )


@pytest.mark.parametrize(
    ("option", "does"),
    [
        ("--cudalink-fault-sweep", "--cudalink-fault-sweep lets calls of an emulated driver fail"),
        ("--cudalink-schedules=5", "--cudalink-schedules delays what an emulated driver does"),
    ],
)
def test_without_an_emulated_driver(pytester: pytest.Pytester, run_pytest, option: str, does: str) -> None:
    """A run without an emulated driver says what is missing."""
    pytester.makepyfile("def test(): pass")
    result = run_pytest(option, "--cudalink-driver=absent")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: cudalink: {does}, and this run has none; add --cudalink-driver=13.0, *"])


@pytest.mark.parametrize(
    ("option", "left"), [("--cudalink-fault-sweep", "swept"), ("--cudalink-schedules=5", "run under schedules")]
)
def test_process_that_cannot_collect(pytester: pytest.Pytester, run_pytest, toolkit, option: str, left: str) -> None:
    """A reason for tests that are not swept says what the process that collects has said last."""
    pytester.makeconftest(
        "import pathlib, pytest\nbegun = pathlib.Path('begun')\ndef pytest_sessionstart():\n"
        "    if begun.exists(): raise pytest.UsageError('only once')\n    begun.touch()"
    )
    result = run_pytest("--cudalink-driver=13.0", option, module="def test(): pass")
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        [f"1 test not {left}: the process that collects the tests ended with exit code 4: ERROR: only once"]
    )


@pytest.mark.slow
def test_xdist_and_record(sweep, pytester: pytest.Pytester) -> None:
    """Workers sweep their tests; the controller adds up, and the record of the run has the findings."""
    names = ("every_error_is_one", "error_from_none")
    functions = "--cudalink-fault-sweep=cuCtxSynchronize,cuMemAlloc"
    result = sweep("BROKEN", names, "-n1", functions, "--cudalink-report=run.jsonl")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["fault sweep: 5 runs of 2 tests, 2 findings"])
    assert {finding["name"] for finding in findings(result)} == set(names)
    recorded = read(pytester.path / "run.jsonl").findings
    assert {finding.category for finding in recorded} == {"fault"}
    (finding,) = (finding for finding in recorded if "every_error_is_one" in finding.repeat)
    assert finding.kind == "no-cause"
    assert finding.what.startswith("no-cause: cuCtxSynchronize (call 4) failed with CUDA_ERROR_INVALID_CONTEXT")
    assert " --cudalink-driver=13.0 --cudalink-fault-sweep=4:" in finding.repeat


@pytest.mark.slow
@pytest.mark.parametrize("how", ["pytest.exit('enough')", "os._exit(3)"])
def test_worker_that_does_not_end_as_usual(swept, how: str) -> None:
    """What it found counts once: xdist reports twice that an interrupted worker is down, and so does a crash."""
    result = swept(f"{COUNTS}def test_second(): {how}", COUNT, "-n1", "-p", "xdist")
    result.stdout.fnmatch_lines(["fault sweep: 2 runs of 1 test, 1 finding", "swallowed: cuDeviceGetCount (call 2)*"])


@pytest.mark.slow
@pytest.mark.parametrize("names", PLANTED_NAMES)
def test_planted_bugs(sweep, names) -> None:
    """Each planted bug is found, by a finding of its kind."""
    result = sweep("BROKEN", names, "--cudalink-processes=deadline=4")
    result.assert_outcomes(passed=len(names))
    rows = {(finding["name"], finding["kind"]) for finding in findings(result)}
    assert rows >= {(name, PLANTED[name]) for name in names}


@pytest.mark.slow
@pytest.mark.parametrize("names", PLANTED_NAMES)
def test_mended_twins(sweep, names) -> None:
    """No mended twin of a planted bug has a finding, whatever its calls answer; it is a third of the runs."""
    result = sweep("MENDED", names, "--cudalink-fault-sweep=all", "-ocudalink_fault_budget=0:1/3")
    result.assert_outcomes(passed=len(names))
    assert result.ret == 0


THREADS = """
import _thread, ctypes, os, queue, socket, threading, time
cuda = ctypes.CDLL("libcuda.so.1")
def start(rest, name):
    threading.Thread(target=rest, name=name, daemon=True).start()
{}
def test(): assert cuda.cuInit(0) == 0, "cuInit"
"""


def test_what_collecting_has_begun(swept) -> None:
    """Threads that rest keep no test from being swept; a run with a fault has the context that is there already."""
    module = THREADS.format("""
server = socket.create_server(("127.0.0.1", 0))
start(server.accept, "accept")
pair = socket.socketpair()
start(lambda: pair[0].recv(1), "recv")
start(queue.Queue().get, "get")
start(lambda: time.sleep(600), "sleep")
def beat():
    while True: time.sleep(0.001)
start(beat, "beat")
_thread.start_new_thread(threading.Event().wait, ())

from cuda.bindings import driver
driver.cuInit(0)
context = driver.cuDevicePrimaryCtxRetain(0)[1]
def test_with_the_context():
    assert not driver.cuCtxSetCurrent(context)[0]
    error, address = driver.cuMemAlloc(64)
    assert not error, error
    driver.cuMemFree(address)
""")
    result = swept(module, "-Werror", "--cudalink-fault-sweep=cuInit,cuMemAlloc")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["fault sweep: 5 runs of 2 tests, 0 findings"])


@pytest.mark.slow
def test_thread_that_runs(swept, pytester: pytest.Pytester) -> None:
    """A copy may lack any lock that a running thread holds: the test is not swept, and the run fails unless allowed."""
    module = THREADS.format("def spin():\n    while True: pass\nstart(spin, 'spin')\nstart(spin, 'turn')")
    result = swept(module, "--cudalink-report=run.jsonl")
    assert result.ret == 1
    why = "a running thread: 'spin', 'turn'"
    result.stdout.fnmatch_lines(
        [
            "fault sweep: 0 runs of 0 of 1 test, 0 findings",
            f"1 test not swept: {why}",
            f"The run fails because no test was swept (1: {why}); --cudalink-require=none allows that.",
        ]
    )
    tests, calls = read(pytester.path / "run.jsonl").asked
    assert (tests.what, tests.due, tests.happened, tests.left) == ("fault sweep", 1, 0, {why: 1})
    assert (calls.what, calls.due) == ("calls", 0)
    allowed = swept(module, "--cudalink-require=none")
    assert allowed.ret == 0
    allowed.stdout.fnmatch_lines([f"1 test not swept: {why}"])


@pytest.mark.slow
def test_worker_that_dies_at_its_end(swept, pytester: pytest.Pytester) -> None:
    """What it has found is there, also without pytest's cache; what it has counted is lost, and fails the run."""
    pytester.makeconftest(
        "import os\ndef pytest_sessionfinish(session):\n    if hasattr(session.config, 'workerinput'): os._exit(3)"
    )
    result = swept(COUNTS, COUNT, "-n1", "-p", "xdist", "-p", "no:cacheprovider", "-ocudalink_fault_baseline=known.txt")
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        [
            "fault sweep: 2 runs of 1 test, 1 finding",
            "1 worker of pytest-xdist lost: gw0 died while no test ran",
            "The run fails because no worker of pytest-xdist reported what it has seen (1: gw0 died while no *",
        ]
    )


@pytest.mark.slow
def test_resumed_tests_count_once(swept, pytester: pytest.Pytester) -> None:
    """A worker that goes on with a sweep and dies has notes of both runs."""
    module = COUNTS + "def test_second():\n    if os.path.exists('now'): os._exit(3)\n    raise KeyboardInterrupt"
    swept(module, COUNT)
    notes = pytester.path / ".pytest_cache/d/cudalink-fault-sweep"
    (notes / "main.jsonl").rename(notes / "gw0.jsonl")
    with (notes / "gw0.jsonl").open("a", encoding="utf-8") as file:
        file.write('["of another version", {"findings": []}]\n["a test whose note is cut", {"te')
    pytester.path.joinpath("now").touch()
    result = swept(module, "--cudalink-fault-sweep=resume", "-n1", "-p", "xdist")
    result.stdout.fnmatch_lines(
        [
            "fault sweep: 2 runs of 1 test, 1 finding",
            "2 notes of the interrupted sweep cannot be read; their tests were swept again",
        ]
    )


@pytest.mark.slow
def test_resuming_other_tests(swept) -> None:
    """A run that does not have the tests of the interrupted sweep fails, and keeps what that has found."""
    module = COUNTS + "def test_second(): raise KeyboardInterrupt\ndef test_third(): cuda.cuInit(0)"
    swept(module, COUNT)
    resume = "--cudalink-fault-sweep=resume"
    result = swept(module, resume, "-k", "third")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["The run fails because no test of the interrupted sweep was among those of *"])
    result.stdout.no_fnmatch_line("swallowed*")
    result = swept(module, resume, "-k", "first or third")
    result.stdout.fnmatch_lines(["fault sweep: 2 runs of 2 tests, 1 finding", "swallowed: cuDeviceGetCount *"])


@pytest.mark.parametrize("value", ["likely", "resume\n", "\n", None])
def test_resuming_what_is_cut(swept, pytester: pytest.Pytester, value: str | None) -> None:
    """A value that is damaged is one error, and what was swept stays there."""
    notes = pytester.mkdir(".pytest_cache") / "d/cudalink-fault-sweep"
    notes.mkdir(parents=True)
    if value is None:
        (notes / "option").mkdir()
    else:
        (notes / "option").write_text(value, encoding="utf-8")
    (notes / "main.jsonl").touch()
    result = swept(COUNTS, "--cudalink-fault-sweep=resume")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: cudalink: --cudalink-fault-sweep=resume cannot read the value of *"])
    assert (notes / "main.jsonl").exists()


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("/dev/full", "cannot be read: a folder, a pipe or a device; expected a regular file; *"),
        ("missing/known.txt", "cannot be written: the folder is not there; *"),
        ("latin", "cannot be read: 'utf-8' codec can't decode *"),
        ("nonsense", "cannot be read: line 1 is *nonsense*"),
    ],
)
def test_baseline_that_cannot_be_there(swept, pytester: pytest.Pytester, name: str, why: str) -> None:
    """It is one error, before the first test."""
    pytester.path.joinpath("latin").write_bytes(b"# caf\xe9\n")
    pytester.path.joinpath("nonsense").write_text("nonsense", encoding="utf-8")
    result = swept(COUNTS, COUNT, f"-ocudalink_fault_baseline={name}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    place = f"*/{name.lstrip('/')}"
    result.stderr.fnmatch_lines([f"ERROR: cudalink: cudalink_fault_baseline is {name} (from ini); {place} {why}"])


def test_baseline_that_cannot_be_written_in_the_end(swept, pytester: pytest.Pytester) -> None:
    """The run fails for it, and its findings are shown."""
    module = COUNTS + "def test_second(): shutil.rmtree('there', ignore_errors=True)"
    folder = pytester.mkdir("there")
    result = swept(module, COUNT, "-ocudalink_fault_baseline=there/known.txt")
    assert result.ret == 1
    why = f"{folder}/known.txt: No such file or directory"
    result.stdout.fnmatch_lines(
        [
            "fault sweep: 2 runs of 2 tests, 1 finding",
            f"1 baseline not written: {why}",
            "swallowed: cuDeviceGetCount *",
            f"The run fails because no baseline was written (1: {why}); --cudalink-require=none allows that.",
        ]
    )


def test_skip_after_a_failure(swept) -> None:
    """A test that has failed is not skipped by what comes later."""
    module = (
        "import ctypes, pytest\ncuda = ctypes.CDLL('libcuda.so.1')\nfailed = []\n"
        "@pytest.fixture\ndef late():\n    yield\n    if failed: pytest.skip('late')\n"
        "def test(late):\n    if cuda.cuInit(0): failed.append(1)\n    assert not failed, 'something'\n"
    )
    result = swept(module, "--cudalink-fault-sweep=cuInit")
    result.stdout.fnmatch_lines(["no-cause: cuInit (call 1) failed with *"])


SKIPS = "import pytest\ndef test_skips(): pytest.skip('why')\n"
NO_RESULT = f"{SKIPS}@pytest.mark.xfail\ndef test_xfails(): assert 0\n"
SKIPPED = ("fault sweep: 0 runs of 0 tests, 0 findings", "2 tests not swept: skipped in a separate process")


@pytest.mark.parametrize(
    ("module", "arguments", "code", "lines"),
    [
        (NO_RESULT, (), 0, SKIPPED),
        (f"{NO_RESULT}def test_fails(): assert 0", (), 1, (*SKIPPED, "1 test not swept: failed in a separate process")),
        ("def test(): pass", ("--setup-only",), 0, ()),
        ("def test(): pass", ("-k", "nothing_of_this"), 5, ()),
    ],
    ids=["no result", "fails", "not called", "not selected"],
)
def test_sweep_that_is_not_due(swept, pytester, module: str, arguments, code: int, lines: tuple[str, ...]) -> None:
    """Where no test passes, nothing is missing; what fails or skips by itself is not swept, and is counted."""
    result = swept(module, "--cudalink-report=run.jsonl", *arguments)
    result.stdout.no_fnmatch_line("cudalink: 0 runs with a fault*")
    assert (result.ret, "The run fails" in str(result.stdout)) == (code, False)
    result.stdout.fnmatch_lines(lines)
    assert not lines or read(pytester.path / "run.jsonl").asked[0].due == 2 + code


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("999:2", "no test makes a call 999 that can fail"),
        ("likely", "no test makes a call that can fail"),
    ],
)
def test_sweep_of_no_call(swept, value: str, why: str) -> None:
    """A sweep in which nothing can fail says what it looked for, and fails."""
    result = swept(f"{SKIPS}def test(): pass", f"--cudalink-fault-sweep={value}")
    assert result.ret == 1
    said = f"The run fails because no run with a fault was made (1: {why}); --cudalink-require=none allows that."
    result.stdout.fnmatch_lines(["fault sweep: 0 runs of 1 test, 0 findings", said])


def test_ids_that_differ_between_processes(swept) -> None:
    """A test that a second process does not find is not swept, and fails the run; the next one is swept."""
    module = (
        "import ctypes, os, pytest\n@pytest.mark.parametrize('pid', [os.getpid()])\ndef test_other(pid): pass\n"
        "def test(): assert ctypes.CDLL('libcuda.so.1').cuInit(0) == 0, 'cuInit'"
    )
    result = swept(module)
    assert result.ret == 1
    why = "a second process has not collected the test, or under another ID"
    result.stdout.fnmatch_lines(
        [
            "fault sweep: 2 runs of 1 of 2 tests, 0 findings",
            f"1 test not swept: {why}",
            f"The run fails because 1 of 2 tests were swept (1: {why}); --cudalink-require=none allows that.",
        ]
    )
