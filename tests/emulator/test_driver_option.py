"""``--cudalink-driver``: which driver a run gets, what the header says, and what cannot be."""

import json
import re
import subprocess
import sys
from functools import partial
from textwrap import dedent

import pytest

from pytest_cudalink import emulator
from pytest_cudalink.emulator import faults
from pytest_cudalink.versions import CudaVersion
from tests.emulator.conftest import STATE
from tests.nested import ALONE, BOTH, NO_AUTOLOAD, XDIST, with_plugins


def cudalink(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    """Run ``cudalink driver`` with arguments."""
    command = [sys.executable, "-m", "pytest_cudalink.cli", "driver", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def never_triggered(result: pytest.RunResult) -> list[str]:
    """The lines on faults that no call met, and on a run that fails for them."""
    return [line for line in result.outlines if "of --cudalink-faults" in line]


NEVER = "The run fails because {} triggered in pytest's own processes ({}); --cudalink-require=none allows that."


@pytest.fixture
def run(run_pytest, toolchain):
    """Run pytest with arguments, in a separate process."""
    toolchain("13.0")
    return partial(run_pytest, "-p", "no:cacheprovider")


def refused(result: pytest.RunResult, said: str) -> bool:
    """Whether a run was a usage error that says something."""
    result.stderr.fnmatch_lines([f"*{said}*"])
    return result.ret == pytest.ExitCode.USAGE_ERROR


def test_forced_driver_runs_everywhere(run, toolkit) -> None:
    """Without a driver, forcing it emulates the toolkit's version: the link runs, and the header says on what."""
    module = """
    from pytest_cudalink.linker import sample as demo

    def test_link(linker_factory):
        linker = linker_factory(*demo.compile_modules("ptx", "sm_90"))
        assert len(linker.link("cubin").code) > 4000 and linker.backend == "driver"
    """
    result = run("--force-backend=driver", module=dedent(module))
    result.assert_outcomes(passed=1)
    if "emulated" not in result.stdout.str():
        pytest.skip("there is a real driver here")
    result.stdout.fnmatch_lines(
        ["cudalink: *driver CUDA 13.0 (emulated, sm_90, release 580.65.06, of the toolkit's version)"]
    )


@pytest.mark.parametrize("workers", [ALONE, XDIST])
def test_version_arch_and_source(run, pytester, workers) -> None:
    """A chosen version and architecture reach the tests, the workers and child processes."""
    pytester.makepyfile(
        """
        import ctypes, subprocess, sys

        def version(name="libcuda.so"):
            number = ctypes.c_int()
            return ctypes.CDLL(name).cuDriverGetVersion(ctypes.byref(number)), number.value

        def test_here(emulated_driver, cudalink):
            assert (str(emulated_driver.version), emulated_driver.arch) == ("13.0", "sm_86")
            assert (cudalink.driver, cudalink.device_arch) == ((13, 0), "sm_86")
            assert version() == version("libcuda.so.1") == (0, 13000)

        def test_child():
            asked = f"import {__name__} as here; assert here.version() == (0, 13000)"
            subprocess.run([sys.executable, "-c", asked], check=True)

        def test_nvml():
            library, text = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.create_string_buffer(80)
            assert library.nvmlInit_v2() == 0
            assert library.nvmlSystemGetDriverVersion(text, 80) == 0 and text.value == b"580.65.06"
            assert library.nvmlShutdown() == 0
        """
    )
    pytester.makeini("[pytest]\ncudalink_device = sm_86")
    result = run("--cudalink-driver=13.0", *workers)
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["cudalink: *driver CUDA 13.0 (emulated, sm_86, release 580.65.06, from option)"])


@pytest.fixture
def run_within(pytester: pytest.Pytester, toolchain, monkeypatch):
    """Run pytest with arguments under ``cudalink driver run --version 13.0``."""
    toolchain("13.0")

    def run_within(*arguments: str, driver: tuple[str, ...] = ()) -> pytest.RunResult:
        command = (sys.executable, "-m", "pytest_cudalink.cli", "driver", "run", "--version", "13.0", *driver)
        for name, value in NO_AUTOLOAD.items():
            monkeypatch.setenv(name, value)
        program = (sys.executable, "-m", "pytest", *with_plugins("-p", "no:cacheprovider", *arguments))
        return pytester.run(*command, "--", *program)

    return run_within


@pytest.mark.parametrize("workers", [ALONE, XDIST])
def test_within_driver_run(run_within, pytester, workers) -> None:
    """A driver that the environment brought is an emulated one: header, fixtures and the checks that fail know it."""
    pytester.makepyfile(
        state=STATE,
        test_it="""
        from state import State

        def test_fixtures(emulated_driver, driver_lifetimes):
            assert (str(emulated_driver.version), emulated_driver.arch) == ("13.0", "sm_86")
            State()
            assert len(driver_lifetimes.expect()) == 1

        def test_violation():
            State()
        """,
    )
    pytester.syspathinsert()
    result = run_within(*workers, driver=("--device", "sm_86"))
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        ["cudalink: *driver CUDA 13.0 (emulated, sm_86, release 580.65.06, from the environment)"]
    )


def test_real_refuses_an_emulated_driver(run_within, pytester) -> None:
    """Who asks for the real driver does not get an emulated one in its stead."""
    pytester.makepyfile("def test_nothing(): pass")
    said = "--cudalink-driver is real (from option): *emulated driver of CUDA 13.0*ask for auto"
    assert refused(run_within("--cudalink-driver=real"), said)


ABSENT = """
import ctypes, subprocess, sys
import pytest
from cuda.bindings import driver
from pytest_cudalink.probes import libcuda

CALL = "from cuda.bindings import driver; driver.cuInit(0)"

@pytest.mark.parametrize("library", ["libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1"])
@pytest.mark.parametrize("mode", [0, getattr(__import__("os"), "RTLD_NOLOAD")])
def test_nothing_to_open(library, mode):
    with pytest.raises(OSError):
        ctypes.CDLL(library, mode)

def test_child():
    child = "import ctypes\\nfor one in 'cuda.so.1', 'cuda.so', 'nvidia-ml.so.1':"
    child += "\\n try: ctypes.CDLL('lib' + one)\\n except OSError: continue\\n sys.exit(3)"
    subprocess.run([sys.executable, "-c", child], check=True)

def test_none(cudalink):
    assert cudalink.driver is None
    with pytest.raises(libcuda.DriverNotFoundError, match="no CUDA driver"):
        libcuda.library()

def test_bindings():
    with pytest.raises(Exception) as here:
        driver.cuInit(0)
    child = subprocess.run([sys.executable, "-c", CALL], capture_output=True, text=True)
    assert child.stderr.splitlines()[-1].endswith(f"{type(here.value).__name__}: {here.value}")
    assert "libcuda.so.1" in str(here.value) or "NVIDIA driver library" in str(here.value)
"""


@pytest.mark.parametrize("machine", ["with a driver", pytest.param("without one", marks=pytest.mark.slow)])
def test_absent(run, pytester, machine: str) -> None:
    """`absent` is a machine without a driver, also for children: look-ups fail, and libraries say so."""
    pytester.makepyfile(ABSENT)
    with pytest.MonkeyPatch.context() as patch:
        if machine == "with a driver":
            for name, value in emulator.emulation_for("13.0").environment().items():  # as of `cudalink driver run`
                patch.setenv(name, value)
        result = run("--cudalink-driver=absent", fresh=True)
    result.assert_outcomes(passed=9)
    result.stdout.fnmatch_lines(["cudalink: *no driver (absent, from option)"])


@pytest.mark.parametrize(
    ("value", "absent", "said"),
    [
        ("13.0", True, "{}/libcuda.so.1 is in this process already. Load the plugin early"),
        ("absent", False, "{}/libcuda.so.1 is in this process already. Load the plugin early"),
        ("12.9", False, "this process has one of CUDA 13.0 already, from its environment; start it without"),
    ],
)
def test_other_library_first(run, pytester, monkeypatch, value: str, absent: bool, said: str) -> None:
    """Where a libcuda was opened before, a usage error says which, and what to do."""
    folder = emulator.library_folder(absent=absent)
    pytester.makepyfile(early=f"import ctypes\nctypes.CDLL({str(folder / 'libcuda.so.1')!r})")
    pytester.syspathinsert()
    for name, variable in emulator.emulation_for("13.0").environment().items():  # other processes find it, too
        monkeypatch.setenv(name, variable)
    result = run("-p", "early", "-p", "cudalink", f"--cudalink-driver={value}")
    assert refused(result, said.format(folder))


KNOWN = "cannot be emulated; supported: 12.0 to 12.9, 13.0 to 13.5; choose one of these"


def test_bad_versions(run) -> None:
    """A version that there is not is a usage error with what can be had, as is a release."""
    for value, answer in {
        "14.0": f"CUDA 14.0 {KNOWN}, or upgrade pytest-cudalink",
        "11.8": f"CUDA 11.8 {KNOWN}",
        "12.10": f"CUDA 12.10 {KNOWN}",
        "575": "'575' is a branch of drivers, which came with CUDA 12.9; write a version of CUDA, such as 12.9",
        "999.1": "'999.1' is a branch of drivers; write a version of CUDA, such as 13.0",
        "12.9.1": "'12.9.1' has three numbers, and drivers of one CUDA release answer alike; write 12.9",
        "banana": "'banana' is not a CUDA version; write MAJOR.MINOR, such as '13.0'",
    }.items():
        with pytest.raises(emulator.EmulatorError, match=f"^{re.escape(answer)}$"):
            emulator.emulation_for(value)
    assert refused(run("--cudalink-driver=11.8"), f"--cudalink-driver is '11.8' (from option); expected auto*{KNOWN}")
    said = r"'banana' is not a driver release; write one such as '580\.65\.06'"
    with pytest.raises(emulator.EmulatorError, match=said):
        emulator.emulation_for("13.0", release="banana")


def test_cache_that_is_not_trusted(run, tmp_path, monkeypatch) -> None:
    """The error for a good version names the cache, and offers no other versions."""
    folder = tmp_path / "cache" / "toolchains" / "13.0"
    folder.mkdir(parents=True)
    folder.parent.chmod(0o777)
    monkeypatch.setenv("CUDALINK_CACHE", str(tmp_path / "cache"))
    result = run("--cudalink-driver=13.0")
    assert refused(result, f"--cudalink-driver is '13.0' (from option); {folder.parent} can be changed by ")
    result.stderr.no_fnmatch_line("*expected auto*")


def test_missing_toolchain(run, pytester, tmp_path, toolkit) -> None:
    """Without the nvJitLink of that version the header and the link's log say which command brings it."""
    installed = emulator._nvjitlink_of_environment
    version = next(release for release in ("13.4", "13.5") if installed(CudaVersion.parse(release)) is None)
    pytester.makepyfile(
        f"""
        import pytest
        from pytest_cudalink.linker import LinkError, ObjectCode
        from pytest_cudalink.linker import sample as demo

        def test_link(linker_factory):
            text = b".version 8.0\\n.target sm_90\\n.address_size 64\\n.visible .entry k() {{ ret; }}"
            with pytest.raises(LinkError, match="cudalink toolchain add {version}") as caught:
                linker_factory(ObjectCode.from_ptx(text), backend="driver")
            assert caught.value.code == 221
        """
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDALINK_CACHE", str(tmp_path))
        assert not emulator.emulation_for(toolkit).lacks  # the environment has it
        result = run(f"--cudalink-driver={version}", "-ocudalink_toolchains=never")
    result.assert_outcomes(passed=1)
    message = f"nvJitLink {version} was not found: run cudalink toolchain add {version}, toolchains never (from ini)"
    result.stdout.fnmatch_lines([f"cudalink: *{message})"])


def test_faults_and_events(run, pytester, tmp_path) -> None:
    """A call fails as injected, once; a device is lost and comes back; the calls are on file.

    Numbers that cannot be meant are refused, and a fault that no call met is a warning.
    """
    pytester.makepyfile(
        """
        import pytest, time
        from pytest_cudalink.probes import libcuda
        from pytest_cudalink.linker import sample as demo
        from pytest_cudalink.linker import LinkError

        def test_fault(emulated_driver, linker_factory):
            codes = demo.compile_modules("ptx", "sm_90")
            emulated_driver.inject("cuLinkAddData", "CUDA_ERROR_OUT_OF_MEMORY", nth=2)
            with pytest.raises(LinkError) as caught:
                linker_factory(*codes, backend="driver")
            assert caught.value.code_name == "CUDA_ERROR_OUT_OF_MEMORY"
            linker_factory(*codes, backend="driver").link("cubin")
            adds = emulated_driver.events("cuLinkAddData")
            assert adds == emulated_driver.events("cuLinkAddData_v2")
            assert [event["result"] for event in adds] == [0, 2, 0, 0]
            assert adds[1]["injected"]

        def test_delay_and_loss(emulated_driver):
            emulated_driver.inject("cuDriverGetVersion", delay=0.05)
            start = time.perf_counter()
            number = __import__("ctypes").c_int()
            libcuda.call("cuDriverGetVersion", __import__("ctypes").byref(number))
            assert time.perf_counter() - start >= 0.05 and number.value == 13000
            emulated_driver.lose_device()
            with pytest.raises(libcuda.DriverError, match="CUDA_ERROR_DEVICE_UNAVAILABLE"):
                libcuda.call("cuCtxSynchronize")

        def test_back_again(emulated_driver):
            assert emulated_driver.events() == []  # those before are of other tests
            assert emulated_driver.control.events() != []
            libcuda.call("cuInit", 0)
            with pytest.raises(ValueError, match="exports no function 'cuNothing'"):
                emulated_driver.inject("cuNothing")
            with pytest.raises(ValueError, match="exports no function 'cuNothing'"):
                emulated_driver.events("cuNothing")

        @pytest.mark.parametrize(
            "wrong",
            [{"nth": -1}, {"delay": -1}, {"delay": float("nan")}, {"code": -5}, {"code": 12345}, {"code": "2"}],
            ids=str,
        )
        def test_refused(emulated_driver, wrong):
            with pytest.raises(ValueError, match="out of range|is not a CUresult"):
                emulated_driver.inject("cuInit", **wrong)
            with pytest.raises(ValueError, match="5 is not a CUresult"):
                emulated_driver.lose_device(-5)

        def test_never_met(emulated_driver):
            emulated_driver.control.inject("cuLinkCreate", 2)  # not of the fixture, which ends it
            emulated_driver.inject("cuLinkAddData", 2)
        """
    )
    events = tmp_path / "events.jsonl"
    result = run("--cudalink-driver=13.0", f"-ocudalink_events={events}")
    result.assert_outcomes(passed=10, warnings=1)
    said = "cudalink: the fault injected into cuLinkAddData_v2 was never triggered in this test"
    result.stdout.fnmatch_lines([f"*test_faults_and_events.py:*: PytestWarning: {said}"])
    lines = [json.loads(line) for line in events.read_text(encoding="utf-8").splitlines()]
    assert [event["n"] for event in lines] == list(range(len(lines)))
    assert "cuLinkComplete" in {event.get("call") for event in lines}


def test_events_survive_a_crash(on_driver, tmp_path) -> None:
    """What happened up to a signal is on file."""
    events = tmp_path / "events.jsonl"
    program = "import ctypes, os, signal; ctypes.CDLL('libcuda.so.1').cuInit(0); os.kill(os.getpid(), signal.SIGSEGV)"
    done = on_driver("13.0", "-c", program, events=events)
    assert done.returncode == -11
    assert json.loads(events.read_text(encoding="utf-8").splitlines()[-1])["call"] == "cuInit"


def test_events_that_cannot_be_kept(run, on_driver, tmp_path) -> None:
    """A file that cannot be written to is a usage error with path and reason; a program gets a line on its stderr."""
    file = tmp_path / "missing" / "events.jsonl"
    said = f"cudalink_events is {file} (from ini): events cannot be appended to {file}: No such file or directory"
    assert refused(run("--cudalink-driver=13.0", f"-ocudalink_events={file}"), said)
    program = "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"
    for path, what, reason in (
        (file, "append", "No such file or directory"),
        ("/dev/full", "write", "No space left on device"),
    ):
        done = on_driver("13.0", "-c", program, env={"CUDALINK_EMULATOR_EVENTS": str(path)})
        assert done.stdout == "0\n"
        assert done.stderr == f"cudalink: CUDALINK_EMULATOR_EVENTS: cannot {what} to {path}: {reason}\n"
    for _ in range(2):  # each process appends to it
        on_driver("13.0", "-c", program, env={"CUDALINK_EMULATOR_EVENTS": str(tmp_path / "new.jsonl")})
    assert (tmp_path / "new.jsonl").read_text(encoding="utf-8").count('"call":"cuInit"') == 2


def test_faults_from_the_environment(on_driver) -> None:
    """CUDALINK_EMULATOR_FAULTS does the same for any program."""
    program = "import ctypes; cu = ctypes.CDLL('libcuda.so.1'); print([cu.cuInit(0) for _ in range(3)])"
    assert on_driver("13.0", "-c", program, faults="cuInit:2=999").stdout.strip() == "[0, 999, 0]"
    done = on_driver("13.0", "-c", program, env={"CUDALINK_EMULATOR_FAULTS": "cuNothing:1=1"})
    assert "CUDALINK_EMULATOR_FAULTS: no function cuNothing" in done.stderr


def test_refused_values_are_named(run) -> None:
    """An error names the setting whose value the driver cannot have, also where nothing is emulated."""
    said = "the fault 'rubbish' cannot be read; expected FUNCTION:NTH="
    result = run("--cudalink-driver=absent", "--cudalink-faults=rubbish")
    assert refused(result, f"cudalink: --cudalink-faults is 'rubbish' (from option); {said}")


def test_header_has_what_the_driver_is(run, run_within, pytester, monkeypatch) -> None:
    """All that an emulated driver is besides its version, where that is not the default, with its source."""
    pytester.makepyfile("def test_nothing(): pass")
    pytester.makeini("[pytest]\ncudalink_device = sm_86")
    monkeypatch.setenv("CUDALINK_FAULTS", "lost=46")
    result = run("--cudalink-driver=13.0", "--cudalink-checks=lifetimes=off")
    words = "device sm_86 (from ini), faults lost=46 (from environment CUDALINK_FAULTS), lifetimes off (from option)"
    result.stdout.fnmatch_lines([f"cudalink: emulated driver: {words}"])
    monkeypatch.delenv("CUDALINK_FAULTS")
    result = run_within(driver=("--device", "h100:3,memory=1GiB", "--checks", "lifetimes=report"))
    words = "device h100:3,memory=1073741824B, lifetimes report (from environment CUDALINK_EMULATOR_LIFETIME)"
    ignored = "cudalink: ignored (the emulated driver comes from the environment): device sm_86 (from ini)"
    said = [f"cudalink: emulated driver: {words}", ignored]
    result.stdout.fnmatch_lines(said)


WAITING = """
import ctypes
from pytest_cudalink.probes import libcuda

def current():
    driver, context = libcuda.library(), ctypes.c_void_p()
    return driver.cuInit(0), driver.cuCtxGetCurrent(ctypes.byref(context))

def test_that_injects_and_loses(emulated_driver):
    emulated_driver.inject("cuInit", 3)
    emulated_driver.lose_device(2)
    assert current() == (3, 3)

def test_second_call():
    assert current() == (0, 46)

def test_third_call():
    assert current() == (0, 999)
"""


def test_faults_of_a_run_wait(run, pytester) -> None:
    """What a test injects and takes back leaves a fault of the run its count, and a lost device lost."""
    pytester.makepyfile(WAITING)
    run("--cudalink-driver=13.0", "--cudalink-faults=cuCtxGetCurrent:3=999;lost=46").assert_outcomes(passed=3)


FAULTS_MET = """
from pytest_cudalink.probes import libcuda

def test_nothing():
    pass

def test_met():
    assert libcuda.library().cuInit(0) == 2
"""
MET = "--cudalink-faults=cuInit:1=2"


@pytest.mark.parametrize("mode", [ALONE, BOTH])
def test_faults_that_no_call_met(run, pytester, mode) -> None:
    """However quiet, a run fails for the faults that none of its processes met, and names them."""
    pytester.makepyfile(FAULTS_MET)
    faults = f"{MET};cuLinkComplete:99=700;lost=46"  # a lost device waits for no call
    result = run("-qq", "--cudalink-driver=13.0", faults, *mode)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert never_triggered(result) == [
        "1 fault of --cudalink-faults not triggered: cuLinkComplete:99=700",
        NEVER.format("1 of 2 faults of --cudalink-faults were", "1: cuLinkComplete:99=700"),
    ]


def test_faults_that_are_allowed_to_be_unmet(run, pytester, monkeypatch) -> None:
    """A run passes where the user allows that, where a test has started it, and where all were met.

    It fails where no driver got them.
    """
    pytester.makepyfile(FAULTS_MET)
    emulated, unmet = "--cudalink-driver=13.0", "cuLinkComplete:50=2@1"
    lines = [f"1 fault of --cudalink-faults not triggered: {unmet}"]
    result = run("-q", emulated, f"{MET};{unmet}", "--cudalink-require=none")
    assert (result.ret, never_triggered(result)) == (0, lines)
    result = run("-q", emulated, MET)
    assert (result.ret, never_triggered(result)) == (0, [])
    result = run("-q", "--cudalink-driver=absent", MET, "-k", "nothing")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    why = "1: no emulated driver got cuInit:1=2 (from option)"
    assert never_triggered(result)[1:] == [NEVER.format("no fault of --cudalink-faults was", why)]
    monkeypatch.setenv("CUDALINK_FAULTS", unmet)  # of the run whose test this is
    result = run("-q", emulated, "-k", "nothing")
    assert (result.ret, never_triggered(result)) == (0, lines)


@pytest.mark.parametrize("mode", [ALONE, XDIST])
def test_faults_of_a_driver_for_a_marker(run, pytester, mode) -> None:
    """The driver that a marker brings takes the options: nothing is ignored, and an unmet fault is shown."""
    pytester.makepyfile("import pytest\n@pytest.mark.cudalink(backend='driver')\ndef test(): pass")
    result = run("-q", "--cudalink-faults=cuLinkComplete:99=700", *mode)
    result.assert_outcomes(passed=1)
    assert never_triggered(result)[0] == "1 fault of --cudalink-faults not triggered: cuLinkComplete:99=700"
    assert "PytestConfigWarning" not in result.stdout.str()


@pytest.mark.parametrize("words", [ALONE, pytest.param(("--cudalink-driver=absent",), id="absent"), BOTH])
def test_options_without_effect_are_a_warning(run, pytester, monkeypatch, words) -> None:
    """One warning for all of them, also of a quiet run; what the ini file has is for every run and is no surprise."""
    pytester.makepyfile("def test_nothing(): pass")
    pytester.makeini("[pytest]\ncudalink_device = l4,memory=1GiB")
    if not words:
        assert "PytestConfigWarning" not in run("-q").stdout.str()
    monkeypatch.setenv("CUDALINK_FAULTS", "lost=46")
    result = run("-q", "--cudalink-device=sm_80", *words)
    said = "device sm_80 (from option), faults lost=46 (from environment CUDALINK_FAULTS)"
    result.assert_outcomes(passed=1, warnings=1)
    (line,) = [line for line in result.outlines if "PytestConfigWarning: " in line]
    assert f"cudalink: ignored, because this run has no emulated driver: {said}; --cudalink-driver=" in line
    if "--cudalink-driver=absent" in words:
        result = run(*words)
        ignored = "faults lost=46 (from environment CUDALINK_FAULTS)"
        result.stdout.fnmatch_lines([f"cudalink: ignored (no emulated driver in this run): *{ignored}*"])
    if not words:
        assert refused(
            run("-q", "-Werror", "--cudalink-device=sm_80"), "ignored, because this run has no emulated driver"
        )


NOTHING = "has code 0, CUDA_SUCCESS, and changes"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("cuInit=3", "'cuInit=3' cannot be read; expected FUNCTION:NTH=CODE"),
        ("cuInit:1=2junk", "'cuInit:1=2junk' cannot be read"),
        ("lost=46@5", "'lost=46@5' cannot be read"),
        ("cuInit:1=2;cuNothing:1=2", "exports no function 'cuNothing'"),
        ("cuInit:1=12345", "12345 is not a CUresult"),
        ("cuInit:1=CUDA_ERROR_NONESUCH", "'CUDA_ERROR_NONESUCH' is not a CUresult"),
        *((f"cuInit:2=999;{entry}", f"the fault '{entry}' {NOTHING}") for entry in ("lost=0", "jit=CUDA_SUCCESS")),
        *((entry, f"the fault '{entry}' {NOTHING}") for entry in ("cuMemAlloc:1=0", "cuMemAlloc:1=0@0")),
        ("forward-compat", "cannot be read.*Presets: forward-compatibility-on-geforce, "),
        ("Forward-Compatibility-Mismatch", "cannot be read.*Presets: "),
    ],
)
def test_bad_faults(text: str, complaint: str) -> None:
    """What cannot be read, or cannot be, or changes nothing, is refused before anything starts."""
    with pytest.raises(emulator.EmulatorError, match=complaint):
        emulator.emulation_for("13.0", faults=text)


def test_names_of_functions_and_codes() -> None:
    """A name of cuda.h stands for the form that programs call, which depends on the driver; or for a code."""
    for version, text, written in (
        ("13.0", " cuLinkAddData:2=2@50; lost=46;", "cuLinkAddData_v2:2=2@50;lost=46"),
        ("13.0", "cuInit:2=CUDA_ERROR_OUT_OF_MEMORY;lost=CUDA_ERROR_DEVICE_UNAVAILABLE", "cuInit:2=2;lost=46"),
        ("13.0", "cuInit:1=0@9999", "cuInit:1=0@9999"),  # which only waits
        ("12.0", "cuCtxCreate:1=2", "cuCtxCreate_v3:1=2"),
        ("12.9", "cuCtxCreate:1=2", "cuCtxCreate_v4:1=2"),
        ("13.0", "cuCtxCreate_v2:1=2", "cuCtxCreate_v2:1=2"),
        ("13.0", "cuMemAlloc:2=2;forward-compatibility-mismatch", "cuMemAlloc_v2:2=2;cuInit:0=803"),
    ):
        assert emulator.emulation_for(version, faults=text).faults == written


def test_command(toolchain, tmp_path) -> None:
    """``cudalink driver run`` runs a program, with its exit code; errors name what is wrong."""
    toolchain("13.0")
    program = "from pytest_cudalink import probes; print(probes.driver_version(), probes.device_arch()); exit(3)"
    newest = ("run", "--version", "13.0")
    done = cudalink(*newest, "--device", "sm_120", "--", sys.executable, "-c", program)
    assert (done.returncode, done.stdout) == (3, "13.0 sm_120\n")
    assert "no program given" in cudalink(*newest).stderr
    assert "there is no program 'nonesuch'" in cudalink(*newest, "--", "nonesuch").stderr
    refused = cudalink("run", "--version", "14.0", "--", sys.executable)
    assert refused.stderr == f"cudalink driver: CUDA 14.0 {KNOWN}, or upgrade pytest-cudalink\n"
    assert "no emulated device 'sm_1'" in cudalink(*newest, "--device", "sm_1", "--", sys.executable).stderr
    info = json.loads(cudalink("info", "--json").stdout)
    assert info["emulator"]["versions"][0] == "12.0"
    assert "13.0" in info["emulator"]["ready"]
    _, emulated, ready = cudalink("info").stdout.splitlines()
    assert emulated.startswith("can be emulated: CUDA 12.0 to 13.5")
    assert ready.startswith("with an nvJitLink here to link through: ")


def test_command_says_what_cannot_be_run(toolchain, tmp_path) -> None:
    """A file that the kernel cannot run is one sentence, as is a script whose interpreter there is not."""
    toolchain("13.0")
    for head in ("", "#!/no/such/interpreter\n"):
        script = tmp_path / "script"
        script.write_text(head + "true\n", encoding="utf-8")
        script.chmod(0o755)
        done = cudalink("run", "--version", "13.0", "--", str(script))
        assert done.returncode == 2
        (line,) = done.stderr.splitlines()
        assert line.startswith(f"cudalink driver run: {script} cannot be run: ")
        assert line.endswith("; a script needs an existing interpreter, in its first line or before it")


def test_a_driver_that_is_none(run, pytester, tmp_path, monkeypatch) -> None:
    """A file that cannot be opened is one sentence for `driver info`, and `absent` hides it."""
    junk = tmp_path / "libcuda.so.1"
    junk.write_text("no library", encoding="utf-8")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    done = cudalink("info")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert str(junk) in line
    pytester.makepyfile("def test_none(cudalink): assert cudalink.driver is None")
    run("--cudalink-driver=absent", fresh=True).assert_outcomes(passed=1)


def test_a_missing_compiler(check) -> None:
    """Links and PTX are refused, cubins load; the fault is written as it was read."""
    (fault,) = faults.parse("missing-jit-compiler", emulator.supported_versions()[-1])
    assert faults.text_of((fault,)) == "jit=221"
    program = """
start()
print(load(artifact("13.0/linked.cubin"))[0], load(artifact("13.0/main.ptx") + b"\\0")[0])
state = c_void_p()
print(cuda.cuLinkCreate_v2(0, None, None, byref(state)))
"""
    assert check(program, faults="missing-jit-compiler").split() == ["0", "221", "221"]
