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

from . import native
from .__main__ import CONFIGURATION, ROOT, SAMPLE, SURVIVORS, judged_modules, survivors
from .c_operators import CSource
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
    assert [(mutant.function, mutant.change) for mutant in mutants(SOURCE)] == [
        ("early", "1 => 2"),
        ("early", "a < b and (not b) => True"),
        ("early", "a < b and (not b) => False"),
        ("early", "a < b and (not b) => not b"),
        ("early", "a < b and (not b) => a < b"),
        ("early", "a < b and (not b) => a <= b and (not b)"),
        ("early", "not b => b"),
        ("early", "raise ValueError(f'{a} is too small') => pass"),
        ("early", "f'{a} is too small' => ''"),
        ("early", "return sorted([a, b], reverse=True) == [a, LIMIT] => return None"),
        (
            "early",
            "return sorted([a, b], reverse=True) == [a, LIMIT] => return sorted([a, b], reverse=True) != [a, LIMIT]",
        ),
        ("early", "sorted([a, b], reverse=True) => list([a, b])"),
        ("early", "sorted([a, b], reverse=True) => sorted([a, b])"),
        ("early", "reverse=True => reverse=False"),
    ]


def test_a_mutant_has_one_change() -> None:
    """What `apply` returns differs from the source in one place, and compiles."""
    for number, mutant in enumerate(mutants(SOURCE)):
        tree = mutants(SOURCE)[number].apply()
        compile(tree, "x", "exec")
        before, after = (ast.unparse(module).splitlines() for module in (ast.parse(SOURCE), tree))
        changed = [pair for pair in zip(before, after, strict=True) if pair[0] != pair[1]]
        assert len(changed) == 1, mutant.change


def test_changes_alike_are_numbered() -> None:
    """Two places of one function that read the same have two keys."""
    made = mutants("def f(a):\n    a.x(1)\n    a.x(1)\n")
    assert [mutant.change for mutant in made] == [
        "a.x(1) => pass",
        "a.x(1) => a.x(2)",
        "a.x(1) => pass (#2)",
        "a.x(1) => a.x(2) (#2)",
    ]


def test_a_survivor_needs_a_reason() -> None:
    """A line is a mutant and the reason why no test need notice it."""
    assert survivors("# comment\n\na.py: f: x => y -- the same\n") == {"a.py: f: x => y": "the same"}
    with pytest.raises(ValueError, match=r"survivors.txt:1 is 'a.py: f: x => y'; expected 'MUTANT -- REASON'"):
        survivors("a.py: f: x => y\n")


@pytest.mark.weekly
def test_every_listed_survivor_is_a_mutant() -> None:
    """A change of the source removes the lines that it makes pointless."""
    modules = judged_modules(tomllib.loads(CONFIGURATION.read_text(encoding="utf-8")))
    known = {module.key(mutant) for module in modules for mutant in module.mutants}
    known |= {native.key(*mutant) for mutant in native.mutants()}
    assert set(survivors(SURVIVORS.read_text(encoding="utf-8"))) <= known


def test_a_module_that_the_campaign_has_imported() -> None:
    """Its tests see the changed module."""
    program = """
import os, tomllib
import pytest_cudalink.compat.releases
from campaigns.mutants import __main__ as program
modules = program.judged_modules(tomllib.loads(program.CONFIGURATION.read_text()))
(judged,) = (one for one in modules if one.name == "pytest_cudalink.compat.releases")
assert os.waitpid(program._judge(judged, judged.mutants[0]), 0)[1]
"""
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


def test_all_that_judges_is_there() -> None:
    """Each module has mutants, and tests that are there, and so has the sample: what moves is moved in the lists, too.

    The campaign itself begins with a run of these tests without a change.
    """
    configuration = tomllib.loads(CONFIGURATION.read_text(encoding="utf-8"))
    assert [module.file for module in judged_modules(configuration) if not module.mutants] == []
    package = ROOT / "pytest_cudalink"
    files = {str(file.relative_to(package)) for file in package.rglob("*.py") if mutants(file.read_text("utf-8"))}
    judged = {entry["file"].removeprefix("pytest_cudalink/") for entry in configuration["module"]}
    assert sorted(files - judged) == configuration["unjudged"]
    sample = survivors(SAMPLE.read_text(encoding="utf-8"), SAMPLE.name)
    assert sample.keys() <= {native.key(*mutant) for mutant in native.mutants()}
    listed = [word for entry in (*configuration["module"], configuration["native"]) for word in entry["tests"]]
    named = {word for word in listed if word.startswith("tests/")} | {*configuration["native"]["always"]}
    words = ["-q", "-n0", "--collect-only", *sorted(named | {test.partition("::")[0] for test in sample.values()})]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
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


def test_a_mutant_of_c_has_one_change() -> None:
    """What `apply` returns differs in one line, and has as many."""
    source = CSource(C_SOURCE)
    for mutant in source.mutants():
        before, after = (text.splitlines() for text in (C_SOURCE, mutant.apply(C_SOURCE)))
        assert sum(old != other for old, other in zip(before, after, strict=True)) == 1, mutant.change


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

    def run(names: Sequence[str]) -> list[native.Row]:
        return [(name, True, 1.0, "f") for name in takewhile(lambda name: name not in ends, names)]

    assert [(name, passed) for name, passed, *_ in native.run_on("abcd", run)] == [
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
