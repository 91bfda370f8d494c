"""Mutants of the C: how they are compiled and linked, and which tests judge them.

Everything happens in copies of the source tree. Libraries whose statements mark themselves show which test reaches
what, so that a mutant is judged by the tests that reach its statement, the most specific first.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache, reduce
from itertools import accumulate
from operator import or_
from pathlib import Path
from typing import Final

from native_build import sources
from pytest_cudalink.base import compiler

from .c_operators import CMutant, CSource
from .learned import CLOCK, ROOT, Collected, Reach, Row, digests, file_of, in_turn, key, killer_of, left_out
from .operators import weighed

_PARTS: Final = ("artifacts", "emulator")
#: Parts whose libraries have some of the same C, and tests of it.
_BESIDE: Final = ("emulator/worker", "loader/jitlink")
#: The answer about a mutant that the compiler refuses, or of which it makes the same code.
EQUAL: Final = "="
CACHE = ROOT / ".cudalink" / "mutants.json"
#: What a copy of the tree leaves out.
_APART = shutil.ignore_patterns(".*", "__pycache__", "_build", "*.egg-info", "dist", "build")
_FLAGS: Final = ("-std=gnu11", "-D_GNU_SOURCE", "-fPIC", "-fvisibility=hidden", "-w")
#: With -O1, compilers take half of the time of -O2, and make the same code of many equivalent mutants. With -O0, they
#: take half of that: for the mutants of `sample.txt`, which are known to be different.
_OPTIMIZED, _QUICK = "-O1", "-O0"
#: Tests that judge a mutant, in turn the one with most of its marks in the file and the one with the fewest marks: what
#: notices a fault is mostly about it.
_MOST: Final = 40
#: Seconds beyond which a test comes last of those that judge a mutant.
_LONG: Final = 2.5


def all_mutants() -> list[tuple[str, CMutant]]:
    """Return every mutant of the C with its file, less some of those of texts."""
    judged = {str(source.relative_to(ROOT)) for _, library in _libraries(_PARTS) for source in library.sources}
    return [(file, mutant) for file in sorted(judged) for mutant in weighed(_sources()[file].mutants())]


def judge_all(
    chosen: Sequence[tuple[str, CMutant]],
    killers: Mapping[str, str],
    configuration: Mapping[str, Sequence[str]],
    jobs: int,
    add: Callable[[str, str, str], None],
) -> str:
    """Judge mutants in order, and count each; gives the reason why some could not be judged.

    `killers`: the test that judges a mutant, by its key; if there are none, all that reach it do.
    `configuration`: which those are, of `modules.toml`.
    """
    tests = configuration["tests"]
    if killers:
        tests = sorted({file_of(killers[key(*mutant)]) for mutant in chosen})
    equal, failing = 0, list[str]()
    with tempfile.TemporaryDirectory(prefix="cudalink-mutants-") as folder:
        try:
            sources = Sources(Path(folder), _QUICK if killers else _OPTIMIZED)
            judges = Judges(sources, tests, configuration["always"], jobs)
        except compiler.CompilerError as error:
            return f"the C: {error}"
        if not killers:
            failing = judges.learn()

        def judge(mutant: tuple[str, CMutant]) -> str:
            return judges.judge(*mutant, [killers[key(*mutant)]] if killers else judges.reaching(*mutant))

        with ThreadPoolExecutor(jobs) as pool:
            judged = {pool.submit(judge, mutant): mutant for mutant in chosen}
            for done in as_completed(judged):
                (file, mutant), killer = judged[done], done.result()
                if killer == EQUAL:
                    equal += 1
                else:
                    add(file, key(file, mutant), killer)
        judges.close()
    sys.stdout.write(f"{equal} changes of the C make no difference to the compiler, or are not C\n")
    return left_out(failing)


def _libraries(parts: Collection[str] = (*_PARTS, *_BESIDE)) -> list[tuple[str, compiler.SharedLibrary]]:
    """The libraries of some parts of the package, each with its part."""
    return [(part, library) for part, library in sources.libraries(compiler) if part in parts]


@cache
def _sources() -> dict[str, CSource]:
    """Each C file of the libraries, by its path in the repository."""
    paths = sorted({source for _, library in _libraries() for source in library.sources})
    return {str(path.relative_to(ROOT)): CSource(path.read_text(encoding="utf-8")) for path in paths}


@dataclass(frozen=True)
class Unit:
    """A library and one of its sources, which is compiled with the library's flags."""

    library: compiler.SharedLibrary
    source: Path
    part: str  # the package that has the library: "emulator"


class Sources:
    """The C that is judged, compiled without a change."""

    def __init__(self, folder: Path, level: str) -> None:
        self.folder = folder  # where objects and libraries are made
        self.units = [Unit(library, source, part) for part, library in _libraries() for source in library.sources]
        self.libraries = {unit.library: unit.part for unit in self.units}
        self.files = _sources()
        marks = [0, *accumulate(source.marks for source in self.files.values())]
        self.marks = marks.pop()
        self.first_marks = dict(zip(self.files, marks, strict=True))
        self._command = [*compiler.find_compiler(), *_FLAGS, level]
        self.objects: dict[Unit, Path] = {}
        self.plain: dict[compiler.SharedLibrary, Path] = {}

    def units_of(self, library: compiler.SharedLibrary) -> list[Unit]:
        """The units of a library, in the order in which they are linked."""
        return [unit for unit in self.units if unit.library == library]

    def compiled(self, unit: Unit, text: str, folder: Path) -> Path | None:
        """Compile a unit from a text that may differ from its file; nothing if it is not C any more."""
        made = folder / unit.library.output.replace("/", "-") / unit.source.stem
        made.mkdir(parents=True, exist_ok=True)
        source, output = made / unit.source.name, made / "made.o"
        source.write_text(text, encoding="utf-8")
        flags = [flag for flag in unit.library.flags if flag.startswith("-D")]
        include = ["-iquote", str(unit.source.parent), *(f"-I{path}" for path in unit.library.include)]
        command = [*self._command, *flags, *include, "-c", str(source), "-o", str(output)]
        return None if subprocess.run(command, capture_output=True, check=False).returncode else output

    def compile_plain(self) -> None:
        """Compile and link everything without a change."""
        self.objects = self._compile_all({name: source.text for name, source in self.files.items()}, "plain")
        for library in self.libraries:
            objects = [self.objects[unit] for unit in self.units_of(library)]
            self.plain[library] = self.link(library, objects, self.folder / "plain" / "lib")

    def compile_marked(self) -> dict[Unit, Path]:
        texts = {name: source.marked(self.first_marks[name]) for name, source in self.files.items()}
        return self._compile_all(texts, "marked")

    def link_marked(
        self, objects: Mapping[Unit, Path], folder: Path
    ) -> tuple[dict[compiler.SharedLibrary, Path], Path]:
        """Link everything with marks; gives the libraries, and the file into which their marks go."""
        marks, reach = folder / "marks", folder / "reach.o"
        marks.write_bytes(bytes(self.marks))
        defines = (f"-DMARKS={self.marks}", f'-DMARKS_FILE="{marks}"')
        _call([*self._command, *defines, "-c", str(Path(__file__).with_name("reach.c")), "-o", str(reach)])
        return {
            library: self.link(library, [*(objects[unit] for unit in self.units_of(library)), reach], folder / "marked")
            for library in self.libraries
        }, marks

    def _compile_all(self, texts: dict[str, str], folder: str) -> dict[Unit, Path]:
        """Compile every unit; Raises CompilerError if one is not C."""

        def compiled(unit: Unit) -> Path:
            made = self.compiled(unit, texts[str(unit.source.relative_to(ROOT))], self.folder / folder)
            if made is None:
                raise compiler.CompilerError(f"{unit.source} does not compile; expected C; run: uv pip install -e .")
            return made

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            return dict(zip(self.units, pool.map(compiled, self.units), strict=True))

    def link(self, library: compiler.SharedLibrary, objects: Iterable[Path], folder: Path) -> Path:
        made = folder / library.output
        made.parent.mkdir(parents=True, exist_ok=True)
        flags = [flag.replace("{output}", str(self.folder / "plain" / "lib")) for flag in library.flags]
        _call([*self._command, *map(str, objects), *library.link_flags, *flags, "-o", str(made)])
        return made


def _call(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise compiler.CompilerError(done.stderr)


class Tests(Collected):
    """A copy of the tree, and a process that has collected its tests."""

    def __init__(self, sources: Sources, folder: Path, tests: Sequence[str]) -> None:
        self._sources, self.folder = sources, folder
        self._tree = folder / "tree"
        shutil.copytree(ROOT, self._tree, ignore=_APART, symlinks=True)
        self._used: dict[compiler.SharedLibrary, Path] = {}
        super().__init__([f"--basetemp={folder / 'tmp'}", *tests], self._tree, self._tree)

    def use(self, libraries: dict[compiler.SharedLibrary, Path]) -> None:
        """Run the tests on some libraries from now on; what is linked again is copied again."""
        for library, file in libraries.items():
            if self._used.get(library) != file or file.is_relative_to(self.folder):
                place = self._tree / "pytest_cudalink" / self._sources.libraries[library] / "lib" / library.output
                made = self.folder / "new"
                shutil.copy(file, made)
                made.replace(place)  # processes that have the library keep theirs
                self._used[library] = file


class Judges:
    """Copies of the tree with their tests, one for each mutant that is judged at the same time."""

    def __init__(self, sources: Sources, tests: Sequence[str], always: Sequence[str], jobs: int) -> None:
        self._sources, self._always = sources, tuple(always)
        sources.compile_plain()
        folders = [sources.folder / f"job{number}" for number in range(jobs)]
        with ThreadPoolExecutor(jobs) as pool:
            self._free = [*pool.map(lambda folder: Tests(sources, folder, tests), folders)]
        self._reach = Reach()
        self._sound: dict[str, bool] = {}
        self._whole = [test for test in tests if test.endswith(".py")]

    def learn(self) -> list[str]:
        """Find out what each test reaches, or read it from the cache; gives the tests that fail without a change."""
        names, shares = self._free[0].names, dict[str, list[str]]()
        for name in names:
            shares.setdefault(file_of(name) if file_of(name) in self._whole else name, []).append(name)
        self._reach.learn(CACHE, digests(names), shares.values(), self._learned)
        marks = self._reach.marks
        for file in self._whole:  # its tests share what the first of them reached
            mine = [name for name in marks if file_of(name) == file]
            marks.update(dict.fromkeys(mine, reduce(or_, (marks[name] for name in mine), 0)))
        return [name for name in names if name not in marks]

    def _learned(self, shares: Collection[Sequence[str]]) -> Iterator[Row]:
        """Run tests on libraries with marks, those of a share in one process."""
        objects = self._sources.compile_marked()

        def prepare(tests: Tests) -> Path:
            libraries, marks = self._sources.link_marked(objects, tests.folder)
            tests.use(libraries)
            return marks

        with ThreadPoolExecutor(len(self._free)) as pool:
            marks = dict(zip(self._free, pool.map(prepare, self._free), strict=True))
        yield from in_turn(self._free, shares, lambda tests, names: tests.run([(n, 10.0) for n in names], marks[tests]))

    def close(self) -> None:
        """End the processes of the tests."""
        for judge_process in self._free:
            judge_process.close()

    def reaching(self, file: str, mutant: CMutant) -> list[str]:
        """Return the tests that reach the statement of a mutant, in the order in which they judge it."""
        first = self._sources.first_marks[file]
        inside = (1 << self._sources.files[file].marks) - 1
        wanted, seconds = 1 << first + mutant.mark, self._reach.seconds
        chosen = self._reach.reaching(wanted, inside << first, _MOST)
        always = [name for name, marks in self._reach.marks.items() if name.startswith(self._always) and marks & wanted]
        return sorted(dict.fromkeys([*chosen, *always]), key=lambda name: seconds[name] > _LONG)

    def judge(self, file: str, mutant: CMutant, chosen: list[str]) -> str:
        """Return the test of some that kills a mutant, "" for a survivor, or `EQUAL`."""
        tests = self._free.pop()
        try:
            changed = self._changed(file, mutant, tests.folder)

            def failing(names: Sequence[str], with_change: bool) -> str:
                tests.use({**self._sources.plain, **(changed if with_change else {})})
                passed = sum(row[1] for row in tests.run([(n, self._reach.seconds.get(n, CLOCK)) for n in names]))
                if passed == len(names):
                    return ""
                if not with_change:  # it passed on the libraries with marks
                    sys.stderr.write(f"campaigns.mutants: left out, as it fails without a change here: {names[0]}\n")
                return names[passed]

            return killer_of(chosen, failing, self._sound) if changed else EQUAL
        finally:
            self._free.append(tests)

    def _changed(self, file: str, mutant: CMutant, folder: Path) -> dict[compiler.SharedLibrary, Path]:
        """Compile a mutant, and link the libraries that it changes."""
        sources, changed = self._sources, {}
        text = mutant.apply(sources.files[file].text)
        for unit in [unit for unit in sources.units if unit.source == ROOT / file]:
            made = sources.compiled(unit, text, folder / "changed")
            if made is not None and made.read_bytes() != sources.objects[unit].read_bytes():
                objects = [made if u == unit else sources.objects[u] for u in sources.units_of(unit.library)]
                changed[unit.library] = sources.link(unit.library, objects, folder / "lib")
        return changed
