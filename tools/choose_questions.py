"""Choose the recorded programs that the package carries: ``python -m tools.choose_questions RECORDING.json ...``.

`cudalink driver record` asks them, so few programs must show as many pairs of function and code as the whole recording
of the tests does. Those come first that show most, as a slow driver may not reach the last. These stay in the tests:
programs with gates, with device code for one architecture, or with attributes that tell one machine from another.

Each file is what `cudalink driver record -o` wrote; the package carries the first of each device, and what two devices
answered from the first that had two. Only programs that all of them answer are chosen, and files of one device, and the
tests' recording of it, in the same way. Without files all programs can be chosen, for a driver to be recorded. No
program is in the package and in the tests.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

from campaigns.conformance.programs import compare, record
from campaigns.driver import save
from pytest_cudalink.emulator.recorder import grade
from pytest_cudalink.emulator.recorder import record as recorder
from pytest_cudalink.emulator.recorder.asking import PRIVATE
from pytest_cudalink.emulator.recorder.execute import texts

#: A pair that fewer programs show is chance.
_LEAST = 2


def _images(argument: Any) -> Iterator[str]:
    """Yield the names of the images in an argument, and of steps that are no calls."""
    if isinstance(argument, str) and argument[:1] == "!":
        yield argument[1:]
    elif isinstance(argument, (list, dict)):
        for inner in argument.values() if isinstance(argument, dict) else argument:
            yield from _images(inner)


def _fits(program: list[Any], told: list[Any]) -> bool:
    """Whether every machine with this driver can be asked a program."""
    private = any(call[0] == "cuDeviceGetAttribute" and call[2] in PRIVATE for call in program)
    dies = any(answer and answer[0] == "signal" for answer in told)
    return set(_images(program)) <= set(texts()) and not private and not dies


def _shown(program: list[Any], told: list[Any]) -> set[tuple[str, str]]:
    both = zip(program, told, strict=False)
    return {(call[0].partition("@")[0], str(answer[0])) for call, answer in both if answer}


def _chosen(programs: list[Any], fitting: list[Any]) -> list[Any]:
    """Return the programs that show every pair of those that fit, those first that show most."""
    asked = {entry[0]: _shown(entry[2], entry[3]) for entry in programs}
    seen = Counter(pair for entry in fitting for pair in _shown(entry[2], entry[3]))
    left = {pair for pair, number in seen.items() if number >= _LEAST}
    by_seed, order = {entry[0]: entry for entry in programs}, []
    while asked and left:
        best = max(asked, key=lambda seed: (len(asked[seed] & left), -seed))
        if not asked[best] & left:
            break
        left -= asked.pop(best)
        order.append(by_seed[best])
    return order


def _stable(entry: list[Any], device: str, recordings: list[dict[str, Any]]) -> bool:
    """Whether all recordings have answers to a program, and those of one device the same, whichever is asked first."""
    told: dict[str, list[list[Any]]] = {device: [entry[3]]}
    for recording in recordings:
        said = recording["answers"]["programs"].get(str(entry[0]))
        if said is None:
            return False
        told.setdefault(recording["devices"][0]["name"], []).append(said)
    return not any(
        grade.compare(entry[0], "programs", entry[2], *pair).differences
        for several in told.values()
        for pair in permutations(several, 2)
    )


def main() -> int:
    """Write the files of the package and of the tests."""
    path = compare.RECORDED / "driver-580.159.04.json.xz"
    recording = record.load(path)
    recordings = [json.loads(Path(name).read_text(encoding="utf-8")) for name in sys.argv[1:]]
    fitting = [program for program in recording["programs"] if _fits(program[2], program[3])]
    chosen = _chosen([program for program in fitting if _stable(program, recording["device"], recordings)], fitting)
    seeds = {entry[0] for entry in chosen}
    save(recorder.PROGRAMS, [entry[:3] for entry in chosen])
    pairs = {
        record["devices"][0]["name"]: record["answers"]["two"]
        for record in reversed(recordings)
        if "two" in record["answers"]
    }
    for raw in reversed(recordings):  # the first of a device stays
        device = raw["devices"][0]["name"]
        two = {"two": pairs[device]} if device in pairs else {}
        told = {seed: said for seed, said in raw["answers"]["programs"].items() if int(seed) in seeds}
        name = f"driver-{raw['driver']}-{compare.profile(device)}.json.xz"
        answered = {**raw["answers"], **two, "programs": told}
        save(recorder.PROGRAMS.with_name(name), {**raw, "answers": answered})
    rest = [entry for entry in recording["programs"] if entry[0] not in seeds]
    save(path, {**recording, "programs": rest, "and": recorder.RECORDED[0].name})
    sys.stdout.write(f"{len(chosen)} programs; {len(rest)} stay in the tests\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
