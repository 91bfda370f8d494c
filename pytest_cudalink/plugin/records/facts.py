"""The facts of one attempt of a test, and how a report shows them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import pytest

from ...report.wording import explanation

if TYPE_CHECKING:
    from ...report.records import CauseRecord


#: By check: a violation and several, and the property with the number of those of a test.
VIOLATIONS: Final = {
    "lifetimes": ("lifetime violation", "lifetime violations", "cudalink.violations"),
    "order": ("unordered pair of accesses", "unordered pairs of accesses", "cudalink.order"),
    "wait": ("hidden wait", "hidden waits", "cudalink.waits"),
    "deadlock": ("deadlock", "deadlocks", "cudalink.deadlock"),
    "jitlink-contract": (
        "violation of nvJitLink's contract",
        "violations of nvJitLink's contract",
        "cudalink.jitlink_contract",
    ),
}


class Counts:  # no dataclass: every run with an emulated driver would pay for the methods that it generates
    """What is counted in tests and outside of them; travels as plain values that cross a process border."""

    def __init__(self) -> None:
        self.links: Counter[str] = Counter()  # number of links by `target/backend`
        self.unsteered: Counter[str] = Counter()  # number of links that no target steers, by `unsteered.key`
        self.violations: Counter[str] = Counter()  # number of violations by check
        self.verdicts: list[dict[str, Any]] = []  # verdicts of the guard rails
        self.unsupported: dict[str, str] = {}  # targets that cannot be steered, with the reason

    def as_json(self) -> dict[str, Any]:
        """The same as plain values."""
        return {name: dict(value) if isinstance(value, Counter) else value for name, value in vars(self).items()}


class Facts(Counts):
    """What one attempt of a test did; travels on its last report."""

    def __init__(
        self,
        *,
        undestroyed: int = 0,
        documented: dict[str, str] | None = None,
        missing: str | None = None,
        sticky: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.undestroyed = undestroyed  # number of nvJitLink handles that the test left behind
        self.documented = documented  # the failure that the test asserted: `requirement` and `raises`
        self.missing = missing  # the requirement that the skipped test needs
        # calls that the emulated driver refused and because of which the test failed: `function` and `note`
        self.refused: list[dict[str, str]] = []
        self.cause: CauseRecord | None = None  # why the test failed
        # the error with which the test left the contexts of its process: `code` and `error`; code -1 for work that does
        # not end
        self.sticky = sticky

    def refuse(self, calls: Iterable[tuple[str, str]], cause: CauseRecord | None) -> None:
        """Keep why a phase failed: the first cause, and the functions of the last phase in which some were refused."""
        self.cause = self.cause or cause
        self.refused = [{"function": function, "note": note} for function, note in calls] or self.refused

    def properties(self) -> list[tuple[str, str]]:
        """The facts as properties of a JUnit report, without those that are empty."""
        found = []
        if self.links:
            found.append(("cudalink.links", _counts(self.links)))
        if self.unsteered:
            found.append(("cudalink.unsteered", _counts(self.unsteered)))
        found += [
            (name, str(self.violations[check])) for check, (*_, name) in VIOLATIONS.items() if self.violations[check]
        ]
        if self.documented:
            found.append(("cudalink.documented", "{requirement}: {raises}".format(**self.documented)))
        if self.missing:
            found.append(("cudalink.missing", self.missing))
        if self.sticky:
            found.append(("cudalink.sticky", self.sticky["error"]))
        if self.refused:
            found.append(("cudalink.refused", " ".join(one["function"] for one in self.refused)))
        if self.cause:
            found.append(("cudalink.cause", explanation(self.cause)))
        return found


def _counts(counter: Counter[str]) -> str:
    return " ".join(f"{key}={count}" for key, count in sorted(counter.items()))


#: On the report of a phase that failed because of a refused call and was turned into a skip.
_UNSUPPORTED: Final = "cudalink_unsupported"


def skip_unsupported(report: pytest.TestReport, longrepr: tuple[str, int, str]) -> None:
    """Turn the report of a failure that a refused call caused into one of a skip."""
    report.outcome, report.longrepr = "skipped", longrepr
    setattr(report, _UNSUPPORTED, True)


def is_unsupported(report: pytest.TestReport) -> bool:
    """Whether `skip_unsupported` turned this report into a skip."""
    return bool(getattr(report, _UNSUPPORTED, False))


def fail(report: pytest.TestReport, title: str, text: str, longrepr: Any = None) -> None:
    """Turn a report into one of a failure; a report that has failed already gets the text as a section."""
    if report.failed:
        report.sections.append((title, text))
    else:
        report.outcome, report.longrepr = "failed", text if longrepr is None else longrepr
        vars(report).pop("wasxfail", None)


def fail_with(report: pytest.TestReport, item: pytest.Item, title: str, text: str, message: str = "") -> None:
    """Turn a report into one of a failure, shown as pytest shows one; the failure has `message`, or else `text`."""
    try:
        pytest.fail(message or text, pytrace=False)
    except pytest.fail.Exception:
        fail(report, title, text, item.repr_failure(pytest.ExceptionInfo.from_current()))
