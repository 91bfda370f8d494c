"""Walk scenarios, and print what was left behind and where; see the package.

    python -m tests.interrupts [SCENARIO ...] [--points=N] [--seed=N] [--processes=N] [--signals]

Exit code 1: something was left behind at a place where a signal can arrive, or at another one that `allowed.txt` does
not list.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pytest_cudalink import emulator

__all__ = ["allowed", "main", "walked"]

ROOT = Path(__file__).parents[2]
ALLOWED = Path(__file__).parent / "allowed.txt"
#: Seconds that one child process may take.
LIMIT = 600


def allowed() -> dict[tuple[str, str], str]:
    """Return the reason of each place at which something is left, by function and text of the line."""
    found, reason = {}, ""
    for line in ALLOWED.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            reason = line[1:].strip()
        elif line.strip():
            function, _, source = line.partition(": ")
            found[function, source] = reason
    return found


def child(name: str, points: int, seed: int, first: int) -> None:
    """Walk one scenario from a bytecode on, and write the result to stdout as JSON; runs on an emulated driver."""
    from .scenarios import walk_of

    with walk_of(name) as walk:
        count = walk.count()
        step = count / points if 0 < points < count else 1
        start = random.Random(f"{seed} {name}").random() * step if step > 1 else 0  # noqa: S311 (which are walked)
        at, number = 0, 0
        while walk.sound:
            number, at = int(start + at * step), at + 1
            # a run after an interrupt may be longer than the one that was counted
            if number >= first and (not walk.at(number) or (step > 1 and number >= count)):
                break
        found = {
            "bytecodes": count,
            "walked": walk.walked,
            "signals": walk.signals,
            "failures": [[*place, place.source, str(place), problem] for place, problem in walk.failures],
            "next": None if walk.sound else number + 1,
        }
    print(f"\n{json.dumps(found)}", flush=True)


def walked(name: str, points: int, seed: int) -> dict[str, Any]:
    """Walk a scenario in child processes on an emulated driver of CUDA 13.0: another one after each that is damaged."""
    started = time.monotonic()
    result: dict[str, Any] = {"scenario": name, "bytecodes": 0, "walked": 0, "signals": 0, "failures": [], "ended": ""}
    environment = {**os.environ, **emulator.emulation_for("13.0").environment(), "PYTHONFAULTHANDLER": "1"}
    first: int | None = 0
    while first is not None:
        command = [sys.executable, "-m", "tests.interrupts", name, "--child", f"--first={first}"]
        command += [f"--points={points}", f"--seed={seed}"]
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, check=False, timeout=LIMIT, cwd=ROOT
            )
        except subprocess.TimeoutExpired:
            result["ended"] = f"no end after {LIMIT} s, from bytecode {first} on"
            break
        if done.returncode:
            result["ended"] = f"exit code {done.returncode}, from bytecode {first} on: {done.stderr[-2000:]}"
            break
        found = json.loads(done.stdout.splitlines()[-1])
        result["bytecodes"] = max(result["bytecodes"], found["bytecodes"])
        for key in ("walked", "signals", "failures"):
            result[key] += found[key]
        first = found["next"]
    return result | {"seconds": time.monotonic() - started}


def main() -> int:
    """Walk the scenarios that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help="all if none is named")
    parser.add_argument("--points", type=int, default=0, help="how many bytecodes of each; 0: all")
    parser.add_argument("--seed", type=int, default=1, help="which of them")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", type=Path, help="where to write the results")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.scenarios[0], options.points, options.seed, options.first)
        return 0
    from .scenarios import SCENARIOS

    if unknown := [name for name in options.scenarios if name not in SCENARIOS]:
        parser.error(f"unknown scenario {unknown[0]!r}; known: {', '.join(SCENARIOS)}")
    names, bad, results, known = options.scenarios or list(SCENARIOS), 0, [], allowed()
    with ThreadPoolExecutor(options.processes) as pool:
        for result in pool.map(lambda name: walked(name, options.points, options.seed), names):
            results.append(result)
            if result["ended"]:
                bad += 1
                print(f"{result['scenario']}: {result['ended']}")
            kinds = Counter("signal" if one[4] else "bytecode" for one in result["failures"])
            print(
                f"{result['scenario']}: {result['walked']} of {result['bytecodes']} bytecodes "
                f"({result['signals']} where a signal can arrive), {kinds['signal']} + {kinds['bytecode']} failures, "
                f"{result['seconds']:.0f} s",
                flush=True,
            )
            shown: Counter[str] = Counter()
            for _, function, _, _, signal, source, place, problem in result["failures"]:
                if signal or (function, source) not in known:
                    bad += 1
                    shown[f"  {place}\n    {problem}"] += 1
            for text, times in list(shown.items())[:40]:
                print(text + (f" ({times} times)" if times > 1 else ""))
    if options.json:
        options.json.write_text(json.dumps(results, indent=1), encoding="utf-8")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
