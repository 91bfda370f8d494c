"""Steering without a library of NVIDIA's: a project's own target, its hooks, verification, and the bundled linker."""

import pytest

from pytest_cudalink.compat.settings_table import OPTIONS
from pytest_cudalink.plugin.watch.backends import TARGETS
from pytest_cudalink.report import read
from tests.nested import ALONE, XDIST

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
    def which_backend(self, module):
        return module.USE

def pytest_cudalink_targets(config):
    return [Lib()]
"""


@pytest.fixture
def run(pytester: pytest.Pytester, run_pytest):
    """Run pytest on a library and a target for it."""
    pytester.makepyfile(lib=LIBRARY)

    def go(module: str, *arguments: str, works: bool = True, hooks: str = "") -> pytest.RunResult:
        pytester.makeconftest(f"WORKS = {works}\n{CONFTEST}\n{hooks}")
        given = ("--cudalink-driver=13.0", "-p", "no:cacheprovider", *arguments)
        return run_pytest(*given, module=f"import pytest\n{module}")

    return go


def test_own_target(run) -> None:
    """A project's target is forced at import, each time it is imported, watched, and named in header and summary."""
    module = """
import sys
from pytest_cudalink.targets import watch
def test():
    import lib as first
    del sys.modules["lib"]
    import lib as second
    assert first is not second
    with watch("other", backend="driver"): pass  # no target of the run
    assert (first.link(), second.link()) == ("driver", "driver")
"""
    result = run(module, "--force-backend=driver").ended(passed=1)
    result.shows("cudalink: forced to driver: bundled, *lib", "lib: 2 links (2 on the driver)")


def test_every_link_is_compared(run) -> None:
    """A test that undoes the forced choice fails, also after links that ran as forced."""
    result = run(
        """
import lib
def test_first(): lib.link()
def test_undone():
    lib.undone = True
    lib.link()
def test_last():
    lib.undone = False
    lib.link()
""",
        "--force-backend=driver",
        hooks="""
import lib
lib.undone = False
original = lib.link
lib.link = lambda: "nvjitlink" if lib.undone else original()
WORKS = False  # what the run chooses for one link does not count, only the switch
Lib.force = lambda self, module, backend: setattr(module, "USE", backend)
""",
    ).ended(passed=2, failed=1)
    result.shows("*cudalink: lib was forced to driver by *, but its linker says nvjitlink. The target lib *")


LINKER_OF_THE_MODULE = """
from pytest_cudalink.linker import Linker, LinkerOptions, ObjectCode
PTX = b".version 8.0\\n.target sm_90\\n.address_size 64\\n.visible .func f() { ret; }"

@pytest.fixture(scope="module")
def linker():
    with Linker(ObjectCode.from_ptx(PTX), options=LinkerOptions(arch="sm_90"), **OPTIONS) as linker:
        yield linker
"""


#: Options of the linker, and the backends that the test that makes it and the test that links with it force.
LINKERS = {
    "free": ({}, None, "driver"),
    "as_forced": ({}, "nvjitlink", "nvjitlink"),
    "named_by_the_caller": ({"backend": "nvjitlink"}, None, "driver"),
}


def test_linker_of_a_wider_scope(run, pytester) -> None:
    """A test fails if it links with a linker of an earlier test that has another backend than the test forces."""
    for name, (options, *backends) in LINKERS.items():
        marks = [f"@pytest.mark.cudalink(backend={backend!r})\n" if backend else "" for backend in backends]
        code = (
            f"import pytest\nOPTIONS = {options}\n{LINKER_OF_THE_MODULE}\n"
            f"{marks[0]}def test_makes(linker): pass\n{marks[1]}def test_links(linker): linker.link('cubin')\n"
        )
        pytester.makepyfile(**{f"test_{name}": code})
    result = run("", "-rf").ended(passed=5, failed=1)
    why = "forced to driver by the marker cudalink, but this linker was made for nvjitlink in *test_makes*"
    result.shows(f"*cudalink: bundled was {why}", "FAILED test_free.py::test_links - *")


CAUGHT = """
import lib
from pytest_cudalink import Raises

def test_caught():
    with pytest.raises(RuntimeError): lib.link()
@pytest.mark.xfail
def test_xfail(): lib.link()
@pytest.mark.cudalink(driver='>=99', otherwise=Raises(RuntimeError))
def test_documented(): lib.link()
"""


def test_mismatch_that_is_caught(run) -> None:
    """A test that catches the error or expects it fails, and so does the run if it was caught outside of tests."""
    hooks = "\nimport lib\nlib.USE = 'driver'\n"
    hooks += "Lib.which_backend = lambda *_: 'other'\nLib.version = lambda _: '9.9'\n"
    said = "*cudalink: lib 9.9 was forced to nvjitlink by *, but its linker says driver and which_backend() says other*"
    result = run(CAUGHT, "--force-backend=nvjitlink", works=False, hooks=hooks).ended(failed=3)
    result.stdout.fnmatch_lines([said] * 3)
    outside = "import lib\nwith pytest.raises(RuntimeError): lib.link()\ndef test(): pass\n"
    result = run(outside, "--force-backend=nvjitlink", works=False, hooks=hooks)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.shows(said)
    result.stdout.no_fnmatch_line("* passed*")


@pytest.mark.parametrize("arguments", [ALONE, XDIST])
def test_mismatch_after_the_last_test(run, arguments) -> None:
    """It is shown, and fails the run, where no report of a test follows."""
    hooks = "\nimport lib, pytest\nlib.USE = 'driver'\n"
    hooks += "def pytest_sessionfinish():\n    with pytest.raises(RuntimeError): lib.link()\n"
    result = run("import lib\ndef test(): pass\n", "--force-backend=nvjitlink", *arguments, works=False, hooks=hooks)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.shows("outside of tests: *but its linker says driver*", "The run fails because of *")


def test_hooks(run, pytester) -> None:
    """A project vetoes, changes single links or fails one alone, sees each link, and adds facts."""
    hooks = """
def pytest_cudalink_decide(config, target, choice, inputs):
    if target == "bundled":
        return Choice(None, "a veto")
    if inputs and inputs[0].name == "special":
        return Choice("nvjitlink", "special inputs")
    if inputs and inputs[0].name == "forbidden":
        raise RuntimeError("not this one")

def pytest_cudalink_link(config, event):
    print("told:", event.target, event.backend, event.result, event.inputs[0].name, event.nodeid, event.duration >= 0)

def pytest_cudalink_facts(config):
    return {"lib": "version 7", "count": 3}
"""
    result = run(
        """
import lib
from pytest_cudalink.targets.steering import current

def test_links():
    assert lib.link() == "driver"
    with pytest.raises(RuntimeError, match="not this one"):
        lib.link("forbidden")
    assert lib.link("special") == "nvjitlink"
    assert current().wanted("bundled").backend is None
""",
        "--force-backend=driver",
        "-s",
        "--cudalink-report=run.jsonl",
        hooks=hooks,
    ).ended(passed=1)
    result.shows(
        "cudalink: lib: version 7",
        "cudalink: count: 3",
        "*told: lib driver ok input test_it.py::test_links True",
        "told: lib nvjitlink ok special test_it.py::test_links True",
    )
    assert read(pytester.path / "run.jsonl").run.facts == {"lib": "version 7", "count": 3}


@pytest.mark.parametrize("value", ["lib,nothing", ","])
def test_unknown_target(run, value) -> None:
    """``--cudalink-target`` names what there is; anything else is a usage error that lists it."""
    result = run("def test(): pass\n", f"--cudalink-target={value}", "--force-backend=driver")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [f"*--cudalink-target is '{value}' (from option); *expected all or some of bundled, *lib"]
    )


def test_registered_wrongly(run) -> None:
    """A wrong answer is a usage error that names the hook, without a traceback."""
    result = run("def test(): pass\n", hooks="def pytest_cudalink_targets(): return Lib()\n")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: cudalink: the hook pytest_cudalink_targets: * is not a list of targets; *"])
    result.stderr.no_fnmatch_line("*Traceback*")


def test_narrowed_to_an_own_target(run) -> None:
    """Only the named target is forced, whatever spaces stand around its name."""
    result = run(
        "import lib\nfrom pytest_cudalink.targets.steering import current\n"
        "def test(): assert lib.link() == 'driver' and current().wanted('bundled').backend is None\n",
        "--cudalink-target= lib ,",
        "--force-backend=driver",
    ).ended(passed=1)
    result.shows("cudalink: forced to driver: lib (--cudalink-target from option)")


MOVED = """
from pytest_cudalink.targets import StaleRecipeError

def install(self, module):
    raise StaleRecipeError("cannot steer lib 9.9: it has no switch")

Lib.install = install
"""


@pytest.mark.parametrize("arguments", [ALONE, ("--force-backend=driver", "--cudalink-target=bundled")])
def test_stale_target_that_is_not_forced(run, arguments) -> None:
    """A release without a recipe breaks no suite that does not force it: it is not watched, and the summary says so."""
    result = run("import lib\ndef test(): assert lib.link() == 'nvjitlink'\n", *arguments, hooks=MOVED)
    result.ended(passed=1)
    result.shows("lib is not watched: cannot steer lib 9.9: it has no switch")


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
    ).ended(passed=2, failed=1, errors=1)
    result.shows("FAILED *test_fixture - *StaleRec*", "ERROR *test_marked - *StaleRec*")


BUNDLED = """
import sys
assert "pytest_cudalink.targets" not in sys.modules  # start-up does not import what it may not need

from pytest_cudalink.linker import Linker, LinkerOptions, ObjectCode

def test_it(): Linker(ObjectCode.from_ptx("user.ptx"), options=LinkerOptions(arch="sm_90")).link()
"""


@pytest.mark.parametrize(
    ("chosen", "backend", "forced"), [(None, "nvjitlink", None), ("Choice('driver', 'the hook')", "driver", "the hook")]
)
def test_bundled_linker_of_a_run_that_forces_nothing(pytester, run_pytest, samples, toolkit, chosen, backend, forced):
    """The first linker starts the steering: its link is counted and reported, and a hook chooses its backend."""
    pytester.path.joinpath("user.ptx").write_bytes(samples["12.9/user.ptx"])
    pytester.makeconftest(
        f"""
def pytest_cudalink_decide(target, inputs):
    from pytest_cudalink.targets import Choice
    return {chosen}

def pytest_cudalink_link(event):
    print("link:", event.target, event.backend, event.forced, event.nodeid)
"""
    )
    result = run_pytest("-s", "--cudalink-driver=13.0", module=BUNDLED).ended(passed=1)
    name = {"driver": "the driver", "nvjitlink": "nvJitLink"}[backend]
    result.shows(f"*link: bundled {backend} {forced} test_it.py::test_it", f"bundled: 1 link (1 on {name})")


OUTER = '''
pytest_plugins = ["pytester"]
INNER = """
from pytest_cudalink.targets import Target, watch
def test_inner():
    import cuda.bindings.driver
    with watch("bundled") as link:
        assert (link.choice.backend, link.choice.source) == ("nvjitlink", "--force-backend, from option")
        link.backend = "nvjitlink"
"""

def test_outer(pytester):
    pytester.makepyfile(INNER)
    arguments = ("--force-backend=nvjitlink", "--cudalink-target=bundled")
    for _ in range(2):
        pytester.inline_run("-p", "cudalink", *arguments).assertoutcome(passed=1)
'''


@pytest.mark.parametrize("arguments", [[], ["--cudalink-driver=13.0", "--force-backend=driver"]])
def test_forced_run_inside_a_run(run_pytest, toolkit, arguments) -> None:
    """A run whose steering waits does not take over from one inside it that has started, nor does one without any."""
    run_pytest(*arguments, module=OUTER).ended(passed=1)


def test_interrupted_where_it_begins(run_pytest) -> None:
    """Steering that an exception has interrupted as it began begins again at the next use, and forces the backend."""
    module = """
import pytest
from pytest_cudalink.plugin.watch import backends
from pytest_cudalink.plugin.run import run_of
from pytest_cudalink.targets.steering import Steering

def test(request, monkeypatch):
    def interrupted(steering, choice):
        raise KeyboardInterrupt
    run = run_of(request.config)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Steering, "start", interrupted)
        backends.steering(run)
    assert backends.steering(run).choice.backend == "nvjitlink"
"""
    run_pytest("--force-backend=nvjitlink", module=module).ended(passed=1)


def test_the_help_names_every_target() -> None:
    """The option's help has the plugin's targets, as the table of the header has them."""
    (option,) = (option for option in OPTIONS if option.name == "target")
    assert f": {', '.join(TARGETS)}, or" in option.help
