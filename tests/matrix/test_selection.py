"""Which cells a change needs: what a record proves, and what it cannot prove."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cudalink.matrix import Cell, load_cells
from pytest_cudalink.matrix.selection import Change, Past, Rules, Touches, Verdict, is_harmless, matches, select
from pytest_cudalink.matrix.shards import parse_shard, shard, spread

COMMIT = "a" * 40
FILE = "matrices/cells.toml"
NO_RULES = Rules()
RECORD = Touches(COMMIT, dirty=False, began=1.0, duration=2.0, exitstatus=0, arguments=("tests",), is_complete=True)


@pytest.fixture(scope="module")
def cells(tmp_path_factory) -> list[Cell]:
    """Four cells that run the same tests."""
    file = tmp_path_factory.mktemp("cells") / "cells.toml"
    file.write_text('[defaults]\ntests = ["tests"]\n' + "".join(f"[cells.{name}]\n" for name in "abcd"))
    return load_cells(file)


def chosen(cells, files, *changes, rules: Rules = NO_RULES, since=(), **fields) -> dict[str, Verdict]:
    """The verdicts on a change since the records, where each cell has touched some files."""
    records = {name: replace(RECORD, files=dict.fromkeys(some, "t"), **fields) for name, some in files.items()}
    past = Past("", tuple(changes), {cell.name: cell for cell in cells}, rules)
    return {one.cell: one for one in select(cells, records, {COMMIT: past}, since, rules=rules, file=FILE)}


def names(verdicts: dict[str, Verdict]) -> set[str]:
    return {name for name, verdict in verdicts.items() if verdict.runs}


PATHS = st.sampled_from(
    [
        "a.py",
        "pkg/b.py",
        "pkg/data.json",
        "pkg/c.c",
        "pyproject.toml",
        "docs/x.md",
        "tests/conftest.py",
        "uv.lock",
        "d.txt",
    ]
)


@given(
    touched=st.fixed_dictionaries({name: st.frozensets(PATHS) for name in "abcd"}),
    changed=st.frozensets(PATHS),
    kinds=st.lists(st.sampled_from(["changed", "new", "deleted", "retyped"]), min_size=9, max_size=9),
    since=st.booleans(),
    ignore=st.frozensets(PATHS),
)
def test_a_dependency_is_always_selected(cells, touched, changed, kinds, since, ignore) -> None:
    """A cell that touched a changed file runs, whatever is ignored; one is left out only if another knows the file."""
    changes = [Change(path, kind) for path, kind in zip(sorted(changed), kinds, strict=False)]
    given_changes = {"since": changes} if since else {}
    found = chosen(cells, touched, *(() if since else changes), rules=Rules(tuple(sorted(ignore))), **given_changes)
    everything = frozenset().union(*touched.values())
    for name in "abcd":
        must = [one.path for one in changes if one.path in touched[name]]
        unknown = [
            one.path
            for one in changes
            if one.path not in everything | ignore or (one.kind != "changed" and one.path not in ignore)
        ]
        assert found[name].runs >= bool(must or unknown)
        if not changes:
            assert not found[name].runs
        if found[name].runs:
            assert found[name].reasons


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("pyproject.toml", "every environment or run"),
        ("sub/uv.lock", "every environment or run"),
        ("requirements/test.txt", "no record knows it"),
        ("test-requirements.txt", "every environment or run"),
        ("noxfile.py", "every environment or run"),
        ("src/kernel.cu", "compiled"),
        ("pkg/_core.pyx", "compiled"),
        ("unseen.bin", "no record knows it"),
    ],
)
def test_what_no_record_can_know(cells, path, words) -> None:
    """Files of the build run every cell, also where the tests of one cell have read them."""
    (verdict,) = {
        one for name, one in chosen(cells, {name: [] for name in "abcd"}, Change(path)).items() if name == "b"
    }
    assert verdict.runs
    assert words in str(verdict.reasons[0])
    if words != "no record knows it":
        assert names(chosen(cells, {"a": [path], "b": [], "c": [], "d": []}, Change(path))) == set("abcd")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"exitstatus": 1}, "failed (exit status 1)"),
        ({"exitstatus": None}, "did not finish"),
        ({"is_complete": False}, "does not say which files"),
        ({"commit": None}, "names no commit"),
        ({"commit": "b" * 40}, "is not known"),
        ({"dirty": True}, "with changes that commit aaaaaaaaaa has not"),
        ({"dirty": None}, "with changes that commit aaaaaaaaaa has not"),
        ({"arguments": ("tests/test_a.py",)}, "other arguments: tests/test_a.py"),
        ({"arguments": ("tests", "-k", "one")}, "other arguments: tests -k one"),
        ({"arguments": ("tests", "--lf")}, "other arguments"),
        ({"options": ("-m", "quick")}, "PYTEST_ADDOPTS=-m quick"),
        ({"unknown": ("pkg/a.py",)}, "1 installed file of its run"),
    ],
)
def test_a_record_that_proves_nothing(cells, fields, words) -> None:
    """A cell runs without any change if its record is of another run than a whole, green one of a known commit."""
    verdicts = chosen(cells, {name: [] for name in "abcd"}, **fields)
    assert names(verdicts) == set("abcd")
    assert words in str(verdicts["a"].reasons[0])


@pytest.mark.parametrize(
    "fields", [{"dirty": None, "in_ci": True}, {"arguments": ("tests", "-q", "-n", "2", "--tb=short")}]
)
def test_a_record_that_proves_enough(cells, fields) -> None:
    """Nothing runs without a change, also after a run in CI, or with options that leave no test out."""
    assert names(chosen(cells, {name: [] for name in "abcd"}, **fields)) == set()


def test_no_record(cells) -> None:
    """A cell without a record runs."""
    verdicts = chosen(cells, {"a": []})
    assert names(verdicts) == set("bcd")
    assert str(verdicts["b"].reasons[0]) == "it has no record"


def test_programs(cells) -> None:
    """What a program reads is not known, unless the project says that it reads nothing of it."""
    files = {"a": ["x.py"], "b": [], "c": [], "d": []}
    verdicts = chosen(cells, files, Change("x.py"), programs=("git",))
    assert names(verdicts) == set("abcd")
    assert "start 'git'" in str(verdicts["b"].reasons[0])
    assert names(chosen(cells, files, programs=("git",))) == set()
    assert names(chosen(cells, files, Change("x.py"), programs=("git",), rules=Rules(programs=("git",)))) == {"a"}
    ignored = chosen(cells, files, Change("docs/a.md"), programs=("git",), rules=Rules(ignore=("docs/**",)))
    assert names(ignored) == set()


def test_the_file_of_cells_is_compared_cell_by_cell(cells) -> None:
    """A changed value runs its cell; a new cell runs; changed rules run all."""
    records = {name: replace(RECORD, files={"x.py": ""}) for name in "abcd"}
    old = {cell.name: cell for cell in cells if cell.name != "d"}
    old["b"] = replace(old["b"], values={**old["b"].values, "ctk": "12.9"})
    old["c"] = replace(old["c"], packages=("numpy",))
    past = Past("", (Change(FILE),), old, Rules())
    found = {one.cell: one for one in select(cells, records, {COMMIT: past}, [Change(FILE)], rules=Rules(), file=FILE)}
    assert names(found) == {"b", "c", "d"}
    assert str(found["b"].reasons[0]) == "its ctk is 'none', and was '12.9'"
    assert str(found["d"].reasons[0]) == "the cell is new"
    changed = select(cells, records, {COMMIT: replace(past, rules=Rules(("**",)))}, [], rules=Rules(), file=FILE)
    assert all(one.runs for one in changed)


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("docs/**", "docs/a/b.md", True),
        ("docs/*", "docs/a/b.md", False),
        ("*.md", "a.md", True),
        ("*.md", "docs/a.md", False),
        ("**/*.md", "a.md", True),
        ("**/*.md", "docs/x/a.md", True),
        ("a?c", "abc", True),
        ("a[b]c", "abc", False),
        ("docs", "docs/a.md", False),
    ],
)
def test_patterns(pattern, path, expected) -> None:
    """One star stays in a folder, two cross folders, and nothing else but ? is special."""
    assert matches(path, [pattern]) is expected


def test_harmless_options() -> None:
    """An option without its value, or one that selects, is not harmless."""
    assert is_harmless(["-q", "-n", "4", "-rs", "--durations=3"])
    assert not is_harmless(["-n"])
    assert not is_harmless(["-x"])


@given(
    count=st.integers(1, 12),
    seconds=st.dictionaries(st.integers(0, 60), st.floats(0, 1e4)),
    total=st.integers(0, 60),
)
def test_shards_are_disjoint_and_whole(count, seconds, total) -> None:
    """Every cell is in one shard; shards are the same every time; none is longer than the mean and the longest cell."""
    cells = [Cell(f"cell-{number}", {}, ()) for number in range(total)]
    cost = {f"cell-{number}": value for number, value in seconds.items()}
    shards = [shard(cells, number, count, cost) for number in range(1, count + 1)]
    assert sorted(cell.name for one in shards for cell in one) == sorted(cell.name for cell in cells)
    assert (
        shards == spread(cells, count, cost) == spread(list(reversed(cells))[::-1], count, dict(reversed(cost.items())))
    )
    if cost and total:
        usual = sum(cost.values()) / len(cost)
        each = {cell.name: max(cost.get(cell.name, usual), 0.001) for cell in cells}
        most = max(sum(each[cell.name] for cell in one) for one in shards)
        assert most <= sum(each.values()) / count + max(each.values()) + 1e-6


@pytest.mark.parametrize("text", ["", "0/3", "4/3", "3", "a/b", "1/0", "-1/3", "1/3 "])
def test_wrong_shard(text) -> None:
    """A shard that cannot be is refused with what one looks like."""
    with pytest.raises(ValueError, match="such as 3/10"):
        parse_shard(text)
    assert parse_shard("3/10") == (3, 10)
