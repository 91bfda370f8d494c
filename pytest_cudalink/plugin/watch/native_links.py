"""Links that code below Python makes through libnvJitLink, with the test during which they were made.

Also fails what linked on another backend than the forced one, and what could not be forced.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

import pytest

from ...base.finding import Finding
from ...loader.jitlink import jitlink_calls
from ..records import LEDGER
from .check import Check, Phase

if TYPE_CHECKING:
    import pytest

    from ...targets import LinkEvent, UnsteeredLink
    from ..run import Run

_SECTION: Final = "cudalink forced backend"


class UnsteeredLinkWarning(UserWarning):
    """Code that no target steers linked on another backend than the forced one, under ``--cudalink-unsteered=warn``."""


class Mismatches(Check):
    """There once something linked otherwise than it was forced: no test passes over that.

    The error may be caught by the code that linked, expected by the test, or raised where no test runs; the next report
    of a phase fails with it then, or the run.

    `pending`: how often each problem occurred that no report has shown.
    """

    category = UnsteeredLinkWarning

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self.pending: Counter[str] = Counter()
        self._outside: Counter[str] = Counter()
        self._warnings: Counter[str] = Counter()

    def add(self, text: str, *, warn: bool = False, once: bool = False) -> None:
        """Fail the current test with a problem, or warn of it there; outside of tests, the run.

        `once`: do not say how often it occurred: each try to import a library fails in the same way.
        """
        run = self._run
        if run.is_isolated and not run.collected:
            return  # the process that waits for this one has collected, too
        with run.lock:
            problems = self._warnings if warn else self._outside if run.nodeid is None else self.pending
            problems[text] = 1 if once else problems[text] + 1

    def sections(self, phase: Phase) -> Iterator[Finding]:
        yield from self._warned()
        shown, self.pending = self.pending, Counter()
        failed = phase.report.failed
        if text := "\n".join(one for one in _with_number(shown) if not failed or one not in phase.report.longreprtext):
            yield Finding("error", text, kind=_SECTION)

    def _warned(self) -> list[Finding]:
        warned, self._warnings = self._warnings, Counter()
        return [Finding("warning", text) for text in _with_number(warned)]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Leave out of the summary what the error of a collected file shows."""
        if report.failed:
            for text in [text for text in self._outside if text in report.longreprtext]:
                del self._outside[text]

    def finish(self) -> list[Finding]:
        """Fail the run for those that no report will show, or warn of them."""
        texts = [*_with_number(self.pending), *_with_number(self._outside)]
        return [*(Finding("error", text) for text in texts), *self._warned()]


def _with_number(problems: Counter[str]) -> list[str]:
    return [text if number == 1 else f"{text} ({number} times)" for text, number in problems.items()]


_LIBRARY: Final = "libnvJitLink"
#: What calls a function for Python code that uses ctypes or cffi.
_FOREIGN_CALLS: Final = ("libffi", "_ctypes", "_cffi")


class NativeLinks(Check):
    """There once native code may link: reports the links that C counted, before the test's report."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        before = run.begins_late and _is_loaded()
        self._watches = jitlink_calls.start()
        if before:
            self._say(
                "it was loaded before a test asked for pytest-cudalink, and calls of code that had used it by then may "
                "be missed; an ini entry such as cudalink_checks = fail asks early enough"
            )

    def between(self) -> tuple[()]:
        """Report what was linked since the last look."""
        jitlink_calls.cover(on=False)  # an interrupt may have come before the code that covers could do so
        calls, late, refused, refused_input = jitlink_calls.look()
        if calls:
            self._report(calls)
        if refused_input and (given := jitlink_calls.take_refused_input()) is not None:
            from .causes import Causes

            self._run.part(Causes).refused_input(given)
        if late:
            test = self._run.nodeid
            when = f"during {test}" if test else "outside of tests"
            self._say(f"it was loaded {when}, before it could be watched; links may have been missed")
        if refused:
            self._say("this system does not let its functions be redirected; links of native code are not counted")
        return ()

    def look(self, _phase: Phase) -> None:
        self.between()

    def _report(self, calls: tuple[tuple[str, int], ...]) -> None:
        from ...targets import steering
        from ..conditions import backends

        backends.steering(self._run)  # whatever imports a target starts it, and native code does not
        for path, count in calls:
            name = PurePath(path).name
            by = "ctypes" if name.startswith(_FOREIGN_CALLS) else name or "an object that is no longer loaded"
            link = steering.UnsteeredLink(
                f"{_LIBRARY}, called by {by}", "nvJitLinkComplete", "" if by == "ctypes" else path, "nvjitlink"
            )
            for _ in range(count):
                steering.report(link)

    def _say(self, reason: str) -> None:
        hook = self._run.config.hook.pytest_cudalink_unsupported
        hook(config=self._run.config, target=_LIBRARY, reason=reason)

    def finish(self) -> tuple[()]:
        """Say once where a libnvJitLink could not be watched."""
        if not self._watches and _is_loaded():
            self._say(
                "the plugin's native part is missing or not for this system; links of native code are not counted"
            )
        return ()


def _is_loaded() -> bool:
    """Whether this process has a libnvJitLink."""
    from ...loader.loads import mapped_files

    return any(_LIBRARY in PurePath(file).name for file in mapped_files())


class LoadedModules(Check):
    """The check that compares the modules that an emulated driver loaded with the links that were seen.

    `run`: one on an emulated driver.
    """

    def __init__(self, run: Run) -> None:
        assert run.emulated is not None  # (`lifecycle` has looked)
        super().__init__(run)
        self._driver = run.emulated
        self._before = self._driver.unlinked_images
        self._links = 0

    @pytest.hookimpl
    def pytest_cudalink_link(self, event: LinkEvent) -> None:
        """Count a link that the emulated driver does not count itself."""
        with self._run.lock:
            self._links += event.backend != "driver"

    @pytest.hookimpl
    def pytest_cudalink_unsteered(self, link: UnsteeredLink) -> None:
        """Count a link that the emulated driver does not count itself."""
        with self._run.lock:
            self._links += link.backend != "driver"

    @pytest.hookimpl
    def pytest_collection_finish(self) -> None:
        """Leave to the process that waits for this one what both have loaded: it has collected the same."""
        if self._run.is_isolated:
            self._before, self._links = self._driver.unlinked_images, 0

    def finish(self) -> tuple[()]:
        """Hand over how many modules no seen link can have made: at least so many, if each link made one of them."""
        unlinked = self._driver.unlinked_images - self._before - self._links
        if unlinked > 0:
            self._run.part(LEDGER).outside.unlinked_modules += unlinked
        return ()
