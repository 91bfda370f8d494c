"""Skips what needs a driver, always with one reason, where the driver backend is forced and there is no driver.

The reason is the same whether an option, the environment, the ini file or a marker forced the backend, and it ends in
what gives the test a driver.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NoReturn

import pytest

from ..conditions import backends, run_driver
from ..parts import LEDGER
from ..run import run_of

MISSING_DRIVER: Final = "cudalink: needs a CUDA driver (found none, and the driver backend is forced)"


def reason(config: pytest.Config) -> str:
    """Return why a test without a driver is skipped, with what gives it one."""
    return f"{MISSING_DRIVER}; {run_driver.remedy(config, run_of(config).settings)}"


def skip(config: pytest.Config, cause: BaseException | None = None) -> NoReturn:
    """Skip the current test, which the summary counts. Raises pytest.skip.Exception with `reason`."""
    run_of(config).part(LEDGER).test.missing = run_driver.A_DRIVER
    raise pytest.skip.Exception(reason(config), _use_item_location=True) from cause


@contextmanager
def skips(config: pytest.Config) -> Iterator[None]:
    """Turn the error of a missing driver inside the block into a skip. Raises pytest.skip.Exception with `reason`."""
    try:
        yield
    except RuntimeError as error:
        if not _is_missing(config, error):
            raise
        skip(config, error)


def skip_report(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Turn an error that `skips` did not see into a skip: unittest keeps its errors until the report is made."""
    excinfo = call.excinfo
    if excinfo is None:
        return

    def again() -> None:
        with skips(item.config):
            raise excinfo.value

    if _is_missing(item.config, excinfo.value):
        call.excinfo = pytest.CallInfo.from_call(again, call.when).excinfo


def skip_collecting(collector: pytest.Collector, report: pytest.CollectReport) -> None:
    """Skip the tests of a module that cannot be collected without a driver, all at once."""
    call: pytest.CallInfo[None] | None = getattr(report, "call", None)
    excinfo = call.excinfo if call is not None else None
    if excinfo is None or not _is_missing(collector.config, excinfo.value):
        return
    line = next((entry.lineno + 1 for entry in excinfo.traceback if entry.path == collector.path), 0)
    report.outcome = "skipped"
    report.longrepr = (str(collector.path), line, f"Skipped: {reason(collector.config)}")
    run_of(collector.config).part(LEDGER).outside.missing[run_driver.A_DRIVER] += 1
    del report.call  # pytest's own, by which it would offer the error to a debugger


def _is_missing(config: pytest.Config, error: BaseException) -> bool:
    from ...probes.libcuda import DriverNotFoundError

    return isinstance(error, DriverNotFoundError) and backends.steering(run_of(config)).choice.backend == "driver"
