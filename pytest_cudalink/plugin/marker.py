"""The ``cudalink`` marker: what a test needs, what it is forced to, and the parametrization of link tests."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import pytest

from ..compat.names import BACKENDS, DEFAULT_POLICY, MARKER_BACKENDS, POLICIES
from .start import RUN, is_active, warn

if TYPE_CHECKING:
    from .items import MarkerPlan

#: Each keyword, or several that are alike, with the meaning.
MEANINGS: Final = {
    "ctk, driver, nvjitlink": "the test needs these versions: specifiers such as '>=13.2'; '13' means any 13.x",
    "arch": "it needs this device: 'sm_90', or a specifier of the compute capability such as '>=9.0'",
    "gpu": "True: it needs a real device",
    "otherwise": "where one of these does not hold: 'skip' skips it, 'xfail' expects a failure, and "
    "Raises(CODE or exception, match=...) runs it all the same, and it must fail in exactly that way",
    "backend": "'driver' or 'nvjitlink' forces what links; 'each' runs the test on both",
    "isolate": "True: it runs in its own process",
    "no_wait": "True: it fails if its body calls a driver function that waits for unfinished work; a list names those "
    "that may, such as ['cuMemFree']",
    "policy": f"the dispatch table whose cases the fixture dispatch_case runs through: {', '.join(POLICIES)}",
}
_SIGNATURE: Final = (
    "cudalink(*, ctk=None, driver=None, nvjitlink=None, arch=None, gpu=None, otherwise='skip', backend=None, "
    "isolate=False, no_wait=False, policy='strict-major')"
)
_ROWS: Final = [f"  {keywords:<{max(map(len, MEANINGS))}}  {meaning}" for keywords, meaning in MEANINGS.items()]
#: Signature and meanings, as ``pytest --markers`` shows them.
MARKER: Final = "\n".join([f"{_SIGNATURE}: what a test needs, and how it runs", *_ROWS])

_REQUIREMENTS: Final = ("ctk", "driver", "nvjitlink", "arch", "gpu")
_KEYWORDS: Final = (*_REQUIREMENTS, "otherwise", "backend", "isolate", "no_wait", "policy")
#: Name of the parameter by which a test runs on both backends.
EACH: Final = "cudalink_backend"
#: Fixtures that only link tests ask for.
_LINK_FIXTURES: Final = frozenset({"linker_factory"})
_FIXTURES: Final = _LINK_FIXTURES | {"dispatch_case"}


def register(config: pytest.Config) -> None:
    """Make the marker known, so that ``--strict-markers`` accepts it."""
    config.addinivalue_line("markers", MARKER)


def _keywords(marks: Iterable[pytest.Mark]) -> dict[str, Any]:
    """Return the keywords of several marks; for each keyword the first mark counts, which is the nearest."""
    merged: dict[str, Any] = {}
    for mark in marks:
        merged = {**mark.kwargs, **merged}
    return merged


def _faults(mark: pytest.Mark) -> Iterable[str]:
    """Yield what is wrong with one use of the marker."""
    keywords = mark.kwargs
    if wrong := [repr(value) for value in mark.args] + sorted(set(keywords) - set(_KEYWORDS)):
        yield f"takes the keywords {', '.join(_KEYWORDS)}, got {', '.join(wrong)}"
    if "policy" in keywords and keywords["policy"] not in POLICIES:
        yield f"policy {keywords['policy']!r} is unknown; known: {', '.join(POLICIES)}"
    if keywords.get("backend") not in (None, *MARKER_BACKENDS):
        yield f"backend={keywords['backend']!r}: write one of {', '.join(map(repr, MARKER_BACKENDS))}"
    if not isinstance(keywords.get("isolate", False), bool):
        yield f"isolate={keywords['isolate']!r}: write True or False"
    yield from _faults_of_no_wait(keywords.get("no_wait", False))
    if not keywords.keys().isdisjoint(_REQUIREMENTS):
        from ..environment.requirements import parse

        for name in _REQUIREMENTS:
            try:
                parse({name: keywords.get(name)})
            except ValueError as error:
                yield str(error)
    if "otherwise" in keywords:
        from ..environment.requirements import Raises

        otherwise = keywords["otherwise"]
        if not isinstance(otherwise, Raises) and otherwise not in ("skip", "xfail"):
            yield f"otherwise={otherwise!r}: write 'skip', 'xfail' or Raises(...), from pytest_cudalink import Raises"


def _faults_of_no_wait(value: object) -> Iterable[str]:
    """Yield what is wrong with the value of ``no_wait``."""
    if isinstance(value, bool):
        return
    if not isinstance(value, (list, tuple)) or not all(isinstance(name, str) for name in value):
        yield f"no_wait={value!r}: write True, False or a list of driver functions that may wait, as ['cuMemFree']"
        return
    from ..emulator.no_wait import allowed_symbols

    try:
        allowed_symbols(value)
    except ValueError as error:
        yield f"no_wait: {error}"


def _faults_together(item: pytest.Item, keywords: dict[str, Any]) -> Iterable[str]:
    """Yield what is wrong with all uses of the marker on one test together."""
    # a test may lift a requirement of its module with None: the module's otherwise is then unused, but valid
    if "otherwise" in keywords and keywords.keys().isdisjoint(_REQUIREMENTS):
        yield f"otherwise needs a requirement: one of {', '.join(_REQUIREMENTS)}"
    callspec = getattr(item, "callspec", None)
    if keywords.get("backend") == "each" and (callspec is None or EACH not in callspec.params):
        yield (
            "backend='each' needs a test that pytest can parametrize, which the methods of a unittest.TestCase are "
            "not; write a function or a plain class"
        )


def plans(items: Iterable[pytest.Item]) -> list[MarkerPlan]:
    """Return the plans of those tests that have one."""
    from .items import PLAN

    return [item.stash[PLAN] for item in items if PLAN in item.stash]


def _allowed(value: bool | Collection[str]) -> frozenset[str] | None:
    """Return the plan's `no_wait` of the marker's."""
    if isinstance(value, bool):
        return frozenset() if value else None
    from ..emulator.no_wait import allowed_symbols

    return allowed_symbols(value)


def _plan(item: pytest.Item, marks: Sequence[pytest.Mark]) -> MarkerPlan:
    from ..environment.requirements import parse
    from .items import MarkerPlan

    keywords = _keywords(marks)
    backend = keywords.get("backend")
    by_option = False
    parameter = getattr(item, "callspec", None)
    if parameter is not None and EACH in parameter.params:
        by_option = backend is None and item.config.stash[RUN].settings.backend.value == "each"
        backend = parameter.params[EACH]
    return MarkerPlan(
        requirements=tuple(parse({name: keywords.get(name) for name in _REQUIREMENTS})),
        otherwise=keywords.get("otherwise", "skip"),
        backend=backend,
        isolate=keywords.get("isolate", False),
        no_wait=_allowed(keywords.get("no_wait", False)),
        by_option=by_option,
    )


def _is_marked(item: pytest.Item) -> bool:
    """Whether a test, or a class or module around it, has the marker; every test of every suite is asked."""
    node: Any = item  # (a loop, because the iterators of marks and keywords of pytest cost several times as much)
    while node is not None:
        if node.own_markers and any(mark.name == "cudalink" for mark in node.own_markers):
            return True
        node = node.parent
    return False


def asks(items: Iterable[pytest.Item], fixtures: frozenset[str]) -> bool:
    """Whether any test has the marker, or uses one of the fixtures."""
    return any(_is_marked(item) or not fixtures.isdisjoint(getattr(item, "fixturenames", ())) for item in items)


def check(items: Iterable[pytest.Item]) -> bool:
    """Refuse wrong markers once everything is collected, and give each marked test its plan.

    Returns whether any test has a plan.
    Raises pytest.UsageError names each test and what is wrong with its marker.
    """
    errors: dict[str, None] = {}
    planned = False
    for item in items:
        callspec = getattr(item, "callspec", None)
        if not _is_marked(item) and (callspec is None or EACH not in callspec.params):
            continue
        marks = list(item.iter_markers("cudalink"))
        # one line for a test, not one for each of its parameters
        name = item.nodeid.partition("[")[0]
        faults = [fault for mark in marks for fault in _faults(mark)]
        if not faults:
            from .items import PLAN, MarkerPlan

            plan = item.stash[PLAN] = _plan(item, marks)
            planned = planned or plan != MarkerPlan()
            faults = list(_faults_together(item, _keywords(marks)))
        errors.update(dict.fromkeys(f"{name}: @pytest.mark.cudalink {fault}" for fault in faults))
    if errors:
        raise pytest.UsageError("\n".join(errors))
    return planned


def warn_if_none_runs_on_each(session: pytest.Session, value: str) -> None:
    """Warn if ``--force-backend=each`` forces no selected test; `value` is the setting. An error as that of `warn`."""
    if not session.items or any(plan.backend for plan in plans(session.items)):
        return
    text = (
        f"cudalink: --force-backend is {value}, but forces no selected test: it runs tests with @pytest.mark.cudalink "
        "or the fixture linker_factory on each backend; mark the link tests, as with pytestmark = pytest.mark.cudalink"
    )
    warn(session.config, text)


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Run ``dispatch_case`` over every concrete case of the policy's table, and link tests on each backend."""
    if not _is_marked(metafunc.definition) and _FIXTURES.isdisjoint(metafunc.fixturenames):
        return
    marks = list(metafunc.definition.iter_markers("cudalink"))
    each = is_active(metafunc.config) and metafunc.config.stash[RUN].settings.backend.value == "each"
    _parametrize_backend(metafunc, marks, each=each)
    if "dispatch_case" not in metafunc.fixturenames:
        return
    from ..linker import dispatch

    policy: Any = _keywords(marks).get("policy")
    # a wrong name is reported by `check`, where it can be a usage error
    expanded = list(dispatch.cases(policy if policy in POLICIES else DEFAULT_POLICY))
    metafunc.parametrize("dispatch_case", expanded, indirect=True, ids=[case.id for case in expanded])


def _parametrize_backend(metafunc: pytest.Metafunc, marks: Sequence[pytest.Mark], *, each: bool) -> None:
    wanted = _keywords(marks).get("backend")
    # `parametrize` has seen that the test is marked, or uses one of the fixtures
    links = "dispatch_case" not in metafunc.fixturenames or _LINK_FIXTURES & set(metafunc.fixturenames)
    if wanted != "each" and not (each and wanted is None and links):
        return
    # a test that requests the fixture is parametrized by it; any other has to get it
    if EACH not in metafunc.fixturenames:
        metafunc.fixturenames.append(EACH)
    metafunc.parametrize(EACH, BACKENDS, indirect=True)
