"""The lines of the keys of a TOML file."""

import tomllib

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from pytest_cudalink.matrix import lines

TEXT = """# a comment
 \t
a = 1
b.c = [
  1,
]
 # [another]
e = {}
t = { x = 1 }
[h]
k = '''
x
'''
[[h.arr]]
z = 1
[[h.arr]]
z = 2
[h.arr.sub]
q = 3
[top.deep]
[[x.y]]
[[x.y.z]]
w = [
[1,
2]]
last = 1"""
LINES = {
    ("a",): 3, ("b",): 4, ("b", "c"): 4, ("e",): 8, ("t",): 9, ("t", "x"): 9,
    ("h",): 10, ("h", "k"): 11, ("h", "arr"): 14,
    ("h", "arr", 0): 14, ("h", "arr", 0, "z"): 15,
    ("h", "arr", 1): 16, ("h", "arr", 1, "z"): 17, ("h", "arr", 1, "sub"): 18, ("h", "arr", 1, "sub", "q"): 19,
    ("top",): 20, ("top", "deep"): 20,
    ("x",): 21, ("x", "y"): 21, ("x", "y", 0): 21,
    ("x", "y", 0, "z"): 22, ("x", "y", 0, "z", 0): 22, ("x", "y", 0, "z", 0, "w"): 23,
    ("x", "y", 0, "z", 0, "last"): 26,
}  # fmt: skip


def test_every_kind_of_key() -> None:
    """Headers, elements of arrays of tables, dotted keys, values of several lines and inline tables."""
    assert lines.lines(TEXT) == LINES


def test_a_key_that_is_missing_has_the_line_of_the_table_around_it() -> None:
    assert lines.line_of(LINES, ("h", "arr", 1, "nothing", "deep")) == 16
    assert lines.line_of(LINES, ("h", "nothing")) == 10
    assert lines.line_of(LINES, ("nothing", "deep")) is None


@pytest.mark.parametrize("quotes", [3, 4, 5])
@pytest.mark.parametrize("quote", ["'", '"'])
def test_quotes_at_the_end_of_a_text(quote: str, quotes: int) -> None:
    """One or two belong to the text; what stands behind it is a comment all the same."""
    text = f"a = {3 * quote}\nb = 1{quotes * quote} # c{quote} = [\nd = 1"
    assert lines.lines(text) == {("a",): 1, ("d",): 3}


KEY = st.text(st.characters(codec="utf-8", exclude_categories=("C",)), min_size=1, max_size=5)
VALUE = st.one_of(
    st.integers(-9, 9),
    st.booleans(),
    st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=9),
    st.lists(st.text("a[]\n\"'#=", max_size=4), max_size=3),
)
TREE = st.recursive(
    st.dictionaries(KEY, VALUE, max_size=3),
    lambda inner: st.dictionaries(KEY, inner | VALUE | st.lists(inner, min_size=1, max_size=2), max_size=3),
    max_leaves=8,
)


@pytest.mark.slow
@given(TREE, st.booleans())
def test_every_key_has_its_line(tree, multiline) -> None:
    text = tomli_w.dumps(tree, multiline_strings=multiline)
    written_lines = [*text.split("\n"), ""]
    known = lines.lines(text)

    def check(value, place) -> None:
        if place and isinstance(place[-1], str):
            # what is in an inline table of an array has the line of the array
            assert place in known or any(isinstance(key, int) for key in place)
            assert lines.line_of(known, place) is not None
            if place in known and not isinstance(value, dict | list):
                written = tomli_w.dumps({place[-1]: 0}).rpartition(" = ")[0]
                assert written in written_lines[known[place] - 1], place
        if isinstance(value, dict):
            for key, inner in value.items():
                check(inner, (*place, key))
        elif isinstance(value, list) and all(isinstance(inner, dict) for inner in value):
            for number, inner in enumerate(value):
                check(inner, (*place, number))

    check(tomllib.loads(text), ())
