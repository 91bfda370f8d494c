"""Each test of the suites on a GPU and on an emulated driver of its release: the kept verdicts, and which are wrong.

``python -m campaigns.suites.hardware RECORDS`` keeps the verdicts of two runs, whose records
``python -m campaigns.suites … --records RECORDS`` wrote, one with ``--driver real`` on the GPU. A verdict is wrong if a
test passes on one side and fails on the other; one that is skipped because the emulated driver refused a call has none.
"""

import argparse
import json
import lzma
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Final

from pytest_cudalink.report import records

from .definitions import Suite, suites
from .results import LAUNCHES, FileResult, TestResult, results_of

RECORDED: Final = Path(__file__).parent / "recorded" / "580.159.04-h200.json.xz"
#: The name that the runner has for the driver of the machine, and the emulated driver of the GPU's release.
REAL, EMULATED = "real", "13.0"
#: The letter of each outcome.
LETTERS: Final = {"passed": "P", "xpassed": "P", "failed": "F", "error": "F", "crashed": "F", "unsupported": "U"}
SKIPPED: Final = "S"

#: By suite, by test as `test_name` names it: the letter on the GPU, the letter here, and what was refused here.
Verdicts = dict[str, dict[str, str]]


def letter(test: TestResult) -> str:
    """Return the letter of a result; every outcome that is not known is a skip."""
    return LETTERS.get(test.outcome, SKIPPED)


def test_name(record: str, test: TestResult) -> str:
    """Return the name of a test: that of its file's record, and what follows the path in its ID.

    The path itself is relative to a folder that differs by machine.
    """
    return f"{record}::{test.nodeid.partition('::')[2]}"


@cache
def kept() -> dict[str, Any]:
    """Return the kept verdicts with their origin; without suites if there are none yet."""
    if not RECORDED.exists():
        return {"suites": {}}
    content: dict[str, Any] = json.loads(lzma.decompress(RECORDED.read_bytes()))
    return content


def is_wrong(suite: str, test: str, verdict: str) -> bool:
    """Return whether a verdict is wrong: a pass on one side, a failure on the other, and no reason in suites.toml."""
    known = suites().get(suite)
    return verdict[:2] in ("PF", "FP") and not (known and known.differs_in(test))


def wrong(results: Iterable[FileResult]) -> list[str]:
    """Return a line for each test of a run on an emulated driver that has the wrong verdict, by the kept ones.

    One for a whole file whose tests ran on the GPU and did not begin here.
    Runs on drivers of other releases, and of a backend that was not run on the GPU, are not compared.
    """
    lines = []
    for result in results:
        there = kept()["suites"].get(result.suite, {}).get("tests", {})
        suite = suites().get(result.suite)
        if not suite or (result.driver, result.backend) != (EMULATED, "auto"):
            continue
        missing = sum(name.startswith(f"{suite.record_name(result.file)}::") for name in there)
        if missing and not any(test_name(suite.record_name(result.file), test) in there for test in result.tests):
            lines.append(
                f"{result.suite}: {result.file}: {result.status} here; expected {missing} tests, as on the GPU"
            )
        for test in result.tests:
            name = test_name(suite.record_name(result.file), test)
            verdict = there.get(name, "")[:1]
            if is_wrong(suite.name, name, verdict + letter(test)):
                lines.append(f"{result.suite}: {name}: {test.outcome} here, {_WORDS[verdict]} on the GPU")
    return lines


_WORDS: Final = {"P": "passed", "F": "failed", SKIPPED: "skipped", "U": "refused"}


def merged(folder: Path) -> dict[str, Verdicts]:
    """Return the verdicts of the records of both sides: by suite, those of the tests that both ran.

    `folder`: with the folders `real` and `13.0`.
    """
    by_suite: dict[str, Verdicts] = {}
    for suite in suites().values():
        there = dict(results_in(folder / REAL, suite))
        here = dict(results_in(folder / EMULATED, suite))
        verdicts = {
            name: " ".join((letter(there[name]) + letter(here[name]), *here[name].refused))
            for name in sorted(there)
            if name in here
        }
        if verdicts:
            by_suite[suite.name] = {"tests": verdicts}
            one_sided = len(there.keys() ^ here.keys())
            print(f"{suite.name}: {len(verdicts)} tests, and {one_sided} that ran on one side only")
    return by_suite


def results_in(folder: Path, suite: Suite) -> Iterator[tuple[str, TestResult]]:
    """Yield the results of a suite by name, out of a folder of records."""
    for path in sorted((folder / suite.name).glob("*.jsonl")):
        for test in results_of(records.read(path)):
            yield test_name(path.stem, test), test


def origin_of(folder: Path) -> dict[str, str]:
    """Return the driver and the date of the records of the GPU."""
    runs = [run for path in folder.glob("*/*.jsonl") if (run := records.read(path).run)]
    last = max(runs, key=lambda run: run.time)
    driver = last.versions.get("driver_release", {}).get("found") or "unknown"
    return {"driver": driver, "date": datetime.fromtimestamp(last.time, UTC).date().isoformat()}


def rows() -> Iterator[tuple[str, Counter[str]]]:
    """Yield the counts of each suite: by both letters, and of what was refused here and passed there."""
    for name, suite in sorted(kept()["suites"].items()):
        counts: Counter[str] = Counter()
        for test, verdict in suite["tests"].items():
            letters, *refused = verdict.split()
            counts[letters] += 1
            counts["wrong"] += is_wrong(name, test, verdict)
            if letters == "PU":
                counts["launch" if any(function.startswith(LAUNCHES) for function in refused) else "other"] += 1
        yield name, counts


def blocks() -> dict[str, str]:
    """Return the table of the page, by its name there."""
    causes = "need a launch | need the CUDA runtime | other | wrong |"
    lines = [f"| suite | tests | pass on both | fail on both | skipped on both | {causes}", f"|{'---|' * 9}"]
    total: Counter[str] = Counter()
    for name, counts in (*rows(), ("all", total)):
        tests = sum(count for letters, count in counts.items() if len(letters) == len("PP"))
        named = [counts[letters] for letters in ("PP", "FF", "SS")] + [counts["launch"], counts["other"]]
        bad = counts["wrong"]
        lines.append(f"| {name} | {' | '.join(f'{c:,}' for c in (tests, *named, tests - sum(named) - bad, bad))} |")
        total.update(counts if name != "all" else {})
    device, driver, date = map(kept().get, ("device", "driver", "date"))
    return {"table": "\n".join([*lines, "", f"{device}, driver {driver}, measured {date} by `nox -s suites`."])}


def main(arguments: Sequence[str] | None = None) -> int:
    """Keep the verdicts of a folder of records; 1 if one of them is wrong."""
    parser = argparse.ArgumentParser(prog="python -m campaigns.suites.hardware", description=__doc__)
    parser.add_argument("records", type=Path, metavar="RECORDS", help="a folder with records of both sides")
    parser.add_argument("--device", default="NVIDIA H200", metavar="NAME", help="the GPU (default: NVIDIA H200)")
    given = parser.parse_args(arguments)
    fresh = merged(given.records)
    origin = {**kept(), "device": given.device, **origin_of(given.records / REAL)}
    text = json.dumps({**origin, "suites": {**kept()["suites"], **fresh}}, sort_keys=True)
    RECORDED.parent.mkdir(exist_ok=True)
    RECORDED.write_bytes(lzma.compress(text.encode(), preset=9))
    verdicts = ((name, *pair) for name, suite in fresh.items() for pair in suite["tests"].items())
    bad = [": ".join(verdict) for verdict in verdicts if is_wrong(*verdict)]
    print("\n".join(bad))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
