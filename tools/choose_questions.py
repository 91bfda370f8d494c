"""Choose the recorded programs that the package carries: ``python -m tools.choose_questions``.

`cudalink driver record` asks them, so few programs must show as many pairs of function and code as the whole recording
does. They come first that show most, because a slow driver may not reach the last. Programs with gates or with device
code for one architecture stay in the tests: what they answer depends on the machine. The two files share no program.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

from pytest_cudalink.recorder.images import TEXTS
from pytest_cudalink.recorder.questions import RECORDED, save
from tests.conformance.programs import compare, record

__all__ = ["main"]

#: A pair that fewer programs show is chance.
_LEAST = 2


def _images(argument: Any) -> Iterator[str]:
    """Yield the names of the images in an argument, and of steps that are no calls."""
    if isinstance(argument, str) and argument[:1] == "!":
        yield argument[1:]
    elif isinstance(argument, (list, dict)):
        for one in argument.values() if isinstance(argument, dict) else argument:
            yield from _images(one)


def _shown(program: list[Any], answers: list[Any]) -> set[tuple[str, str]]:
    return {
        (call[0].partition("@")[0], str(answer[0])) for call, answer in zip(program, answers, strict=False) if answer
    }


def _chosen(programs: list[Any]) -> list[Any]:
    """Return the programs that show every pair, those first that show most."""
    asked = {
        entry[0]: _shown(entry[2], entry[3])
        for entry in programs
        if set(_images(entry[2])) <= set(TEXTS) and not any(one and one[0] == "signal" for one in entry[3])
    }
    seen = Counter(pair for pairs in asked.values() for pair in pairs)
    left = {pair for pair, number in seen.items() if number >= _LEAST}
    order = []
    while left:
        best = max(asked, key=lambda seed: (len(asked[seed] & left), -seed))
        left -= asked.pop(best)
        order.append(best)
    by_seed = {entry[0]: entry for entry in programs}
    return [by_seed[seed] for seed in order]


def main() -> int:
    """Write both files."""
    path = compare.RECORDED / RECORDED.name
    recording = record.load(path)
    chosen = _chosen(recording["programs"])
    seeds = {entry[0] for entry in chosen}
    rest = [entry for entry in recording["programs"] if entry[0] not in seeds]
    save(RECORDED, {**recording, "programs": chosen})
    save(path, {**recording, "programs": rest, "and": RECORDED.name})
    sys.stdout.write(f"{len(chosen)} programs, {RECORDED.stat().st_size} bytes; {len(rest)} stay in the tests\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
