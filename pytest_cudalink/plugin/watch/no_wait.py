"""The check of waits: calls of the driver that wait for unfinished work where a test forbids it."""

import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager

import pytest

from ...base.finding import Finding, Violation
from ..records import LEDGER
from ..run import Run
from .check import Phase
from .violation_checks import ViolationCheck


class NoWait(ViolationCheck):
    """Reports each call that waits in a block of a thread: by the table on an emulated driver, else by closed gates."""

    name, title = "wait", "cudalink no_wait"

    def __init__(self, run: Run) -> None:
        super().__init__(run, "fail")
        self._number = 0
        self._gave_up = False
        self._driver = run.emulated

    @contextmanager
    def forbidden(self, allowed: Collection[str] = (), streams: Collection[int] = ()) -> Iterator[None]:
        """Let no call of this thread wait during a block; skip the test if nothing here can tell.

        `allowed`: symbols of the functions that may.
        `streams`: those of the test that get a gate, too.
        """
        if self._driver is not None:
            with self._driver.no_wait(threading.get_native_id(), allowed):
                yield
            return
        from ...emulator.control import telling_frames
        from ...emulator.no_wait import violation_of_wait
        from ...loader import gates

        try:
            watch = gates.ClosedGates(streams, allowed)
            closed = watch.closed()
            closed.__enter__()
        except gates.NoGatesError as error:
            self._run.part(LEDGER).test.missing = "gates in streams"
            reason = f"cudalink: no_wait needs a driver whose streams can wait for a value (found {error})"
            raise pytest.skip.Exception(reason, _use_item_location=True) from None
        try:
            yield
        finally:
            closed.__exit__(None, None, None)
            self._gave_up = self._gave_up or watch.gave_up
            for waiting in watch.found:
                self._number += 1
                wait = violation_of_wait(
                    waiting.call,
                    number=self._number,
                    python_stack=telling_frames(waiting.python_stack),
                    native_stack=waiting.native_stack,
                    noted=True,
                )
                self._waiting.append(wait)

    @property
    def violations(self) -> tuple[Violation, ...]:
        known = self._driver.violations if self._driver is not None else ()
        return (*super().violations, *(violation for violation in known if violation.check == self.name))

    def consume(self, violations: tuple[Violation, ...]) -> None:
        super().consume(violations)
        if self._driver is not None:
            self._driver.consume(violations)

    def sections(self, phase: Phase) -> Iterator[Finding]:
        yield from super().sections(phase)
        if self._gave_up:
            from ...loader import gates

            self._gave_up = False
            text = (
                f"cudalink: no_wait opened the gates after {gates.LONGEST:.0f} s, because the block had not ended, and "
                "saw no call after that; make the block shorter, and do not poll for the end of its work"
            )
            yield Finding("warning", text, kind=self.title)
