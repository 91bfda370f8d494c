"""cuda.core, as released: forced, watched, faked, and given back. ``nox -s targets`` runs this on each branch."""

import json

import pytest
from packaging.version import Version

from pytest_cudalink.targets.base import recipe_for, recipes
from pytest_cudalink.targets.cuda_core import CudaCore

LINKS = """
def test_links(emulated_driver):
    linker = make()
    image(linker)
    assert ran(linker) == {backend!r}
    completed = [event for event in emulated_driver.events("cuLinkComplete") if "violation" not in event]
    assert len(completed) == ({backend!r} == "driver")
    assert linker_module._decide_nvjitlink_or_driver() == ({backend!r} == "driver")
    which = getattr(Linker, "which_backend", lambda: linker.backend)()
    assert which.lower() == {backend!r}

def test_links_again():
    assert ran(make()) == {backend!r}
"""


@pytest.mark.parametrize("backend", ["driver", "nvjitlink"])
def test_forced(go, cuda_core, backend) -> None:
    """The library links on the forced backend, as the driver's event log shows; the header and the summary say so."""
    result = go(LINKS.format(backend=backend), f"--force-backend={backend}").ended(passed=2)
    name = {"driver": "the driver", "nvjitlink": "nvJitLink"}[backend]
    result.shows(f"cudalink: forced to {backend}: bundled, cuda.core {cuda_core}*", f"cuda.core: 1 link (1 on {name})")
    result.stdout.no_fnmatch_line("*in your code*")


def test_not_forced(go) -> None:
    """Without an option the library decides, and is watched."""
    go(LINKS.format(backend="nvjitlink")).ended(passed=2).shows("cuda.core: 1 link (1 on nvJitLink)")


def test_nothing_is_imported(go) -> None:
    """A suite that does not import a library does not get it imported."""
    go(
        "import sys\ndef test(): assert not [n for n in sys.modules if n == 'numba' or n.split('.')[0] == 'cuda']\n",
        "--force-backend=nvjitlink",
        "-q",
        head="",
    ).ended(passed=1)


def test_forced_without_a_linker_of_its_own(go) -> None:
    """A module that decides its skips at import sees what is forced; a Program of PTX makes a linker inside."""
    module = """
FALLS_BACK = linker_module._decide_nvjitlink_or_driver()
@pytest.mark.skipif(not FALLS_BACK, reason="wants the driver")
def test_driver_only(): pass

def test_program():
    text = open("user.ptx").read()
    program = Program(text, "ptx", ProgramOptions(arch="sm_90"))
    code = bytes(program.compile("cubin").code)
    assert code[:4] == b"\\x7fELF"
    assert program.backend == "driver"
    program.close()
"""
    go(module, "--force-backend=driver").ended(passed=2).shows("cuda.core: 1 link (1 on the driver)")


def test_both_in_one_process(go) -> None:
    """``--force-backend=each`` runs the tests on both, one after the other."""
    module = """
@pytest.mark.cudalink
@pytest.mark.parametrize("i", range(3))
def test_links(i, cudalink_backend):
    linker = make()
    image(linker)
    assert ran(linker) == cudalink_backend
"""
    go(module, "--force-backend=each").ended(passed=6).shows("cuda.core: 6 links (3 on the driver, 3 on nvJitLink)")


def test_linkers_outlive_a_change(go) -> None:
    """A linker keeps its backend when the choice changes: to link, to read logs, to close, to be finalized."""
    module = """
@pytest.mark.parametrize("close", [True, False])
@pytest.mark.parametrize("first", ["driver", "nvjitlink"])
def test_outlives(force_backend, emulated_driver, first, close):
    second = {"driver": "nvjitlink", "nvjitlink": "driver"}[first]
    force_backend(first)
    options = LinkerOptions(arch="sm_90")
    linker, other = make(), make()
    force_backend(second)
    assert ran(make()) == second
    assert ran(Linker(*codes(), options=options)) == second  # options that were made before
    image(linker)
    linker.get_info_log(), linker.get_error_log()
    force_backend(None)
    image(other)
    assert {ran(linker), ran(other)} == {first}
    if close:
        linker.close()
        other.close()
    del linker, other
    gc.collect()
    assert emulated_driver.control.live_states == 0

def test_given_back(force_backend, emulated_driver):
    force_backend("driver")
    linker = make()
    force_backend(None)
    assert ran(make()) == "nvjitlink"
    del linker
    gc.collect()
    assert emulated_driver.control.live_states == 0
"""
    go(module, "-W", "error::pytest.PytestUnraisableExceptionWarning").ended(passed=5)


def test_lifetimes(go, cuda_core) -> None:
    """From 0.7 to 1.0 the library frees what it gave to cuLinkCreate too early: the test that linked fails, by name."""
    result = go("def test_links(): image(make())\n", "--force-backend=driver", "--cudalink-checks=lifetimes=fail")
    if Version(cuda_core) < Version("1.1"):
        result.ended(failed=1)
        result.shows("*link state 1: CU_JIT_INFO_LOG_BUFFER: *", "* lifetime violation*")
    else:
        result.ended(passed=1)


def test_refused_link_is_told(go, pytester) -> None:
    """An error reaches the test unchanged, and the record names it."""
    module = """
def test_refused():
    bad = ObjectCode.from_ptx(open("main.ptx", "rb").read().replace(b".version 8.8", b".version 99.9"))
    Linker(bad, options=LinkerOptions(arch="sm_90")).link("cubin")
"""
    go(module, "--force-backend=driver", "--cudalink-report=run.jsonl").ended(failed=1)
    events = [json.loads(line) for line in pytester.path.joinpath("run.jsonl").read_text().splitlines()]
    (link,) = [event for event in events if event["event"] == "link"]
    assert link["target"] == "cuda.core"
    assert link["backend"] == "driver"
    assert link["result"] == "CUDAError: CUDA_ERROR_UNSUPPORTED_PTX_VERSION"
    assert link["inputs"][0]["kind"] == "ptx"
    (test,) = [event for event in events if event["event"] == "test"]
    assert (test["outcome"], test["backends"]) == ("failed", {"driver": 1})


def test_the_library_as_tests_see_it(go) -> None:
    """Its class looks like itself; its own decision sees what is faked, and forgets it when the fake ends."""
    module = """
decide = linker_module._decide_nvjitlink_or_driver

def test_class():
    assert Linker.__name__ == "Linker" and Linker.__module__ == linker_module.__name__
    assert isinstance(make(), Linker)
    with pytest.raises(ValueError, match="At least one ObjectCode"):
        Linker()
    with pytest.raises(TypeError):
        Linker("not a code", options=LinkerOptions(arch="sm_90"))
    with pytest.raises(ValueError, match="(?i)unsupported target"):
        make().link("fatbin")

def test_present(fake_versions):
    fake_versions(driver="12.9", nvjitlink="13.0")
    assert decide() is False

@pytest.mark.filterwarnings("ignore:.*nvJitLink:RuntimeWarning")
def test_absent(fake_versions):
    fake_versions(driver="13.0", nvjitlink=None)
    assert decide() is True
    assert ran(make()) == "driver"

def test_over():
    assert decide() is False
    assert ran(make()) == "nvjitlink"
"""
    go(module).ended(passed=4)


def test_narrowed(go) -> None:
    """``--cudalink-target`` leaves the others alone."""
    module = """
from pytest_cudalink import linker as ours
def test_left_out():
    assert ran(make()) == "nvjitlink"
    inputs = [ours.ObjectCode.from_ptx(name) for name in ("main.ptx", "user.ptx")]
    assert ours.Linker(*inputs, options=ours.LinkerOptions(arch="sm_90")).backend == "driver"
"""
    result = go(module, "--force-backend=driver", "--cudalink-target=bundled").ended(passed=1)
    result.shows("cudalink: forced to driver: bundled (--cudalink-target from option)")


UNKNOWN = """
from pytest_cudalink.targets.cuda_core import CudaCore
CudaCore.version = lambda self: "0.1"
"""


def test_links_of_an_unknown_release_are_counted(go, pytester) -> None:
    """A release without a recipe is not steered, and each of its links is counted once, with its backend."""
    pytester.makeconftest(UNKNOWN)
    go("def test():\n    image(make())\n    image(make())\n").ended(passed=1).shows(
        "2 links in your code (cuda.core): 2 on nvJitLink",
        "cuda.core is not watched: cudalink cannot steer cuda-core 0.1: expected cuda-core >=0.7. *",
    )


def test_recipes_cover_the_tested_releases() -> None:
    """Every branch that is tested has one recipe, which names a module that the target watches."""
    tested = ["0.7.0", "1.0.1", "1.1.1", "1.2.2"]
    for version in tested:
        recipe = recipe_for("cuda-core", version)
        assert version in recipe.tested.split(", ")
        assert recipe.module in CudaCore.modules
    assert ", ".join(recipe.tested for recipe in recipes("cuda-core")).split(", ") == tested
