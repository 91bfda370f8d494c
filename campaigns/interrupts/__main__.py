"""Walk scenarios, and print what was left behind and where; see the package.

    python -m campaigns.interrupts [SCENARIO ...] [--processes=N]
    python -m campaigns.interrupts --signals=N [--seed=N]

Exit code 1: something was left behind at a place where a signal can arrive, or, with Python 3.11, at another one that
`allowed.txt` does not list.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pytest_cudalink import emulator

ROOT = Path(__file__).parents[2]
ALLOWED = Path(__file__).parent / "allowed.txt"
#: Whether `ALLOWED` is for this Python: others give the bytecodes at the end of a block another line, or none.
_OF_THE_LIST = sys.version_info[:2] == (3, 11)
#: Seconds that one child process may take.
LIMIT = 600


def allowed() -> dict[tuple[str, str], str]:
    """Return the reason of each place at which something is left, by function and text of the line."""
    reasons, reason = {}, ""
    for line in ALLOWED.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            reason = line[1:].strip()
        elif line.strip():
            function, _, source = line.partition(": ")
            reasons[function, source] = reason
    return reasons


def child(name: str, first: int) -> None:
    """Walk one scenario from a bytecode on, and write the result to stdout as JSON; runs on an emulated driver."""
    from .scenarios import walk_of

    with walk_of(name) as walk:
        count = walk.count()
        for number in itertools.count(first):  # a run after an interrupt may be longer than the one that was counted
            if not (walk.at(number) and walk.sound):
                break
        result = {
            "bytecodes": count,
            "walked": walk.walked,
            "signals": walk.signals,
            "failures": [[*place, place.source, str(place), problem] for place, problem in walk.failures],
            "next": None if walk.sound else number + 1,
        }
    print(f"\n{json.dumps(result)}", flush=True)


def in_child(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run this module in a child process, on an emulated driver of the CUDA release of this environment."""
    from .scenarios import version

    command = [sys.executable, "-m", "campaigns.interrupts", "--child", *arguments]
    env = {**os.environ, **emulator.emulation_for(version()).environment(), "PYTHONFAULTHANDLER": "1"}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=LIMIT, cwd=ROOT)


def walked(name: str) -> dict[str, Any]:
    """Walk a scenario in child processes: another one after each that is damaged."""
    started = time.monotonic()
    result: dict[str, Any] = {"scenario": name, "bytecodes": 0, "walked": 0, "signals": 0, "failures": [], "ended": ""}
    first: int | None = 0
    while first is not None:
        try:
            done = in_child(name, f"--first={first}")
        except subprocess.TimeoutExpired:
            result["ended"] = f"no end after {LIMIT} s, from bytecode {first} on"
            break
        if done.returncode:
            result["ended"] = f"exit code {done.returncode}, from bytecode {first} on: {done.stderr[-2000:]}"
            break
        printed = json.loads(done.stdout.splitlines()[-1])
        result["bytecodes"] = max(result["bytecodes"], printed["bytecodes"])
        for key in ("walked", "signals", "failures"):
            result[key] += printed[key]
        first = printed["next"]
    return result | {"seconds": time.monotonic() - started}


def disturbed(number: int, seed: int) -> bool:
    """Send signals at random times to links in a child process; return whether nothing was left behind."""
    done = in_child(f"--signals={number}", f"--seed={seed}")
    if done.returncode:
        print(f"exit code {done.returncode}: {done.stderr[-2000:]}")
        return False
    printed = json.loads(done.stdout.splitlines()[-1])
    ended = ", ".join(f"{key} {value} of {number}" for key, value in printed["ended"].items())
    print(f"links that a signal ended: {ended}")
    print("\n".join(printed["wrong"]) or "nothing was left behind")
    return not printed["wrong"]


def unexpected(result: dict[str, Any], known: dict[tuple[str, str], str]) -> Counter[str]:
    """Return the failures of a scenario that no reason explains, as text."""
    return Counter(
        f"  {place}\n    {problem}"
        for _, function, _, _, signal, source, place, problem in result["failures"]
        if signal or (_OF_THE_LIST and (function, source) not in known)
    )


def show(result: dict[str, Any], known: dict[tuple[str, str], str]) -> None:
    """Print the result of a scenario."""
    if result["ended"]:
        print(f"{result['scenario']}: {result['ended']}")
    kinds = Counter("signal" if failure[4] else "bytecode" for failure in result["failures"])
    print(
        f"{result['scenario']}: {result['walked']} of {result['bytecodes']} bytecodes "
        f"({result['signals']} where a signal can arrive), {kinds['signal']} + {kinds['bytecode']} failures, "
        f"{result['seconds']:.0f} s",
        flush=True,
    )
    for text, times in list(unexpected(result, known).items())[:40]:
        print(text + (f" ({times} times)" if times > 1 else ""))


def main() -> int:
    """Walk the scenarios that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help="all if none is named")
    parser.add_argument("--signals", type=int, metavar="N", help="send N signals at random times to each kind of link")
    parser.add_argument("--seed", type=int, default=1, help="of these times")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child and options.signals:
        from .signals import disturb

        print(f"\n{json.dumps(disturb(options.signals, options.seed))}")
        return 0
    if options.child:
        child(options.scenarios[0], options.first)
        return 0
    if options.signals:
        return not disturbed(options.signals, options.seed)
    from .scenarios import SCENARIOS

    if unknown := [name for name in options.scenarios if name not in SCENARIOS]:
        parser.error(f"unknown scenario {unknown[0]!r}; known: {', '.join(SCENARIOS)}")
    names, results, known = options.scenarios or list(SCENARIOS), [], allowed()
    with ThreadPoolExecutor(options.processes) as pool:
        for result in pool.map(walked, names):
            results.append(result)
            show(result, known)
    return any(result["ended"] or unexpected(result, known) for result in results)


if __name__ == "__main__":
    sys.exit(main())
