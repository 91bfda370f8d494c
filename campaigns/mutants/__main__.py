"""Count the mutants of the pure rules and of the C that tests kill: ``python -m campaigns.mutants --help``.

`native.py` judges those of the C. For Python, the parent imports pytest, hypothesis and everything else that is not
ours, once. Each mutant is a fork of it, which loads the changed module in the place of the real one and runs the tests
that `modules.toml` names for it.
"""

import argparse
import gc
import importlib
import marshal
import os
import resource
import signal
import sys
import tempfile
import time
import tomllib
import zlib
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from . import native
from .operators import Mutant, mutants, weighed

ROOT = Path(__file__).parents[2]
CONFIGURATION = Path(__file__).with_name("modules.toml")
SURVIVORS = Path(__file__).with_name("survivors.txt")
SAMPLE = Path(__file__).with_name("sample.txt")
OURS = ("pytest_cudalink", "tests", "campaigns", "tools", "conftest")

#: Rules do not need the plugin.
OPTIONS = (
    *("-x", "-q", "-pno:cudalink", "-pno:xdist", "-pno:randomly", "-pno:cacheprovider"),
    *("--assert=plain", "-mnot slow"),
)
#: Shared fixtures cost more than most tests: a module whose tests need some says so with ``fixtures = true``.
WITHOUT_FIXTURES = "--noconftest"
#: Seconds: of CPU time over what the tests take without a change, and on the clock, for what sleeps.
CPU_SECONDS, CLOCK_SECONDS = 10, 180


@dataclass(frozen=True)
class Judged:
    """A module, its mutants, and the words for pytest that run the tests that judge them."""

    file: str
    tests: tuple[str, ...]
    mutants: tuple[Mutant, ...]

    def key(self, mutant: Mutant) -> str:
        """The text by which `survivors.txt` knows a mutant: no line number, so edits elsewhere leave it alone."""
        return f"{self.file.removeprefix('pytest_cudalink/')}: {mutant.function}: {mutant.change}"

    @property
    def name(self) -> str:
        """The module's name for `import`."""
        return self.file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


#: What loads a module from other code than that of its file: a program, for this process and those that tests start.
#: There pytest rewrites the assertions of what a SourceFileLoader loads, and would read the file.
CHANGED = """
import marshal
from importlib import machinery, util

class Changed(machinery.SourcelessFileLoader):
    def get_code(self, fullname):
        return marshal.loads({code!r})

# pytest makes this an attribute of a class of its own
def find_spec(cls, name, *words, unchanged=machinery.PathFinder.find_spec):
    if name != {name!r}:
        return unchanged(name, *words)
    return util.spec_from_file_location(name, {path!r}, loader=Changed(name, {path!r}))

machinery.PathFinder.find_spec = classmethod(find_spec)
"""


class Tally:
    """What was counted of each file, and what is wrong."""

    def __init__(self, listed: Container[str], *, verbose: bool) -> None:
        self.counts: dict[str, list[int]] = {}
        self.faults: list[str] = []
        self.notes: list[str] = []
        self._listed, self._verbose = listed, verbose

    def add(self, file: str, key: str, killed: str, *, may_survive: bool = False) -> None:
        """Count a mutant that was judged.

        `killed`: by what, if it was.
        `may_survive`: whether a survivor that is not listed only counts for the share of those that are killed.
        """
        self.counts.setdefault(file, [0, 0])[0 if killed else 1] += 1
        if not killed and key not in self._listed:
            (self.notes if may_survive else self.faults).append(f"survives: {key}")
        elif killed and key in self._listed:
            self.faults.append(f"listed as a survivor, but killed: {key}")
        if self._verbose:
            sys.stdout.write(f"{'killed  ' if killed else 'SURVIVED'} {key}{killed and f'  <- {killed}'}\n")
            sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the mutants, print the survivors and a table; 0 if the survivors are those of the list."""
    options = _options(arguments)
    configuration = tomllib.loads(CONFIGURATION.read_text(encoding="utf-8"))
    python = [(judged, mutant) for judged in judged_modules(configuration) for mutant in judged.mutants]
    c = native.mutants()
    listed = survivors(SURVIVORS.read_text(encoding="utf-8"))
    known = {judged.key(mutant) for judged, mutant in python} | {native.key(file, mutant) for file, mutant in c}
    tally = Tally(listed, verbose=options.verbose)
    tally.faults += [f"listed, but there is no such mutant: {key}" for key in listed if key not in known]
    files = dict.fromkeys([*(judged.file for judged, _ in python), *(file for file, _ in c)])
    python = [(judged, mutant) for judged, mutant in python if options.only in judged.file]
    c = [(file, mutant) for file, mutant in c if options.only in file]
    if not python and not c:
        names = ", ".join(files)
        sys.stderr.write(
            f"campaigns.mutants: no file has {options.only!r} in its path; expected a part of one of {names}\n"
        )
        return 2

    # sorted by numbers of their own, few have another place after an edit, and each run of a sample judges the same
    python.sort(key=lambda mutant: zlib.crc32(f"{options.seed} {mutant[0].key(mutant[1])}".encode()))
    c.sort(key=lambda mutant: zlib.crc32(f"{options.seed} {native.key(*mutant)}".encode()))
    start, killers = time.monotonic(), dict[str, str]()
    if options.sample is not None:
        killers = survivors(SAMPLE.read_text(encoding="utf-8"), SAMPLE.name)
        tally.faults += [f"in {SAMPLE.name}, but there is no such mutant: {key}" for key in killers if key not in known]
        python, c = python[: options.sample], [mutant for mutant in c if native.key(*mutant) in killers]
    if python and not _judge_python(python, options.jobs, tally):
        return 2
    # a random one is neither known nor looked for: enough of them must be killed
    add = partial(tally.add, may_survive=options.sample is None)
    reason = native.judge_all(c[: options.number], killers, configuration["native"], options.jobs, add)
    _table(tally.counts, time.monotonic() - start)
    whole = not options.only and options.sample is None  # else only survivors that are not listed are faults
    for language, least in (("py", configuration["least-percent"]), ("c", configuration["native"]["least-percent"])):
        killed, survived = _sum(counts for file, counts in tally.counts.items() if file.endswith(f".{language}"))
        percent = 100 * killed / (killed + survived) if killed + survived else 100
        if whole and percent < least:
            tally.faults.append(f"{percent:.1f} % of the .{language} mutants are killed; expected {least} % or more")
    if reason:
        sys.stdout.write(f"campaigns.mutants: left out: {reason}\n")
    sys.stdout.writelines(f"campaigns.mutants: {note}\n" for note in (*tally.notes, *tally.faults))
    return 1 if tally.faults else 0


def _judge_python(chosen: Sequence[tuple[Judged, Mutant]], jobs: int, tally: Tally) -> bool:
    """Judge mutants of the Python; gives whether the tests pass without a change."""
    _prepare()
    if not all(_is_sound(tests) for tests in dict.fromkeys(judged.tests for judged, _ in chosen)):
        return False
    gc.freeze()  # a child would collect, and so copy, what the parent imported
    with tempfile.TemporaryDirectory(prefix="cudalink-mutants-", ignore_cleanup_errors=True) as folder:
        tempfile.tempdir = folder  # a child that is ended leaves its files
        for judged, mutant, killed in _run(chosen, jobs):
            tally.add(judged.file, judged.key(mutant), "its tests" if killed else "")
        tempfile.tempdir = None
    return True


def judged_modules(configuration: dict[str, Any]) -> list[Judged]:
    """Return the modules that the configuration names, with their mutants."""
    return [
        Judged(
            entry["file"],
            (*entry["tests"], *(() if entry.get("fixtures") else (WITHOUT_FIXTURES,))),
            tuple(
                mutant
                for mutant in weighed(mutants((ROOT / entry["file"]).read_text(encoding="utf-8")))
                if mutant.function.startswith(tuple(entry.get("only", [""])))
            ),
        )
        for entry in configuration["module"]
    ]


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
    parser.add_argument(
        "--sample", type=int, metavar="N", help="judge N mutants of the Python, and those of sample.txt"
    )
    parser.add_argument("--seed", type=int, default=0, help="which order: the same seed, the same order (default 0)")
    parser.add_argument("--number", type=int, default=1000, help="judge so many of the C, in that order (default 1000)")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="mutants at a time")
    parser.add_argument("--verbose", action="store_true", help="print each mutant as it is judged")
    return parser.parse_args(arguments)


def _prepare() -> None:
    """Set what all children inherit: few examples, the same in every run, and none made smaller."""
    hypothesis.settings.register_profile(
        "mutants",
        deadline=None,
        max_examples=20,
        derandomize=True,
        database=None,
        phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate),
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    hypothesis.settings.load_profile("mutants")
    sys.dont_write_bytecode = False  # else each child compiles what none of them changed
    os.chdir(ROOT)


def _is_sound(tests: tuple[str, ...]) -> bool:
    """Whether tests pass without any change; says so if they do not."""
    status = _baseline(tests)
    if status:
        words = " ".join(tests)
        sys.stderr.write(
            f"campaigns.mutants: exit status {status} without any change; expected 0; see pytest {words}\n"
        )
    return not status


def _baseline(tests: Sequence[str]) -> int:
    """Run tests on the unchanged source, and import what they needed of other projects; gives their exit status."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        status = _pytest(tests, "")
        others = [name for name in sys.modules if name.partition(".")[0] not in OURS]
        with os.fdopen(write, "w") as stream:
            stream.write("\n".join(others))
        os._exit(status)
    os.close(write)
    with os.fdopen(read) as stream:
        others = stream.read().split("\n")
    _, status = os.waitpid(child, 0)
    for name in others:
        try:
            importlib.import_module(name)
        except Exception:  # noqa: BLE001 (only time is lost)
            continue
    return os.waitstatus_to_exitcode(status)


def _run(chosen: Sequence[tuple[Judged, Mutant]], jobs: int) -> Iterator[tuple[Judged, Mutant, bool]]:
    """Fork for each mutant, some at a time; gives each in its order, with whether it was killed."""
    waiting: dict[int, int] = {}
    results: dict[int, bool] = {}
    following = given = 0
    while given < len(chosen):
        while following < len(chosen) and len(waiting) < jobs:
            waiting[_judge(*chosen[following])] = following
            following += 1
        child, status = os.wait()
        results[waiting.pop(child)] = status != 0
        while given in results:
            yield (*chosen[given], results.pop(given))
            given += 1


def _judge(judged: Judged, mutant: Mutant) -> int:
    """Start the tests of a mutant; gives the process, whose exit status is 0 if no test noticed it."""
    child = os.fork()
    if child:
        return child
    path = str(ROOT / judged.file)
    code = marshal.dumps(compile(mutant.apply(), path, "exec", dont_inherit=True))
    os._exit(_pytest(judged.tests, CHANGED.format(code=code, name=judged.name, path=path)))


def _pytest(tests: Sequence[str], changed: str) -> int:
    """Run pytest in this process, which is a child that does nothing else; an endless loop ends by a signal.

    `changed`: a program that runs first, here and in each Python that a test starts.
    """
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(CLOCK_SECONDS)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    for name in [module for module in sys.modules if module.partition(".")[0] == OURS[0]]:
        del sys.modules[name]  # what `native.py` imported is not changed
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "sitecustomize.py").write_text(changed, encoding="utf-8")
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))
        try:
            exec(changed, {})
            return int(pytest.main([*OPTIONS, *tests]))
        except BaseException:  # noqa: BLE001 (a plugin that does not import is noticed too)
            return 1


def _sum(counts: Iterable[Sequence[int]]) -> tuple[int, int]:
    """The numbers of all mutants that were killed, and of all that survived."""
    rows = [*counts]
    return sum(row[0] for row in rows), sum(row[1] for row in rows)


def _table(counts: dict[str, list[int]], seconds: float) -> None:
    """Print what was counted of each file."""
    for name, (dead, alive) in {**counts, "all": _sum(counts.values())}.items():
        percent = 100 * dead / (dead + alive) if dead + alive else 0
        sys.stdout.write(f"{dead + alive:5} mutants {dead:5} killed {alive:4} survivors {percent:5.1f} %  {name}\n")
    sys.stdout.write(f"in {seconds:.0f} seconds\n")


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of a set decides whether a missing sort is noticed
        os.execve(sys.executable, [*sys.orig_argv], {**os.environ, "PYTHONHASHSEED": "0"})
    sys.exit(main())
