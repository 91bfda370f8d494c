"""The summary of a run: one section on links and skips, one on the guard rails."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pytest

from ...base.safe_text import block
from ...base.words import and_more, counted, listed
from ...report.wording import by_cause, linked_on, share, split_link_key, status, without_driver
from .. import pytest_private
from ..conditions import unsteered
from ..records import LEDGER
from ..records.ledger import RERUNS, VIOLATIONS, Totals
from ..run import Run
from ..settings import Settings
from ..watch import REPORTER
from .account import Account

_SHOWN = 20
#: Functions in the one line of a quiet run.
_FEW = 3
#: pytest's categories of results that are of a whole test.
_OUTCOMES = ("passed", "failed", "error", "skipped", "xfailed", "xpassed")


def show(reporter: pytest.TerminalReporter, run: Run, not_routed: Sequence[str]) -> None:
    """Show what was linked and skipped, and what the guard rails found.

    `not_routed`: the callers that the guard rails do not see.
    """
    totals, asked = run.part(LEDGER).totals, [run.get(REPORTER), run.get(Account)]
    lines = [line for part in asked if part is not None for line in part.lines()]
    numbers = Counter(RERUNS[category] for category, _ in totals.reruns)
    reruns = [f"{counted(number, noun)} {how}" for (noun, how), number in numbers.items()]
    why = [f"The run fails because of {' and '.join(reruns)}."] if reruns else []
    _section(reporter, run, totals, [*lines, *(text for _, text in totals.reruns)], why)
    _guard_rails(reporter, run.settings, totals, not_routed)


def _section(
    reporter: pytest.TerminalReporter, run: Run, totals: Totals, account: Sequence[str], why: list[str]
) -> None:
    """Show one line for each kind of thing that happened; no section when nothing did.

    `why`: sentences on why the run fails although no test shows it.
    """
    lines = []
    refused = totals.refused
    tests = _tests(reporter) if refused else {}
    if run.settings.unsupported.value == "skip":  # which a test is not that fails for another reason, too
        refused = {nodeid: functions for nodeid, functions in refused.items() if nodeid not in tests["failed"]}
    if reporter.verbosity >= 0:
        lines += run.late_header if run.is_controller else []
        lines += _lines(totals, refused, run.settings, verbose=reporter.verbosity > 0)
        lines += _share(tests, refused.keys())
        new = run.new_processes.items()
        lines += [f"{counted(number, 'test')} started a new process each: {why}" for why, number in new]
    elif said := _refused(refused, run.settings):
        first, *functions = map(str.strip, said)
        lines.append(f"{first} {listed(functions, _FEW)}")
    if passed_over := _by_function(totals.passed_over):
        refusals = listed([f"{function} ({count})" for function, count in passed_over], _FEW)
        number = counted(len(totals.passed_over), "test")
        lines.append(f"{number} went on although the emulated driver refused a call: {refusals}")
    lines += account  # however quiet the run is: what was asked for may not have happened
    if failing := totals.failing:
        lines += [f"outside of tests: {text}" for text in failing]
        why = ["The run fails because of the problems above, which happened outside any test.", *why]
    asked = run.get(Account)
    why += asked.unmet if asked is not None else []
    if not (lines or why):
        return
    reporter.section("cudalink")
    for text in lines:
        reporter.line(block(text))
    for text in why:
        reporter.line(block(text), red=True, bold=True)
    if why:
        pytest_private.end_in_red(reporter)


def _lines(totals: Totals, refused: Mapping[str, Collection[str]], settings: Settings, *, verbose: bool) -> list[str]:
    lines = []
    by_target: dict[str, Counter[str]] = {}
    for key, count in sorted(totals.links.items()):
        target, backend = split_link_key(key)
        by_target.setdefault(target, Counter())[backend] += count
    for target, counts in by_target.items():
        shares = ", ".join(f"{count} {linked_on(backend)}" for backend, count in sorted(counts.items()))
        lines.append(f"{target}: {counted(sum(counts.values()), 'link')} ({shares})")
    lines += unsteered.lines(totals.unsteered)
    if totals.unlinked_modules:
        lines.append(
            f"the emulated driver loaded at least {counted(totals.unlinked_modules, 'module')} that no seen link made: "
            "precompiled code, NVRTC, or a static copy of nvJitLink"
        )
    lines += [f"{target} is not watched: {why}" for target, why in sorted(totals.unsupported.items())]
    lines += _violations(totals)
    documented = Counter((requirement, raises) for _, requirement, raises in totals.documented)
    for (requirement, raises), count in sorted(documented.items()):
        lines.append(f"{counted(count, 'test')} failed as documented ({requirement} not met): {raises}")
        if verbose:
            lines += [f"  {nodeid}" for nodeid, *rest in totals.documented if tuple(rest) == (requirement, raises)]
    lines += _refused(refused, settings)
    lines += dict.fromkeys(totals.of_processes)
    lines += map(_left, totals.sticky)
    for missing, count in sorted(totals.missing.items()):
        lines.append(f"{counted(count, 'test was skipped: it needs', 'tests were skipped: they need')} {missing}")
    return lines


def _refused(refused: Mapping[str, Collection[str]], settings: Settings) -> list[str]:
    """Return how many tests the emulated driver refused a call, and a line for each function."""
    number = len(refused)
    if not number:
        return []
    verb = {"fail": "failed", "skip": "was skipped" if number == 1 else "were skipped"}[settings.unsupported.value]
    return [
        f"{counted(number, 'test')} {verb} because the emulated driver refused a call:",
        *(f"  {function} is not emulated: {count}" for function, count in _by_function(refused)),
    ]


def _by_function(tests: Mapping[str, Collection[str]]) -> list[tuple[str, int]]:
    """Return each function that tests were refused, with the number of tests, the largest first."""
    return Counter(function for functions in tests.values() for function in functions).most_common()


def _tests(reporter: pytest.TerminalReporter) -> dict[str, set[str]]:
    """Return the tests of each outcome; an error in a fixture is a failure."""
    every = {
        kind: {report.nodeid for report in reporter.stats.get(kind, ()) if isinstance(report, pytest.TestReport)}
        for kind in _OUTCOMES
    }
    return {**every, "failed": every["failed"] | every["error"]}


def _share(tests: Mapping[str, set[str]], refused: Collection[str]) -> list[str]:
    """Return how much of the suite ran, where a part of it needs a GPU; the report of all cells has the same words."""
    if not refused:
        return []
    every = set().union(*tests.values(), refused)
    ran = len(every.difference(tests["skipped"] - tests["failed"], refused))
    return ["; ".join(share(ran, len(every), len(refused)))]


def _left(sticky: Mapping[str, Any]) -> str:
    rest = f"; {counted(sticky['after'], 'test')} after it ran in a fresh process" if sticky["after"] else ""
    return f"{sticky['nodeid']} left the contexts of its process with {sticky['error']}{rest}"


def _violations(totals: Totals) -> list[str]:
    """Return the lines on violations, by check and test, and on handles that tests left behind."""
    lines = []
    for check, (single, many, _property) in VIOLATIONS.items():
        tests = totals.violations_of_tests.get(check, Counter())
        if number := tests.total() + totals.violations[check]:
            lines.append(counted(number, single, many))
            lines += [f"  {nodeid}: {count}" for nodeid, count in sorted(tests.items())]
    lines += [f"  outside of tests: {text}" for text in totals.notes]
    if totals.undestroyed:
        lines.append(f"tests left {counted(totals.undestroyed.total(), 'nvJitLink handle')} that they did not destroy")
        lines += [f"  {nodeid}: {count}" for nodeid, count in sorted(totals.undestroyed.items())]
    return lines


def _guard_rails(
    reporter: pytest.TerminalReporter, settings: Settings, totals: Totals, not_routed: Sequence[str]
) -> None:
    """Show the number of verdicts by status, and each different rule that does not hold."""
    if reporter.verbosity < 0 or (settings.guard_rails.value == "off" and not totals.verdicts):
        return
    reporter.section("cudalink guard rails")

    def show(text: str) -> None:
        reporter.line(block(text))

    # only strict refuses what cannot be compared; elsewhere a library is not at fault where the machine has no driver
    lenient = settings.guard_rails.value != "strict"
    alone = [verdict for verdict in totals.verdicts if lenient and without_driver(verdict)]
    rest = [verdict for verdict in totals.verdicts if not (lenient and without_driver(verdict))]
    counts = Counter(map(status, rest))
    words = [f"{count} {name}" for name, count in sorted(counts.items())]
    words += [f"{len(alone)} not compared with a driver"] if alone else []
    show(f"mode {settings.guard_rails}: {', '.join(words) or 'nothing was looked up'}")
    if alone:
        show(f"no driver: --cudalink-driver={_newest(alone)} emulates one to compare the toolkit with")
    causes = by_cause(rest)
    for verdicts in causes[:_SHOWN]:
        first = verdicts[0]
        tests = {f"in {verdict['nodeid']}" if verdict["nodeid"] else "outside of tests" for verdict in verdicts}
        more = f" and {counted(len(tests) - 1, 'other')}" if len(tests) > 1 else ""
        show(f"{status(first)} ({first['kind']}): {first['what']}")
        for item in first["evidence"]:
            show(f"    {item}")
        if first["fix"]:
            show(f"    fix: {first['fix']}")
        if first["otherwise"]:
            show(f"    {'or' if first['fix'] else 'fix'}: {first['otherwise']}")
        show(f"    {min(tests)}{more}")
    if more := and_more(len(causes) - _SHOWN):
        show(more.strip())
    for who in not_routed:
        show(f"calls cuda.pathfinder directly: {who}")


def _newest(verdicts: Sequence[Mapping[str, Any]]) -> str:
    """Return the newest CUDA release of the items that verdicts are about."""
    releases = [release for verdict in verdicts for release in verdict["releases"]]
    return ".".join(map(str, max(releases, default=["VERSION"])))
