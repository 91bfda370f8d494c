"""Links that code below Python makes through libnvJitLink, with the test during which they were made."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from ...loader.jitlink import jitlink_calls
from ..records import LEDGER
from ..run import Run
from .check import Check, Phase

if TYPE_CHECKING:
    from ...targets import LinkEvent, UnsteeredLink

_LIBRARY: Final = "libnvJitLink"
#: What calls a function for Python code that uses ctypes or cffi.
_FOREIGN_CALLS: Final = ("libffi", "_ctypes", "_cffi")


class NativeLinks(Check):
    """There once native code may link: reports the links that C counted, before the test's report."""

    has_signs = True

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        before = run.begins_late and _is_loaded()
        self._watches = jitlink_calls.start()
        self._reporter.add_signs(jitlink_calls.counter())
        if before:
            self._say(
                "it was loaded before a test asked for pytest-cudalink, and calls of code that had used it by then may "
                "be missed; an ini entry such as cudalink_checks = fail asks early enough"
            )

    def between(self) -> None:
        """Report what was linked since the last look."""
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

    def look(self, _phase: Phase) -> None:
        self.between()

    def _report(self, calls: tuple[tuple[str, int], ...]) -> None:
        from ...targets import steering
        from .backends import steering as start

        start(self._run)  # whatever imports a target starts it, and native code does not
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

    def finish(self) -> None:
        """Report once that a libnvJitLink could not be watched."""
        if not self._watches and _is_loaded():
            self._say(
                "the plugin's native part is missing or not for this system; links of native code are not counted"
            )


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

    def pytest_cudalink_link(self, event: LinkEvent) -> None:
        """Count a link that the emulated driver does not count itself."""
        with self._run.lock:
            self._links += event.backend != "driver"

    def pytest_cudalink_unsteered(self, link: UnsteeredLink) -> None:
        """Count a link that the emulated driver does not count itself."""
        with self._run.lock:
            self._links += link.backend != "driver"

    def pytest_collection_finish(self) -> None:
        """Leave to the process that waits for this one what both have loaded: it has collected the same."""
        if self._run.is_isolated:
            self._before, self._links = self._driver.unlinked_images, 0

    def finish(self) -> None:
        """Hand over how many modules no seen link can have made: at least so many, if each link made one of them."""
        unlinked = self._driver.unlinked_images - self._before - self._links
        if unlinked > 0:
            self._run.part(LEDGER).outside.unlinked_modules += unlinked
