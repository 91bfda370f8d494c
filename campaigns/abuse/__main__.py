"""Run campaigns and print what became of each kind of image; see the package.

    python -m campaigns.abuse [SCENARIO ...] [--inputs=20000] [--seconds=1200] [--seed=N] [--processes=N]

Exit code 1: a child process died or hung, or an error was not one of those that the documentation names.
"""

import argparse
import math
import mmap
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

from pytest_cudalink import emulator

from .commands import COMMANDS
from .edges import EDGES
from .mutations import Subject, mutated, subjects
from .scenarios import FAILURES, IMAGES, Outcome, Scenario

SCENARIOS = IMAGES | COMMANDS | EDGES

#: Seconds that the link worker gets for a call, and after which a child that works on one image counts as hung.
CALL_LIMIT, HANG_LIMIT = 10, float(os.environ.get("CUDALINK_ABUSE_HANG", "60"))
POLL = 0.05
#: The share of damaged cubins that may pass the reader and end the worker.
MOST_DEATHS = 0.002


def chosen(scenario: Scenario) -> tuple[Subject, ...]:
    return tuple(subject for subject in subjects() if subject.kind in scenario.kinds)


def child(scenario: Scenario, seed: int, numbers: range, board: Path, until: float) -> None:
    """Use an image, and others until a time of the monotonic clock; note its outcome on the board, before and after."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    use = scenario.prepare()
    with board.open("r+b") as file, mmap.mmap(file.fileno(), 0) as notes:
        for number, subject, data in mutated(chosen(scenario), seed, numbers):
            if number > numbers.start and time.monotonic() > until:
                return
            notes[number] = Outcome.AT_WORK
            try:
                notes[number] = use(subject, data)
            except Exception:  # noqa: BLE001 (each is a finding)
                sys.stderr.write(f"input {number} ({subject.name}):\n{traceback.format_exc()}")
                notes[number] = Outcome.UNEXPECTED


def worked(command: Sequence[str], env: dict[str, str], share: range, notes: mmap.mmap, until: float) -> Iterator[str]:
    """Run a child on a share of the numbers, and a successor if it dies; yield how those ended that died or hung."""
    while share:
        numbers = f"--child={share.start}:{share.stop}:{share.step}"
        process, at, since, code = subprocess.Popen([*command, numbers], env=env), share.start, time.monotonic(), None
        while code is None and time.monotonic() - since < HANG_LIMIT:
            time.sleep(POLL)
            code, before = process.poll(), at
            while at < share.stop and notes[at] not in (Outcome.NOT_TRIED, Outcome.AT_WORK):
                at += share.step
            since = time.monotonic() if at != before else since
        if code == 0 and (at >= share.stop or time.monotonic() > until):
            return
        if code is None:
            process.send_signal(signal.SIGABRT)  # faulthandler, if it is on, writes where it hangs
            process.wait()
        if at >= share.stop:
            yield f"a child ended with {code} after its last input"
            return
        notes[at] = Outcome.HANG if code is None else Outcome.SIGNAL
        yield f"input {at}: {'hung' if code is None else f'the process ended with {code}'}"
        share = range(at + share.step if time.monotonic() < until else share.stop, share.stop, share.step)


def campaign(
    name: str,
    inputs: int,
    seed: int,
    processes: int,
    program: Sequence[str] = ("-m", "campaigns.abuse"),
    shown: Sequence[Outcome] = (),
    seconds: float = math.inf,
) -> bool:
    """Run one campaign and print its table; return whether it found nothing.

    `program` are the arguments with which Python runs the child processes; inputs with an outcome of
    `shown` are listed. After `seconds` a process tries no further input; a campaign that tried none fails.
    """
    scenario = SCENARIOS[name]
    started = time.monotonic()
    until = started + seconds
    env = {**os.environ, "CUDALINK_LINK_TIMEOUT": str(CALL_LIMIT)}
    if scenario.emulated:
        env |= emulator.emulation_for("13.0").environment()
    with tempfile.TemporaryDirectory() as folder:
        board = Path(folder) / "board"
        board.write_bytes(bytes(inputs))
        command = [sys.executable, *program, name, f"--seed={seed}", f"--board={board}", f"--until={until}"]
        with board.open("r+b") as file, mmap.mmap(file.fileno(), 0) as notes, ThreadPoolExecutor(processes) as pool:
            shares = [range(first, inputs, processes) for first in range(processes)]
            ends = [*chain(*pool.map(lambda share: [*worked(command, env, share, notes, until)], shares))]
            outcomes = [Outcome(note) for note in notes[:]]
    counts: dict[str, Counter[Outcome]] = {}
    for number, subject, _ in mutated(chosen(scenario), seed, range(inputs)):
        counts.setdefault(subject.kind, Counter())[outcomes[number]] += 1
    total = Counter(outcomes)
    tried = inputs - total[Outcome.NOT_TRIED]
    print(f"{scenario.title}: {tried} inputs, seed {seed}, {time.monotonic() - started:.0f} s")
    for kind, numbers in (*sorted(counts.items()), ("all", total)):
        named = ((outcome.name.lower().replace("_", " "), count) for outcome, count in sorted(numbers.items()))
        listed = ", ".join(f"{count} {name}" for name, count in named)
        print(f"  {kind}: {listed}")
    for end in ends:
        print(f"  {end}")
    for number, outcome in enumerate(outcomes):
        if outcome in shown:
            print(f"  input {number}: {outcome.name.lower().replace('_', ' ')}")
    bad = sum(total[outcome] for outcome in (*FAILURES, Outcome.AT_WORK))
    cubins = counts.get("cubin", Counter())
    died, most = cubins[Outcome.WORKER_DIED], MOST_DEATHS * (cubins.total() - cubins[Outcome.NOT_TRIED])
    if died > 1 + int(most):  # a short run has no room for a share
        print(f"  {died} damaged cubins pass the reader and end the worker; at most {MOST_DEATHS:.1%} may")
        bad += 1
    return tried > 0 and not (bad or ends)


def main() -> int:
    """Run the campaigns that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "scenarios", nargs="*", metavar="SCENARIO", help=f"any of {', '.join(SCENARIOS)}; all if none is named"
    )
    parser.add_argument("--inputs", type=int, default=20_000, help="how many damaged images each campaign takes")
    parser.add_argument("--seconds", type=float, default=1200, help="stop after N seconds, shared by the campaigns")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--deaths", action="store_true", help="list the inputs that ended a link worker")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--board", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--until", type=float, default=math.inf, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if unknown := [name for name in options.scenarios if name not in SCENARIOS]:
        parser.error(f"unknown scenario {unknown[0]!r}; known: {', '.join(SCENARIOS)}")
    if options.child:
        numbers = range(*map(int, options.child.split(":")))
        child(SCENARIOS[options.scenarios[0]], options.seed, numbers, options.board, options.until)
        return 0
    names = options.scenarios or [*SCENARIOS]
    shown = (Outcome.WORKER_DIED, Outcome.WORKER_HUNG, Outcome.FATAL) if options.deaths else ()
    until, results = time.monotonic() + options.seconds, []
    for number, name in enumerate(names):
        seconds = max(until - time.monotonic(), 0) / (len(names) - number)
        results.append(campaign(name, options.inputs, options.seed, options.processes, shown=shown, seconds=seconds))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
