"""What `--cudalink-schedules` asks for, and how a report writes it again."""

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final, NamedTuple

#: Seeds are smaller.
LIMIT_SEED: Final = 2**63
#: Most schedules of a test.
_LIMIT_SCHEDULES: Final = 1_000_000


class ScheduleRequest(NamedTuple):
    """What the option asks for."""

    number: int  # schedules of each test; those after the first have the seeds that follow
    seed: int | None = None  # of the first; None for any
    displaced: tuple[int, ...] | None = None  # the only operations that may be displaced; None for all
    promised: bool = False  # whether calls wait only where CUDA's documentation promises it

    def __str__(self) -> str:
        """Return how the option has it."""
        seed = "" if self.seed is None else f":{self.seed}"
        displaced = "" if self.displaced is None else f"@{_ranges(self.displaced)}"
        return f"{self.number}{seed}{displaced}" + "+promised" * self.promised

    @property
    def wanted(self) -> str:
        """The numbers of the operations that may be displaced, as the option has them; empty for all."""
        return _ranges(self.displaced or ())

    @property
    def seeds(self) -> Iterator[int]:
        """The seeds, of which each is one schedule of every test."""
        first = self.seed or 0
        return ((first + nth) % LIMIT_SEED for nth in range(self.number))


def parse(text: str) -> ScheduleRequest:
    """Read what the option asks for.

    Raises ValueError says what is expected.
    """
    match = re.fullmatch(r"(\d{1,7})(?::(\d{1,19})(?:@([\d,-]+))?)?(\+promised)?", text, re.ASCII)
    if match and 1 <= int(match[1]) <= _LIMIT_SCHEDULES and int(match[2] or 0) < LIMIT_SEED:
        displaced = None if match[3] is None else _numbers(match[3])
        if displaced != ():
            return ScheduleRequest(
                int(match[1]), None if match[2] is None else int(match[2]), displaced, bool(match[4])
            )
    raise ValueError(
        f"expected a number of schedules, 1 to {_LIMIT_SCHEDULES}, then :SEED (0 to {LIMIT_SEED - 1}) to choose their "
        "seeds, then @NUMBERS to displace only these operations, then +promised to wait only where CUDA promises it, "
        "such as 200, 200:7, 1:7@3,5-6 or 200+promised; put paths of tests before the option, or write "
        "--cudalink-schedules=200"
    )


def _numbers(text: str) -> tuple[int, ...]:
    """Return numbers in ascending order; empty if a part of the text is not a number or range."""
    numbers: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"([1-9]\d{0,5})(?:-(\d{1,6}))?", part, re.ASCII)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            return ()
        numbers.update(range(int(match[1]), int(match[2] or match[1]) + 1))
    return tuple(sorted(numbers))


def _ranges(numbers: Iterable[int]) -> str:
    """Return numbers in ascending order as the option has them, three and more in a row by the first and last."""
    texts = []
    for _, group in groupby(enumerate(numbers), lambda pair: pair[1] - pair[0]):
        row = [number for _, number in group]
        texts += [f"{row[0]}-{row[-1]}"] if len(row) > 2 else [str(number) for number in row]
    return ",".join(texts)
