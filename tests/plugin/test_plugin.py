"""The plugin from outside: options and their twins, header, fixtures, marker, errors."""

import argparse
import json
import re
import sys
from importlib import import_module
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import pytest_cudalink
from pytest_cudalink.compat.names import POLICIES
from pytest_cudalink.compat.settings_table import OPTIONS, Option, label
from pytest_cudalink.plugin import conditions, hooks, hostile, isolation, records, settings, watch
from pytest_cudalink.plugin.hook_order import ORDER
from pytest_cudalink.plugin.isolation import child, trial
from pytest_cudalink.plugin.items.marked_tests import MISSING_DRIVER
from pytest_cudalink.plugin.run import Key, part_name
from pytest_cudalink.plugin.session import account, lifecycle, xdist
from pytest_cudalink.plugin.watch import sticky
from pytest_cudalink.report import read
from tests.nested import ALONE, BOTH, NO_HYPOTHESIS, XDIST


@pytest.fixture
def run(pytester: pytest.Pytester, run_pytest):
    """Run pytest on one module in a separate process."""

    def go(module: str, *arguments: str, ini: str = "") -> pytest.RunResult:
        if ini:
            pytester.makeini(f"[pytest]\n{ini}\n")
        return run_pytest(*arguments, module=module)

    return go


def resolved(typed: dict[str, Any], ini: dict[str, str]) -> settings.Settings:
    """The settings of a run with this command line and this ini file."""
    config: Any = SimpleNamespace(option=argparse.Namespace(**typed), getini=ini.get)
    return settings.resolve(config)


@pytest.mark.parametrize(
    ("typed", "env", "ini", "expected"),
    [
        (None, None, None, ("auto", "default")),
        ("nvjitlink", "driver", "driver", ("nvjitlink", "option")),
        (None, "driver", None, ("driver", "environment CUDALINK_FORCE_BACKEND")),
        (None, "nvjitlink", "driver", ("nvjitlink", "environment CUDALINK_FORCE_BACKEND")),
        (None, None, "driver", ("driver", "ini")),
        ("auto", "driver", None, ("auto", "option")),
        (None, "", "driver", ("driver", "ini")),
    ],
)
def test_precedence(monkeypatch, typed, env, ini, expected) -> None:
    """Option, then environment, then ini."""
    if env is not None:
        monkeypatch.setenv("CUDALINK_FORCE_BACKEND", env)
    chosen = resolved(
        {"cudalink_force_backend": typed} if typed else {}, {"cudalink_force_backend": ini} if ini else {}
    )
    assert (chosen.backend.value, chosen.backend.source) == expected


CHECKS = (
    "lifetimes=off|report|fail|strict, nvjitlink=off|report|fail|strict, order=off|report|fail, "
    "or a value alone for all"
)
PROCESSES = "shared|isolated|restarted, sticky=replace|stop|off, deadline=SECONDS"
SECOND = "such as 0:2/5 for the second of five machines"
#: A value for each setting of which not every word is one.
EXAMPLES = {"faults": "cuLinkCreate:1=2", "fault_sweep": "all", "fault_budget": "0:5/5", "schedules": "20"}
EXAMPLES["require"] = "driver,links"


@pytest.mark.parametrize("option", OPTIONS, ids=[option.name for option in OPTIONS])
def test_twins(monkeypatch, option: Option) -> None:
    """Environment and ini file set each option, too."""
    value = option.choices[0] if option.choices else EXAMPLES.get(option.name, option.default or "auto")
    name = next(iter(option.settings))
    from_ini = getattr(resolved({}, {option.ini: value}), name)
    assert (from_ini.value, from_ini.source) == (value, "ini")
    if option.env:
        monkeypatch.setenv(option.env, value)
        from_environment = getattr(resolved({}, {}), name)
        assert (from_environment.value, from_environment.source) == (value, f"environment {option.env}")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("strict", {"lifetime": "strict", "jitlink_contract": "strict"}),
        ("nvjitlink=off", {"jitlink_contract": "off"}),
        ("nvjitlink=off, strict", {"lifetime": "strict", "jitlink_contract": "off"}),
        ("lifetimes=report,nvjitlink=strict", {"lifetime": "report", "jitlink_contract": "strict"}),
    ],
)
def test_checks(text, expected) -> None:
    """A mode alone is for every check that has none of its own; what is not written keeps its default."""
    chosen = resolved({"cudalink_checks": [text]}, {})
    modes = {name: getattr(chosen, name) for name in ("lifetime", "jitlink_contract")}
    assert modes == {
        name: settings.Setting(expected[name], "option") if name in expected else settings.Setting("fail", "default")
        for name in modes
    }


def test_processes() -> None:
    """How tests share a process, and what follows a sticky error, are one option."""
    for given in (["isolated,deadline=5"], ["isolated,deadline=9", "deadline=5"], ["deadline=5", "isolated"]):
        chosen = resolved({"cudalink_processes": given}, {})
        assert (chosen.tests.value, chosen.sticky.source, chosen.sticky_deadline.value) == ("isolated", "default", "5")
    assert resolved({}, {"cudalink_processes": "sticky=stop"}).tests == settings.Setting("shared", "default")


@pytest.mark.parametrize(
    ("calls", "is_one"),
    [
        ("likely+nvJitLink+NVRTC", True),
        ("cuInit, cuMemAlloc+NVRTC+nvJitLink", True),
        ("3:18:function+NVRTC", True),
        ("3:0", False),  # a call that succeeds tests no error path
        ("3:18", False),
        ("3:18+nvJitLink", False),
        ("3:99+NVRTC", False),
        ("likely+NVRTC+NVRTC", False),
        ("resume+NVRTC", False),
        ("likely+nvrtc", False),
        ("likely+", False),
    ],
)
def test_libraries_of_a_fault_sweep(calls: str, is_one: bool) -> None:
    """Each library stands once behind the calls, in any order; a code is one of the driver or of such a library."""
    if is_one:
        assert resolved({"cudalink_fault_sweep": calls}, {}).fault_sweep.value == calls
    else:
        why = "code 0 is CUDA_SUCCESS, .*an error, such as 2$" if calls.startswith("3:0") else ""
        with pytest.raises(pytest.UsageError, match=rf"\+nvJitLink or \+NVRTC behind it.*{why}"):
            resolved({"cudalink_fault_sweep": calls}, {})


def test_the_help_is_short() -> None:
    """At most 16 options have a flag; the rest is left to ini files."""
    assert len([option for option in OPTIONS if option.flag]) <= 16


def test_the_header_says_who_set_it(run, monkeypatch) -> None:
    """The source of each choice is there, and the choices count."""
    monkeypatch.setenv("CUDALINK_POLICY", "released")
    module = "from pytest_cudalink.linker.policy import default_policy\nfrom pytest_cudalink.targets import steering\n"
    module += "def test(): assert (steering.current().choice.backend, default_policy()) == ('driver', 'released')\n"
    result = run(module, ini="cudalink_force_backend = driver").ended(passed=1)
    said = "cudalink: backend driver (from ini), policy released (from environment CUDALINK_POLICY), *driver*"
    result.shows(said)
    result.stdout.no_fnmatch_line("cudalink: link worker:*")


@pytest.mark.parametrize(
    ("words", "shown"), [(("--cudalink-driver=0", "--cudalink-driver=13.0"), False), (("--force-backend=each",), True)]
)
def test_the_header_has_the_policy_where_it_decides(words: tuple[str, ...], shown: bool, run) -> None:
    """It is that of the bundled linker, which most runs do not use."""
    result = run("def test(): pass", *words)
    (line,) = [line for line in result.outlines if line.startswith("cudalink: backend ")]
    assert (", policy strict-major, " in line) is shown


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("policy", ["lenient"], f"expected one of {', '.join(POLICIES)}"),
        ("link_timeout", ["0", "86401", "soon", "1.5"], "expected a number of seconds, 1 to 86400"),
        ("nvjitlink", ["13"], "expected auto, absent, or a CUDA release such as 13.0"),
        ("checks", ["lifetime=off"], f"'lifetime=off' is unknown; expected {CHECKS}; did you mean lifetimes=off?"),
        ("processes", ["isolate"], f"'isolate' is unknown; expected {PROCESSES}; did you mean isolated?"),
        ("fault_budget", ["many", "0:3/2"], f"expected a number of runs, 0 for no limit, or RUNS:K/N {SECOND}"),
        ("processes", ["deadline=0", "sticky=off,deadline=x"], "deadline: expected a number of seconds, 1 to 86400"),
        (
            "provenance",
            ["pip", "/opt:lib"],
            "expected any, wheels, system, conda, or absolute paths of folders, separated by ':'",
        ),
        (
            "require",
            ["drivers", "driver,none", "auto,links", ","],
            "expected auto, none, or some of driver, links, separated by commas",
        ),
    ],
)
def test_wrong_values(name, values, expected) -> None:
    """A value that means nothing is a usage error that says what is expected."""
    (option,) = (option for option in OPTIONS if option.name == name)
    for value in values:
        with pytest.raises(pytest.UsageError) as caught:
            resolved({option.ini: value}, {})
        named = option.flag or option.ini
        assert str(caught.value) == f"cudalink: {named} is {value!r} (from option); {expected}"


ROOMS = (conditions, hostile, isolation, records, watch, lifecycle)
KEYS = {name: (room, key) for room in ROOMS for name, key in vars(room).items() if isinstance(key, Key)}
PARTS = {part_name(part): part for part in (account.Account, account.Require, lifecycle.Ends)}
for _, part_key in KEYS.values():
    part_module, _, part_class = part_key.place.partition(":")
    PARTS[part_key.name] = getattr(import_module(f"pytest_cudalink.plugin.{part_module}"), part_class)


def test_the_list_of_turns_is_complete() -> None:
    """It has each hook in which two parts act, names none that does not act in it, and alone says who is first."""
    plugins = {"hooks": hooks, "lifecycle": lifecycle, "isolated": child.Child, "listener": xdist._Listener}
    plugins |= {"witness": trial._Witness, "sticky-stop": sticky._Stop, **PARTS}
    acts: dict[str, set[str]] = {}
    for name, plugin in plugins.items():
        for hook in dir(plugin):
            if hook.startswith("pytest_") and callable(getattr(plugin, hook)):
                acts.setdefault(hook, set()).add(name)
    assert {hook for hook, parts in acts.items() if len(parts) > 1} <= ORDER.keys() <= acts.keys()
    assert [hook for hook, turns in ORDER.items() if not set(turns) <= {..., *acts[hook]}] == []
    texts = ((file.name, file.read_text("utf-8")) for file in Path(pytest_cudalink.__file__).parent.rglob("*.py"))
    assert [name for name, text in texts if re.search("try(first|last)", text)] == ["hook_order.py"]


NOTES_TURNS = """
import json
import pytest
from pytest_cudalink.plugin.start import RUN

@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item):
    hook, task = item.config.pluginmanager.hook, item.config.stash[RUN].task
    acts = {name: getattr(hook, name).get_hookimpls() for name in dir(hook) if name.startswith("pytest_")}
    acts = {name: [[act.plugin_name, act.tryfirst or act.trylast] for act in act[::-1]] for name, act in acts.items()}
    with open("turns", "a") as file:
        file.write(json.dumps([task.mode if task else "", acts]) + "\\n")
    return (yield)
"""
TURNS = """
import pytest

@pytest.mark.cudalink(driver=">=1", no_wait=["cuCtxSynchronize"])
def test(): pass
"""
HOSTILE = ("--cudalink-fault-sweep=cuInit", "--cudalink-schedules=1")


@pytest.mark.parametrize(
    ("mode", "arguments"),
    [
        ("", ()),
        pytest.param("copies", HOSTILE, marks=pytest.mark.slow),
        pytest.param("alone", ("--cudalink-processes=isolated",), marks=pytest.mark.slow),
        pytest.param("shared", ("--cudalink-processes=restarted",), marks=pytest.mark.slow),
        pytest.param("", ("-n1",), marks=pytest.mark.slow),
    ],
)
def test_parts_take_turns_as_listed(pytester, run_pytest, mode, arguments) -> None:
    """In every kind of process; and what is not in the list does not say when it acts."""
    pytester.makeconftest(NOTES_TURNS)
    given = ("--cudalink-driver=13.0", "--cudalink-report=r", "--cudalink-require=driver", *arguments)
    run_pytest(*given, module=TURNS).ended(int(arguments == HOSTILE), passed=1)  # which finds nothing to do
    lines = [json.loads(line) for line in (pytester.path / "turns").read_text(encoding="utf-8").splitlines()]
    assert mode in [mode for mode, _ in lines]
    for hook, acts in (act for _, process in lines for act in process.items()):
        turns = ORDER.get(hook, (...,))
        # others that ask for a place themselves may stand before or after ours
        ours = [(name, ordered) for name, ordered in acts if "cudalink" in name or not ordered]
        there = {"hooks" if name == "cudalink" else name.replace("cudalink-", ""): ordered for name, ordered in ours}
        assert [name for name, ordered in there.items() if ordered != (name in turns)] == [], hook
        acting = [turn for turn, _ in groupby(name if name in turns else ... for name in there)]
        assert acting == [turn for turn, _ in groupby(turn for turn in turns if turn in acting)], hook


def test_switched_off(pytester) -> None:
    """``-p no:cudalink`` leaves nothing behind."""
    pytester.makepyfile("def test(request): assert not request.config.pluginmanager.has_plugin('cudalink')")
    result = pytester.runpytest_subprocess(*NO_HYPOTHESIS, "-p", "no:cudalink")
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("cudalink:*")


OFF = {
    "lifetimes": ("lifetime checks are off", "lifetime", "fail", "off"),
    "deadlocks": ("deadlocks in the emulated driver fail no test", None, None, None),
    "order": ("the order of accesses is not checked", "order", "fail", "off"),
    "no-wait": ("calls that wait fail no test that forbids it", None, None, None),
    "jitlink-contract": ("checks of nvJitLink's contract are off", "jitlink_contract", "strict", "off"),
    "sticky": ("checks of the contexts after each test are off", "sticky", "stop", "off"),
    "require": ("nothing is required of the run", "require", "driver", "none"),
    "provenance": ("checks of where CUDA libraries come from are off", "provenance", "wheels", "any"),
    "mismatches": ("links on another backend than the forced one fail nothing", "backend", "driver", "auto"),
    "native-links": ("links of native code are not counted", "unsteered", "warn", "allow"),
    "loaded-modules": ("modules that no seen link made are not counted", None, None, None),
    "causes": ("causes of failures, such as refused calls, are not shown", "unsupported", "skip", "fail"),
    "faults": ("faults that were not triggered are not shown", "faults", "lost=46", ""),
    "event-file": ("events that are missing in the file of events fail nothing", "events", "e.jsonl", ""),
    "record-file": ("no records are written", "report", "r.jsonl", ""),
    "results": ("no records are written", "report", "r.jsonl", ""),
}


def blocking(*parts: str) -> Any:
    """A configuration with ``-p no:cudalink-PART``, and a part that is there."""
    manager = pytest.PytestPluginManager()
    manager.register(SimpleNamespace(), "cudalink-ledger")
    for part in parts:
        manager.set_blocked(f"cudalink-{part}")
    return SimpleNamespace(pluginmanager=manager)


def settings_of(source: str, **values: str) -> settings.Settings:
    """The default settings, except for some from a source."""
    defaults = dict(resolved({}, {}).items())
    return settings.Settings(**defaults | {name: settings.Setting(value, source) for name, value in values.items()})


def test_a_blocked_part_of_a_process_that_another_waits_for() -> None:
    """It has got a file of events, for the last calls before a crash, and no other setting that asks for the part."""
    config = blocking("event-file", "faults")
    config.pluginmanager.set_blocked("xdist")  # of others
    kept = account.without_blocked(config, settings_of("option", events="e.jsonl"), isolated=True)
    assert kept.events == settings.Setting("e.jsonl", "option")
    with pytest.raises(pytest.UsageError):
        account.without_blocked(config, settings_of("option", faults="lost=46"), isolated=True)


@pytest.mark.parametrize("part", [part for part in OFF if OFF[part][1]])
def test_a_blocked_part_is_off(part) -> None:
    """Its setting says so; asked for by an option, a variable or an ini file, it is a usage error."""
    what, name, value, idle = OFF[part]
    config = blocking(part)
    default = getattr(resolved({}, {}), name).value
    assert account.blocked_lines(config) == [f"{what}: -p no:cudalink-{part}"]
    assert account.blocked_lines(blocking()) == []
    for source, text in (("ini", value), ("option", value), ("environment X", value)):
        with pytest.raises(pytest.UsageError) as caught:
            account.without_blocked(config, settings_of(source, **{name: text}), isolated=False)
        assert str(caught.value) == (
            f"cudalink: {label(name)} is {value} (from {source}), and -p no:cudalink-{part} blocks the part "
            "that does it; leave one of the two out"
        )
    source = "default" if default == idle else f"-p no:cudalink-{part}"
    assert getattr(account.without_blocked(config, settings_of("ini"), isolated=False), name) == (idle, source)
    assert getattr(account.without_blocked(config, settings_of("ini", **{name: idle}), isolated=False), name) == (
        idle,
        "ini",
    )
    kept = account.without_blocked(blocking(), settings_of("ini", **{name: value}), isolated=False)
    assert getattr(kept, name) == (value, "ini")


def test_every_part_can_be_blocked_or_not() -> None:
    """What can be blocked is a part, and has what the run says of it."""
    assert OFF.keys() == account._CHECKS.keys() <= PARTS.keys()


@pytest.mark.parametrize("part", [*sorted(PARTS.keys() - OFF.keys()), "lifecycle", "no-such-part"])
def test_a_part_that_cannot_be_blocked(part) -> None:
    """Others need it, or there is none of this name: the error lists those that can be blocked."""
    with pytest.raises(pytest.UsageError) as caught:
        account.without_blocked(blocking(part), settings_of("ini"), isolated=False)
    assert str(caught.value) == (
        f"cudalink: -p no:cudalink-{part} names no part that can be blocked; expected {', '.join(OFF)}, or turn off "
        "the whole plugin with -p no:cudalink"
    )


@pytest.mark.parametrize("workers", [ALONE, BOTH])
def test_header_and_summary_say_what_is_off(run, pytester, workers) -> None:
    """However quiet a run is, its summary names what was blocked, and its record."""
    words = [f"-pno:cudalink-{part}" for part in OFF]
    said = [f"{what}: -p no:cudalink-{part}" for part, (what, *_) in OFF.items()]
    result = run("def test(): import numpy", "--cudalink-driver=13.0", *words, *workers).ended(passed=1)
    result.shows(*(f"cudalink: {text}" for text in said), "*= cudalink =*", *said)
    options = ("--cudalink-driver=13.0", "--cudalink-report=run.jsonl", "-pno:cudalink-lifetimes", "-q", *workers)
    result = run("def test(): pass", *options)
    assert result.ret == 0
    result.shows("*= cudalink =*", said[0])
    (asked,) = [entry for entry in read(pytester.path / "run.jsonl").asked if entry.what == "checks"]
    assert (asked.due, asked.happened, asked.left, asked.allowed) == (1, 0, {}, {said[0]: 1})
    assert run("", "--cudalink-checks=lifetimes=fail", *options).ret == pytest.ExitCode.USAGE_ERROR


def test_help(run) -> None:
    """The help lists options with their twins, and pytest the fixtures; `test_plans` has the marker."""
    run("", "--help").shows("CUDA linking (pytest-cudalink):", "*--force-backend=*", "*CUDALINK_FORCE_BACKEND*")
    listed = run("", "--fixtures").stdout
    for name in ("cudalink", "dispatch_case", "fake_versions", "force_backend", "linker_factory"):
        listed.fnmatch_lines([f"{name} -- *fixtures.py*"])


#: A test with an extension module, as numpy has many, and ctypes; it says what it finds of the plugin.
FINDS = """
import ctypes, importlib.machinery, os, sys
import lz4.frame
import pytest

@pytest.fixture
def text():
    return b"text"

def test(text, request):
    assert lz4.frame.decompress(lz4.frame.compress(text)) == text
    modules = sorted(name for name, module in sys.modules.items()
                     if name.partition(".")[0] == "pytest_cudalink" and module.__spec__)  # others are old paths
    maps = open("/proc/self/maps").read()
    found = {
        "modules": len(modules) < 12,
        "libraries": "libcudalink" not in maps and "nvJitLink" not in maps and "libcuda." not in maps,
        "loader": importlib.machinery.ExtensionFileLoader.create_module.__module__ == "_frozen_importlib_external",
        "ctypes": ctypes._dlopen.__module__ == "_ctypes",
        "finders": not any(type(one).__module__.startswith("pytest_cudalink") for one in sys.meta_path),
        "plugins": [name for name, plugin in request.config.pluginmanager.list_name_plugin()
                    if name.startswith("cudalink-") and plugin],
        "variables": [name for name in os.environ if name.startswith("CUDALINK_") and name != "CUDALINK_CACHE"],
    }
    assert found == {**dict.fromkeys(found, True), "plugins": [], "variables": []}, modules
"""


@pytest.mark.parametrize("arguments", [ALONE, XDIST])
def test_inert(pytester, monkeypatch, arguments) -> None:
    """A run that asks for nothing gets options, the marker and fixtures, and no line of output."""
    monkeypatch.delenv("CUDALINK_REQUIRE_TOOLKIT", raising=False)
    pytester.makepyfile(FINDS)
    result = pytester.runpytest_subprocess(*NO_HYPOTHESIS, "-v", "--strict-markers", *arguments)
    result.assert_outcomes(passed=1)
    assert not [line for line in result.outlines if line.startswith("cudalink") or "= cudalink" in line]


def test_pytest_rewrites_nothing_of_this_package(pytester) -> None:
    """A plugin that an entry point brings is rewritten as a whole, which costs; a run finds its modules itself."""
    pytester.makepyfile("""
import sys
def test():
    ours = {name: type(one.__loader__).__name__ for name, one in sys.modules.items() if name[:16] == "pytest_cudalink."
            and one.__spec__}
    assert len(ours) > 40
    assert not [name for name, loader in ours.items() if loader == "AssertionRewritingHook"]
    assert not any(type(one).__module__.startswith("pytest_cudalink.plugin") for one in sys.meta_path)
    import pytest_cudalink.base.words  # a test does as ever
""")
    result = pytester.runpytest_subprocess(*NO_HYPOTHESIS, "--cudalink-driver=13.0", "--cudalink-report=r.jsonl")
    result.assert_outcomes(passed=1)


def test_the_entry_point_keeps_finders_of_others(monkeypatch) -> None:
    """Others find the plugin's modules while it is imported, not pytest; and a finder that a thread adds stays."""
    hook, other = type("AssertionRewritingHook", (), {})(), SimpleNamespace(find_spec=lambda *asked: asked)
    old, added = object(), object()  # of before Python 3.4: without find_spec

    def load(name: str) -> tuple[object, ...]:
        sys.meta_path.append(added)
        own, *others = sys.meta_path
        assert others == [hook, old, other, added]
        return own.find_spec(name, [], None), own.find_spec("pytest", None, None)

    with monkeypatch.context() as patched:
        patched.setattr(sys, "meta_path", [hook, old, other])
        patched.setattr(pytest_cudalink, "import_module", load)
        answers, later = pytest_cudalink.__getattr__("plugin"), sys.meta_path
    assert (answers, later) == ((("pytest_cudalink.plugin", [], None), None), [hook, old, other, added])


TEST = "def test(awake): pass"
CLASS = """
import pytest, unittest
@pytest.mark.cudalink
class Test(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def start(self, awake): pass
    def test(self): pass
"""
FIXTURE = """
import pytest
@pytest.fixture(autouse=True)
def mine(force_backend): pass
def test(awake): pass
"""
BY_NAME = """
def test(request):
    from pytest_cudalink.plugin.run import run_of
    request.getfixturevalue("cudalink")
    assert run_of(request.config).nodeid == request.node.nodeid
    request.getfixturevalue("awake")
"""
#: Sources by which a run asks for the plugin: its module, and what else it has.
ASKS: dict[str, tuple[str, dict[str, str]]] = {
    "option": (TEST, {"argument": "--cudalink-checks=nvjitlink=fail"}),
    "ini": (TEST, {"ini": "cudalink_checks = lifetimes=fail"}),
    "variable": (TEST, {"variable": "CUDALINK_UNSTEERED"}),
    "hook": (TEST, {"conftest": "def pytest_cudalink_facts(): return None"}),
    "marker": (f"import pytest\n@pytest.mark.cudalink\n{TEST}", {}),
    "marked class": (CLASS, {}),
    "fixture": ("def test(awake, linker_factory): pass", {}),
    "fixture of a fixture": (FIXTURE, {}),
    "fixture by name": (BY_NAME, {}),
}
AWAKE = """
import importlib.machinery, sys
import pytest

@pytest.fixture
def awake(request):
    plugins = request.config.pluginmanager
    assert plugins.hasplugin("cudalink-lifecycle")
    assert sys.platform != "linux" or plugins.hasplugin("cudalink-native-links")
"""


@pytest.mark.parametrize(
    ("source", "arguments"),
    [
        *((source, ()) for source in ASKS),
        # in a worker: what its command line has, and what it finds before its tests and in one
        *(pytest.param(source, ("-n1",), marks=pytest.mark.slow) for source in ("option", "marker", "fixture by name")),
    ],
)
def test_what_asks(run, pytester, monkeypatch, source, arguments) -> None:
    """Each of these starts the parts, and the header says so, before or after collection."""
    module, more = ASKS[source]
    pytester.makeconftest(f"{AWAKE}\n{more.get('conftest', '')}")
    if "variable" in more:
        monkeypatch.setenv(more["variable"], "fail")
    words = [more["argument"]] if "argument" in more else []
    result = run(f"import ctypes\n{module}", *words, *arguments, ini=more.get("ini", "")).ended(passed=1)
    if not arguments and source != "fixture by name":
        early = source in ("option", "ini", "variable", "hook")
        result.stdout.fnmatch_lines(["cudalink: backend auto, *", "collected *"][:: 1 if early else -1])


def test_fixtures_switch_and_restore(run) -> None:
    """What a test forces or fakes ends with it."""
    run(
        """
        import pytest
        from pytest_cudalink import probes
        from pytest_cudalink.targets.steering import current

        from cuda.bindings import driver
        from cuda.bindings._internal import nvjitlink

        def asked(name): return nvjitlink._inspect_function_pointer(name)

        def test_switches(force_backend, fake_versions, cudalink):
            force_backend("driver")
            fake_versions(driver="12.9", nvjitlink="13.0")
            assert driver.cuDriverGetVersion() == (0, 12090)
            assert asked("__nvJitLinkVersion") == 1 < asked("__nvJitLinkCreate")
            fake_versions(driver=None)
            assert driver.cuDriverGetVersion()[0] == 999
            assert current().choice.backend == "driver"
            assert (cudalink.driver, cudalink.nvjitlink) == (None, (13, 0))
            cudalink.force_backend(None)
            assert current().choice.backend is None
            assert cudalink.settings.backend.value == "nvjitlink"
            with pytest.raises(ValueError, match="'driver', 'nvjitlink' or None"):
                force_backend("cuda")

        def test_restored():
            assert current().choice.backend == "nvjitlink"
            assert not probes.fakes().fakes_driver and not probes.fakes().fakes_nvjitlink
            assert asked("__nvJitLinkVersion") > 1
            assert driver.cuDriverGetVersion() == (0, 13000)
        """,
        *("--force-backend=nvjitlink", "--cudalink-driver=13.0"),
    ).ended(passed=2)


WRONG = """
def choose(driver_major, nvjitlink_version, inputs_have_ltoir, lto_requested):
    if nvjitlink_version is not None:
        return "nvjitlink"
    if inputs_have_ltoir or lto_requested:
        raise RuntimeError("nvJitLink is not available")
    return "driver"
def test_wrong(dispatch_case): dispatch_case.check(choose)
"""


def test_dispatch_case_finds_a_fault(run) -> None:
    """A choice that ignores the driver fails in the cases of two majors, by name; docs/examples has a right one."""
    run(WRONG, "--tb=no").ended(passed=52, failed=48).shows("*test_wrong[[]driver-12_nvjitlink-13.0_ltoir[]]*")


@pytest.mark.parametrize(
    ("arguments", "needed", "installed"),
    [
        (("--cudalink-driver=absent",), "an emulated driver", "none"),
        (
            ("--cudalink-driver=13.0", "--cudalink-checks=lifetimes=off"),
            "lifetime checks",
            "--cudalink-checks=lifetimes=off (from option)",
        ),
    ],
)
def test_fixtures_skip_as_the_marker_does(run, arguments, needed, installed) -> None:
    """A fixture of the emulated driver that has none says so in the same words, and is counted at the end."""
    result = run("def test(driver_lifetimes, emulated_driver): pass", "-rs", *arguments).ended(skipped=1)
    result.shows(f"1 test was skipped: it needs {needed}", f"SKIPPED * cudalink: needs {needed} (found {installed})*")


def test_header_says_what_is_faked(run, pytester) -> None:
    """Versions that a conftest fakes for the whole run are not shown as if they were there."""
    pytester.makeconftest(
        """
        from pytest_cudalink import probes

        def pytest_configure(config):
            fake = probes.fake(driver="12.9", nvjitlink=None)
            fake.__enter__()
            config.add_cleanup(lambda: fake.__exit__(None, None, None))
        """
    )
    result = run("def test(): pass", "--cudalink-driver=auto")
    result.shows("cudalink: *nvJitLink none (faked by fake_versions), driver CUDA 12.9 (faked by fake_versions)*")


@pytest.mark.parametrize("workers", [ALONE, pytest.param(("-n1",), id="xdist", marks=pytest.mark.slow)])
def test_forced_driver_without_a_driver_skips_all_that_needs_it(run, pytester, workers) -> None:
    """Also what unittest runs, what a module does while it is imported, and what a fixture does at its end."""
    module = """
        import unittest
        import pytest
        from pytest_cudalink.probes import libcuda

        class TestNeeds(unittest.TestCase):
            def setUp(self):
                if self._testMethodName == "test_set_up":
                    libcuda.library()
            def test_set_up(self): pass
            def test_needs(self): libcuda.library()
            def test_needs_none(self): pass
            def test_fails_otherwise(self): raise RuntimeError("something else")

        @pytest.mark.xfail(strict=True)
        def test_expected_to_fail(): libcuda.library()
        """
    pytester.makepyfile(
        test_import="from pytest_cudalink.probes import libcuda\nlibcuda.library()\ndef test(): pass\n",
        test_broken="raise RuntimeError('something else')\n",
    )
    arguments = ("--force-backend=driver", "--cudalink-driver=absent", "--continue-on-collection-errors", "-rs")
    result = run(module, *arguments, *workers).ended(passed=1, skipped=4, failed=1, errors=1)
    reason = f"{MISSING_DRIVER}; --cudalink-driver is absent (from option), which hides it"
    result.shows(f"SKIPPED * test_import.py:2: *{reason}")
    result.shows("4 tests were skipped: they need a CUDA driver", f"SKIPPED * {reason}")


def test_nested_run_keeps_the_outer_choice(run, toolkit) -> None:
    """A pytest inside a pytest does not undo what the outer one forced, and gives it its guard back."""
    run(
        """
        from pytest_cudalink import guardrails
        from pytest_cudalink.targets.steering import current
        pytest_plugins = ["pytester"]
        def test_outer(pytester):
            before = guardrails.installed().guard
            pytester.makepyfile("def test(): pass")
            pytester.inline_run("-p", "cudalink", "--force-backend=driver", "--cudalink-guard-rails=strict")
            assert current().choice.backend == "nvjitlink"
            assert guardrails.installed().guard is before
        """,
        "--force-backend=nvjitlink",
        "--cudalink-guard-rails=best_effort",
    ).ended(passed=1)
