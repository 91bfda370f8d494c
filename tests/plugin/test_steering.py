"""Steering without a library of NVIDIA's: the import hook, hooks of other projects, verification, recipes."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
from types import ModuleType

import pytest

from pytest_cudalink.process.imports import ImportWatch
from pytest_cudalink.report import read
from pytest_cudalink.targets import StaleRecipeError, Target
from pytest_cudalink.targets.base import registered
from pytest_cudalink.targets.recipes import recipe_for, recipes


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package on the path: ``watched.inner`` and ``watched.other``."""
    folder = tmp_path / "watched"
    folder.mkdir()
    (folder / "__init__.py").write_text("ORDER = ['package']\n")
    (folder / "inner.py").write_text("from watched import ORDER\nORDER.append('inner')\n")
    (folder / "other.py").write_text("from watched.inner import ORDER\nORDER.append('other')\n")
    (folder / "broken.py").write_text("raise RuntimeError('broken')\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield folder
    for name in [name for name in sys.modules if name.partition(".")[0] == "watched"]:
        del sys.modules[name]


def test_told_before_anybody_sees_it(package) -> None:
    """The module is complete, and its importer has not gone on."""
    seen = []
    watch = ImportWatch(lambda module: (seen.append(module.__name__), module.ORDER.append("told")))
    watch.watch(["watched.inner"])
    try:
        assert not [name for name in sys.modules if name.startswith("watched")]
        import watched.other

        assert seen == ["watched.inner"]
        assert watched.ORDER == ["package", "inner", "told", "other"]
        assert type(watched.inner.__loader__).__module__ == "_frozen_importlib_external"
        assert watched.inner.__spec__.loader is watched.inner.__loader__
        importlib.reload(watched.inner)
        assert seen == ["watched.inner"] * 2
    finally:
        watch.stop()
    assert watch not in sys.meta_path


def test_found_without_being_imported(package) -> None:
    """Who only looks for a module gets a loader that answers all that its own does."""
    watch = ImportWatch(lambda _: None)
    watch.watch(["watched.inner"])
    try:
        spec = importlib.util.find_spec("watched.inner")
        assert spec.loader.get_source("watched.inner") == (package / "inner.py").read_text()
        assert not hasattr(spec.loader, "no_such_method")
    finally:
        watch.stop()


def test_told_at_once_of_what_is_there(package) -> None:
    """A module that was imported before is told of when it is watched."""
    import watched.inner  # noqa: F401

    seen = []
    watch = ImportWatch(lambda module: seen.append(module.__name__))
    watch.watch(["watched.inner", "watched.missing"])
    watch.stop()
    assert seen == ["watched.inner"]


def test_errors_of_the_module_stay(package) -> None:
    """A module that fails, or is not there, fails as without a watch, and may be tried again."""
    seen = []
    watch = ImportWatch(seen.append)
    watch.watch(["watched.broken", "watched.missing"])
    try:
        for _ in range(2):
            with pytest.raises(RuntimeError, match="broken"):
                importlib.import_module("watched.broken")
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module("watched.missing")
    finally:
        watch.stop()
    assert seen == []


def test_finder_that_asks_the_others(package, monkeypatch) -> None:
    """A finder in front that goes round all finders, as numba-cuda's does, gets one answer and tells once."""

    class Redirector:
        @staticmethod
        def find_spec(name, path, target=None):
            if not name.startswith("watched."):
                return None
            found = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not Redirector)
            return next((spec for spec in found if spec is not None), None)

    seen = []
    watch = ImportWatch(seen.append)
    watch.watch(["watched.inner"])
    monkeypatch.setattr(sys, "meta_path", [Redirector, *sys.meta_path])
    try:
        importlib.import_module("watched.inner")
        assert len(seen) == 1
    finally:
        watch.stop()


def test_two_watches_are_both_told(package) -> None:
    """A pytest inside a pytest watches too."""
    seen = []
    watches = [ImportWatch(lambda _, name=name: seen.append(name)) for name in ("outer", "inner")]
    for watch in watches:
        watch.watch(["watched.inner"])
    try:
        importlib.import_module("watched.inner")
    finally:
        for watch in watches:
            watch.stop()
    assert sorted(seen) == ["inner", "outer"]


def test_imports_in_threads(package) -> None:
    """One execution, one telling."""
    seen = []
    watch = ImportWatch(seen.append)
    watch.watch(["watched.inner"])
    threads = [threading.Thread(target=importlib.import_module, args=("watched.other",)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    watch.stop()
    assert len(seen) == 1


def module_of(recipe, **names) -> ModuleType:
    """A module as a recipe wants it, with some names changed; `...` removes one."""
    module = ModuleType(recipe.module)
    literals = {"none": None, "true": True, "false": False}
    for name, value in recipe.undecided.items():
        setattr(module, name, literals[value])
    for name in recipe.needs:
        setattr(module, name, object())
    for name, value in names.items():
        delattr(module, name) if value is ... else setattr(module, name, value)
    return module


@pytest.mark.parametrize("recipe", [*recipes("cuda-core"), *recipes("numba-cuda")], ids=lambda one: one.versions)
def test_stale_recipe(recipe) -> None:
    """A name that is gone, or that begins otherwise, is an error that names release, name and remedy."""
    recipe.check(module_of(recipe), "9.9")
    for name in [*recipe.undecided, *recipe.needs]:
        with pytest.raises(StaleRecipeError, match=rf"cannot steer {recipe.target} 9.9: .* has no {name}, which .*"):
            recipe.check(module_of(recipe, **{name: ...}), "9.9")
    for name in recipe.undecided:
        with pytest.raises(StaleRecipeError, match=rf"starts with {name} = 'else'.*Update pytest-cudalink"):
            recipe.check(module_of(recipe, **{name: "else"}), "9.9")


@pytest.mark.parametrize("recipe", recipes("cuda-core"), ids=lambda one: one.versions)
def test_recipes_set_and_give_back(recipe) -> None:
    """Each backend sets the same names, and giving back makes them what they were."""
    module = module_of(recipe)
    before = dict(vars(module))
    objects = {"driver": "the driver", "nvjitlink": "nvJitLink", "driver-version": (13, 0)}
    for backend in ("driver", "nvjitlink"):
        recipe.apply(module, backend, objects)
        assert vars(module) != before
        recipe.apply(module, None, objects)
        assert vars(module) == before


@pytest.mark.parametrize(
    ("target", "version"), [("cuda-core", "0.3.1"), ("cuda-core", "0.2.0"), ("numba-cuda", "0.22")]
)
def test_release_without_a_recipe(target, version) -> None:
    """A release that nobody wrote a recipe for is refused with those that there are."""
    with pytest.raises(StaleRecipeError, match=rf"cannot steer {target} {version}: there are recipes for >="):
        recipe_for(target, version)


def test_target_needs_force() -> None:
    """A target that cannot be forced is none."""
    with pytest.raises(TypeError, match="abstract"):
        Target()


LIBRARY = """
USE = "nvjitlink"
def link(): return USE
"""

CONFTEST = """
import pytest
from pytest_cudalink.targets import Choice, LinkInput, Target, watch

class Lib(Target):
    name = "lib"
    modules = ("lib",)
    def install(self, module):
        original = module.link
        def link(name="input"):
            with watch("lib", [LinkInput("ptx", name)]) as watched:
                # a choice for this link alone counts before the switch
                watched.backend = WORKS and watched.choice.backend or original()
                return watched.backend
        module.link = link
    def force(self, module, backend):
        if WORKS:
            module.USE = backend or "nvjitlink"

def pytest_cudalink_targets(config):
    return [Lib()]
"""


@pytest.fixture
def run(pytester: pytest.Pytester, run_pytest):
    """Run pytest on a library and a target for it."""
    pytester.makepyfile(lib=LIBRARY)

    def go(module: str, *arguments: str, works: bool = True, hooks: str = "") -> pytest.RunResult:
        pytester.makeconftest(f"WORKS = {works}\n{CONFTEST}\n{hooks}")
        pytester.makepyfile(test_it=f"import pytest\n{module}")
        return run_pytest("--cudalink-driver=13.0", "-p", "no:cacheprovider", *arguments)

    return go


def test_own_target(run) -> None:
    """A project's target is forced at import, watched, and named in header and summary."""
    result = run("import lib\ndef test(): assert lib.link() == 'driver'\n", "--force-backend=driver")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["cudalink: forced to driver: bundled, *lib", "lib: 1 link (1 on the driver)"])


def test_verification(run) -> None:
    """A target that does not do what it is told fails each test that links, loudly."""
    result = run(
        "import lib\ndef test_first(): lib.link()\ndef test_second(): lib.link()\n",
        "--force-backend=driver",
        works=False,
    )
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        [
            "*ForcedBackendError: cudalink: lib was forced to driver by --force-backend, from option, but its linker *",
        ]
    )


@pytest.mark.parametrize(
    "link",
    [
        "def test():\n    with pytest.raises(RuntimeError): lib.link()",
        "@pytest.mark.xfail\ndef test(): lib.link()",
        "@pytest.mark.cudalink(driver='>=99', otherwise=Raises(RuntimeError))\ndef test(): lib.link()",
        "with pytest.raises(RuntimeError): lib.link()\ndef test(): pass",
    ],
    ids=["caught", "xfail", "documented", "outside"],
)
def test_mismatch_that_is_caught(run, link) -> None:
    """Nor does a test pass that catches the error, expects it, or comes after one that was caught outside of tests."""
    module = f"import lib\nfrom pytest_cudalink import Raises\n{link}\n"
    result = run(module, "--force-backend=nvjitlink", works=False, hooks="\nimport lib\nlib.USE = 'driver'\n")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(["*cudalink: lib was forced to nvjitlink by *, but its linker says driver*"])
    result.stdout.no_fnmatch_line("* passed*")


def test_mismatch_is_shown_beside_another_failure(run) -> None:
    """It is not lost where the test fails for a reason of its own, or where no report of a test comes any more."""
    hooks = "\nimport lib\nlib.USE = 'driver'\n"
    caught = "    with pytest.raises(RuntimeError): lib.link()\n"
    module = f"import lib\ndef test():\n{caught}    assert False, 'its own'\n"
    result = run(module, "--force-backend=nvjitlink", works=False, hooks=hooks)
    result.stdout.fnmatch_lines(["*its own*", "*- cudalink forced backend -*", "*but its linker says driver*"])
    hooks += "import pytest\ndef pytest_sessionfinish():\n" + caught
    for workers in ((), ("-n1",)):
        result = run("import lib\ndef test(): pass\n", "--force-backend=nvjitlink", *workers, works=False, hooks=hooks)
        assert result.ret == pytest.ExitCode.TESTS_FAILED
        result.stdout.fnmatch_lines(["outside of tests: *but its linker says driver*", "The run fails because of *"])


def test_unforced_is_not_verified(run) -> None:
    """Without a choice there is nothing to hold a library against."""
    run("import lib\ndef test(): lib.link()\n", works=False).assert_outcomes(passed=1)


def test_hooks(run, pytester) -> None:
    """A project vetoes, changes single links, is told of each, and adds facts."""
    hooks = """
def pytest_cudalink_decide(config, target, choice, inputs):
    if target == "bundled":
        return Choice(None, "a veto")
    if inputs and inputs[0].name == "special":
        return Choice("nvjitlink", "special inputs")

def pytest_cudalink_link(config, event):
    print("told:", event.target, event.backend, event.result, event.inputs[0].name, event.nodeid, event.duration >= 0)

def pytest_cudalink_facts(config):
    return {"lib": "version 7", "count": 3}
"""
    result = run(
        """
import lib
from pytest_cudalink.linker import forcing

def test_links():
    assert lib.link() == "driver"
    assert lib.link("special") == "nvjitlink"
    assert forcing.forced() is None
""",
        "--force-backend=driver",
        "-s",
        "--cudalink-report=run.jsonl",
        hooks=hooks,
    )
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        [
            "cudalink: lib: version 7",
            "cudalink: count: 3",
            "*told: lib driver ok input test_it.py::test_links True",
            "told: lib nvjitlink ok special test_it.py::test_links True",
        ]
    )
    assert read(pytester.path / "run.jsonl").run.facts == {"lib": "version 7", "count": 3}


def test_hook_fails_one_link(run) -> None:
    """An exception of the hook for a link fails that link alone."""
    hooks = """
def pytest_cudalink_decide(config, target, choice, inputs):
    if inputs and inputs[0].name == "forbidden":
        raise RuntimeError("not this one")
"""
    result = run(
        """
import lib
def test_links():
    lib.link()
    with pytest.raises(RuntimeError, match="not this one"):
        lib.link("forbidden")
    lib.link()
""",
        hooks=hooks,
    )
    result.assert_outcomes(passed=1)


@pytest.mark.parametrize("value", ["cuda.cor", "lib,nothing", ","])
def test_unknown_target(run, value) -> None:
    """``--cudalink-target`` names what there is; anything else is a usage error that lists it."""
    result = run("def test(): pass\n", f"--cudalink-target={value}", "--force-backend=driver")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [f"*--cudalink-target is '{value}' (from option); *expected all or some of bundled, *lib"]
    )


class _Own(Target):
    name, modules = "own", ("own",)

    def force(self, module, backend):
        """Nothing to force."""


def _with(**attributes) -> Target:
    return type("Own", (_Own,), attributes)()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (_Own(), r"is no list of targets; return \[_Own\(\)\]"),
        ([_Own], r"is no target; return an instance, _Own\(\)"),
        ([object()], "is no target; inherit from pytest_cudalink.targets.Target"),
        ({"own": _Own()}, "'own' is no target"),
        ([_with(name="")], r"Own\(\) has the name ''; give the class a name"),
        ([_with(modules="own")], r"Own\(\) has the modules 'own'; write their full names in a tuple"),
        ([_with(modules=(_Own,))], "write their full names in a tuple"),
    ],
)
def test_what_is_no_target(answer, words) -> None:
    """A mistake in the hook is told with what to write."""
    with pytest.raises(TypeError, match=words):
        registered(answer)


@pytest.mark.parametrize("answer", [[_Own()], (_Own(),), iter([_Own()]), [_with(modules=["own"])], []])
def test_registered(answer) -> None:
    """Any collection will do."""
    assert all(target.name == "own" for target in registered(answer))


def test_registered_wrongly(run) -> None:
    """It is a usage error that names the hook, and no traceback."""
    result = run("def test(): pass\n", hooks="def pytest_cudalink_targets(): return Lib()\n")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: cudalink: the hook pytest_cudalink_targets: * is no list of targets; *"])
    result.stderr.no_fnmatch_line("*Traceback*")


def test_narrowed_to_an_own_target(run) -> None:
    """Only the named target is forced."""
    result = run(
        "import lib\nfrom pytest_cudalink.linker import forcing\n"
        "def test(): assert lib.link() == 'driver' and forcing.forced() is None\n",
        "--cudalink-target=lib",
        "--force-backend=driver",
    )
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["cudalink: forced to driver: lib (--cudalink-target from option)"])


MOVED = """
from pytest_cudalink.targets import StaleRecipeError

def install(self, module):
    raise StaleRecipeError("cannot steer lib 9.9: it has no switch")

Lib.install = install
"""


@pytest.mark.parametrize("arguments", [(), ("--force-backend=driver", "--cudalink-target=bundled"), ("-n1",)])
def test_stale_target_that_nobody_forces(run, arguments) -> None:
    """A release without a recipe breaks no suite that does not force it: it is left alone, and the summary says so."""
    result = run("import lib\ndef test(): assert lib.link() == 'nvjitlink'\n", *arguments, hooks=MOVED)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["lib is not watched: cannot steer lib 9.9: it has no switch"])


def test_stale_target_that_is_forced(run) -> None:
    """What is forced for the run is refused at its import."""
    result = run("import lib\ndef test(): pass\n", "--force-backend=driver", hooks=MOVED)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*StaleRecipeError: cannot steer lib 9.9: it has no switch"])


def test_stale_target_that_one_test_forces(run) -> None:
    """Only the test that forces it fails; the others link as before."""
    result = run(
        """
import lib
def test_before(): lib.link()
@pytest.mark.cudalink(backend="driver")
def test_marked(): pass
def test_fixture(force_backend): force_backend("driver")
def test_after(cudalink_backend):
    assert (lib.link(), cudalink_backend) == ("nvjitlink", None)
""",
        hooks=MOVED,
    )
    result.assert_outcomes(passed=2, failed=1, errors=1)
    result.stdout.fnmatch_lines(["FAILED *test_fixture - *StaleRec*", "ERROR *test_marked - *StaleRec*"])


def test_imported_anew(run) -> None:
    """A library that is imported a second time is another module: forced and watched as the first."""
    module = """
import sys
def test():
    import lib as first
    del sys.modules["lib"]
    import lib as second
    assert first is not second
    assert (first.link(), second.link()) == ("driver", "driver")
"""
    result = run(module, "--force-backend=driver")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["lib: 2 links (2 on the driver)"])
