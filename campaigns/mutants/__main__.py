"""Count the mutants of the Python and of the C that tests kill: ``python -m campaigns.mutants --help``."""

import argparse
import os
import sys
import time
import tomllib
import zlib
from collections import Counter
from collections.abc import Container, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from . import native, python
from .learned import key

CONFIGURATION = Path(__file__).with_name("modules.toml")
SURVIVORS = Path(__file__).with_name("survivors.txt")
SAMPLE = Path(__file__).with_name("sample.txt")


class Tally:
    """What was counted of each file, and what is wrong."""

    def __init__(self, listed: Container[str], *, verbose: bool) -> None:
        self.counts: dict[str, Counter[bool]] = {}  # of each file, how many were killed, and how many were not
        self.faults: list[str] = []
        self.notes: list[str] = []
        self._listed, self._verbose = listed, verbose

    def add(self, file: str, key: str, killed: str, *, may_survive: bool = False) -> None:
        """Count a mutant that was judged.

        `killed`: by what, if it was.
        `may_survive`: whether a survivor that is not listed only counts for the share of those that are killed.
        """
        self.counts.setdefault(file, Counter())[bool(killed)] += 1
        if not killed and key not in self._listed:
            (self.notes if may_survive else self.faults).append(f"survives: {key}")
        elif killed and key in self._listed:
            self.faults.append(f"listed as a survivor, but killed: {key}")
        if self._verbose:
            sys.stdout.write(f"{'killed  ' if killed else 'SURVIVED'} {key}{killed and f'  <- {killed}'}\n")
            sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the mutants, print the survivors and a table; 0 if enough are killed, and none that is listed."""
    options = _options(arguments)
    configuration = tomllib.loads(CONFIGURATION.read_text(encoding="utf-8"))
    every: dict[str, list[tuple[str, Any]]] = {"python": python.all_mutants(), "native": native.all_mutants()}
    listed = survivors(SURVIVORS.read_text(encoding="utf-8"))
    known = {key(*mutant) for mutants in every.values() for mutant in mutants}
    tally = Tally(listed, verbose=options.verbose)
    tally.faults += [f"listed, but there is no such mutant: {name}" for name in listed if name not in known]
    files = dict.fromkeys(file for mutants in every.values() for file, _ in mutants)
    if not any(options.only in file for file in files):
        expected = f"expected a part of one of {', '.join(files)}"
        sys.stderr.write(f"campaigns.mutants: no file has {options.only!r} in its path; {expected}\n")
        return 2

    start, killers = time.monotonic(), dict[str, str]()
    if options.sample:
        killers = survivors(SAMPLE.read_text(encoding="utf-8"), SAMPLE.name)
        tally.faults += [f"in {SAMPLE.name}, but there is no such mutant: {name}" for name in killers.keys() - known]
    # a random one is neither known nor looked for: enough of them must be killed
    add = partial(tally.add, may_survive=not options.sample)
    reasons = []
    for room, judge in (("python", python.judge_all), ("native", native.judge_all)):
        meant = [(file, mutant) for file, mutant in every[room] if options.only in file]
        # sorted by numbers of their own, few have another place after an edit
        meant.sort(key=lambda mutant: zlib.crc32(f"{options.seed} {key(*mutant)}".encode()))
        chosen = [mutant for mutant in meant if not options.sample or key(*mutant) in killers][: options.number]
        reasons.append(judge(chosen, killers, configuration[room], options.jobs, add) if chosen else "")
        counts = [c for file, c in tally.counts.items() if file.endswith(".c") == (room == "native")]
        judged, least = sum(counts, Counter[bool]()), configuration[room]["least-percent"]
        percent = 100 * judged[True] / max(judged.total(), 1)
        if meant and not judged:
            tally.faults.append(f"no {room} mutant was judged")
        elif not options.only and percent < least:
            tally.faults.append(f"{percent:.1f} % of the {room} mutants are killed; expected {least} % or more")
    _table(tally.counts, time.monotonic() - start)
    sys.stdout.writelines(f"campaigns.mutants: left out: {reason}\n" for reason in filter(None, reasons))
    sys.stdout.writelines(f"campaigns.mutants: {note}\n" for note in (*tally.notes, *tally.faults))
    return 1 if tally.faults else 0


def survivors(text: str, name: str = SURVIVORS.name) -> dict[str, str]:
    """Return the reason of each listed survivor, by its key; or in `sample.txt`, the test that kills a mutant.

    Raises ValueError if a line gives none.
    """
    reasons = {}
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            key, separator, reason = line.rpartition(" -- ")
            if not (separator and key and reason.strip()):
                raise ValueError(f"{name}:{number} is {line!r}; expected 'MUTANT -- REASON'")
            reasons[key] = reason.strip()
    return reasons


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m campaigns.mutants", description=__doc__.splitlines()[0])
    parser.add_argument("only", nargs="?", default="", help="judge the files whose path has this in it")
    parser.add_argument("--sample", action="store_true", help="judge those of sample.txt, each by its test")
    week = datetime.now(UTC).isocalendar().week
    parser.add_argument("--seed", type=int, default=week, help="a random order; by default that of the week")
    parser.add_argument("--number", type=int, default=1000, help="judge so many of each language (default 1000)")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="mutants at a time")
    parser.add_argument("--verbose", action="store_true", help="print each mutant as it is judged")
    return parser.parse_args(arguments)


def _table(counts: dict[str, Counter[bool]], seconds: float) -> None:
    """Print what was counted of each file."""
    for name, row in {**counts, "all": sum(counts.values(), Counter[bool]())}.items():
        dead, alive, percent = row[True], row[False], 100 * row[True] / max(row.total(), 1)
        sys.stdout.write(f"{row.total():5} mutants {dead:5} killed {alive:4} survivors {percent:5.1f} %  {name}\n")
    sys.stdout.write(f"in {seconds:.0f} seconds\n")


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of a set decides whether a missing sort is noticed
        os.execve(sys.executable, [*sys.orig_argv], {**os.environ, "PYTHONHASHSEED": "0"})
    sys.exit(main())
