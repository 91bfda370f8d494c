"""Which axis explains that a test fails in some cells only."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cudalink.report.explain import explain, relation

CELLS = [{"ctk": ctk, "driver": driver} for ctk in ("12.9", "13.0", "13.2") for driver in ("12.9", "13.0", "13.2")]


@pytest.mark.parametrize(
    ("fails", "words"),
    [
        (lambda c: c["ctk"] == "13.2", "ctk 13.2"),
        (lambda c: c["driver"] != "12.9", "driver 13.0, 13.2"),
        (lambda c: float(c["ctk"]) > float(c["driver"]), "ctk newer major than driver, ctk newer minor than driver"),
        (lambda c: c["ctk"][:2] != c["driver"][:2], "ctk older major than driver, ctk newer major than driver"),
        (lambda c: (c["ctk"], c["driver"]) == ("13.0", "12.9"), "ctk 13.0 with driver 12.9"),
    ],
)
def test_explanations(fails, words) -> None:
    """One axis, the relation of two, or two together; whichever alone decides."""
    cells = [{**cell, "python": python, "backend": "auto"} for cell in CELLS for python in ("3.11", "3.12")]
    assert explain(cells, [fails(cell) for cell in cells]) == words


def test_explanations_at_the_edges() -> None:
    """Cells that do not tell axes apart name all of them; chaos is called so; cells that did not run do not count."""
    both = [{"ctk": "12.9", "python": "3.11"}, {"ctk": "13.0", "python": "3.12"}]
    assert explain(both, [False, True]) == "ctk 13.0 or python 3.12"
    assert explain([*both, {"ctk": "12.9", "python": "3.12"}], [False, True, None]) == "ctk 13.0 or python 3.12"
    assert explain([{"ctk": "13.0"}, {"ctk": "13.0"}], [False, True]) == "no axis explains it"
    assert explain([{"ctk": "13.0"}, {"ctk": "13.0"}], [True, True]) == "no axis explains it"
    with pytest.raises(ValueError, match="shorter"):
        explain(both, [False])


AXES = ["ctk", "driver", "nvjitlink", "backend", "policy", "python", "arch"]


@pytest.mark.parametrize("axis", AXES)
def test_every_axis_explains(axis) -> None:
    """Each axis is considered, and a cell without it has the value "none"."""
    assert explain([{axis: "a"}, {axis: "b"}, {}], [False, True, False]) == f"{axis} b"
    assert explain([{axis: "a"}, {axis: "b"}, {}], [False, False, True]) == f"{axis} none"


def test_axes_are_named_in_the_order_in_which_people_look_for_a_cause() -> None:
    """The toolkit comes first, the architecture last, whatever the order in the cells."""
    cells = [dict.fromkeys(reversed(AXES), value) for value in "ab"]
    assert explain(cells, [False, True]) == " or ".join(f"{axis} b" for axis in AXES)


def test_the_axis_with_the_fewest_values_explains() -> None:
    """An axis that has a value of its own for each cell explains anything, so it says less than one with two values."""
    cells = [
        {"ctk": "12.9", "python": "3.11"},
        {"ctk": "12.9", "python": "3.12"},
        {"ctk": "13.0", "python": "3.13"},
    ]
    assert explain(cells, [False, False, True]) == "ctk 13.0"


@pytest.mark.parametrize(
    ("ctk", "driver", "words"),
    [
        ("13.0", "13.0", "ctk same as driver"),
        ("13.2", "13.0", "ctk newer minor than driver"),
        ("13.0", "13.2", "ctk older minor than driver"),
        ("13.0", "12.9", "ctk newer major than driver"),
        ("12.9", "13.0", "ctk older major than driver"),
        ("12.10", "12.9", "ctk newer minor than driver"),
        ("13.0", "none", ""),
        ("13.0", "13", ""),
        ("13.0", "13.x", ""),
        ("x.0", "13.0", ""),
        ("", "13.0", ""),
    ],
)
def test_relation_of_toolkit_and_driver(ctk, driver, words) -> None:
    """Versions are compared as numbers; what is not a version has no relation."""
    assert relation({"ctk": ctk, "driver": driver}) == words
    assert relation({"ctk": ctk}) == relation({"driver": driver}) == ""


def test_the_relation_explains_only_what_no_axis_explains() -> None:
    """One axis is simpler than the relation of two; a cell without a relation rules it out."""
    two = [{"ctk": "12.9", "driver": "13.0"}, {"ctk": "13.0", "driver": "13.0"}]
    assert explain(two, [False, True]) == "ctk 13.0"
    four = [{"ctk": ctk, "driver": driver} for ctk in ("12.9", "13.0") for driver in ("12.9", "13.0")]
    assert explain(four, [True, False, False, True]) == "ctk same as driver"
    some = [*four[:1], *four[2:], {"ctk": "12.9", "driver": "none"}]
    assert explain(some, [False, True, False, False]) == "ctk 13.0 with driver 12.9"


def test_two_axes_together() -> None:
    """A pair explains if it covers several cells, or if one pair of values fails; fewer values are better."""
    eight = [{"backend": b, "policy": p, "python": v} for b in "ab" for p in "cd" for v in "ef"]
    unlike = [(cell["backend"] == "a") == (cell["python"] == "f") for cell in eight]
    assert explain(eight, unlike) == "backend a with python f, backend b with python e"
    four = [{"backend": b, "python": v} for b in "ab" for v in "ef"]
    assert explain(four, [False, True, True, False]) == "no axis explains it"
    assert explain(four, [False, True, False, False]) == "backend a with python f"
    finer = [{"ctk": c, "backend": "a" if v == "e" else "b", "python": v} for c in ("12.9", "13.0") for v in "efg"]
    assert explain(finer, [False, False, False, True, False, False]) == "ctk 13.0 with backend a"
    absent = [{"ctk": c, **n} for c in ("12.9", "13.0") for n in ({"nvjitlink": "13.0"}, {})]
    assert explain(absent, [False, False, False, True]) == "ctk 13.0 with nvjitlink none"


@given(st.lists(st.tuples(st.sampled_from(CELLS), st.sampled_from([True, False, None])), max_size=12))
def test_an_explanation_is_true(cells) -> None:
    """A single axis that is named fails exactly where it says."""
    axes, bad = [cell for cell, _ in cells], [failed for _, failed in cells]
    words = explain(axes, bad)
    match = re.fullmatch(r"(ctk|driver) ([\d., ]+)", words)
    if match and True in bad:
        values = match[2].split(", ")
        assert all((cell[match[1]] in values) == failed for cell, failed in cells if failed is not None)
