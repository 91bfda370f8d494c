"""Count the mutants of the pure rules that their tests kill: ``python -m campaigns.mutants --help``.

The parent imports pytest, hypothesis and everything else that is not ours, once. Each mutant is a fork of it, which
loads the changed module in the place of the real one and runs the tests that `modules.toml` names for it.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import importlib.util
import math
import os
import random
import resource
import signal
import sys
import time
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

import hypothesis
import pytest

from .operators import Mutant, mutants

ROOT = Path(__file__).parents[2]
CONFIGURATION = Path(__file__).with_name("modules.toml")
SURVIVORS = Path(__file__).with_name("survivors.txt")
OURS = ("pytest_cudalink", "tests", "campaigns", "tools", "conftest")

#: Rules do not need the plugin. Where pytest rewrites assertions, its loader takes the place of `Changed`, as the
#: package is an installed plugin, and no mutant is loaded.
OPTIONS = ("-x", "-q", "-pno:cudalink", "-pno:xdist", "-pno:cacheprovider", "--assert=plain", "-mnot slow")
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


class Changed(SourceFileLoader):
    """Loads a module from a syntax tree instead of its file, and is the finder that says so."""

    def __init__(self, judged: Judged, mutant: Mutant) -> None:
        super().__init__(judged.name, str(ROOT / judged.file))
        self.mutant = mutant

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Answer for the one module that is changed."""
        return importlib.util.spec_from_file_location(name, self.path, loader=self) if name == self.name else None

    def get_code(self, fullname: str) -> CodeType:
        """Compile the mutant; no cache holds it."""
        return compile(self.mutant.apply(), self.path, "exec", dont_inherit=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the mutants, print the survivors and a table; 0 if the survivors are those of the list."""
    options = _options(arguments)
    configuration = tomllib.loads(CONFIGURATION.read_text(encoding="utf-8"))
    every = judged_modules(configuration)
    listed = survivors(SURVIVORS.read_text(encoding="utf-8"))
    known = {judged.key(mutant) for judged in every for mutant in judged.mutants}
    faults = [f"listed, but there is no such mutant: {key}" for key in listed if key not in known]
    chosen = [(judged, one) for judged in every if options.only in judged.file for one in judged.mutants]
    if not chosen:
        names = ", ".join(judged.file for judged in every)
        sys.stderr.write(
            f"campaigns.mutants: no module has {options.only!r} in its path; expected a part of one of {names}\n"
        )
        return 2
    if options.seconds is not None:
        random.Random(options.seed).shuffle(chosen)

    _prepare()
    start, most = time.monotonic(), options.seconds or math.inf
    sound = _sound(dict.fromkeys(judged.tests for judged, _ in chosen), start + most / 2)
    if not sound:
        return 2
    chosen = [(judged, mutant) for judged, mutant in chosen if judged.tests in sound]

    counts: dict[str, list[int]] = {}
    gc.freeze()  # a child would collect, and so copy, what the parent imported
    for judged, mutant, killed in _run(chosen, options.jobs, start + most):
        counts.setdefault(judged.file, [0, 0])[not killed] += 1
        key = judged.key(mutant)
        if not killed and key not in listed:
            faults.append(f"survives: {key}")
        elif killed and key in listed:
            faults.append(f"listed as a survivor, but killed: {key}")
        if options.verbose:
            sys.stdout.write(f"{'killed  ' if killed else 'SURVIVED'} {key}\n")
            sys.stdout.flush()
    dead, alive = _table(counts, time.monotonic() - start)
    percent, least = 100 * dead / (dead + alive), configuration["least-percent"]
    part = options.only or options.seconds is not None  # of which only the survivors that are not listed are faults
    if percent < least and not part:
        faults.append(f"{percent:.1f} % of the mutants are killed; expected {least} % or more; write tests")
    sys.stdout.writelines(f"campaigns.mutants: {fault}\n" for fault in faults)
    return 1 if faults else 0


def judged_modules(configuration: dict[str, Any]) -> list[Judged]:
    """Return the modules that the configuration names, with their mutants."""
    return [
        Judged(
            one["file"],
            (*one["tests"], *(() if one.get("fixtures") else (WITHOUT_FIXTURES,))),
            tuple(mutants((ROOT / one["file"]).read_text(encoding="utf-8"))),
        )
        for one in configuration["module"]
    ]


def survivors(text: str) -> dict[str, str]:
    """Return the reason of each listed survivor, by its key. Raises ValueError if a line gives no reason."""
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            key, separator, reason = line.rpartition(" -- ")
            if not (separator and key and reason.strip()):
                msg = f"{SURVIVORS.name}:{number} is {line!r}; expected 'MUTANT -- REASON'"
                raise ValueError(msg)
            found[key] = reason.strip()
    return found


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m campaigns.mutants", description=__doc__.splitlines()[0])
    parser.add_argument("only", nargs="?", default="", help="judge the modules whose path has this in it")
    parser.add_argument("--seconds", type=float, metavar="N", help="judge mutants in a random order for N seconds")
    parser.add_argument("--seed", type=int, default=0, help="which order: the same seed, the same order (default 0)")
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


def _sound(every: Iterable[tuple[str, ...]], until: float) -> set[tuple[str, ...]]:
    """Return the tests that pass without any change, those of one module or more until a time; empty if some fail."""
    sound: set[tuple[str, ...]] = set()
    for tests in every:
        if sound and time.monotonic() > until:
            break
        if status := _baseline(tests):
            words = " ".join(tests)
            sys.stderr.write(
                f"campaigns.mutants: exit status {status} without any change; expected 0; see pytest {words}\n"
            )
            return set()
        sound.add(tests)
    return sound


def _baseline(tests: Sequence[str]) -> int:
    """Run tests on the unchanged source, and import what they needed of other projects; gives their exit status."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        status = _pytest(tests)
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


def _run(chosen: Sequence[tuple[Judged, Mutant]], jobs: int, until: float) -> Iterator[tuple[Judged, Mutant, bool]]:
    """Fork for each mutant, some at a time, until a time; gives each in its order, with whether it was killed."""
    waiting: dict[int, int] = {}
    results: dict[int, bool] = {}
    following = given = 0
    while given < len(chosen):
        if following and time.monotonic() > until:
            if not waiting:
                return
            chosen = chosen[:following]
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
    sys.meta_path.insert(0, Changed(judged, mutant))
    os._exit(_pytest(judged.tests))


def _pytest(tests: Sequence[str]) -> int:
    """Run pytest in this process, which is a child that does nothing else; an endless loop ends by a signal."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(CLOCK_SECONDS)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    try:
        return int(pytest.main([*OPTIONS, *tests]))
    except BaseException:  # noqa: BLE001 (a plugin that does not import is noticed too)
        return 1


def _table(counts: dict[str, list[int]], seconds: float) -> tuple[int, int]:
    """Print what was counted of each module; gives the numbers of all that were killed and of all that survived."""
    killed, survived = (sum(column) for column in zip(*counts.values(), strict=True))
    for name, (dead, alive) in {**counts, "all": [killed, survived]}.items():
        percent = 100 * dead / (dead + alive)
        sys.stdout.write(
            f"{dead + alive:5} mutants {dead:5} killed {alive:4} survivors {percent:5.1f} %  {name}\n",
        )
    sys.stdout.write(f"in {seconds:.0f} seconds\n")
    return killed, survived


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # the order of a set decides whether a missing sort is noticed
        os.execve(sys.executable, [*sys.orig_argv], {**os.environ, "PYTHONHASHSEED": "0"})
    sys.exit(main())
