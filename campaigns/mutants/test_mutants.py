"""The faults that are put into the rules, and the list of those that no test notices."""

import ast
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

import pytest

from pytest_cudalink.base import compiler

from . import __main__, learned, native, python
from .__main__ import CONFIGURATION, SAMPLE, SURVIVORS, survivors
from .c_operators import CSource
from .learned import ROOT, key
from .operators import mutants, weighed

pytestmark = pytest.mark.slow
SOURCE = '''
LIMIT = 3

def early(a: int, b: int = 1) -> bool:
    """A docstring of 1."""
    if a < b and not b:
        raise ValueError(f"{a} is too small")
    return sorted([a, b], reverse=True) == [a, LIMIT]
'''
CHANGES = """\
early: 1 => 2
early: a < b and (not b) => True
early: a < b and (not b) => False
early: a < b and (not b) => not b
early: a < b and (not b) => a < b
early: a < b and (not b) => a <= b and (not b)
early: not b => b
early: raise ValueError(f'{a} is too small') => pass
early: f'{a} is too small' => ''
early: return sorted([a, b], reverse=True) == [a, LIMIT] => return None
early: return sorted([a, b], reverse=True) == [a, LIMIT] => return sorted([a, b], reverse=True) != [a, LIMIT]
early: sorted([a, b], reverse=True) => list([a, b])
early: sorted([a, b], reverse=True) => sorted([a, b])
early: reverse=True => reverse=False
"""
JUDGED = """
def one(a=1):
    'Words.'
    if a:
        return 1 + a
    return 0

def late():
    return 7

class Two:
    two = 2
    def get(self): return self.two
"""
JUDGING = """
import subprocess, sys
from pathlib import Path
from tools import Two, late, one

def test_here():
    assert one() == 2

def test_there():
    assert subprocess.call([sys.executable, "-c", "import tools; exit(tools.one(0) + tools.Two().get())"]) == 2

def test_failing():
    assert one() == 3

def test_each_second_time():
    late()
    with Path("times").open("a+") as times:
        assert times.write("x") and times.tell() % 2
"""
JUDGMENTS = """\
['tests.py::test_failing']
one: 1 => 2: test_here: 2
one: a => True: test_there: 2
one: a => False: test_here: 2
one: return 1 + a => return None: test_here: 1
one: 1 + a => 1 - a: test_here: 1
one: 1 + a => 2 + a: test_here: 1
one: return 0 => return 1: test_there: 1
late: return 7 => return 8: : 1
Two: two = 2 => two = 3: test_there: 1
Two.get: return self.two => return None: test_there: 1
"""
C_SOURCE = """
static const int limits[] = {1, 2};  /* a comment of 3 */
#define LATER(x) ((x) + 1)

static int waits(const char *name, int *seen) {
  struct { int a; } pair = {limits[1]};
  if (!*name || pair.a == 0x0f) return CUDA_ERROR_INVALID_VALUE;
  do *seen += 2;
  while (*seen < 5);
  switch (pair.a) {
    case 1: *seen = pair.a > 0 ? 7 : LATER(*seen); break;
    default: puts("word");
  }
  for (int at = 0; at < 2; at++) *seen += at;
  int *room = calloc(1, (2 + 3) * sizeof *room);
  cl_streams_lock();
  HOLD_TO_READ(lock);
  free(room);
  return CUDA_SUCCESS;
}
EXPORTED(cuWait, (const char *name, int *seen),
         name && seen ? waits(name, seen) : CUDA_ERROR_UNKNOWN)

API_WHEN(seen != NULL, cuSee, (int *seen), (seen)) { return *seen = 1, CUDA_SUCCESS; }
"""
C_CHANGES = """\
waits: struct { int a; } pair = {limits[[1 => 2]]};
waits: if ([!*name || pair.a == 0x0f => true]) return CUDA_ERROR_INVALID_VALUE;
waits: if ([!*name || pair.a == 0x0f => false]) return CUDA_ERROR_INVALID_VALUE;
waits: if ([! => ]*name || pair.a == 0x0f) return CUDA_ERROR_INVALID_VALUE;
waits: if (!*name [|| => &&] pair.a == 0x0f) return CUDA_ERROR_INVALID_VALUE;
waits: if (!*name || pair.a [== => !=] 0x0f) return CUDA_ERROR_INVALID_VALUE;
waits: if (!*name || pair.a == [0x0f => 16]) return CUDA_ERROR_INVALID_VALUE;
waits: if (!*name || pair.a == 0x0f) return [CUDA_ERROR_INVALID_VALUE => CUDA_ERROR_UNKNOWN];
waits: do [*seen += 2; => ;]
waits: do *seen [+= => -=] 2;
waits: do *seen += [2 => 3];
waits: while ([*seen < 5 => false]);
waits: while (*seen [< => <=] 5);
waits: while (*seen < [5 => 6]);
waits: case [1 => 2]: *seen = pair.a > 0 ? 7 : LATER(*seen); break;
waits: case 1: [*seen = pair.a > 0 ? 7 : LATER(*seen); => ;] break;
waits: case 1: *seen = pair.a [> => >=] 0 ? 7 : LATER(*seen); break;
waits: case 1: *seen = pair.a > [0 => 1] ? 7 : LATER(*seen); break;
waits: case 1: *seen = pair.a > 0 ? [7 => 8] : LATER(*seen); break;
waits: case 1: *seen = pair.a > 0 ? 7 : LATER(*seen); [break; => ;]
waits: default: [puts("word"); => ;]
waits: default: puts(["word" => "XXword"]);
waits: for (int at = [0 => 1]; at < 2; at++) *seen += at;
waits: for (int at = 0; at [< => <=] 2; at++) *seen += at;
waits: for (int at = 0; at < [2 => 3]; at++) *seen += at;
waits: for (int at = 0; at < 2; at[++ => --]) *seen += at;
waits: for (int at = 0; at < 2; at++) [*seen += at; => ;]
waits: for (int at = 0; at < 2; at++) *seen [+= => -=] at;
waits: return [CUDA_SUCCESS => CUDA_ERROR_UNKNOWN];
cuWait: name [&& => ||] seen ? waits(name, seen) : CUDA_ERROR_UNKNOWN)
cuWait: name && seen ? waits(name, seen) : [CUDA_ERROR_UNKNOWN => CUDA_SUCCESS])
cuSee: API_WHEN(seen != NULL, cuSee, (int *seen), (seen)) { return [*seen = 1, CUDA_SUCCESS => 0]; }
cuSee: API_WHEN(seen != NULL, cuSee, (int *seen), (seen)) { return *seen = [1 => 2], CUDA_SUCCESS; }
cuSee: API_WHEN(seen != NULL, cuSee, (int *seen), (seen)) { return *seen = 1, [CUDA_SUCCESS => CUDA_ERROR_UNKNOWN]; }
"""


def test_each_place_is_changed() -> None:
    """Bodies and defaults; neither annotations, nor docstrings, nor tables of the module."""
    assert [f"{mutant.function}: {mutant.change}" for mutant in mutants(SOURCE)] == CHANGES.splitlines()


def test_a_mutant_has_one_change() -> None:
    """What `apply` returns differs from the source in one place, and compiles; in C it has as many lines."""
    changed = []
    for number, mutant in enumerate(mutants(SOURCE)):
        tree = mutants(SOURCE)[number].apply()
        compile(tree, "x", "exec")
        changed.append((mutant.change, ast.unparse(ast.parse(SOURCE)), ast.unparse(tree)))
    changed += [(mutant.change, C_SOURCE, mutant.apply(C_SOURCE)) for mutant in CSource(C_SOURCE).mutants()]
    for change, before, after in changed:
        assert sum(a != b for a, b in zip(before.splitlines(), after.splitlines(), strict=True)) == 1, change


def test_changes_alike_are_numbered() -> None:
    """Two places of one function that read the same have two keys."""
    made = [mutant.change for mutant in mutants("def f(a):\n    a.x(1)\n    a.x(1)\n")]
    assert made == ["a.x(1) => pass", "a.x(1) => a.x(2)", "a.x(1) => pass (#2)", "a.x(1) => a.x(2) (#2)"]


def test_a_survivor_needs_a_reason() -> None:
    """A line is a mutant and the reason why no test need notice it."""
    assert survivors("# comment\n\na.py: f: x => y -- the same\n") == {"a.py: f: x => y": "the same"}
    with pytest.raises(ValueError, match=r"survivors.txt:1 is 'a.py: f: x => y'; expected 'MUTANT -- REASON'"):
        survivors("a.py: f: x => y\n")


@pytest.mark.parametrize("words", [[], ["a.py"]])
def test_what_judges_nothing_is_red(words: list[str], monkeypatch, tmp_path: Path, capsys) -> None:
    """A sample without mutants; a file of which none is in it."""
    monkeypatch.setattr(python, "all_mutants", lambda: [("a.py", mutant) for mutant in mutants(SOURCE)])
    monkeypatch.setattr(native, "all_mutants", list)
    for name in ("SAMPLE", "SURVIVORS"):
        monkeypatch.setattr(__main__, name, tmp_path / "empty")
    tmp_path.joinpath("empty").touch()
    assert __main__.main(["--sample", *words]) == 1
    assert "campaigns.mutants: no python mutant was judged" in capsys.readouterr().out


def _known() -> set[str]:
    mutants = {key(*mutant) for mutant in native.all_mutants()}
    return mutants | {key(*mutant) for mutant in python.all_mutants()}


@pytest.mark.weekly
def test_every_listed_survivor_is_a_mutant() -> None:
    """A change of the source removes the lines that it makes pointless."""
    assert set(survivors(SURVIVORS.read_text(encoding="utf-8"))) <= _known()


def test_what_judges_a_mutant(tmp_path: Path) -> None:
    """A test that reaches its statement, also in another process, and fails then; not one that fails anyway."""
    tmp_path.joinpath("tools.py").write_text(JUDGED)
    tmp_path.joinpath("tests.py").write_text(JUDGING)
    program = """
from pathlib import Path
from campaigns.mutants import learned, python
learned.ROOT = python.ROOT = Path()
python.CACHE, python.FILES = Path("cache"), ["tools.py"]
python.CACHE.write_text('["')  # by a run that was killed
judges = python.Judges(["tests.py"], 1)
print(judges.learn())
for file, mutant, killer in judges.judge(python.all_mutants(), {}):
    print(mutant.function, mutant.change, killer.partition("::")[2], len(judges.reaching(file, mutant)), sep=": ")
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == JUDGMENTS, done.stderr


def test_all_that_judges_is_there() -> None:
    """The tests that the lists name, and the mutants of the sample: what moves is moved in the lists, too."""
    configuration = tomllib.loads(CONFIGURATION.read_text(encoding="utf-8"))
    sample = survivors(SAMPLE.read_text(encoding="utf-8"), SAMPLE.name)
    assert sample.keys() <= _known()
    named = {*configuration["native"]["tests"], *configuration["native"]["always"]}
    words = ["-q", "-n0", "--collect-only", *sorted(named | {test.partition("::")[0] for test in sample.values()})]
    command = [sys.executable, "-m", "pytest", *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr
    assert {*sample.values()} <= {*done.stdout.splitlines()}


def test_each_place_of_c_is_changed() -> None:
    """Bodies and what macros make functions of; neither tables nor declarations, comments and macros."""
    assert [f"{mutant.function}: {mutant.change}" for mutant in CSource(C_SOURCE).mutants()] == C_CHANGES.splitlines()


def test_a_macro_for_a_loop_takes_a_statement() -> None:
    """It begins with EACH; one of another name, which looks like a call without a semicolon, is an error."""
    source = "static void all(void) {\n  %s(at, list) {\n    use(at);\n  }\n}\n"
    assert [mutant.change for mutant in CSource(source % "EACH_ITEM").mutants()] == ["[use(at); => ;]"]
    with pytest.raises(ValueError, match="line 2 is 'ITEMS', expected a statement that ends in a semicolon"):
        list(CSource(source % "ITEMS").mutants())


def test_marks_say_what_was_reached(tmp_path: Path) -> None:
    """Each statement that ran has its mark, and no other."""
    main = """
int main(int count, char **words) {
  int sum = 0;
  for (int at = 0; at < 2; at++) sum += at;
  if (count > 1) return sum;
  else sum = 7;
  switch (count) {
    case 1: return 0;
    case 2: return 1;
  }
  { sum++; }
  return sum;
}
"""
    source, marks = CSource(main), tmp_path / "marks"
    marks.write_bytes(bytes(source.marks))
    file = tmp_path / "main.c"
    file.write_text(source.marked(0))
    reach = Path(native.__file__).with_name("reach.c")
    flags = (f"-DMARKS={source.marks}", f'-DMARKS_FILE="{marks}"', "-Wno-unused-parameter")
    subprocess.run([compiler.build(compiler.Executable("main", (file, reach), flags=flags), tmp_path)], check=True)
    reached = marks.read_bytes()
    lines = main.splitlines()
    seen = {(lines[main[: mutant.start].count("\n")].strip(), reached[mutant.mark]) for mutant in source.mutants()}
    assert {line for line, number in seen if number} - {"for (int at = 0; at < 2; at++) sum += at;"} == {
        *("int sum = 0;", "if (count > 1) return sum;", "else sum = 7;", "case 1: return 0;", "case 2: return 1;")
    }
    assert {line for line, number in seen if not number} == {
        *("if (count > 1) return sum;", "case 2: return 1;", "{ sum++; }", "return sum;")
    }


@pytest.mark.parametrize("ends", [set(), {"a"}, {"b", "c"}, {"d"}, {*"abcd"}])
def test_a_test_that_ends_the_run_leaves_out_no_other(ends: set[str]) -> None:
    """It counts as failed; those behind it run all the same."""

    def run(names: Sequence[str]) -> list[learned.Row]:
        return [(name, True, 1.0, "f") for name in takewhile(lambda name: name not in ends, names)]

    assert [(name, passed) for name, passed, *_ in learned.run_on("abcd", run)] == [
        (letter, letter not in ends) for letter in "abcd"
    ]


def test_a_tenth_of_the_mutants_changes_texts() -> None:
    """Which ones stay is decided by their names."""
    source = "def f(a):\n" + "".join(f"    a.x('{n}', {n})\n" for n in range(20))
    made = mutants(source)
    assert (len(made), sum(mutant.is_text for mutant in made)) == (60, 20)
    kept = weighed(made)
    assert (len(kept), sum(mutant.is_text for mutant in kept)) == (44, 4)
    assert [m.change for m in weighed(mutants("def g():\n    pass\n" + source))] == [m.change for m in kept]
