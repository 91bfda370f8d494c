"""The results of files of a suite: counts, what the failing tests have in common, and the table of all suites."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pytest_cudalink.report import records

#: The columns of the table; "launch" counts those of "unsupported" that launch a kernel.
COLUMNS = ("passed", "failed", "error", "skipped", "unsupported", "crashed", "launch")
#: Tests that no emulated driver can let pass: these functions run kernels.
LAUNCHES = ("cuLaunch", "cuGraphLaunch", "cudaLaunch")
_COLUMN_OF = {"xpassed": "passed", "xfailed": "skipped", "rerun": ""}
_UNSUPPORTED = re.compile(r"CUDA_ERROR_NOT_SUPPORTED|\b801\b")
_VALUE = re.compile(r"0x[0-9a-f]+|\b\d{4,}\b", re.IGNORECASE)


@dataclass
class TestResult:
    """The last attempt of a test."""

    __test__ = False  # pytest: not a test class

    nodeid: str
    outcome: str
    reason: str = ""
    longrepr: str = ""
    refused: tuple[str, ...] = ()


@dataclass
class FileResult:
    """The run of one file on one driver and backend."""

    suite: str
    driver: str
    backend: str
    file: str
    status: str = "finished"  # "finished", "timeout", "died" with a signal, or "not run" where pytest did not start
    seconds: float = 0.0
    tests: list[TestResult] = field(default_factory=list)
    output: str = ""  # the end of pytest's output, if the file did not finish

    @property
    def counts(self) -> Counter[str]:
        """Number of tests by column."""
        return counts_of(self.tests)


def results_of(recording: records.Recording) -> list[TestResult]:
    """Return the last attempt of each test; an attempt that has no result has crashed."""
    results: dict[str, TestResult] = {}
    for test in recording.tests:
        refused = tuple(sorted({str(function["function"]) for function in getattr(test, "refused", ())}))
        results[test.nodeid] = TestResult(test.nodeid, test.outcome, test.reason, test.longrepr, refused)
    for start in recording.unfinished:
        results[start.nodeid] = TestResult(start.nodeid, "crashed", "the process ended during this test")
    return list(results.values())


def counts_of(tests: Iterable[TestResult]) -> Counter[str]:
    """Return the number of tests by column of the table."""
    counts: Counter[str] = Counter()
    for test in tests:
        column = _COLUMN_OF.get(test.outcome, test.outcome)
        if column:
            counts[column] += 1
        if column == "unsupported" and any(name.startswith(LAUNCHES) for name in test.refused):
            counts["launch"] += 1
    return counts


def share(counts: Mapping[str, int]) -> float:
    """Return the percentage of tests that pass, of those that are not skipped and launch no kernel."""
    ran = sum(counts.get(column, 0) for column in ("passed", "failed", "error", "unsupported", "crashed"))
    ran -= counts.get("launch", 0)
    return 100 * counts.get("passed", 0) / ran if ran else 100.0


def cause_of(test: TestResult) -> str:
    """Return what a failure has in common with others: the refused functions, or the text of the error."""
    text = f"{test.reason}\n{test.longrepr}"
    if test.refused and (test.outcome == "unsupported" or _UNSUPPORTED.search(text)):
        return f"not emulated: {', '.join(test.refused)}"
    cause = _VALUE.sub("N", test.reason or text.strip().splitlines()[-1] if text.strip() else "")[:160]
    if test.refused:
        return f"{cause}   [not emulated: {', '.join(test.refused)}]"
    return cause or test.outcome


def grouped(results: Iterable[FileResult]) -> list[tuple[str, list[str]]]:
    """Return every cause of failures with its tests, the most frequent first."""
    causes: dict[str, list[str]] = {}
    for result in results:
        for test in result.tests:
            if test.outcome in ("failed", "error", "crashed", "unsupported"):
                causes.setdefault(cause_of(test), []).append(test.nodeid)
        if result.status != "finished":
            causes.setdefault(f"{result.status}: {result.output.strip()[-400:]}", []).append(result.file)
    return sorted(causes.items(), key=lambda cause: (-len(cause[1]), cause[0]))


def table(results: Sequence[FileResult], expected: Mapping[tuple[str, str, str], int], *, by_file: bool) -> list[str]:
    """Return the lines of the table: a row for each suite, driver and backend, or for each file of these.

    `expected`: how many tests must pass, by suite, driver and backend.
    """
    rows: dict[tuple[str, ...], list[FileResult]] = {}
    for result in results:
        key = (result.suite, result.driver, result.backend)
        if by_file:
            rows.setdefault((*key, result.file), []).append(result)
        rows.setdefault((*key, ""), []).append(result)
    lines = []
    for (suite, driver, backend, file), of_row in sorted(rows.items(), key=lambda row: (*row[0][:3], row[0][3] or "~")):
        counts = sum((result.counts for result in of_row), Counter())
        numbers = " / ".join(f"{counts[column]:>4}" for column in COLUMNS)
        status = ", ".join(sorted({result.status for result in of_row if result.status != "finished"}))
        least = expected.get((suite, driver, backend))
        name = file or f"{suite} on {driver}, {backend}"
        notes = [f"{share(counts):5.1f} %", *([f"expected {least}"] if least is not None and not file else []), status]
        lines.append(f"{name:<52} {numbers}  {', '.join(filter(None, notes))}")
    return [f"{'':<52} {' / '.join(COLUMNS)}; passed of those that launch no kernel", *lines]
