"""The pytest plugin: hooks, each of which delegates. Importing it touches no CUDA library."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

import pytest

from . import hookspecs, lifecycle, marker, settings
from .audits import device_code
from .fixtures import (
    audit_wheel,
    cudalink,
    cudalink_backend,
    dispatch_case,
    driver_lifetimes,
    emulated_driver,
    fake_versions,
    force_backend,
    guard_rails,
    linker_factory,
    nvjitlink_contract,
    system_toolkit,
)

__all__ = [
    "audit_wheel",
    "cudalink",
    "cudalink_backend",
    "device_code",
    "dispatch_case",
    "driver_lifetimes",
    "emulated_driver",
    "fake_versions",
    "force_backend",
    "guard_rails",
    "linker_factory",
    "nvjitlink_contract",
    "system_toolkit",
]


#: The names under which pytest may load this module: as an entry point or with ``-p``, and from a conftest.
_NAMES: Final = ("cudalink", "pytest_cudalink.plugin")


class _SecondName:
    """Takes the other name, because pytest refuses to register one module under two."""


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(hookspecs)
    for name in _NAMES:
        if not pluginmanager.has_plugin(name):
            pluginmanager.register(_SecondName(), name)


def pytest_addoption(parser: pytest.Parser) -> None:
    settings.add_options(parser)


# a wrapper: pytest's own ones import what `filterwarnings` and `-W` name (pytest 9.2 has imported that before)
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None]:
    lifecycle.load(early_config)
    return (yield)


# a wrapper: nothing of pytest comes after it
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, int | pytest.ExitCode | None, Any]:
    lifecycle.command_line(config)
    return lifecycle.last_look(config, (yield))


def pytest_configure(config: pytest.Config) -> None:
    lifecycle.configure(config)


def pytest_sessionstart(session: pytest.Session) -> None:
    lifecycle.session_start(session.config)


def pytest_report_header(config: pytest.Config) -> list[str]:
    return lifecycle.header(config)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marker.parametrize(metafunc)


# the only hook that tells of a failed collection before its report goes on and costs a passing run nothing
def pytest_exception_interact(
    node: pytest.Item | pytest.Collector,
    call: pytest.CallInfo[object],
    report: pytest.CollectReport | pytest.TestReport,
) -> None:
    if isinstance(report, pytest.CollectReport) and call.excinfo is not None:
        lifecycle.interact(node.config, call.excinfo.value, report)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    lifecycle.collected(config, items)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    lifecycle.selected(session)


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    return lifecycle.late_header(config)


def pytest_sessionfinish(session: pytest.Session) -> None:
    lifecycle.session_finish(session)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    lifecycle.terminal_summary(terminalreporter)
