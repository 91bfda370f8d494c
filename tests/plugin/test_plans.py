"""What markers mean for tests: the functions that pytest's hooks call, on items made by hand."""

import re
from types import SimpleNamespace

import pytest

from pytest_cudalink import Raises
from pytest_cudalink.compat.names import POLICIES
from pytest_cudalink.emulator.no_wait import allowed_symbols
from pytest_cudalink.environment.requirements import parse
from pytest_cudalink.linker import dispatch
from pytest_cudalink.plugin import marker
from pytest_cudalink.plugin.items import PLAN, MarkerPlan
from pytest_cudalink.plugin.run import RUN
from tests.plugin.by_hand import begun

NEEDS_PARAMETERS = (
    "backend='each' needs a test that pytest can parametrize, which the methods of a unittest.TestCase are not; write "
    "a function or a plain class"
)
WAITS = "write True, False or a list of driver functions that may wait, as ['cuMemFree']"
KEYWORDS = "ctk, driver, nvjitlink, arch, gpu, otherwise, backend, isolate, no_wait, policy"


def mark(*args: object, name: str = "cudalink", **kwargs: object) -> SimpleNamespace:
    """A mark: pytest would refuse an unknown one where the plugin is not loaded."""
    return SimpleNamespace(name=name, args=args, kwargs=kwargs)


class Marked(SimpleNamespace):
    """A test, and what is around it, nearest first, each with its marks."""

    def __init__(self, *marks: SimpleNamespace | None, backend: str = "auto", **more) -> None:
        config = begun(backend=backend).config
        config.stash[RUN] = begun(backend=backend)
        super().__init__(nodeid="f.py::test", stash=pytest.Stash(), config=config, session=None, parent=None, **more)
        self.own_markers, node = [], self
        for mark in marks:
            if mark is not None:
                node.own_markers.append(mark)
            node.parent = SimpleNamespace(parent=None, own_markers=[])
            node = node.parent

    def iter_markers(self, name: str):
        node = self
        while node is not None:
            yield from (marker for marker in node.own_markers if marker.name == name)
            node = node.parent


def faults(*items: Marked) -> list[str]:
    """What is wrong with the markers of tests, line by line."""
    with pytest.raises(pytest.UsageError) as caught:
        marker.check(items)
    return str(caught.value).split("\n")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (mark(backend="cuda"), ["backend='cuda': write one of 'driver', 'nvjitlink', 'each'"]),
        (mark(isolate=1), ["isolate=1: write True or False"]),
        *(
            (mark(no_wait=given), [f"no_wait={given!r}: {WAITS}"])
            for given in (1, "cuMemFree", [1], ["cuMemFree", 1], None)
        ),
        (mark(no_wait=["cuMemFre"]), ["no_wait: the driver has no function 'cuMemFre'; did you mean 'cuMemFree'?"]),
        (mark(policy="lenient"), [f"policy 'lenient' is unknown; known: {', '.join(POLICIES)}"]),
        (mark(policy=None), [f"policy None is unknown; known: {', '.join(POLICIES)}"]),
        (
            mark(driver="13", otherwise="ignore"),
            ["otherwise='ignore': write 'skip', 'xfail' or Raises(...), from pytest_cudalink import Raises"],
        ),
        (mark(otherwise="xfail"), ["otherwise needs a requirement: one of ctk, driver, nvjitlink, arch, gpu"]),
        (mark("13", 5, f=0, e=0, d=0, c=0, b=0), [f"takes the keywords {KEYWORDS}, got '13', 5, b, c, d, e, f"]),
        (
            mark(nvjitlink="x", ctk="y", gpu=2, isolate="a"),
            [
                "isolate='a': write True or False",
                "ctk='y' is not a version specifier; write ctk='>=13.0'",
                "nvjitlink='x' is not a version specifier; write nvjitlink='>=13.0'",
                "gpu=2; expected True for a real device, or False for none",
            ],
        ),
        (mark(backend="each"), [NEEDS_PARAMETERS]),
    ],
)
def test_wrong_markers(wrong: SimpleNamespace, said: list[str]) -> None:
    """Each fault is said of the test, and how to write it."""
    assert faults(Marked(wrong)) == [f"f.py::test: @pytest.mark.cudalink {text}" for text in said]


def test_faults_of_all_tests() -> None:
    """One run names each test, once for all of its parameters; a marker around it is judged with it."""
    first, second, other = (Marked(mark(isolate=1)) for _ in range(3))
    first.nodeid, second.nodeid, other.nodeid = "f.py::test[a]", "f.py::test[b]", "f.py::other"
    around = Marked(mark(driver="x"), mark(gpu=2))
    around.nodeid = "f.py::around"
    said = faults(first, Marked(mark(gpu=True)), second, other, around)
    assert [line.partition(":")[0] + line.partition(" ")[0][4:] for line in said] == [
        "f.py::test:", "f.py::other:", "f.py::around:", "f.py::around:",
    ]  # fmt: skip


RAISES = Raises("CUDA_ERROR_INVALID_PTX")
DRIVER, GPU = parse({"driver": ">=13"}), parse({"gpu": True})


@pytest.mark.parametrize(
    ("marks", "plan"),
    [
        ([mark()], MarkerPlan()),
        ([None, None], None),
        ([mark(name="slow")], None),
        ([None, mark(driver=">=13")], MarkerPlan(requirements=tuple(DRIVER))),
        ([mark(gpu=True), mark(driver=">=13")], MarkerPlan(requirements=(*DRIVER, *GPU))),
        ([mark(driver=None), mark(driver=">=13", otherwise="xfail")], MarkerPlan(otherwise="xfail")),
        ([mark(driver=">=13", otherwise="skip")], MarkerPlan(requirements=tuple(DRIVER))),
        ([mark(backend="driver"), mark(backend="nvjitlink", isolate=True)], MarkerPlan(backend="driver", isolate=True)),
        ([mark(no_wait=True)], MarkerPlan(no_wait=frozenset())),
        ([mark(no_wait=False), mark(no_wait=True)], MarkerPlan()),
        ([mark(no_wait=("cuMemFree",))], MarkerPlan(no_wait=allowed_symbols(["cuMemFree"]))),
        ([mark(backend="nvjitlink", policy="released")], MarkerPlan(backend="nvjitlink")),
        ([mark(gpu=True, otherwise=RAISES)], MarkerPlan(requirements=tuple(GPU), otherwise=RAISES)),
    ],
)
@pytest.mark.parametrize("backend", ["auto", "each"])
def test_the_plan_of_a_test(marks: list, plan: MarkerPlan | None, backend: str) -> None:
    """The nearest marker counts for each keyword; a test without one has no plan."""
    item = Marked(*marks, backend=backend)
    assert marker.check([Marked(None), item, Marked(None)]) is (plan not in (None, MarkerPlan()))
    assert item.stash.get(PLAN, None) == plan
    assert marker.plans([Marked(None), item]) == ([] if plan is None else [plan])
    assert marker.asks([Marked(None), item], frozenset()) is (plan is not None)


@pytest.mark.parametrize(
    ("marks", "backend", "plan"),
    [
        ([mark(backend="each")], "auto", MarkerPlan(backend="driver")),
        ([mark(backend="each")], "each", MarkerPlan(backend="driver")),
        ([mark()], "each", MarkerPlan(backend="driver", by_option=True)),
        ([None], "each", MarkerPlan(backend="driver", by_option=True)),
        ([None], "auto", MarkerPlan(backend="driver")),
    ],
)
def test_the_plan_of_a_test_on_each_backend(marks: list, backend: str, plan: MarkerPlan) -> None:
    """It is forced to the backend of its parameter, by the option unless a marker says so."""
    item = Marked(*marks, backend=backend, callspec=SimpleNamespace(params={marker.EACH: "driver"}))
    parameters = SimpleNamespace(params={"i": 1})
    other, unmarked = Marked(mark(), callspec=parameters), Marked(None, callspec=parameters)
    other.own_markers.insert(0, mark(name="slow"))
    assert marker.check([item, other, unmarked]) is True
    assert (item.stash[PLAN], other.stash[PLAN], PLAN in unmarked.stash) == (plan, MarkerPlan(), False)
    said = faults(Marked(mark(backend="each"), callspec=parameters))
    assert said == [f"f.py::test: @pytest.mark.cudalink {NEEDS_PARAMETERS}"]


def test_who_asks_for_the_plugin() -> None:
    """A test with the marker, or with one of the fixtures."""
    fixtures = Marked(None, fixturenames=["tmp_path", "emulated_driver"])
    assert marker.asks([Marked(None), fixtures], {"emulated_driver"}) is True
    assert marker.asks([Marked(None), fixtures], {"linker_factory"}) is False
    assert marker.asks([], {"linker_factory"}) is False
    assert marker.asks([Marked(mark(name="slow"), mark())], set()) is True


def test_the_marker_is_registered() -> None:
    """``--markers`` has the signature, and a row for each keyword."""
    added = []
    marker.register(SimpleNamespace(addinivalue_line=lambda *given: added.append(given)))
    ((name, line),) = added
    assert name == "markers"
    assert line.startswith("cudalink(*, ctk=None, ")
    signature, *rows = line.splitlines()
    named = [word for row in rows for word in re.split(r"\s{2,}", row.strip())[0].split(", ")]
    assert sorted(named) == sorted(re.findall(r"(\w+)=", signature)) == sorted(KEYWORDS.split(", "))


# -- tests on each backend


class Metafunc(SimpleNamespace):
    """A test that pytest asks for parameters."""

    def __init__(self, *marks, backend: str = "auto", fixtures: tuple[str, ...] = ()) -> None:
        item = Marked(*marks, backend=backend)
        super().__init__(definition=item, config=item.config, fixturenames=[*fixtures], parameters=[])

    def parametrize(self, name: str, values, **more) -> None:
        assert more.pop("indirect") is True
        self.parameters.append((name, list(values), more))


ON_EACH = [(marker.EACH, ["driver", "nvjitlink"], {})]


@pytest.mark.parametrize(
    ("marks", "fixtures", "backend", "on_each"),
    [
        ([mark(backend="each")], (), "auto", True),
        ([mark(backend="each")], (), "each", True),
        ([mark(backend="driver")], ("linker_factory",), "each", False),
        ([mark()], (), "auto", False),
        ([mark()], (), "each", True),
        ([None, mark(driver="13")], (), "each", True),
        ([None], (), "each", False),
        ([None], ("linker_factory", "tmp_path"), "each", True),
        ([None], ("linker_factory",), "auto", False),
        ([None], ("tmp_path",), "each", False),
    ],
)
@pytest.mark.parametrize("requested", [False, True])
def test_which_tests_run_on_each_backend(marks, fixtures, backend: str, on_each: bool, requested: bool) -> None:
    """Those whose marker says so, or the option and that they link; the fixture may be requested, too."""
    given = (*fixtures, *([marker.EACH] if requested else []))
    metafunc = Metafunc(*marks, backend=backend, fixtures=given)
    marker.parametrize(metafunc)
    assert metafunc.parameters == (ON_EACH if on_each else [])
    assert metafunc.fixturenames == [*given, *([marker.EACH] if on_each and not requested else [])]


def test_a_run_that_did_not_ask() -> None:
    """The marker counts all the same."""
    for plan, expected in ((mark(backend="each"), ON_EACH), (mark(), [])):
        metafunc = Metafunc(plan)
        del metafunc.config.stash[RUN]
        marker.parametrize(metafunc)
        assert metafunc.parameters == expected


@pytest.mark.parametrize(
    ("marks", "policy"),
    [
        ([None], dispatch.DEFAULT_POLICY),
        ([mark(policy="released")], "released"),
        ([mark(policy="lenient")], dispatch.DEFAULT_POLICY),
    ],
)
@pytest.mark.parametrize("backend", ["auto", "each"])
def test_the_cases_of_a_policy(marks, policy: str, backend: str) -> None:
    """The fixture has each case of the table, by its name; the option forces those that use a linker, too."""
    metafunc = Metafunc(*marks, backend=backend, fixtures=("dispatch_case",))
    marker.parametrize(metafunc)
    cases = list(dispatch.cases(policy))
    expected = ("dispatch_case", cases, {"ids": [case.id for case in cases]})
    assert metafunc.parameters == [expected]
    metafunc = Metafunc(*marks, backend=backend, fixtures=("dispatch_case", "linker_factory"))
    marker.parametrize(metafunc)
    assert metafunc.parameters == [*(ON_EACH if backend == "each" else []), expected]


@pytest.mark.parametrize(
    ("plans", "warns"),
    [([], False), ([None, MarkerPlan()], True), ([None, MarkerPlan(), MarkerPlan(backend="driver")], False)],
)
def test_an_option_that_forces_no_test(plans: list, warns: bool) -> None:
    """It is said once, with what marks a link test."""
    items = [Marked(None) for _ in plans]
    for item, plan in zip(items, plans, strict=True):
        if plan is not None:
            item.stash[PLAN] = plan
    config = begun().config
    marker.warn_if_none_runs_on_each(SimpleNamespace(items=items, config=config), "each (from ini)")
    text = (
        "cudalink: --force-backend is each (from ini), but forces no selected test: it runs tests with "
        "@pytest.mark.cudalink or the fixture linker_factory on each backend; mark the link tests, as with pytestmark "
        "= pytest.mark.cudalink"
    )
    assert [said for _, said, _ in config.warnings] == [text] * warns
