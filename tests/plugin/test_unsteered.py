"""Links that no target steers: seen, counted, and where a backend is forced, never green on another one."""

import pytest

from pytest_cudalink.report import read
from tests.nested import ALONE, BOTH, XDIST

#: A library that calls the linkers itself, as many do.
LIBRARY = """
from pathlib import Path
from cuda.bindings import driver, nvjitlink

CODES = [Path(__file__).with_name(name).read_bytes() for name in ("main.ptx", "user.ptx")]

def on_nvjitlink(codes=CODES):
    handle = nvjitlink.create(1, ["-arch=sm_90"])
    try:
        for code in codes:
            nvjitlink.add_data(handle, nvjitlink.InputType.PTX, code, len(code), "input")
        nvjitlink.complete(handle)  # here
        image = bytearray(nvjitlink.get_linked_cubin_size(handle))
        nvjitlink.get_linked_cubin(handle, image)
    finally:
        nvjitlink.destroy(handle)
    assert image[:4] == b"\\x7fELF"

def on_driver(codes=CODES):
    driver.cuInit(0)
    driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0)[1])
    error, state = driver.cuLinkCreate(0, [], [])
    for code in codes:
        driver.cuLinkAddData(state, driver.CUjitInputType.CU_JIT_INPUT_PTX, code, len(code), b"input", 0, [], [])
    error, image, size = driver.cuLinkComplete(state)
    driver.cuLinkDestroy(state)
    return error
"""
LINE = next(number for number, line in enumerate(LIBRARY.strip().splitlines(), 1) if line.endswith("# here"))
#: What a test fails with that links on nvJitLink where the driver is forced.
WRONG = f"*but library.py:{LINE} linked on nvJitLink: nvJitLinkComplete of cuda.bindings.nvjitlink, which no target *"


@pytest.fixture
def run(pytester: pytest.Pytester, run_pytest, samples, toolkit):
    """Run pytest on a module that uses the library, on an emulated driver of the toolkit's release."""
    for name in ("main.ptx", "user.ptx"):
        pytester.path.joinpath(name).write_bytes(samples[f"12.9/{name}"])
    pytester.makepyfile(library=LIBRARY)
    given, head = (f"--cudalink-driver={toolkit}", "-p", "no:cacheprovider"), "import pytest\nimport library\n"
    return lambda module, *arguments: run_pytest(*given, *arguments, module=head + module)


# -- counted


OWN = """
from pytest_cudalink.targets import Target, watch
class Own(Target):
    name, modules = "own", ("own",)
    def install(self, module):
        original = module.link
        def link():
            with watch("own", backend="nvjitlink"):
                original()
        module.link = link
    def force(self, module, backend): pass
def pytest_cudalink_targets(config): return [Own()]
"""

#: As in cuda-bindings 13.5.
SECOND = """
import sys
__name__ = "cuda.bindings._v2.driver"
sys.modules[__name__] = sys.modules["second"]

class DriverError(Exception): pass

def link_complete(state):
    if state == 0: raise DriverError("CUDA_ERROR_INVALID_HANDLE: no state")
    if state is None: raise TypeError(state)
    return b"image"
"""

#: It takes the name of the module in numba-cuda, which may be installed here.
NUMBA = """
import sys
__name__ = "numba.cuda.cudadrv.driver"
sys.modules[__name__] = sys.modules["old_numba"]

class CtypesLinker:
    def complete(self):
        from cuda.bindings import driver
        try: return driver.cuLinkComplete(driver.CUlinkState())  # counts with this link
        except Exception: return b"cubin"
"""

FREE = """
import subprocess, sys
import own
from cuda.bindings import driver, nvjitlink
from pytest_cudalink.linker import ObjectCode

def test_once(): library.on_nvjitlink()
def test_numba(): assert sys.modules["old_numba"].CtypesLinker().complete()
def test_three():
    library.on_nvjitlink()
    library.on_nvjitlink()
    assert library.on_driver() == 0
def test_refused():
    with pytest.raises(nvjitlink.nvJitLinkError): library.on_nvjitlink(library.CODES[:1])
    assert library.on_driver(library.CODES[:1]) != 0
def test_without_a_linker():
    with pytest.raises(TypeError): nvjitlink.complete("no handle")
    with pytest.raises(TypeError): driver.cuLinkComplete("no state")
def test_second():
    second = sys.modules["second"]
    assert second.link_complete(1)
    with pytest.raises(second.DriverError): second.link_complete(0)
    with pytest.raises(TypeError): second.link_complete(None)
def test_targets(linker_factory):
    own.link()
    linker_factory(*[ObjectCode.from_ptx(code) for code in library.CODES]).link("cubin")
def test_process(): subprocess.run([sys.executable, "-c", "import library; library.on_nvjitlink()"], check=True)
"""


def test_counted_where_nothing_is_forced(run, pytester) -> None:
    """Summary and records name what linked or was refused; targets' links are theirs, and other processes count not."""
    pytester.makepyfile(
        second=SECOND, old_numba=NUMBA, plugin_of_own=OWN, own="import library\nlink = library.on_nvjitlink"
    )
    plugins = [word for name in ("second", "old_numba", "plugin_of_own") for word in ("-p", name)]
    result = run(FREE, *plugins, "--cudalink-report=run.jsonl", "--junitxml=junit.xml", "--cudalink-unsupported=fail")
    result.ended(passed=8)
    result.stdout.fnmatch_lines_random(
        [
            "own: 1 link (1 on nvJitLink)",
            "2 links in your code (cuda.bindings._v2.driver): 2 on the driver",
            "2 links in your code (cuda.bindings.driver): 2 on the driver",
            "4 links in your code (cuda.bindings.nvjitlink): 4 on nvJitLink",
            "1 link in your code (numba.cuda.cudadrv.driver): 1 on the driver",
        ]
    )
    record = read(pytester.path / "run.jsonl")
    counts = {test.nodeid.partition("::")[2]: (test.unsteered, test.links) for test in record.tests if test.unsteered}
    numbers = {"test_once": 1, "test_numba": 1, "test_three": 3, "test_refused": 2, "test_second": 2}
    assert counts == {name: (number, 0) for name, number in numbers.items()}
    of_targets = [link.target for link in record.links]
    assert of_targets == ["own", "bundled"]
    first, numba, *rest = record.unsteered
    keys = ("nodeid", "via", "call", "where", "backend", "result", "forced")
    assert [getattr(first, key) for key in keys] == [
        *("test_it.py::test_once", "cuda.bindings.nvjitlink", "nvJitLinkComplete", f"library.py:{LINE}"),
        *("nvjitlink", "ok", None),
    ]
    assert numba.where == "test_it.py:10"  # the code that uses numba
    results = [(link.call, link.result.partition("ERROR_")[0]) for link in rest]
    assert results == [
        *[("nvJitLinkComplete", "ok")] * 2,
        ("cuLinkComplete", "ok"),
        ("nvJitLinkComplete", "nvJitLinkError: "),
        ("cuLinkComplete", "CUresult: CUDA_"),
        ("cuLinkComplete", "ok"),
        ("cuLinkComplete", "DriverError: CUDA_"),
    ]
    assert "cuda.bindings.nvjitlink/nvjitlink/free=1" in (pytester.path / "junit.xml").read_text()


# -- failed where a backend is forced


FORCED = """
import threading
import early, kept
def test_plain(): library.on_nvjitlink()
def test_factory(linker_factory): library.on_nvjitlink()
@pytest.mark.xfail
def test_xfails():
    library.on_nvjitlink()
    assert 0
def test_skips():
    library.on_nvjitlink()
    pytest.skip()
@pytest.fixture
def made(): library.on_nvjitlink()
def test_setup(made): pass
def test_thread():
    one = threading.Thread(target=library.on_nvjitlink)
    one.start()
    one.join()
def test_early(): early.on_nvjitlink()
def test_kept(): kept.on_nvjitlink()
def test_as_forced(): assert library.on_driver() == 0
"""


@pytest.mark.parametrize("arguments", [ALONE, BOTH])
def test_forced_and_linked_elsewhere(run, pytester, arguments) -> None:
    """The test fails, however it ends, and says which line did it and what to do, also for functions taken before."""
    early = LIBRARY.replace("nvjitlink.complete(", "complete(") + "from cuda.bindings.nvjitlink import complete\n"
    kept = LIBRARY.replace("nvjitlink.complete(", "KEPT[0](") + "KEPT = [nvjitlink.complete]\n"
    pytester.makepyfile(early=early, kept=kept)
    result = run(FORCED, "--force-backend=driver", "-p", "early", "-p", "kept", *arguments)
    result.ended(failed=7, errors=1, passed=1)
    result.stdout.fnmatch_lines([WRONG] * 6)
    result.stdout.fnmatch_lines(
        ["*Write a target *(see the page Targets of the documentation)*--cudalink-unsteered=allow*"] * 8
    )
    result.shows("*but early.py:* linked on nvJitLink: nvJitLinkComplete of cuda.bindings.nvjitlink*")
    result.shows("*linked on nvJitLink: nvJitLinkComplete of libnvJitLink, called by *nvjitlink*.so*")
    head = "cudalink: not forced: code that calls a linker itself (unsteered fail); a test in which it links *fails"
    result.shows("cudalink: forced to driver: bundled*", head)
    result.shows(
        "1 link in your code was not steered (cuda.bindings.driver): 1 on the driver (as forced)",
        "7 links in your code were not steered (cuda.bindings.nvjitlink): 7 on nvJitLink (not as forced)",
    )


def test_the_driver_where_nvjitlink_is_forced(run, pytester) -> None:
    """The other way around, and in the `cuda.cuda` of cuda-python up to 12.5; what was kept in a list is not seen."""
    pytester.makepyfile(
        **{
            "cuda/cuda": "def cuLinkComplete(state): return 0, 1, 2\n",
            "early": LIBRARY.replace("driver.cuLinkComplete(", "KEPT[0](") + "KEPT = [driver.cuLinkComplete]\n",
        }
    )
    pytester.makeconftest(
        "def pytest_cudalink_unsteered(link, nodeid): print('seen:', link, link.backend, link.forced, nodeid)"
    )
    module = """import cuda.cuda, early
def test_driver(): library.on_driver()
def test_old(): assert cuda.cuda.cuLinkComplete(None) == (0, 1, 2)
def test_kept(): assert early.on_driver() == 0
def test_as_forced(): library.on_nvjitlink()
"""
    result = run(module, "--force-backend=nvjitlink", "-p", "early", "-s").ended(failed=2, passed=2)
    result.shows(
        f"*seen: nvJitLinkComplete of cuda.bindings.nvjitlink, in library.py:{LINE} nvjitlink nvjitlink *::test_*",
        "*forced to nvjitlink by *library.py:* linked on the driver: cuLinkComplete of *",
        "*but test_it.py:5 linked on the driver: cuLinkComplete of cuda.cuda, which no target *",
        "1 link in your code was not steered (cuda.bindings.nvjitlink): 1 on nvJitLink (as forced)",
    )
    assert result.stdout.str().count("seen: ") == 3


BY_TEST = """
@pytest.mark.cudalink(backend="driver")
def test_marker(): library.on_nvjitlink()
@pytest.mark.cudalink(backend="each")
def test_each(): library.on_nvjitlink()
def test_fixture(force_backend):
    force_backend("driver")
    library.on_nvjitlink()
def test_free(): library.on_nvjitlink()
"""


@pytest.mark.parametrize("option", [(), ("--force-backend=driver", "--cudalink-target=bundled")])
def test_a_test_that_names_a_backend(run, option) -> None:
    """Its backend holds for all its links, whatever targets the run forces; other code than those links as it likes."""
    result = run(BY_TEST, *option).ended(failed=3, passed=2)
    result.stdout.fnmatch_lines([WRONG] * 3)
    said = "1 on nvJitLink (as forced), 1 on nvJitLink, 3 on nvJitLink (not as forced)"
    result.shows(f"5 links in your code were not steered (cuda.bindings.nvjitlink): {said}")


def test_each_backend_of_some_targets(run) -> None:
    """What ``--force-backend=each`` forces is the run's choice: other code than the targets links as it likes."""
    module = "@pytest.mark.cudalink\ndef test_marked(): library.on_nvjitlink()\n"
    module += "def test_factory(linker_factory): library.on_nvjitlink()"
    result = run(module, "--force-backend=each").ended(passed=2, failed=2)
    result.shows("cudalink: forced to each backend in turn: bundled*")
    run(module, "--force-backend=each", "--cudalink-target=bundled").ended(passed=4)


# -- outside of tests


@pytest.mark.parametrize("arguments", [ALONE, BOTH])
def test_outside_of_tests(run, arguments) -> None:
    """A link while a module is collected fails the run, once, and no test."""
    result = run("library.on_nvjitlink()\ndef test(): pass", "--force-backend=driver", *arguments)
    result.ended(pytest.ExitCode.TESTS_FAILED, passed=1)
    result.shows(f"outside of tests: {WRONG}", "The run fails because of the problems above*")
    assert result.stdout.str().count("which no target steers") == 1


# -- the setting


WARN = ("--force-backend=driver", "--cudalink-unsteered=warn")


@pytest.mark.parametrize("arguments", [ALONE, BOTH])
def test_warn(run, arguments) -> None:
    """The warning is at the test, and keeps its category from another process, though only that one imported it."""
    result = run("def test(): library.on_nvjitlink()", *WARN, *arguments).ended(passed=1, warnings=1)
    result.shows("test_it.py::test", f"*UnsteeredLinkWarning: {WRONG}")
    result.shows("1 link in your code was not steered *(not as forced)")


def test_allow(run) -> None:
    """Such links are only counted; the header says so, and who has set it."""
    result = run("def test(): library.on_nvjitlink()", "--force-backend=driver", "--cudalink-unsteered=allow")
    result.ended(passed=1)
    said = (
        "cudalink: not forced: code that calls a linker itself (unsteered allow, from option); what it links is counted"
    )
    assert said in result.stdout.lines
    result.shows("1 link in your code was not steered *: 1 on nvJitLink (not as forced)")


# -- what cannot be steered


SWALLOWED = "try: import cuda.core._linker\nexcept Exception: pass\n"


@pytest.fixture
def stale(pytester) -> None:
    """A release of cuda-core that has moved its switch."""
    folder = pytester.path / "cuda" / "core"
    folder.mkdir(parents=True)
    folder.joinpath("__init__.py").touch()
    folder.joinpath("_linker.py").write_text("class Linker: pass\n")
    info = pytester.path / "cuda_core-0.2.0.dist-info"
    info.mkdir()
    info.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: cuda-core\nVersion: 0.2.0\n")


@pytest.mark.usefixtures("stale")
@pytest.mark.parametrize("arguments", [ALONE, XDIST])
def test_a_stale_recipe_that_is_swallowed(run_pytest, arguments) -> None:
    """A run that forced it ends red, and names it nowhere as forced."""
    result = run_pytest("--force-backend=nvjitlink", *arguments, module=f"{SWALLOWED}def test(): pass", fresh=True)
    result.ended(pytest.ExitCode.TESTS_FAILED, passed=1)
    result.shows(
        "cudalink: forced to nvjitlink: bundled*",
        "cudalink: not forced: cuda.core 0.2.0: expected cuda-core >=0.7",
        "cuda.core is not watched: cudalink cannot steer cuda-core 0.2.0: *",
        "outside of tests: *cudalink cannot steer cuda-core 0.2.0: *",
    )
    assert not any("forced to" in line and "cuda.core" in line for line in result.stdout.lines)


IMPORTS = """
import sys
import pytest

def test_imports():
    assert "pytest_cudalink.targets" not in sys.modules
    for _ in range(2):
        with pytest.raises(RuntimeError, match="cuda-core"):
            import cuda.core._linker
        assert "cuda.core._linker" not in sys.modules
"""


@pytest.mark.usefixtures("stale")
def test_a_stale_recipe_that_wakes_the_steering(run_pytest) -> None:
    """The import raises the error, and so does the next one: nothing links unsteered."""
    result = run_pytest("--force-backend=nvjitlink", module=IMPORTS, fresh=True).ended(failed=1)
    result.shows("cudalink cannot steer cuda-core *--cudalink-target")


BROKEN = """
from pytest_cudalink.targets import Target
class Installs(Target):
    name, modules = "installs", ("one",)
    def install(self, module): module.no_such_switch
    def force(self, module, backend): pass
class Forces(Target):
    name, modules = "forces", ("another",)
    def force(self, module, backend): module.no_such_switch
def pytest_cudalink_targets(config): return [Installs(), Forces()]
"""


def test_a_target_with_another_error_that_is_swallowed(run, pytester) -> None:
    """A target that cannot force its library, for whatever reason, fails the test that imports the library."""
    pytester.makepyfile(broken=BROKEN, one="", another="")
    module = "".join(
        f"def test_{name}():\n    try: import {name}\n    except Exception: pass\n" for name in ("one", "another", "os")
    )
    result = run(module, "--force-backend=driver", "-p", "broken").ended(failed=2, passed=1)
    for name in ("installs", "forces"):
        result.shows(f"cudalink cannot steer {name}: its target raised AttributeError: *")
        result.shows(f"{name} is not watched: *no_such_switch*")
