"""What each test reaches, which runs on code with marks find out; a file keeps that until a source changes."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeAlias

from .operators import Change

ROOT = Path(__file__).parents[2]
#: Seconds that a test may take, on the clock, and that a process of its may compute: more than it takes, and for each.
CLOCK, CPU, TIMES = 10, 5, 5
#: A test, whether it passed, its seconds, and the marks that it reached, as bits in hexadecimal.
Row: TypeAlias = tuple[str, bool, float, str]
PYTEST: Final = ("-q", "-n0", "-pno:cacheprovider", "-pno:randomly", "--assert=plain")


class Collected:
    """A process that has collected tests: see `warm.Warm`."""

    def __init__(self, words: Sequence[str], folder: Path, path: Path) -> None:
        command = [sys.executable, "-m", "campaigns.mutants.warm", *PYTEST, *words]
        env = {**os.environ, "PYTHONPATH": str(path)}
        self._process = subprocess.Popen(
            command, cwd=folder, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._folder = folder
        self.names: list[str] = self._answer()

    def run(self, tests: Sequence[tuple[str, float]], marks: Path | None = None) -> list[Row]:
        """Run tests in order, each with the seconds that it took before; see `warm.Warm` for the answer."""
        limits = [(name, CLOCK + TIMES * seconds) for name, seconds in tests]
        cpu = int(CPU + TIMES * sum(seconds for _, seconds in tests))
        assert self._process.stdin is not None
        request = {"tests": limits, "cpu": cpu, "marks": str(marks or "")}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return [(*reply,) for reply in self._answer()]

    def close(self) -> None:
        """End the process."""
        self._process.communicate()

    def _answer(self) -> list[Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the tests in {self._folder} cannot be collected; run pytest --collect-only there")
        answer: list[Any] = json.loads(line)
        return answer


def run_on(names: Sequence[str], run: Callable[[Sequence[str]], Sequence[Row]]) -> Iterable[Row]:
    """Run all tests of some, although one that takes too long ends the run; each gets a row, such a one as failed."""
    while names:
        rows = run(names)
        yield from rows
        names = names[len(rows) :]
        if names:
            yield names[0], False, 0.0, "0"
            names = names[1:]


class Reach:
    """The seconds and the marks of each test that passes without a change, by its name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.marks: dict[str, int] = {}

    def learn(
        self,
        file: Path,
        digests: Mapping[str, str],
        shares: Collection[Sequence[str]],
        run: Callable[[Sequence[Sequence[str]]], Iterable[Row]],
    ) -> None:
        """Read what is known from a file, and find out the rest.

        `digests`: what the reach of tests depends on, by the file of the tests.
        `shares`: the names of tests, those together that run in one process.
        `run`: runs shares on code with marks.
        """
        lines = file.read_text().split("\n")[:-1] if file.exists() else []  # not one that was cut short
        rows = [row for digest, *row in map(json.loads, lines) if digest == digests.get(file_of(row[0]))]
        known = {name for name, *_ in rows}
        unknown = [rest for share in shares if (rest := [name for name in share if name not in known])]
        file.parent.mkdir(exist_ok=True)
        learned = ((name, seconds if passed else -1, marks) for name, passed, seconds, marks in run(unknown))
        with file.open("w") as cache:
            for name, seconds, reached in chain(rows, learned if unknown else ()):
                cache.write(json.dumps([digests[file_of(name)], name, seconds, reached]) + "\n")
                cache.flush()  # a run that is cut short leaves to the next one what it has learned
                if seconds >= 0:
                    self.seconds[name], self.marks[name] = seconds, int(reached, 16)

    def reaching(self, wanted: int, inside: int, most: int) -> list[str]:
        """Return the tests with one of the wanted marks, the most specific first; see `native._MOST`."""
        reaching = [name for name, marks in self.marks.items() if marks & wanted]
        fewest = sorted(reaching, key=lambda name: (self._counts[name], name))
        # sorting keeps the order of equals
        mostly = sorted(fewest, key=lambda name: -(self.marks[name] & inside).bit_count() / self._counts[name])
        return [*dict.fromkeys(chain.from_iterable(zip(mostly, fewest, strict=True)))][:most]

    @cached_property
    def _counts(self) -> dict[str, int]:
        return {name: marks.bit_count() for name, marks in self.marks.items()}


def in_turn(
    free: list[Any], shares: Collection[Sequence[str]], run: Callable[[Any, Sequence[str]], Sequence[Row]]
) -> Iterator[Row]:
    """Run each share on one of the processes that are free, as many at a time as there are."""

    def run_share(share: Sequence[str]) -> list[Row]:
        tests = free.pop()
        try:
            return [*run_on(share, lambda names: run(tests, names))]
        finally:
            free.append(tests)

    with ThreadPoolExecutor(len(free)) as pool:
        for done in as_completed([pool.submit(run_share, share) for share in shares]):
            yield from done.result()


def killer_of(tests: Sequence[str], failing: Callable[[Sequence[str], bool], str], sound: dict[str, bool]) -> str:
    """Return the test of some that fails with a change, also a second time, and passes without it; "" if none does.

    `failing`: runs tests with the change or without it; gives the first that fails or does not end, "" if all pass.
    `sound`: whether tests pass without a change, as far as that is known.
    """
    rest = [*tests]
    while rest := [name for name in rest if sound.get(name, True)]:
        killer = failing(rest, True)
        if not killer:
            break
        known = killer in rest  # else what the tests share is broken
        alone = [killer] if known else rest
        # a second time, as a busy machine makes tests fail, and those before it, too
        if failing(alone, True):
            if killer not in sound:
                sound[killer] = not failing(alone, False)
            if sound[killer]:
                return killer
        rest = rest[rest.index(killer) + 1 :] if known else []
    return ""


def key(file: str, mutant: Change) -> str:
    """The text by which the lists know a mutant: no line number, so edits elsewhere leave it alone."""
    return f"{file.removeprefix('pytest_cudalink/')}: {mutant.function}: {mutant.change}"


def left_out(tests: Sequence[str]) -> str:
    """The reason why some tests judge nothing."""
    return f"{len(tests)} tests that fail without a change: {', '.join(tests)}" if tests else ""


def file_of(name: str) -> str:
    """The file of a test."""
    return name.partition("::")[0]


def digests(names: Iterable[str]) -> dict[str, str]:
    """Return a digest of all that the reach of a test may depend on, for each file of tests."""
    common = hashlib.sha256()
    here = Path(__file__).parent
    files = [here / "warm.py", here / "c_operators.py", here / "reach.c", here / "python.py"]
    files += [
        file
        for folder in ("pytest_cudalink", "tests", "campaigns/conformance")
        for file in sorted((ROOT / folder).rglob("*"))
    ]
    for file in files:
        if file.suffix in (".py", ".c", ".h", ".toml") and not file.name.startswith("test_"):
            common.update(file.read_bytes())
    return {
        file: hashlib.sha256(common.digest() + (ROOT / file).read_bytes()).hexdigest()
        for file in set(map(file_of, names))
    }
