"""A run without a session, whose hooks a test calls by hand: its decisions then need no nested pytest."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from pytest_cudalink.plugin import hookspecs
from pytest_cudalink.plugin.items import PLAN, MarkerPlan
from pytest_cudalink.plugin.records import LEDGER
from pytest_cudalink.plugin.run import Run
from pytest_cudalink.plugin.settings import Setting, Settings

PHASES = ("setup", "call", "teardown")


class Config:
    """What a run asks of pytest's configuration; warnings are kept, or raised where `strict` makes errors of them."""

    def __init__(self) -> None:
        self.pluginmanager = pytest.PytestPluginManager()
        self.pluginmanager.add_hookspecs(hookspecs)
        self.hook = self.pluginmanager.hook
        self.stash = pytest.Stash()
        self.option = SimpleNamespace(collectonly=False, setuponly=False)
        self.warnings: list[tuple[type[Warning], str, int]] = []
        self.strict = False
        self.cleanups: list[Callable[[], object]] = []

    def add_cleanup(self, cleanup: Callable[[], object]) -> None:
        self.cleanups.append(cleanup)

    def issue_config_time_warning(self, warning: Warning, stacklevel: int) -> None:
        if self.strict:
            raise warning
        self.warnings.append((type(warning), str(warning), stacklevel))


class Item(SimpleNamespace):
    """A test, as far as checks ask."""

    def __init__(self, plan: MarkerPlan | None = None, line: int | None = None) -> None:
        super().__init__(nodeid="A", stash=pytest.Stash(), funcargs={}, line=line, warnings=[], strict=False)
        if plan is not None:
            self.stash[PLAN] = plan

    def warn(self, warning: Warning) -> None:
        if self.strict:
            raise warning
        self.warnings.append((type(warning), str(warning)))

    def repr_failure(self, info: pytest.ExceptionInfo) -> str:
        return f"{info.value} with its traceback" if info.value.pytrace else str(info.value)

    def reportinfo(self) -> tuple[str, int | None, str]:
        return "f.py", self.line, "A"


def begun(**values: str) -> Run:
    """A run with some settings, and the rest as by default."""
    known = {"require": "auto", "backend": "auto", "driver": "auto", "faults": "", "properties": "off", **values}
    run = Run(Config(), Settings(**{name: Setting(value, "default") for name, value in known.items()}))
    run.part(LEDGER)
    return run


def reported(run: Run, when: str, item: Item | None = None, outcome: str = "passed", error=None, **more):
    """Let the run make the report of a phase, and log it."""
    made = pytest.TestReport("A", ("f.py", 0, "A"), {}, outcome, None, when)
    vars(made).update(more)
    maker = SimpleNamespace(pytest_runtest_makereport=lambda: made)
    run.config.pluginmanager.register(maker)

    def phase() -> None:
        if error is not None:
            raise error

    call = pytest.CallInfo.from_call(phase, when)
    report = run.config.hook.pytest_runtest_makereport(item=item or Item(), call=call)
    run.config.pluginmanager.unregister(maker)
    run.config.hook.pytest_runtest_logreport(report=report)
    return report
