"""Mutants of the Python: which tests reach their statements, and what these tests say of them.

Code whose statements mark themselves shows what each test reaches, also in the processes that it starts. A mutant is
judged by some of the tests that reach its statement, in a fork of a process that has imported everything but our code.
"""

import ast
import gc
import importlib
import json
import marshal
import os
import resource
import signal
import sys
import tempfile
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Final

import hypothesis
import pytest

from . import warm
from .learned import PYTEST, ROOT, Collected, Reach, Row, digests, file_of, in_turn, key, killer_of, left_out
from .operators import Mutant, mutants, weighed

OURS: Final = ("pytest_cudalink", "tests", "campaigns", "tools", "conftest", "cudalink")
FILES = ("pytest_cudalink/**/*.py", "tools/package_index.py")
CACHE = ROOT / ".cudalink" / "mutants-python.json"
#: Seconds over those that the tests take without a change, how often these, and what a process of theirs may compute.
_CLOCK, _CPU, _TIMES = 30, 10, 5
#: So many tests judge a mutant, those of the first run and all; and the seconds that these may take, and their files.
_FIRST, _MOST, _SECONDS, _FILES = 4, 150, 12.0, 12

#: What loads modules from other code than that of their files: a program, for this process and those that tests start.
#: There pytest rewrites the assertions of what a SourceFileLoader loads, and would read the file.
_CHANGED: Final = """
import builtins, marshal, mmap, os
from importlib import machinery, util

class Changed(machinery.SourcelessFileLoader):
    def get_code(self, fullname):
        with open({folder!r} + "/" + fullname, "rb") as file:
            return marshal.load(file)

# pytest makes this an attribute of a class of its own
def find_spec(cls, name, *words, unchanged=machinery.PathFinder.find_spec):
    spec = unchanged(name, *words)
    if spec is None or not os.path.exists({folder!r} + "/" + name):
        return spec
    return util.spec_from_file_location(name, spec.origin, loader=Changed(name, spec.origin))

machinery.PathFinder.find_spec = classmethod(find_spec)
if {marks!r}:
    with open({marks!r}, "r+b") as file:
        builtins.__marks__ = mmap.mmap(file.fileno(), 0)
"""


class Source:
    """A module, with the places of the statements in its functions: a mark for each."""

    def __init__(self, file: str) -> None:
        self.file, self._text = file, (ROOT / file).read_text(encoding="utf-8")
        self.places = sorted(_place(statement) for body in _bodies(ast.parse(self._text)) for statement in body)

    @property
    def name(self) -> str:
        """The module's name for `import`."""
        return self.file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    def mutants(self) -> list[Mutant]:
        """Return every mutant, less some of those of texts."""
        return weighed(mutants(self._text))

    def code(self, tree: ast.Module) -> bytes:
        """Return what `_CHANGED` loads in the place of the module."""
        return marshal.dumps(compile(tree, str(ROOT / self.file), "exec", dont_inherit=True))

    def marked(self, first: int) -> bytes:
        """Return code that marks each statement before it runs."""
        tree = ast.parse(self._text)
        for body in _bodies(tree):
            for at, statement in reversed([*enumerate(body)]):
                (mark,) = ast.parse(f"__marks__[{first + bisect_left(self.places, _place(statement))}] = 1").body
                for node in ast.walk(mark):
                    ast.copy_location(node, statement)
                if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):  # a docstring
                    body.insert(at, mark)
        return self.code(tree)

    def marks_of(self, mutant: Mutant) -> int:
        """Return the marks, as bits, of which one at least is reached where a mutant is.

        Where the statement has no mark, as a default has none, these are all in the function, the class or the file.
        """
        for statement in reversed(mutant.statements):
            first = bisect_left(self.places, _place(statement))
            if _place(statement) in self.places[first : first + 1]:
                return 1 << first
            last = bisect_left(self.places, (statement.end_lineno or 0, sys.maxsize))
            if last > first:
                return (1 << last) - (1 << first)
        return (1 << len(self.places)) - 1


def _place(statement: ast.stmt) -> tuple[int, int]:
    return statement.lineno, statement.col_offset


def _bodies(tree: ast.AST, *, inside: bool = False) -> Iterator[list[ast.stmt]]:
    """Each list of statements in the functions of a tree, the innermost first."""
    inside = not isinstance(tree, ast.ClassDef) and (inside or isinstance(tree, ast.FunctionDef | ast.AsyncFunctionDef))
    for node in ast.iter_child_nodes(tree):
        yield from _bodies(node, inside=inside)
    if inside:
        for name in ("body", "orelse", "finalbody"):
            if isinstance(body := getattr(tree, name, None), list):
                yield body


@cache
def sources() -> dict[str, Source]:
    """Each Python file that has mutants, by its path in the repository."""
    files = [str(path.relative_to(ROOT)) for pattern in FILES for path in sorted(ROOT.glob(pattern))]
    return {file: Source(file) for file in files}


def all_mutants() -> list[tuple[str, Mutant]]:
    """Return every mutant of the Python with its file."""
    return [(file, mutant) for file, source in sources().items() for mutant in source.mutants()]


def judge_all(
    chosen: Sequence[tuple[str, Mutant]],
    killers: Mapping[str, str],
    configuration: Mapping[str, Sequence[str]],
    jobs: int,
    add: Callable[[str, str, str], None],
) -> str:
    """Judge mutants, and count each; see `native.judge_all`."""
    judges = Judges(sorted(set(map(file_of, killers.values()))) or configuration["tests"], jobs)
    failing = [] if killers else judges.learn()
    for file, mutant, killer in judges.judge(chosen, killers):
        add(file, key(file, mutant), killer)
    return left_out(failing)


class Judges:
    """Which tests judge which mutant, and what they say."""

    def __init__(self, tests: Sequence[str], jobs: int) -> None:
        self._tests, self._jobs = tests, jobs
        self._reach = Reach()
        self._sound: dict[str, bool] = {}
        ends = [0, *accumulate(len(source.places) for source in sources().values())]
        self._marks = ends.pop()
        self._first_marks = dict(zip(sources(), ends, strict=True))

    def learn(self) -> list[str]:
        """Find out what each test reaches, or read it from the cache; gives the tests that fail without a change."""
        with tempfile.TemporaryDirectory(prefix="cudalink-mutants-") as folder:
            code = {source.name: source.marked(self._first_marks[file]) for file, source in sources().items()}

            def collected(number: int) -> tuple[Collected, Path]:
                place = Path(folder, str(number))
                place.mkdir()
                (place / "marks").write_bytes(bytes(self._marks))
                _put_changed(place, code, place / "marks")
                return Collected([f"--basetemp={place / 'tmp'}", *self._tests], ROOT, place), place / "marks"

            with ThreadPoolExecutor(self._jobs) as pool:
                free = [*pool.map(collected, range(self._jobs))]

            def learned(shares: Collection[Sequence[str]]) -> Iterator[Row]:
                return in_turn(free, shares, lambda tests, names: tests[0].run([(n, 10.0) for n in names], tests[1]))

            names = free[0][0].names
            self._reach.learn(CACHE, digests(names), [[name] for name in names], learned)
            for process, _ in free:
                process.close()
        return [name for name in names if name not in self._reach.marks]

    def reaching(self, file: str, mutant: Mutant) -> list[str]:
        """Return the tests that judge a mutant: some that reach its statement, else its module."""
        source, first = sources()[file], self._first_marks[file]
        inside = (1 << len(source.places)) - 1 << first
        ordered = self._reach.reaching(source.marks_of(mutant) << first, inside, 4 * _MOST)
        chosen, files, seconds = [], set[str](), 0.0
        for name in ordered or self._reach.reaching(inside, inside, _MOST):
            if len(files | {file_of(name)}) <= _FILES and seconds + self._reach.seconds[name] < _SECONDS:
                chosen.append(name)
                files.add(file_of(name))
                seconds += self._reach.seconds[name]
        return chosen[:_MOST]

    def judge(
        self, chosen: Sequence[tuple[str, Mutant]], killers: Mapping[str, str]
    ) -> Iterator[tuple[str, Mutant, str]]:
        """Fork for each mutant, some at a time; gives each with the test that kills it, in the order of their ends."""
        _prepare(self._tests)
        waiting: dict[int, tuple[str, Mutant]] = {}
        following = iter(chosen)
        with tempfile.TemporaryDirectory(prefix="cudalink-mutants-", ignore_cleanup_errors=True) as folder:
            while True:
                while len(waiting) < self._jobs and (mutant := next(following, None)):
                    tests = [killers[key(*mutant)]] if killers else self.reaching(*mutant)
                    waiting[self._fork(*mutant, tests, Path(folder))] = mutant
                if not waiting:
                    return
                child, _ = os.wait()
                said = Path(folder, f"{child}.json")
                killer, sound = json.loads(said.read_text())
                self._sound |= sound
                yield (*waiting.pop(child), killer)

    def _fork(self, file: str, mutant: Mutant, tests: Sequence[str], folder: Path) -> int:
        """Judge a mutant in a child, which starts others; gives its number."""
        child = os.fork()
        if child:
            return child
        try:
            warm.adopt()
            place = folder / str(os.getpid())
            place.mkdir()
            (place / "code").mkdir()
            _put_changed(place / "code", {sources()[file].name: sources()[file].code(mutant.apply())})

            def failing(names: Sequence[str], changed: bool) -> str:
                return self._failing(names, place, place / "code" if changed else None)

            few, others = tests[:_FIRST], tests[_FIRST:]
            killer = killer_of(few, failing, self._sound) or killer_of(others, failing, self._sound)
            folder.joinpath(f"{place.name}.json").write_text(json.dumps([killer, self._sound]))
        finally:
            os._exit(0)

    def _failing(self, tests: Sequence[str], place: Path, changed: Path | None) -> str:
        """Return the first of some tests that fails in a fork, or that does not end; "" if all pass."""
        said, seconds = place / "said", sum(self._reach.seconds.get(name, 1) for name in tests)
        said.write_text("")
        child = os.fork()
        if child == 0:
            _run(tests, said, changed, place, int(_CPU + _TIMES * seconds))
        return (warm.wait(child) and (said.read_text() or f"before {tests[0]}")) or ""


class _Said:
    """A plugin that keeps the name of the test that runs."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._file.write_text(nodeid)


def _put_changed(folder: Path, code: dict[str, bytes], marks: Path | str = "") -> None:
    """Write what loads modules from other code into a folder for $PYTHONPATH."""
    for name, compiled in code.items():
        (folder / name).write_bytes(compiled)
    (folder / "sitecustomize.py").write_text(_CHANGED.format(folder=str(folder), marks=str(marks)), encoding="utf-8")


def _prepare(tests: Sequence[str]) -> None:
    """Set what all children inherit: few examples, the same in every run, none made smaller; and import much."""
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
    type.__setattr__(hypothesis.settings, "load_profile", lambda _: None)  # tests/conftest.py has its own
    sys.dont_write_bytecode = False  # else each child compiles what none of them changed
    os.chdir(ROOT)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_RDWR), 1)
        pytest.main([*PYTEST, "--collect-only", *tests])
        others = [name for name in sys.modules if name.partition(".")[0] not in OURS]
        with os.fdopen(write, "w") as stream:
            stream.write("\n".join(others))
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as stream:
        others = stream.read().split("\n")
    os.waitpid(child, 0)
    for name in others:
        try:
            importlib.import_module(name)
        except Exception:  # noqa: BLE001 (only time is lost)
            continue
    for name in [module for module in sys.modules if module.partition(".")[0] == OURS[0]]:
        del sys.modules[name]  # what `native.py` imported is not changed
    gc.freeze()  # a child would collect, and so copy, what the parent imported


def _run(tests: Sequence[str], said: Path, changed: Path | None, place: Path, cpu: int) -> None:
    """Run tests in this process, which is a child that does nothing else; an endless loop ends by a signal."""
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(cpu + _CLOCK)
    nothing, status = os.open(os.devnull, os.O_RDWR), 1
    for stream in range(3):
        os.dup2(nothing, stream)
    try:
        if changed:
            os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(changed), os.environ.get("PYTHONPATH"))))
            exec((changed / "sitecustomize.py").read_text(encoding="utf-8"), {})
        status = int(pytest.main([*PYTEST, "-x", f"--basetemp={place / 'tmp'}", *tests], plugins=[_Said(said)]))
    finally:  # a plugin that does not import is noticed too
        os._exit(status)
