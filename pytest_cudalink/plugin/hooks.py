"""What pytest calls: options, the marker and fixtures; and the hooks that find out whether anything asks for them.

Options, ini keys and variables ask before conftests are loaded; implementations of the plugin's hooks when pytest is
configured; markers and fixtures when the tests are collected. Then `lifecycle` begins. Until then this module and the
few that it imports are all that is loaded.
"""

import argparse
import os
import sys
from collections.abc import Generator
from typing import Any, Final

import pytest

from .. import own_imports
from ..compat.settings_table import OPTIONS
from . import fixtures, hookspecs, marker
from .hook_order import in_order
from .start import START, Start, from_controller, is_active

#: The names under which pytest may load the plugin: as an entry point or with ``-p``, and from a conftest.
_NAMES: Final = ("cudalink", "pytest_cudalink.plugin")


class _SecondName:
    """Takes the other name, because pytest refuses to register one module under two."""

    def __dir__(self) -> list[str]:
        return []


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    pluginmanager.add_hookspecs(hookspecs)
    pluginmanager.register(fixtures, fixtures.__name__)
    for name in _NAMES:
        if not pluginmanager.has_plugin(name):
            pluginmanager.register(_SecondName(), name)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("cudalink", "CUDA linking (pytest-cudalink)")
    for option in OPTIONS:
        env = f"environment: {option.env}, " if option.env else ""
        default = f"default: {option.default or 'none'}"
        if option.flag:
            bare = {"nargs": "?", "const": option.bare} if option.bare else {}
            group.addoption(
                option.flag,
                **bare,
                dest=option.ini,
                action="append" if option.parts else "store",
                default=None,
                help=f"{option.help} ({env}{default})",
                choices=option.choices or None,
                metavar=option.metavar,
            )
        text = f"the same as {option.flag}" if option.flag else f"{option.help} ({env}{default})"
        parser.addini(option.ini, text, type="string", default=None)


def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None]:
    early_config.stash[START] = Start.now()  # conftests change it, and those of other processes do so, too
    if _settings_ask(early_config, early_config.known_args_namespace):
        _begin(early_config, early_config.known_args_namespace)
    return (yield)


def pytest_cmdline_main(config: pytest.Config) -> Generator[None, int | pytest.ExitCode | None, Any]:
    if is_active(config):
        from .session import lifecycle

        lifecycle.command_line(config)
    code = yield
    if is_active(config):
        from .session import lifecycle

        return lifecycle.last_look(config, code)
    return code


def pytest_configure(config: pytest.Config) -> None:
    marker.register(config)
    # a conftest can bring the plugin, too late for the other hook; a controller of xdist hands its settings over
    if not is_active(config) and (
        _settings_ask(config, config.option) or _has_hooks(config) or "settings" in from_controller(config)
    ):
        _begin(config, config.option)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    from .session import xdist

    xdist.configure_node(node, _begin)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marker.parametrize(metafunc)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not is_active(config) and (marker.asks(items, fixtures.NAMES) or _has_hooks(config)):
        _begin(config)
        from .session import lifecycle

        lifecycle.pytest_collection_modifyitems(config, items)  # registered too late for this call


def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    report = yield
    if call.excinfo is not None:
        _explain(item.config, report, call.excinfo.value)
    return report


def pytest_exception_interact(
    node: pytest.Item | pytest.Collector,
    call: pytest.CallInfo[object],
    report: pytest.CollectReport | pytest.TestReport,
) -> None:
    if isinstance(report, pytest.CollectReport) and call.excinfo is not None:
        _explain(node.config, report, call.excinfo.value)


def _settings_ask(config: pytest.Config, options: argparse.Namespace) -> bool:
    """Whether the command line, the environment or the ini file asks for the plugin.

    `options`: the command line as far as it is known.
    A variable that no part reads asks, too: the run warns of it. `CUDALINK_CACHE` only says where toolchains are.
    """
    return any(name.startswith("CUDALINK_") and name != "CUDALINK_CACHE" for name in os.environ) or any(
        getattr(options, option.ini, None) or config.getini(option.ini) for option in OPTIONS
    )


def _explain(config: pytest.Config, report: pytest.TestReport | pytest.CollectReport, error: BaseException) -> None:
    """Let a failure ask: without a driver, it says how to get one."""
    if not is_active(config):
        from .watch import causes

        causes.explain_unasked(config, report, error)


def _has_hooks(config: pytest.Config) -> bool:
    """Whether a project implements a hook of the plugin."""
    return any(getattr(config.hook, name).get_hookimpls() for name in dir(hookspecs))


def _begin(config: pytest.Config, options: argparse.Namespace | None = None) -> None:
    """Begin the run, with the command line as far as it is known, or late."""
    with own_imports():
        from .session import lifecycle

        if options is None:
            lifecycle.activate(config)
        else:
            lifecycle.begin(config, options)


in_order(sys.modules[__name__], "hooks")
