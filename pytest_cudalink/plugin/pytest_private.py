"""Everything that the plugin uses of pytest's private interface."""

import ast
import inspect
import logging
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

import pytest

#: Seconds until a process whose pipe is closed has ended.
_PATIENCE: Final = 5.0


def _junit(config: pytest.Config) -> Any:
    try:
        from _pytest.junitxml import xml_key
    except ImportError:
        return None
    return config.stash.get(xml_key, None)


def writes_junit(config: pytest.Config) -> bool:
    """Whether this process writes ``--junitxml``."""
    return _junit(config) is not None


def add_suite_property(config: pytest.Config, name: str, value: str) -> None:
    """Add a property to the suite of ``--junitxml``; does nothing without it.

    The fixture ``record_testsuite_property`` does the same, but only inside a test.
    """
    xml = _junit(config)
    if xml is not None:
        xml.add_global_property(name, value)


def teardown_until(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Tear down what the next item does not share, for an item whose protocol did not run in this process."""
    state: Any = item.session._setupstate  # noqa: SLF001
    state.teardown_exact(nextitem)


def drop_fixtures(session: pytest.Session) -> None:
    """Forget what is set up without tearing it down: in this process that would never return."""
    state: Any = session._setupstate  # noqa: SLF001
    state.stack.clear()


def own_captured(config: pytest.Config, path: str = "") -> None:
    """Let this process write what is captured into files that no other process has.

    `path`: how the paths of these files begin, which end in "out" and "err"; without it they have no names.
    """
    capture: Any = config.pluginmanager.getplugin("capturemanager")
    both: Any = getattr(capture, "_global_capturing", None)
    for name in ("out", "err"):
        stream: Any = getattr(both, name, None)
        if hasattr(stream, "targetfd"):  # other ways of capturing write into the memory of the process
            file = os.open(path + name, os.O_RDWR | os.O_CREAT, 0o600) if path else os.memfd_create("captured")
            os.dup2(file, stream.tmpfile.fileno(), inheritable=False)
            if stream._state == "started":  # noqa: SLF001
                os.dup2(file, stream.targetfd)
            os.close(file)


def shorten_failures(item: pytest.Item) -> None:
    """Write no tracebacks of a test if they are not read: they take longer than most tests."""
    item.config.option.tbstyle = "no"
    vars(item)["_traceback_filter"] = lambda excinfo: excinfo.traceback


def log_records(item: pytest.Item) -> dict[str, list[logging.LogRecord]]:
    """Return the records that a test has logged, by its phases; none with ``-p no:logging``."""
    from _pytest.logging import caplog_records_key

    return item.stash.get(caplog_records_key, {})


def collect_unraisable(config: pytest.Config) -> None:
    """Warn of the exceptions that could not be raised since pytest last warned of such."""
    from _pytest import unraisableexception

    if unraisableexception.unraisable_exceptions in config.stash:  # not with -p no:unraisableexception
        unraisableexception.collect_unraisable(config)


def drop_summary(config: pytest.Config) -> None:
    """Show no summary at the end of this process: that is the run's, and hypothesis imports all of itself for it."""
    hook: Any = config.hook.pytest_terminal_summary
    for implementation in hook.get_hookimpls():
        hook._remove_plugin(implementation.plugin)  # noqa: SLF001


def end_in_red(reporter: pytest.TerminalReporter) -> None:
    """Show the last line in red, also where no test has failed."""
    if hasattr(reporter, "_determine_main_color"):
        vars(reporter)["_determine_main_color"] = lambda _unknown: "red"


def exit_code_of_worker(node: Any) -> int | None:
    """Return how the process of an xdist worker that died has ended; None where execnet does not say."""
    process = getattr(getattr(getattr(node, "gateway", None), "_io", None), "popen", None)
    if process is None:
        return None
    try:
        return int(process.wait(_PATIENCE))
    except (OSError, subprocess.TimeoutExpired):
        return None


def faulthandler_file(config: pytest.Config) -> int | None:
    """Return the descriptor to which pytest lets faulthandler write; None with ``-p no:faulthandler``."""
    from _pytest import faulthandler

    return config.stash.get(faulthandler.fault_handler_stderr_fd_key, None)


def raise_from_unittest(item: pytest.Item) -> None:
    """Raise the error of a unittest test: unittest catches it, and pytest looks for it when the report is made."""
    caught: Any = vars(item).get("_excinfo")
    if caught:
        raise caught.pop(0).value


def rename(item: pytest.Item, nodeid: str) -> None:
    """Change the node ID of a test."""
    node: Any = item
    if hasattr(node, "_id"):  # pytest 9.2
        node._id = type(node._id).parse(nodeid)  # noqa: SLF001
    else:
        node._nodeid = nodeid  # noqa: SLF001


def subtest_description(report: pytest.TestReport) -> str | None:
    """Return the description of a subtest's report, of pytest 9 or pytest-subtests; None for any other report.

    Each border between processes turns the values into their repr once more; all of that is taken off again.
    """
    context: Any = getattr(report, "context", None)
    if context is None or not hasattr(context, "kwargs"):
        return None
    parts = [str(context.msg)] if getattr(context, "msg", None) is not None else []
    parts += [f"{name}={_without_quotes(value)}" for name, value in context.kwargs.items()]
    return " ".join(parts) or "<subtest>"


def _without_quotes(value: object) -> object:
    with suppress(ValueError, SyntaxError):
        while isinstance(value, str) and value[:1] in ("'", '"') and value[:1] == value[-1:]:
            value = ast.literal_eval(value)
    return value


def worker_of(report: pytest.TestReport) -> str | None:
    """Return the name of the xdist worker that sent a report; None without one."""
    worker: str | None = getattr(report, "worker_id", None)
    if worker is None:
        gateway: Any = getattr(getattr(report, "node", None), "gateway", None)
        worker = getattr(gateway, "id", None)
    return worker


def words_of(config: pytest.Config, arguments: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Split a command line of this run: yield the words of each option, and each argument.

    Yields the ``dest`` of the option; empty for an argument.
    """
    known: dict[str, Any] = config._parser.optparser._option_string_actions  # noqa: SLF001
    waiting = [*arguments]
    while waiting:
        word = waiting.pop(0)
        if word == "--":
            yield "", [word, *waiting]
            return
        if word.startswith("@"):  # a file with one word on each line
            with suppress(OSError, UnicodeDecodeError):
                waiting[:0] = (config.invocation_params.dir / word[1:]).read_text(encoding="utf-8").splitlines()
                continue
        name, separator, _ = word.partition("=")
        if len(word) < 2 or word[0] != "-":
            yield "", [word]
        elif word in known:
            action = known[word]
            number = _values(action.nargs, waiting)
            yield action.dest, [word, *waiting[:number]]
            del waiting[:number]
        elif separator and name in known:
            yield known[name].dest, [word]
        elif word[:2] in known:  # -vx, -n4
            action = known[word[:2]]
            alone = action.nargs == 0
            yield action.dest, [word[:2] if alone else word]
            waiting[:0] = [f"-{word[2:]}"] if alone else []
        else:
            yield name, [word]


def _values(nargs: Any, waiting: Sequence[str]) -> int:
    """Return how many of the next words are values of an option, as argparse counts them."""
    if nargs is None or isinstance(nargs, int):
        return 1 if nargs is None else nargs
    plain = next((at for at, word in enumerate(waiting) if word.startswith("-")), len(waiting))
    return min(plain, 1) if nargs == "?" else plain


def finds_setup(config: pytest.Config, file: str) -> bool:
    """Whether a run of one file of this run has its root folder and ini file, because pytest looks above the file."""
    from _pytest.config import findpaths

    option = config.option
    given = {
        "inifile": option.inifilename,
        "override_ini": option.override_ini,
        "args": [file],
        "rootdir_cmd_arg": option.rootdir or None,
        "invocation_dir": config.invocation_params.dir,
    }
    taken = inspect.signature(findpaths.determine_setup).parameters  # that of pytest 8.4 lacks one
    try:
        root, ini, *_ = findpaths.determine_setup(**{name: value for name, value in given.items() if name in taken})
    except pytest.UsageError:  # a file nearer to it is not valid
        return False
    return (root, ini) == (config.rootpath, config.inipath)
