"""The pytest plugin: hooks, each of which delegates. Importing it touches no CUDA library."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from . import markers, session, settings
from .fixtures import (
    audit_wheel,
    cudalink,
    dispatch_case,
    driver_lifetimes,
    emulated_driver,
    fake_versions,
    force_backend,
    linker_factory,
)

__all__ = [
    "audit_wheel",
    "cudalink",
    "dispatch_case",
    "driver_lifetimes",
    "emulated_driver",
    "fake_versions",
    "force_backend",
    "linker_factory",
]


def pytest_addoption(parser: pytest.Parser) -> None:
    settings.add_options(parser)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    session.preload(early_config)


def pytest_configure(config: pytest.Config) -> None:
    markers.register(config)
    session.start(config)


def pytest_report_header(config: pytest.Config) -> list[str]:
    return session.header(config)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    markers.parametrize(metafunc)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    markers.check(items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    with session.phase(item, "setup"):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    with session.phase(item, "call"):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, object, object]:
    with session.phase(item, "teardown"):
        return (yield)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    session.summary(terminalreporter)
