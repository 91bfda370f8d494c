"""The faults that are put into the rules, and the list of those that no test notices."""

from __future__ import annotations

import ast
import os
import tomllib

import pytest

from . import __main__ as program
from .__main__ import CONFIGURATION, SURVIVORS, judged_modules, survivors
from .operators import mutants

pytestmark = pytest.mark.slow
SOURCE = '''
LIMIT = 3

def early(a: int, b: int = 1) -> bool:
    """A docstring of 1."""
    if a < b and not b:
        raise ValueError(f"{a} is too small")
    return sorted([a, b], reverse=True) == [a, LIMIT]
'''


def test_each_place_is_changed() -> None:
    """Bodies and defaults; neither annotations, nor docstrings, nor tables of the module."""
    assert [(one.function, one.change) for one in mutants(SOURCE)] == [
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
        before, after = (ast.unparse(one).splitlines() for one in (ast.parse(SOURCE), tree))
        changed = [pair for pair in zip(before, after, strict=True) if pair[0] != pair[1]]
        assert len(changed) == 1, mutant.change


def test_changes_alike_are_numbered() -> None:
    """Two places of one function that read the same have two keys."""
    found = mutants("def f(a):\n    a.x(1)\n    a.x(1)\n")
    assert [one.change for one in found] == [
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


def test_every_listed_survivor_is_a_mutant() -> None:
    """A change of the source removes the lines that it makes pointless."""
    modules = judged_modules(tomllib.loads(CONFIGURATION.read_text(encoding="utf-8")))
    known = {one.key(mutant) for one in modules for mutant in one.mutants}
    assert set(survivors(SURVIVORS.read_text(encoding="utf-8"))) <= known


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_run_that_is_out_of_time(jobs: int, monkeypatch) -> None:
    """What has begun is judged, and nothing else."""

    def judge(*_: object) -> int:
        if child := os.fork():
            return child
        os._exit(0)

    monkeypatch.setattr(program, "_judge", judge)
    chosen = [(number, number) for number in range(3)]
    assert list(program._run(chosen, jobs, until=0.0)) == [(number, number, False) for number in range(jobs)]
