"""Links that no target steers: seen, counted, and where a backend is forced, never green on another one."""

from __future__ import annotations

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

    def go(module: str, *arguments: str) -> pytest.RunResult:
        pytester.makepyfile(test_it=f"import pytest\nimport library\n{module}")
        return run_pytest(f"--cudalink-driver={toolkit}", "-p", "no:cacheprovider", *arguments)

    return go


# -- counted


def test_counted_where_nothing_is_forced(run, pytester) -> None:
    """Summary and records name what linked, however many inputs a link had; nothing fails."""
    module = """
def test_first(): library.on_nvjitlink()
def test_second():
    library.on_nvjitlink()
    library.on_nvjitlink()
    assert library.on_driver() == 0
"""
    result = run(module, "--cudalink-report=run.jsonl", "--junitxml=junit.xml")

    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(
        [
            "1 link in your code (cuda.bindings.driver): 1 on the driver",
            "3 links in your code (cuda.bindings.nvjitlink): 3 on nvJitLink",
        ]
    )
    found = read(pytester.path / "run.jsonl")
    assert [test.unsteered for test in found.tests] == [1, 3]
    assert {test.links for test in found.tests} == {0}
    keys = ("nodeid", "via", "call", "where", "backend", "result", "forced")
    where = f"library.py:{LINE}"
    assert [tuple(getattr(link, key) for key in keys) for link in found.unsteered[:1]] == [
        ("test_it.py::test_first", "cuda.bindings.nvjitlink", "nvJitLinkComplete", where, "nvjitlink", "ok", None)
    ]
    assert [link.call for link in found.unsteered] == [*["nvJitLinkComplete"] * 3, "cuLinkComplete"]
    assert "cuda.bindings.nvjitlink/nvjitlink/free=1" in (pytester.path / "junit.xml").read_text()


def test_refused_links_are_links(run, pytester) -> None:
    """A link that the linker refuses counts, with its error; a call that reaches no linker does not."""
    module = """
from cuda.bindings import driver, nvjitlink
def test():
    with pytest.raises(nvjitlink.nvJitLinkError): library.on_nvjitlink(library.CODES[:1])
    assert library.on_driver(library.CODES[:1]) != 0
    with pytest.raises(TypeError): nvjitlink.complete("no handle")
    with pytest.raises(TypeError): driver.cuLinkComplete("no state")
"""
    run(module, "--cudalink-report=run.jsonl", "--cudalink-unsupported=fail").assert_outcomes(passed=1)
    results = [(link.call, link.result) for link in read(pytester.path / "run.jsonl").unsteered]
    assert [call for call, _ in results] == ["nvJitLinkComplete", "cuLinkComplete"]
    assert results[0][1].startswith("nvJitLinkError: ERROR_")
    assert results[1][1].startswith("CUresult: CUDA_ERROR_")


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


@pytest.fixture
def _own_target(pytester) -> None:
    """A library that links through the first one, and the plugin with its target."""
    pytester.makepyfile(own="import library\ndef link(): library.on_nvjitlink()\n", plugin_of_own=OWN)


@pytest.mark.usefixtures("_own_target")
def test_links_of_targets_are_not_counted_twice(run) -> None:
    """A link that a target makes through the bindings is one of the target alone, as is one of the bundled linker."""
    module = """
import own
from pytest_cudalink.linker import ObjectCode
def test(linker_factory):
    own.link()
    linker_factory(*[ObjectCode.from_ptx(code) for code in library.CODES]).link("cubin")
"""
    result = run(module, "-p", "plugin_of_own", "--force-backend=nvjitlink")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["own: 1 link (1 on nvJitLink)"])
    result.stdout.no_fnmatch_line("*in your code*")


# -- failed where a backend is forced


BY_OPTION = """
import threading
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
"""
BY_TEST = """
@pytest.mark.cudalink(backend="driver")
def test_marker(): library.on_nvjitlink()
@pytest.mark.cudalink(backend="each")
def test_each(): library.on_nvjitlink()
def test_fixture(force_backend):
    force_backend("driver")
    library.on_nvjitlink()
"""
EACH = "def test_each(linker_factory): library.on_nvjitlink()"
FORCED = {
    "option": (BY_OPTION, ["--force-backend=driver"], {"failed": 5, "errors": 1}),
    "test": (BY_TEST, [], {"failed": 3, "passed": 1}),
    "each by option": (EACH, ["--force-backend=each"], {"failed": 1, "passed": 1}),
    "isolated workers": (
        BY_OPTION,
        ["--force-backend=driver", "--cudalink-processes=isolated", "-n2"],
        {"failed": 5, "errors": 1},
    ),
}


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[pytest.mark.slow] if case == "isolated workers" else []) for case in FORCED],
)
def test_forced_and_linked_elsewhere(run, case) -> None:
    """Whoever forced the backend: the test fails, and says which call in which line did it and what to do."""
    module, arguments, outcomes = FORCED[case]
    result = run(module, *arguments)

    result.assert_outcomes(**outcomes)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    failed = sum(outcomes.values()) - outcomes.get("passed", 0)
    result.stdout.fnmatch_lines([WRONG] * failed)
    result.stdout.fnmatch_lines(
        ["*Write a target *(see the page Targets of the documentation)*--cudalink-unsteered=allow*"] * failed
    )
    if case == "option":
        head = "cudalink: not forced: code that calls a linker itself (unsteered fail); a test in which it links *fails"
        result.stdout.fnmatch_lines(["cudalink: forced to driver: bundled*", head])
    also = " 1 on nvJitLink (as forced)," if "passed" in outcomes else ""
    number = sum(outcomes.values())
    summary = f"{number} links in your code were not steered (cuda.bindings.nvjitlink):{also} "
    assert f"{summary}{failed} on nvJitLink (not as forced)" in result.stdout.str()


def test_the_driver_where_nvjitlink_is_forced(run) -> None:
    """The other way around."""
    result = run("def test(): library.on_driver()", "--force-backend=nvjitlink")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*forced to nvjitlink by *library.py:* linked on the driver: cuLinkComplete of *"])


@pytest.mark.parametrize(("backend", "call"), [("driver", "on_driver"), ("nvjitlink", "on_nvjitlink")])
def test_linked_as_forced(run, backend, call) -> None:
    """A link that ran on the forced backend anyway fails nothing; the summary says so."""
    result = run(f"def test(): library.{call}()", f"--force-backend={backend}")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines([f"1 link in your code was not steered (cuda.bindings.{backend}): 1 on * (as forced)"])


def test_other_targets_than_the_forced_ones(run) -> None:
    """Where only some targets are to be forced, other code links as it likes."""
    result = run("def test(): library.on_nvjitlink()", "--force-backend=driver", "--cudalink-target=bundled")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["1 link in your code (cuda.bindings.nvjitlink): 1 on nvJitLink"])


@pytest.mark.parametrize("option", [(), ("--force-backend=driver",), ("--force-backend=nvjitlink",)])
def test_other_targets_than_the_forced_ones_and_a_test_that_names_a_backend(run, option) -> None:
    """The backend of a test holds for all its links, whatever targets the run forces."""
    result = run(BY_TEST, *option, "--cudalink-target=bundled")
    result.assert_outcomes(failed=3, passed=1)
    result.stdout.fnmatch_lines([WRONG] * 3)


def test_each_backend_of_some_targets(run) -> None:
    """What ``--force-backend=each`` forces is the run's choice: other code than the targets links as it likes."""
    module = "@pytest.mark.cudalink\ndef test(): library.on_nvjitlink()"
    run(module, "--force-backend=each").assert_outcomes(passed=1, failed=1)
    run(module, "--force-backend=each", "--cudalink-target=bundled").assert_outcomes(passed=2)


def test_imported_by_name_before(run, pytester) -> None:
    """A function that a plugin took out of the bindings before this plugin was loaded is seen, too."""
    pytester.makepyfile(
        early=LIBRARY.replace("nvjitlink.complete(", "complete(") + "from cuda.bindings.nvjitlink import complete\n"
    )
    result = run("import early\ndef test(): early.on_nvjitlink()", "--force-backend=driver", "-p", "early")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*but early.py:* linked on nvJitLink: nvJitLinkComplete of cuda.bindings.nvjitlink*"])


# -- what cannot be seen


def test_links_of_other_processes_are_not_seen(run) -> None:
    """A process that a test starts has its own bindings, without the plugin; the page on targets says so."""
    module = """
import subprocess, sys
def test(): subprocess.run([sys.executable, "-c", "import library; library.on_nvjitlink()"], check=True)
"""
    result = run(module, "--force-backend=driver")
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*in your code*")


def test_a_function_that_was_kept_before_is_not_seen(run, pytester) -> None:
    """What a plugin took before this one was loaded, and keeps in a list, cannot be replaced; the page says so."""
    early = LIBRARY.replace("driver.cuLinkComplete(", "KEPT[0](") + "KEPT = [driver.cuLinkComplete]\n"
    pytester.makepyfile(early=early)
    result = run("import early\ndef test(): assert early.on_driver() == 0", "--force-backend=nvjitlink", "-p", "early")
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*in your code*")


def test_a_function_that_was_kept_before_is_seen_below_python(run, pytester) -> None:
    """The same function of nvJitLink is seen where it calls the library."""
    early = LIBRARY.replace("nvjitlink.complete(", "KEPT[0](") + "KEPT = [nvjitlink.complete]\n"
    pytester.makepyfile(early=early)
    result = run("import early\ndef test(): early.on_nvjitlink()", "--force-backend=driver", "-p", "early")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*linked on nvJitLink: nvJitLinkComplete of libnvJitLink, called by *nvjitlink*.so*"])


# -- outside of tests


@pytest.mark.parametrize("arguments", [ALONE, BOTH])
def test_outside_of_tests(run, arguments) -> None:
    """A link while a module is collected fails the run, once, and no test."""
    result = run("library.on_nvjitlink()\ndef test(): pass", "--force-backend=driver", *arguments)
    result.assert_outcomes(passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines([f"outside of tests: {WRONG}", "The run fails because of the problems above*"])
    assert result.stdout.str().count("which no target steers") == 1


# -- the setting


def test_warn(run) -> None:
    """The warning is at the test; a run that makes errors of warnings fails the test."""
    module = "def test(): library.on_nvjitlink()"
    result = run(module, "--force-backend=driver", "--cudalink-unsteered=warn")
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(["test_it.py::test", f"*UnsteeredLinkWarning: {WRONG}"])
    result.stdout.fnmatch_lines(["1 link in your code was not steered *(not as forced)"])
    category = "error::pytest_cudalink.plugin.watch.mismatches.UnsteeredLinkWarning"
    result = run(module, "--force-backend=driver", "--cudalink-unsteered=warn", "-W", category)
    result.assert_outcomes(failed=1)


def test_warn_from_another_process(run) -> None:
    """The warning of a test that runs elsewhere keeps its category, although this process has not imported it."""
    options = ("--force-backend=driver", "--cudalink-unsteered=warn", "--cudalink-processes=isolated")
    result = run("def test(): library.on_nvjitlink()", *options)
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines([f"*UnsteeredLinkWarning: {WRONG}"])


def test_allow(run) -> None:
    """Such links are only counted; the header says so, and who has set it."""
    result = run("def test(): library.on_nvjitlink()", "--force-backend=driver", "--cudalink-unsteered=allow")
    result.assert_outcomes(passed=1)
    said = (
        "cudalink: not forced: code that calls a linker itself (unsteered allow, from option); what it links is counted"
    )
    assert said in result.stdout.lines
    result.stdout.fnmatch_lines(["1 link in your code was not steered *: 1 on nvJitLink (not as forced)"])


def test_hook(run, pytester) -> None:
    """The hook is called with each link, in the process that linked."""
    pytester.makeconftest(
        "def pytest_cudalink_unsteered(link, nodeid): print('seen:', link, link.backend, link.forced, nodeid)"
    )
    result = run("def test(): library.on_nvjitlink()", "--force-backend=nvjitlink", "-s")
    result.stdout.fnmatch_lines(
        [f"*seen: nvJitLinkComplete of cuda.bindings.nvjitlink, in library.py:{LINE} nvjitlink nvjitlink *::test"]
    )


# -- other names of the bindings


def test_the_old_module_of_cuda_python(run, pytester) -> None:
    """Up to cuda-python 12.5 ``cuda.cuda`` is a module that does not come from ``cuda.bindings.driver``."""
    folder = pytester.path / "cuda"
    folder.mkdir()
    folder.joinpath("cuda.py").write_text("def cuLinkComplete(state): return 0, 1, 2\n")
    pytester.syspathinsert()
    module = "import cuda.cuda\ndef test(): assert cuda.cuda.cuLinkComplete(None) == (0, 1, 2)"
    result = run(module, "--force-backend=nvjitlink")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["*but test_it.py:4 linked on the driver: cuLinkComplete of cuda.cuda, which no target *"]
    )


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


def test_the_second_driver_module_of_cuda_bindings(run, pytester) -> None:
    """Its function counts under its own name; an error that is not the driver's is no link."""
    pytester.makepyfile(second=SECOND)
    module = """
import sys
def test():
    second = sys.modules["second"]
    assert second.link_complete(1)
    with pytest.raises(second.DriverError): second.link_complete(0)
    with pytest.raises(TypeError): second.link_complete(None)
"""
    result = run(module, "-p", "second", "--cudalink-report=run.jsonl")
    result.assert_outcomes(passed=1)
    found = [(link.call, link.result) for link in read(pytester.path / "run.jsonl").unsteered]
    assert found == [("cuLinkComplete", "ok"), ("cuLinkComplete", "DriverError: CUDA_ERROR_INVALID_HANDLE")]
    result.stdout.fnmatch_lines(["2 links in your code (cuda.bindings._v2.driver): 2 on the driver"])


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


def test_the_linkers_of_older_numba(run, pytester) -> None:
    """The linker of numba that loads libcuda itself is seen, once; the line is that of the code that uses numba."""
    pytester.makepyfile(old_numba=NUMBA)
    module = "import sys\ndef test(): assert sys.modules['old_numba'].CtypesLinker().complete()"
    result = run(module, "-p", "old_numba", "--cudalink-report=run.jsonl")
    result.assert_outcomes(passed=1)
    assert [link.where for link in read(pytester.path / "run.jsonl").unsteered] == ["test_it.py:4"]
    result.stdout.fnmatch_lines(["1 link in your code (numba.cuda.cudadrv.driver): 1 on the driver"])


# -- what cannot be steered


SWALLOWED = "try: import cuda.core._linker\nexcept Exception: pass\n"


@pytest.fixture
def stale(pytester, monkeypatch) -> None:
    """A release of cuda-core that has moved its switch."""
    folder = pytester.path / "cuda" / "core"
    folder.mkdir(parents=True)
    folder.joinpath("__init__.py").touch()
    folder.joinpath("_linker.py").write_text("class Linker: pass\n")
    info = pytester.path / "cuda_core-0.2.0.dist-info"
    info.mkdir()
    info.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: cuda-core\nVersion: 0.2.0\n")
    monkeypatch.setenv("PYTHONPATH", str(pytester.path))


@pytest.mark.usefixtures("stale")
@pytest.mark.parametrize("arguments", [ALONE, XDIST])
def test_a_stale_recipe_that_is_swallowed(pytester, run_pytest, arguments) -> None:
    """A run that forced it ends red, and names it nowhere as forced."""
    pytester.makepyfile(f"{SWALLOWED}def test(): pass")
    result = run_pytest("--force-backend=nvjitlink", *arguments, fresh=True)
    result.assert_outcomes(passed=1)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "cudalink: forced to nvjitlink: bundled*",
            "cudalink: not forced: cuda.core 0.2.0: there are recipes for *",
            "cuda.core is not watched: cudalink cannot steer cuda-core 0.2.0: *",
            "outside of tests: *cudalink cannot steer cuda-core 0.2.0: *",
        ]
    )
    assert not any("forced to" in line and "cuda.core" in line for line in result.stdout.lines)


@pytest.mark.usefixtures("stale")
@pytest.mark.parametrize("where", ["test", "fixture"])
def test_a_stale_recipe_that_a_test_swallows(pytester, run_pytest, where) -> None:
    """The test that imported the library fails; so does one whose fixture did."""
    body = "\n    ".join(SWALLOWED.splitlines())
    decorated = f"import pytest\n@pytest.fixture\ndef library():\n    {body}\n" if where == "fixture" else ""
    pytester.makepyfile(decorated + ("def test(library): pass" if decorated else f"def test():\n    {body}"))
    result = run_pytest("--force-backend=nvjitlink", fresh=True)
    result.assert_outcomes(**{"errors" if decorated else "failed": 1})
    result.stdout.fnmatch_lines(["*cudalink cannot steer cuda-core 0.2.0: *"])


BROKEN = """
from pytest_cudalink.targets import Target
class Broken(Target):
    name, modules = "broken", ("own",)
    def {method}(self, module, *backend): module.no_such_switch
    {other}
def pytest_cudalink_targets(config): return [Broken()]
"""


@pytest.mark.usefixtures("_own_target")
@pytest.mark.parametrize("method", ["install", "force"])
def test_a_target_with_another_error_that_is_swallowed(run, pytester, method) -> None:
    """A target that cannot force its library, for whatever reason, fails the test that imports the library."""
    other = "def force(self, module, backend): pass" if method == "install" else ""
    pytester.makepyfile(broken=BROKEN.format(method=method, other=other))
    module = "def test():\n    try: import own\n    except Exception: pass\ndef test_other(): pass"
    result = run(module, "--force-backend=driver", "-p", "broken")
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(
        ["cudalink cannot steer broken: its target raised AttributeError: *", "broken is not watched: *no_such_switch*"]
    )


@pytest.mark.usefixtures("stale")
def test_a_stale_recipe_that_collection_shows(pytester, run_pytest) -> None:
    """The error of the module says it; the summary does not repeat it as a problem."""
    pytester.makepyfile("import cuda.core._linker\ndef test(): pass")
    result = run_pytest("--force-backend=nvjitlink", fresh=True)
    result.assert_outcomes(errors=1)
    result.stdout.no_fnmatch_line("outside of tests: *")
