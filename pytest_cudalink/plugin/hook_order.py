"""Who acts in which order in a hook: one list, which each part follows when it is registered."""

from __future__ import annotations

from inspect import isgeneratorfunction
from typing import Any, Final

import pytest

#: Who acts in a hook, in order, for each hook in which several parts act or the place of one counts. A part has the
#: name that pytest knows; "hooks" is the plugin itself. "..." stands for all others that ask for no place themselves:
#: those of pytest, other plugins and conftests, and parts that may act anywhere. Pluggy runs wrappers before functions:
#: a wrapper is their first where no "..." precedes it, else their last; a function is their first where a "..." follows
#: it, else their last. Of two parts that stand together, a run makes the one nearer to "..." first.
ORDER: Final[dict[str, tuple[Any, ...]]] = {
    # pytest's wrappers import what `filterwarnings` and `-W` name (pytest 9.2 has imported that before)
    "pytest_load_initial_conftests": ("hooks", ...),
    # nothing comes after it that could change the exit code
    "pytest_cmdline_main": ("hooks", ...),
    # what others load is seen
    "pytest_collection": ("provenance", ...),
    "pytest_make_collect_report": ("provenance", ...),
    # of the tests that others add, drop or rename only the result counts; a late run begins before it looks
    "pytest_collection_modifyitems": (..., "hooks", "lifecycle", "isolated"),
    # others meet the driver that a marker asks for; what a child sees until they are done, its parent has seen, too
    "pytest_collection_finish": ("isolated", "lifecycle", ..., "record-file"),
    # processes end before pytest-cov's wrapper reads their files; a child runs what its parent asks for, not its tests
    "pytest_runtestloop": (..., "lifecycle", "isolated", ...),
    # a test runs again once pytest-timeout has stopped waiting; in another process, before rerunfailures or pytest run
    # it in this one
    "pytest_runtest_protocol": ("schedules", "fault-sweep", ..., "isolation", ...),
    # what the checks see has happened before the test
    "pytest_runtest_logstart": ("record-file", "reporter", "ledger", ...),
    # those of pytest have begun when a test is skipped here, and can end; what a test leaves, dies while pytest listens
    "pytest_runtest_setup": (..., "marked-tests", ...),
    "pytest_runtest_call": (..., "marked-tests", "witness", ...),
    "pytest_runtest_teardown": (..., "marked-tests", "witness", ...),
    # neither a skip nor an xfail, which pytest's own make of a failure, hides what was seen
    "pytest_runtest_makereport": ("witness", "reporter", "hooks", ...),
    # xdist's worker sends a report with the facts, and a child writes it as others leave it
    "pytest_runtest_logreport": ("listener", "require", "hand-over", "ledger", ..., "isolated"),
    # what others do now belongs to the test
    "pytest_runtest_logfinish": (..., "ledger", "record-file"),
    # a wrapper: what fails the run is in pytest's JUnit file, and the sums have what others do
    "pytest_sessionfinish": (..., "ends", ..., "isolated"),
    "pytest_unconfigure": (..., "isolated"),
    # what a project raises or changes is counted and written
    "pytest_cudalink_library": ("record-file", ...),
    "pytest_cudalink_link": ("record-file", "ledger", ...),
    "pytest_cudalink_unsteered": ("record-file", "ledger", ...),
    "pytest_cudalink_unsupported": ("ledger", ...),
    "pytest_cudalink_verdict": ("record-file", "ledger", ...),
    "pytest_cudalink_violation": ("record-file", "ledger", ...),
    # each does its own
    "pytest_collectreport": (...,),
    "pytest_configure": (...,),
    "pytest_exception_interact": (...,),
    "pytest_testnodedown": (...,),
    "pytest_warning_recorded": (...,),
    "pytest_xdist_node_collection_finished": (...,),
}


def in_order(plugin: object, name: str) -> None:
    """Mark the hooks of a plugin object, before it is registered, for the places that its name has in `ORDER`."""
    for hook, turns in ORDER.items():
        if name in turns:
            function, at = getattr(plugin, hook), turns.index(name)
            wraps = isgeneratorfunction(function)
            last = ... in turns[:at] if wraps else ... not in turns[at:]
            pytest.hookimpl(wrapper=wraps, tryfirst=not last, trylast=last)(getattr(function, "__func__", function))


def register(config: pytest.Config, plugin: object, name: str) -> None:
    """Register a plugin object as ``cudalink-NAME``, its hooks in their places."""
    in_order(plugin, name)
    config.pluginmanager.register(plugin, f"cudalink-{name}")
