"""The phases of tests that have a plan, or of all tests in a run that forces the driver.

What needs a driver is skipped where the driver backend is forced and there is no driver. The reason is the same whether
an option, the environment, the ini file or a marker forced the backend, and it ends in what gives the test a driver.
"""

from __future__ import annotations

import sys
import traceback
import unittest
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

import pytest

from .. import pytest_private
from ..conditions import run_driver
from ..records import LEDGER
from ..run import MakesCollectReport, Run, RunPart, run_of
from ..watch import NO_WAIT, backends
from . import PLAN, MarkerPlan

if TYPE_CHECKING:
    from ...environment.requirements import Raises, Requirement
    from ...targets import Choice

MISSING_DRIVER: Final = "cudalink: needs a CUDA driver (found none, and the driver backend is forced)"


def reason(config: pytest.Config) -> str:
    """Return why a test without a driver is skipped, with what gives it one."""
    return f"{MISSING_DRIVER}; {run_driver.remedy(config, run_of(config).settings)}"


def _skip(config: pytest.Config, cause: BaseException | None = None) -> NoReturn:
    """Skip the current test, which the summary counts. Raises pytest.skip.Exception with `reason`."""
    run_of(config).part(LEDGER).test.missing = run_driver.A_DRIVER
    raise pytest.skip.Exception(reason(config), _use_item_location=True) from cause


@contextmanager
def _skips(config: pytest.Config) -> Iterator[None]:
    """Turn the error of a missing driver inside the block into a skip. Raises pytest.skip.Exception with `reason`."""
    try:
        yield
    except RuntimeError as error:
        if not _is_missing(config, error):
            raise
        _skip(config, error)


def _is_missing(config: pytest.Config, error: BaseException) -> bool:
    from ...probes.libcuda import DriverNotFoundError

    return isinstance(error, DriverNotFoundError) and backends.steering(run_of(config)).choice.backend == "driver"


class DocumentedFailureError(AssertionError):
    """A test did not fail in the way that its marker documents."""


class _Documented(NamedTuple):
    """How a test must fail, because a requirement does not hold."""

    requirement: str
    versions: str
    raises: Raises


#: How a test ends without having failed: pytest's words for that, and what ends the whole run.
_NO_FAILURE: Final = (
    pytest.skip.Exception,
    pytest.xfail.Exception,
    pytest.exit.Exception,
    unittest.SkipTest,
    KeyboardInterrupt,
)
_DOCUMENTED: Final = pytest.StashKey[_Documented | None]()
_BEFORE: Final[pytest.StashKey[Choice]] = pytest.StashKey()


class MarkedTests(RunPart):
    """A plugin object; registered when a test or the run needs it.

    Its wrappers are the innermost: those of pytest's own plugins have begun when a test is skipped here, and can end.
    """

    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        with _skips(item.config):
            plan = item.stash.get(PLAN, None)
            if plan is not None:
                _prepare(self._run, item, plan)
            documented = item.stash.get(_DOCUMENTED, None)
            if documented is None:
                return (yield)
            try:
                return (yield)
            except _NO_FAILURE:
                raise
            except BaseException as error:
                if not documented.raises.matches(error):
                    raise
                _release(error)
            # a fixture failed as documented: the test is asserted, and has nothing to run with
            _assert(self._run, documented)
            item.runtest = _nothing  # type: ignore[method-assign]
            return None

    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        documented = item.stash.get(_DOCUMENTED, None)
        allowed = item.stash.get(PLAN, MarkerPlan()).no_wait
        waits = self._run.part(NO_WAIT).forbidden(allowed) if allowed is not None else nullcontext()
        with _skips(item.config), waits:
            if documented is None or vars(item).get("runtest") is _nothing:
                return (yield)
            try:
                yield
                pytest_private.raise_from_unittest(item)
            except _NO_FAILURE:
                raise
            except BaseException as error:
                if not documented.raises.matches(error):
                    msg = f"{_must(documented)}, but it failed with {type(error).__name__}: {error}"
                    raise DocumentedFailureError(msg) from error
                _release(error)
            else:
                raise DocumentedFailureError(f"{_must(documented)}, but it passed")
            _assert(self._run, documented)
            return None

    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, object, object]:
        try:
            with _skips(item.config):
                return (yield)
        finally:
            if vars(item).get("runtest") is _nothing:
                del item.runtest  # it may be run again
            before = item.stash.get(_BEFORE, None)
            if before is not None:
                del item.stash[_BEFORE]
                backends.steering(self._run).force(before)

    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        """Turn an error that `_skips` did not see into a skip: unittest keeps its errors until the report is made."""
        if call.excinfo is None or not _is_missing(item.config, error := call.excinfo.value):
            return

        def again() -> None:
            with _skips(item.config):
                raise error

        call.excinfo = pytest.CallInfo.from_call(again, call.when).excinfo

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> MakesCollectReport:
        """Skip the tests of a module that cannot be collected without a driver, all at once."""
        report = yield
        call: pytest.CallInfo[None] | None = getattr(report, "call", None)
        excinfo = call.excinfo if call is not None else None
        if excinfo is not None and _is_missing(collector.config, excinfo.value):
            line = next((entry.lineno + 1 for entry in excinfo.traceback if entry.path == collector.path), 0)
            report.outcome = "skipped"
            report.longrepr = (str(collector.path), line, f"Skipped: {reason(collector.config)}")
            self._run.part(LEDGER).outside.missing[run_driver.A_DRIVER] += 1
            del report.call  # pytest's own, by which it would offer the error to a debugger
        return report


def _prepare(run: Run, item: pytest.Item, plan: MarkerPlan) -> None:
    if plan.backend is not None:
        from ...targets import Choice

        source = backends.option_of(run.settings) if plan.by_option else "the marker cudalink"
        item.stash[_BEFORE] = backends.steering(run).force(Choice(plan.backend, source))
        if plan.backend == "driver" and run_driver.came_too_late(item.config):
            _skip(item.config)
    item.stash[_DOCUMENTED] = None
    if not plan.requirements:
        return
    from ...environment.requirements import Raises, unmet
    from ..records.facts import Environment

    environment = Environment()
    missing = unmet(plan.requirements, environment)
    if not missing:
        return
    versions = {requirement.name: str(environment[requirement.name]) for requirement in missing}
    reason = f"cudalink: needs {_listed(missing, versions)}"
    if isinstance(plan.otherwise, Raises):
        names = " and ".join(map(str, missing))
        item.stash[_DOCUMENTED] = _Documented(names, _listed(missing, versions), plan.otherwise)
    elif plan.otherwise == "xfail":
        item.add_marker(pytest.mark.xfail(reason=reason, strict=False), append=False)
    else:
        run.part(LEDGER).test.missing = " and ".join(map(str, missing))
        raise pytest.skip.Exception(reason, _use_item_location=True)


def _release(error: BaseException) -> None:
    """Clear the frames of an error that was handled: a linker in them would live until a later test.

    Frames and errors refer to each other, so that only the garbage collector would end them; and pytest keeps the last
    error of a test for its debugger.
    """
    for name in ("last_type", "last_value", "last_traceback", "last_exc"):
        vars(sys).pop(name, None)
    traceback.clear_frames(error.__traceback__)


def _nothing() -> None:
    """Replaces runtest when setup has already ended the test."""


def _assert(run: Run, documented: _Documented) -> None:
    run.part(LEDGER).test.documented = {"requirement": documented.requirement, "raises": str(documented.raises)}


def _listed(missing: Sequence[Requirement], versions: dict[str, str]) -> str:
    return " and ".join(f"{requirement} (found {versions[requirement.name]})" for requirement in missing)


def _must(documented: _Documented) -> str:
    return f"cudalink: needs {documented.versions}; without it this test must fail with {documented.raises}"
