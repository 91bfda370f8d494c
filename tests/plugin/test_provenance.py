"""Every CUDA library that a run loads is listed; one from elsewhere fails the test that loaded it, and for whom."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytest_cudalink.report import read
from tests.nested import NO_HYPOTHESIS
from tests.system_runtime import make_system_runtime

HEAD = """
import ctypes, os, sys
import pytest

OLD = {old!r}  # libcudart of another major, of a system toolkit
NEW = {new!r}  # libcudart of another minor, of a system toolkit

def own():
    from cuda.pathfinder import load_nvidia_dynamic_lib
    return load_nvidia_dynamic_lib("cudart")

def nvrtc():
    from cuda.bindings import nvrtc
    return nvrtc.nvrtcVersion()

def link(*names):
    from pytest_cudalink.linker import Linker, LinkerOptions, ObjectCode
    codes = [ObjectCode.from_ptx(open(name, "rb").read(), name=name) for name in names]
    Linker(*codes, options=LinkerOptions(arch="sm_90"), backend="nvjitlink").link("cubin")
"""
#: The line at which `own` opens the library, and the first line of the module that follows.
OWN = next(number for number, line in enumerate(HEAD.strip().splitlines(), 1) if '("cudart")' in line)
FIRST = len(HEAD.strip().splitlines()) + 1
FROM_SYSTEM = "*libcudart.so.12 is from the system: *libcudart.so.12; expected a wheel of this environment"


@pytest.fixture(scope="session")
def systems(once, toolkit) -> SimpleNamespace:
    """Two system toolkits of which only the runtime is there: `old` is of another major, `new` of another minor."""
    if toolkit.major != 13:
        pytest.skip(f"needs a toolkit of CUDA 13 in this environment, found {toolkit}")
    minor = "13.2" if str(toolkit) != "13.2" else "13.3"

    def make(folder: Path) -> None:
        for version in ("12.9", minor):
            make_system_runtime(folder, version)

    folder = once("systems", make)
    old, new = folder / "12.9/lib64/libcudart.so.12", folder / minor / "lib64/libcudart.so.13"
    return SimpleNamespace(folder=folder, minor=minor, old=old, new=new)


@pytest.fixture
def run(pytester: pytest.Pytester, run_pytest, systems, samples):
    """Run pytest on a module; returns the result and the records of libraries."""

    def go(module: str, *arguments: str):
        for name in ("12.9/main.ptx", "12.9/user.ptx", "13.0/main.ptx", "13.0/user.ptx"):
            pytester.path.joinpath(name.replace("/", "-")).write_bytes(samples[name])
        module = HEAD.format(old=str(systems.old), new=str(systems.new)) + module
        result = run_pytest("--cudalink-report=run.jsonl", *arguments, module=module)
        return result, read(pytester.path / "run.jsonl").libraries

    return go


# -- listed


def test_listed(run, systems, toolkit) -> None:
    """Which file, which release, from where, for whom, and in which test; by default no test fails for two majors."""
    result, libs = run("def test_own(): own()\ndef test_system(): ctypes.CDLL(OLD)")
    result.ended(passed=2)
    by_test = {(lib.nodeid or "").partition("::")[2]: lib for lib in libs if lib.name == "libcudart"}
    own, system = by_test["test_own"], by_test["test_system"]
    assert (own.place, own.soname, own.during) == ("wheels", "libcudart.so.13", "call")
    assert own.owner.startswith("nvidia-cuda-runtime 13.")
    assert own.for_whom.startswith("opened through cuda.pathfinder at ")
    assert own.for_whom.endswith(f"test_it.py:{OWN}")
    assert (system.place, system.owner, system.version) == ("system", "", "12.9")
    assert system.path == str(systems.old)
    assert system.for_whom.endswith(f"test_it.py:{FIRST + 1}")
    assert result.ret == 0
    result.shows(
        "two majors of libcudart in one process:",
        f"  libcudart.so.13 {toolkit} (wheels, nvidia-cuda-runtime 13.*): *",
        f"    loaded in the call of *::test_own, for: opened through cuda.pathfinder at *test_it.py:{OWN}",
        "  libcudart.so.12 12.9 (system): *",
        f"    loaded in the call of test_it.py::test_system, for: opened at *test_it.py:{FIRST + 1}",
    )


def test_two_majors_without_records(run_pytest, systems, tmp_path) -> None:
    """The names alone show that there may be two, those in the files at the latest, also in another process."""
    renamed = shutil.copy(systems.old, tmp_path / "mine.so")
    opened = "; ".join(f"ctypes.CDLL({str(path)!r})" for path in (renamed, systems.new))
    result = run_pytest(
        "--cudalink-provenance=any", "--cudalink-processes=isolated", module=f"import ctypes\ndef test(): {opened}"
    )
    result.shows("two majors of libcudart in one process:")


# -- from elsewhere


def test_fails_the_test_that_loads_it(run) -> None:
    """It names the file, for whom, what was expected; the test before and a later use do not fail."""
    result, _ = run(
        "def test_before(): own()\ndef test_loads(): assert not ctypes.CDLL(OLD)\ndef test_again(): ctypes.CDLL(OLD)",
        "--cudalink-provenance=wheels",
    )
    result.ended(passed=2, failed=1)
    result.shows(
        "cudalink: CUDA libraries must come from wheels (from option); *",
        "*- cudalink provenance -*",
        f"cudalink: {FROM_SYSTEM[1:]}",
        "  --cudalink-provenance is wheels (from option)",
        "  CUDA 12.9: CUDA_VERSION 12090 in *cuda.h",
        f"  loaded for: opened at *test_it.py:{FIRST + 1}",
        "  Install the wheel that brings libcudart, *",
        "cudalink: two majors of libcudart in one process:",
        "FAILED test_it.py::test_loads - *",
    )


@pytest.mark.parametrize("broken", [False, True])
def test_outside_of_a_test(run, broken) -> None:
    """What a module loads when it is imported, also one that fails then, turns the run red and is named."""
    module = "ctypes.CDLL(OLD)\n" + ("raise RuntimeError('broken')" if broken else "def test(): pass")
    result, libraries = run(module, "--cudalink-provenance=wheels")
    assert result.ret == (pytest.ExitCode.INTERRUPTED if broken else pytest.ExitCode.TESTS_FAILED)
    result.shows(f"outside of tests: {FROM_SYSTEM[1:]}", "  it was loaded during the collection of test_it.py")
    assert [library.nodeid for library in libraries if library.place == "system"] == [None]


@pytest.mark.parametrize(
    ("conftest", "lines"),
    [
        (
            "import ctypes\nctypes.CDLL({!r})",
            [FROM_SYSTEM, "  loaded for: *conftest.py:2", "  it was * before collection"],
        ),
        (
            "from pytest_cudalink.loader import loads\nloads.library = lambda: None",
            ["*: --cudalink-provenance is wheels (from option): * listed; install pytest-cudalink from its wheel"],
        ),
    ],
    ids=["loads", "no native part"],
)
def test_before_collection(run, pytester, systems, conftest: str, lines: list[str]) -> None:
    """So does what a conftest loads; and an expectation that nothing can compare."""
    pytester.makeconftest(conftest.format(str(systems.old)))
    result, _ = run("def test(): pass", "--cudalink-provenance=wheels")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(lines)


def test_phases(run) -> None:
    """The phase that loads it fails; after the last test that is its teardown."""
    module = """
@pytest.fixture
def early(): ctypes.CDLL(OLD)
@pytest.fixture(scope="session")
def late():
    yield
    ctypes.CDLL(NEW)
def test_setup(early): pass
def test_last(late): pass
"""
    result, libs = run(module, "--cudalink-provenance=wheels")
    result.ended(passed=1, errors=2)
    assert [lib.during for lib in libs if lib.place == "system"] == ["setup", "teardown"]
    result.shows(FROM_SYSTEM, FROM_SYSTEM.replace("12", "13"))


def test_by_the_loader(run, systems, pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the environment leads the loader to a toolkit of the system, the message says which variable does."""
    folder = systems.old.parent
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))
    pytester.makepyfile("import ctypes\ndef test(): ctypes.CDLL('libcudart.so.12')")
    result = pytester.runpytest_subprocess(*NO_HYPOTHESIS, "-p", "cudalink", "--cudalink-provenance=wheels")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"  LD_LIBRARY_PATH names {folder}: unset it, or install the wheel *"])


# -- links


def test_producer_and_linker(run, toolkit) -> None:
    """Inputs of another major fail the test that links them, though no contract counts it; by default they do not."""
    module = (
        "def test_loads(): link('13.0-main.ptx', '13.0-user.ptx')\ndef test_rests(): pass\ndef test_rests_too(): pass\n"
        "def test(): link('12.9-main.ptx', '12.9-user.ptx')\n"
    )
    result, _ = run(module, "--cudalink-provenance=wheels", "--cudalink-checks=nvjitlink=off")
    result.ended(passed=3, failed=1)
    said = f"bundled linked ptx 12.9-main.ptx of CUDA 12.9 with nvJitLink {toolkit}: producer and linker are *"
    result.shows(f"cudalink: {said}")
    run(module)[0].ended(passed=4)


# -- what belongs to this plugin


def test_the_plugin_itself_may_look(run, pytester: pytest.Pytester) -> None:
    """A library that only this plugin opened, to record its version, fails nothing; a link with it does."""
    # as where neither the metadata of a wheel nor another process has the version
    pytester.makeconftest(
        "from pytest_cudalink import probes\nprobes.unloaded_nvjitlink = probes.elsewhere.nvjitlink = lambda: None"
    )
    expected = "--cudalink-provenance=/nowhere"
    result, libs = run("def test(): pass", expected)
    assert result.ret == 0
    assert [(lib.name, lib.for_whom) for lib in libs] == [("libnvJitLink", "opened through pytest-cudalink")]
    result, libs = run("def test(): link('13.0-main.ptx', '13.0-user.ptx')", expected)
    result.ended(failed=1)
    assert [lib.nodeid for lib in libs if lib.name == "libnvJitLink"] == [None, "test_it.py::test"]
    result.shows("cudalink: libnvJitLink.so.13 is from a wheel: *; expected a file below /nowhere")


# -- other processes


@pytest.mark.slow
def test_other_processes(run) -> None:
    """The process of a test reports as any other; what several have collected is said once."""
    module = "ctypes.CDLL(NEW)\ndef test_a(): pass\ndef test_b(): ctypes.CDLL(OLD)"
    result, libs = run(module, "-n1", "--cudalink-processes=isolated", "--cudalink-provenance=wheels")
    result.ended(passed=1, failed=1)
    assert result.stdout.str().count("outside of tests: libcudart.so.13 is from the system") == 1
    system = [(library.soname, library.nodeid, library.worker) for library in libs if library.place == "system"]
    assert system == [("libcudart.so.13", None, "gw0"), ("libcudart.so.12", "test_it.py::test_b", "gw0")]


@pytest.mark.parametrize(
    ("option", "library", "place"),
    [
        ("--cudalink-driver=absent", "libnvrtc", "wheels"),
        ("--cudalink-driver=12.9", "libcuda", "emulated"),
        ("--cudalink-nvjitlink=MINOR", "libnvJitLink", "toolchains"),
        pytest.param("-ocudalink_contain=yes", "libnvrtc", "wheels", marks=pytest.mark.slow),
    ],
)
def test_sound(run, systems, option: str, library: str, place: str) -> None:
    """Nothing is found in runs that take everything from wheels, nor of what the plugin brings: a driver, a linker."""
    module = (
        "def test_own(): own()\ndef test_nvrtc(): nvrtc()\ndef test_link(): link('13.0-main.ptx', '13.0-user.ptx')\n"
    )
    result, libraries = run(module, "--cudalink-provenance=wheels", option.replace("MINOR", systems.minor))
    assert result.ret == 0, result.stdout.str()
    assert (library, place) in {(library.name, library.place) for library in libraries}
    assert {library.place for library in libraries} <= {"wheels", "emulated", "toolchains"}
    assert "in one process" not in result.stdout.str()
