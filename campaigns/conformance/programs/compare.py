"""Compare a recording with the emulated driver: ``python -m campaigns.conformance.programs.compare FILE``.

It replays every program on an emulated driver of the recorded version, release and architecture, and prints how many
calls and programs are equal, and the differences grouped by function and answers, most frequent first. After a
difference, calls that need what it made or changed are not counted.

==================================  ==================================================================================
``--theme pools --function Pool``   only programs of a theme; only groups whose function has this in its name
``--seeds 0:500``                   only these programs
``--show 17``                       a program with both answers side by side
==================================  ==================================================================================
"""

import argparse
import ctypes
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from pytest_cudalink.emulator.recorder import grade
from pytest_cudalink.emulator.recorder.execute import Answer, Program, execute
from pytest_cudalink.emulator.recorder.grade import Difference, Result

from .gates import WAITED, GatedInterpreter, without_waits
from .open_answers import done, left_open
from .record import load, seeds_of

RECORDED = Path(__file__).parent / "recorded"


class Tally(grade.Grade):
    """Calls and programs of some results, and how many are equal."""

    @property
    def program_share(self) -> float:
        """Percentage of programs without a difference."""
        return 100 * sum(not result.differences for result in self.results) / max(len(self.results), 1)


#: Parts of the programs: functions of the first release, order behind gates, and all others.
PARTS = ("core", "order", "added")


def part_of(theme: str) -> str:
    return theme if theme in PARTS else "added"


def tally(results: list[Result], part: str) -> Tally:
    """Calls and programs of one of the `PARTS`."""
    return Tally(results=[result for result in results if part_of(result.theme) == part])


def compare(seed: int, theme: str, program: Program, real: list[Answer], ours: list[Answer]) -> Result:
    """The comparison of one program's answers, without those that `open_answers` lists."""
    left_out = set().union(*left_open(theme, program, real, ours).values())
    theirs, own = without_waits([None if at in left_out else answer for at, answer in enumerate(real)], ours)
    return grade.compare(seed, theme, program, theirs, own)


def profile(device: str) -> str:
    """The emulated device of a recorded one: ``"h100"`` for ``"NVIDIA H100 80GB HBM3"``."""
    from pytest_cudalink.compat import names

    return next(name for name in names.EMULATED_DEVICES if f" {name.replace('-', ' ')} " in f"{device.lower()} ")


def replay(recording: dict[str, Any], programs: list[Any], processes: int = 2) -> dict[int, list[Answer]]:
    """What the emulated driver of a recording's version answers to some of its programs, by seed."""
    from pytest_cudalink import emulator

    device = profile(recording["device"])
    planned = emulator.emulation_for(recording["cuda"], release=recording["driver"], device=device)
    environment = {**os.environ, **planned.environment(), "CUDA_CACHE_DISABLE": "1"}
    with tempfile.TemporaryDirectory() as folder:
        running = []
        for job in range(processes):
            source = Path(folder) / f"{job}.in"
            share = []
            for seed, _, program, real in programs[job::processes]:
                waits = [number for number, answer in enumerate(real) if answer and answer[-1] == WAITED]
                ready = [number for number, pair in enumerate(zip(program, real, strict=False)) if done(*pair)]
                share.append([seed, program, waits, ready])
            source.write_text(json.dumps(share), encoding="utf-8")
            command = [sys.executable, "-m", __name__ if __name__ != "__main__" else __spec__.name, "--worker"]
            running.append(subprocess.Popen([*command, str(source), str(source.with_suffix(".out"))], env=environment))
        codes = [process.wait() for process in running]
        if any(codes):
            raise RuntimeError(f"replay ended with {codes}; expected 0 of every process; see its error above")
        lines = [line for path in Path(folder).glob("*.out") for line in path.read_text("utf-8").splitlines()]
    return dict(map(json.loads, lines))


def _worker(source: str, target: str) -> int:
    """Replay programs of a file on the libcuda of this process."""
    library = ctypes.CDLL("libcuda.so.1")
    given = json.loads(Path(source).read_text(encoding="utf-8"))
    rows = ([seed, execute(program, GatedInterpreter(library, waits, ready))] for seed, program, waits, ready in given)
    with Path(target).open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return 0


def _answer(answer: Answer) -> str:
    return "left out" if answer is None else " ".join(map(str, answer))


def show(program: Program, real: list[Answer], ours: list[Answer], result: Result) -> None:
    """Print a program with both answers; differences are marked with ``!``."""
    different = {difference.call for difference in result.differences}
    for number, call in enumerate(program):
        theirs = _answer(real[number]) if number < len(real) else "(ended)"
        own = _answer(ours[number]) if number < len(ours) else "(ended)"
        mark = "!" if number in different else " "
        answers = theirs if theirs == own else f"{theirs}  | ours: {own}"
        print(f"{mark} ${number:<3} {call[0]}({', '.join(map(json.dumps, call[1:]))}) -> {answers}")


def _print_groups(results: list[Result], name: str) -> None:
    """Print groups of differences, most frequent first, each with the first programs and calls that have it."""
    groups: dict[tuple[str, str, str], list[Difference]] = {}
    for each in (diff for result in results for diff in result.differences if name.lower() in diff.symbol.lower()):
        groups.setdefault((each.symbol, each.real[:60], each.ours[:60]), []).append(each)
    print(f"{sum(map(len, groups.values()))} differences in {len(groups)} groups:  count function: real -> ours")
    for (symbol, real, ours), several in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))[:40]:
        seeds = ", ".join(f"{diff.seed}:{diff.call}" for diff in several[:4])
        print(f"{len(several):5} {symbol}: {real} -> {ours}  seed:call {seeds}")


def main() -> int:
    """Replay, compare and print."""
    if sys.argv[1:2] == ["--worker"]:
        return _worker(*sys.argv[2:4])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--theme", help="themes, joined by commas")
    parser.add_argument("--function", default="", help="part of a function's name")
    parser.add_argument("--seeds", help="A:B, joined by commas")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--show", type=int)
    options = parser.parse_args()
    recording = load(options.file)
    programs = recording["programs"]
    if options.theme:
        programs = [program for program in programs if program[1] in options.theme.split(",")]
    if options.show is not None or options.seeds:
        seeds = {options.show} if options.seeds is None else {*seeds_of(options.seeds)}
        programs = [program for program in programs if program[0] in seeds]
    if options.function:
        programs = [p for p in programs if any(options.function.lower() in call[0].lower() for call in p[2])]
    ours = replay(recording, programs, options.processes)
    results = [compare(seed, theme, program, real, ours[seed]) for seed, theme, program, real in programs]
    if options.show is not None:
        for recorded, result in zip(programs, results, strict=True):
            show(recorded[2], recorded[3], ours[recorded[0]], result)
        return 0
    for title in dict.fromkeys([*PARTS, *sorted(result.theme for result in results)]):
        total = Tally(results=[result for result in results if title in (result.theme, part_of(result.theme))])
        if total.results:
            calls = f"{total.share:6.2f} % of {total.counted} calls equal"
            print(f"{title:10} {calls}, {total.program_share:5.1f} % of {len(total.results)} programs")
    _print_groups(results, options.function)
    return 0


if __name__ == "__main__":
    sys.exit(main())
