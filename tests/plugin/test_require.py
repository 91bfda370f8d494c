"""What a run asked for, and what it got: ``--cudalink-driver=real``, markers without a GPU, ``--cudalink-require``."""

import re

import pytest

from pytest_cudalink.emulator import preload
from pytest_cudalink.report import read
from pytest_cudalink.report.merge import merge
from tests.nested import ALONE, BOTH, NO_HYPOTHESIS

LINK = """
import pytest
from pytest_cudalink.linker import Linker, LinkerOptions, ObjectCode

def link():
    linker = Linker(ObjectCode.from_ptx("user.ptx"), options=LinkerOptions(arch="sm_90"))
    linker.link("cubin")
    return linker.backend
"""
MARKED = f"""{LINK}
@pytest.mark.cudalink(backend="driver")
def test_marked():
    assert link() == "driver"
"""
EACH = f"""{LINK}
@pytest.mark.cudalink(backend="each")
def test_each(cudalink_backend):
    assert link() == cudalink_backend
"""
#: Makes a toolkit's wheels unknown, so that no version of an emulated driver follows from them.
NO_TOOLKIT = """
from pytest_cudalink import probes
probes.nvjitlink_wheel = lambda: None
probes.wheel_version = lambda *names: None
"""
NO_DRIVER = """
from pytest_cudalink.probes import libcuda
libcuda.LIBRARY_NAME = "libno-such-driver.so.1"
"""
SKIPPED = "cudalink: needs a CUDA driver (found none, and the driver backend is forced); "
SKIPPED_WITHOUT_TOOLKIT = f"SKIPPED * {SKIPPED}run with --cudalink-driver=13.0, which emulates one"
NOT_RUN = "The run fails because no test ran on the driver that was asked for ({}: skipped); --cudalink-require=none *"


@pytest.fixture
def run(pytester: pytest.Pytester, run_pytest, samples, toolkit):
    """Run pytest on one module, with no driver asked for; a real one would be found."""
    if preload.driver_exists() and preload.emulated_driver() is None:
        pytest.skip("there is a real driver here")
    pytester.path.joinpath("user.ptx").write_bytes(samples["12.9/user.ptx"])
    pytester.makepyfile(no_toolkit=NO_TOOLKIT, no_driver=NO_DRIVER)
    return lambda module, *arguments, plugins=(): run_pytest(
        "-rs", "-p", "no:cacheprovider", *arguments, module=module, plugins=plugins
    )


# -- a real driver


@pytest.mark.parametrize("more", [ALONE, BOTH])
def test_real_without_a_driver_is_one_usage_error(run, more) -> None:
    """Who asks for the real driver learns what was looked for and what to do, before any test; help needs none."""
    result = run("def test(): pass", "--cudalink-driver=real", *more, plugins=("no_driver",))
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (error,) = [line for line in result.errlines if "--cudalink-driver is real" in line]
    for words in ("(from option)", "libno-such-driver.so.1", "NVIDIA driver", "--gpus all", "--cudalink-driver=13."):
        assert words in error
    assert run("", "--cudalink-driver=real", "--help", *more, plugins=("no_driver",)).ret == 0


# -- the marker


@pytest.mark.parametrize("more", [ALONE, BOTH])
def test_marker_works_without_a_gpu(run, pytester, more) -> None:
    """A marker, and the driver's half of ``each``, get the emulated driver that ``--force-backend=driver`` gets.

    Header, record and JUnit report have it, and say nothing false before.
    """
    arguments = ("--cudalink-device=sm_90", "--cudalink-report=r.jsonl", "--junitxml=r.xml", *more)
    result = run(MARKED + EACH.removeprefix(LINK), *arguments).ended(passed=3)
    ignored = "cudalink: ignored unless a marker forces the driver backend, *: device sm_90 *"
    because = "sm_90, *of the toolkit's version), because a marker forces the *" if not more else "*"
    result.shows(
        *("cudalink: backend auto, *, no driver", ignored, f"cudalink: driver CUDA * (emulated, {because}"),
        "bundled: 3 links (2 on the driver, 1 on nvJitLink)",
    )
    result.stdout.no_fnmatch_line("*no emulated driver in this run*")
    recording = read(pytester.path / "r.jsonl")
    assert recording.run.versions["driver"]["kind"] == "absent"
    driver = recording.found.versions["driver"]
    assert driver["kind"] == "emulated"
    (cell,) = merge([pytester.path / "r.jsonl"]).cells
    assert (cell.axes["driver"], cell.axes["arch"]) == (".".join(driver["found"].split(".")[:2]), "sm_90")
    assert not cell.fault
    xml = (pytester.path / "r.xml").read_text()
    assert len(re.findall(r'name="cudalink\.driver" value="[0-9.]+, emulated ', xml)) == 1
    assert xml.count('name="cudalink.arch" value="sm_90') == 1
    if not more:
        run("def test(): pass", *arguments)
        assert read(pytester.path / "r.jsonl").found is None


def test_late_driver_is_watched(run) -> None:
    """It has everything that an early one has: settings, fixtures, lifetime checks, and the CUDA runtime."""
    pytest.importorskip("cuda.bindings")
    module = f"""{LINK}
@pytest.mark.cudalink(backend="driver")
def test_marked(): pass

def test_fixtures(emulated_driver, driver_lifetimes):
    assert emulated_driver.arch == "sm_86"
    emulated_driver.inject("cuLinkCreate", 2)
    with pytest.raises(Exception, match="OUT_OF_MEMORY"):
        Linker(ObjectCode.from_ptx("user.ptx"), options=LinkerOptions(arch="sm_86"), backend="driver").link("cubin")

def test_runtime():
    from cuda.bindings import runtime
    assert runtime.cudaGetDeviceCount() == (0, 1)
"""
    run(module, "--cudalink-device=sm_86").ended(passed=3)
    # nothing selected asks for a driver
    result = run(module, "--cudalink-device=sm_86", "--deselect=test_it.py::test_marked")
    result.ended(passed=0, skipped=1, failed=1, deselected=1)


def test_marker_after_a_library_has_looked(run) -> None:
    """cuda.bindings looks again; of a library that does not, the skip says so and names the option."""
    pytest.importorskip("cuda.bindings")
    looked = """
from cuda.bindings import driver
try:
    driver.cuInit(0)
except RuntimeError:
    pass
def test_bindings(): assert driver.cuInit(0)[0] == 0
"""
    run(MARKED + looked).ended(passed=2)
    remembers = """
from pytest_cudalink.emulator import preload
preload.found_none_before = lambda: "numba-cuda"
"""
    run(MARKED + remembers).ended(pytest.ExitCode.TESTS_FAILED, skipped=1).shows(
        f"SKIPPED * {SKIPPED}run with --cudalink-driver=* or --force-backend=driver, because numba-cuda looked for *"
    )


def test_one_reason_without_a_toolkit(run) -> None:
    """Where no version follows from a toolkit, the option gives the same skip as the marker of the next test."""
    result = run(f"{LINK}\ndef test(): link()\n", "--force-backend=driver", plugins=("no_toolkit",))
    result.shows(NOT_RUN.format(1), SKIPPED_WITHOUT_TOOLKIT)
    assert result.ret == pytest.ExitCode.TESTS_FAILED


@pytest.mark.parametrize(
    "first", ["cudalink", *(pytest.param(plugin, marks=pytest.mark.slow) for plugin in ("pytest_cudalink.plugin", ""))]
)
def test_loaded_by_option_and_conftest(run, pytester, monkeypatch, first) -> None:
    """The plugin may be loaded by either name, by a conftest, and by several of these; a marker works the same."""
    pytester.makeconftest('pytest_plugins = ["pytest_cudalink.plugin"]')
    pytester.makepyfile(test_it=MARKED)
    if not first:
        monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    result = pytester.runpytest_subprocess(*NO_HYPOTHESIS, *(("-p", first) if first else ()), "test_it.py")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["cudalink: driver CUDA * (emulated, *because a marker forces the driver backend"])


# -- what must have happened


@pytest.mark.parametrize("more", [pytest.param(("-q",), id="alone"), BOTH])
def test_all_skipped_is_red(run, pytester, more) -> None:
    """A run whose tests on the driver were all skipped fails, and says how to allow it; records and JUnit say so."""
    module = f"{EACH}\ndef test_plain(): pass\n"
    result = run(module, "--cudalink-report=r.jsonl", "--junitxml=r.xml", *more, plugins=("no_toolkit",))
    result.ended(pytest.ExitCode.TESTS_FAILED, passed=2, skipped=1)
    result.shows(NOT_RUN.format(1), SKIPPED_WITHOUT_TOOLKIT)
    assert result.stdout.str().count("The run fails because") == 1
    assert '<property name="cudalink.require" value="The run fails because ' in (pytester.path / "r.xml").read_text()
    end = read(pytester.path / "r.jsonl").end
    assert end.exitstatus == 1
    assert end.failing[0].startswith("The run fails because no test ran on the driver")
    (cell,) = merge([pytester.path / "r.jsonl"]).cells
    assert cell.fault.startswith("The run fails because no test ran on the driver")
    if more == ("-q",):
        lifted = run(module, "--cudalink-require=none", plugins=("no_toolkit",))
        assert lifted.ret == 0
        assert "The run fails" not in lifted.stdout.str()


def test_marker_where_no_driver_can_be_emulated(run) -> None:
    """Without the native libraries the marked tests are skipped, and the others run."""
    module = f"""{MARKED}
def test_plain(): pass

from pytest_cudalink import emulator
def library_folder(**_):
    raise emulator.EmulatorError("the emulated driver is not built")
emulator.library_folder = library_folder
"""
    result = run(module).ended(pytest.ExitCode.TESTS_FAILED, passed=1, skipped=1)
    result.shows(NOT_RUN.format(1), f"SKIPPED * {SKIPPED}run with --cudalink-driver=*")


@pytest.mark.slow
def test_required_where_a_test_crashes(run) -> None:
    """What the tests of a shared process have done counts, also of one that is replaced."""
    module = f"{MARKED}\ndef test_dies():\n    import os\n    os.abort()\ndef test_plain(): pass\n"
    arguments = ("--cudalink-driver=13.0", "--cudalink-require=driver,links", "--cudalink-processes=restarted")
    result = run(module, *arguments).ended(passed=2, failed=1)
    assert "The run fails because" not in result.stdout.str()
    run(module, *arguments, "--deselect=test_it.py::test_marked").shows("The run fails because no link was made*")
