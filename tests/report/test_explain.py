"""Which axis explains that a test fails in some cells only."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_cudalink.report.explain import AXES, axis_names, causes, deciding_cell, explain, relation

CELLS = [{"ctk": ctk, "driver": driver} for ctk in ("12.9", "13.0", "13.2") for driver in ("12.9", "13.0", "13.2")]


@pytest.mark.parametrize(
    ("fails", "words"),
    [
        (lambda c: c["ctk"] == "13.2", "ctk 13.2"),
        (lambda c: c["driver"] != "12.9", "driver 13.0 and 13.2"),
        (lambda c: float(c["ctk"]) > float(c["driver"]), "ctk newer than driver"),
        (lambda c: c["ctk"][:2] != c["driver"][:2], "ctk older major than driver and ctk newer major than driver"),
        (lambda c: float(c["ctk"]) < float(c["driver"]), "ctk older than driver"),
        (lambda c: float(c["ctk"]) >= float(c["driver"]), "ctk newer than driver and ctk same as driver"),
        (lambda c: (c["ctk"], c["driver"]) == ("13.0", "12.9"), "ctk 13.0 with driver 12.9"),
        (lambda c: c["ctk"] == "13.0" and c["driver"] != "13.0", "ctk 13.0 with driver 12.9 and with driver 13.2"),
    ],
)
def test_explanations(fails, words) -> None:
    """One axis, the relation of two, or two together; whichever alone decides."""
    cells = [{**cell, "python": python, "backend": "auto"} for cell in CELLS for python in ("3.11", "3.12")]
    assert explain(cells, [fails(cell) for cell in cells]) == words


def test_explanations_at_the_edges() -> None:
    """Cells that do not tell axes apart name all of them; chaos is called so; cells that did not run do not count."""
    both = [{"ctk": "12.9", "python": "3.11"}, {"ctk": "13.0", "python": "3.12"}]
    assert explain(both, [False, True]) == "either ctk 13.0, or python 3.12"
    assert explain([*both, {"ctk": "12.9", "python": "3.12"}], [False, True, None]) == "either ctk 13.0, or python 3.12"
    assert explain([{"ctk": "13.0"}, {"ctk": "13.0"}], [False, True]) == "no axis explains it"
    assert explain([{"ctk": "13.0", "numpy": "none"}, {"ctk": "13.0"}], [False, True]) == "no axis explains it"
    assert causes([{"numpy": "none"}, {}], [False, True]) == []
    assert explain([{"ctk": "13.0"}, {"ctk": "13.0"}], [True, True]) == "no axis explains it"
    # a cause with one failing value is simpler than one with several; those alike stay in the order of the axes
    three = [{"ctk": ctk, "driver": ctk, "backend": "driver"} for ctk in ("12.9", "13.0", "13.2")]
    three[0]["backend"] = "auto"
    words = "either backend driver, or ctk 13.0 and 13.2, or driver 13.0 and 13.2"
    assert explain(three, [False, True, True]) == words
    with pytest.raises(ValueError, match="shorter"):
        explain(both, [False])


@pytest.mark.parametrize("axis", AXES)
def test_every_axis_explains(axis) -> None:
    """Each axis is considered, and a cell without it has the value "none"."""
    assert explain([{axis: "a"}, {axis: "b"}, {}], [False, True, False]) == f"{axis} b"
    assert explain([{axis: "a"}, {axis: "b"}, {}], [False, False, True]) == f"{axis} none"


def test_the_order_of_axes() -> None:
    """The toolkit comes first, the architecture last of those that every cell has; then packages by their names."""
    cells = [dict.fromkeys(reversed(AXES), value) for value in "ab"]
    assert explain(cells, [False, True]) == "either " + ", or ".join(f"{axis} b" for axis in AXES)
    cells = [{name: "1"} for name in ("zlib", "torch", "ctk", "numba", "cupy", "alpha", "cuda-core")]
    assert axis_names(cells) == (*AXES, "alpha", "cuda-core", "cupy", "numba", "torch", "zlib")


def test_packages_explain() -> None:
    """The version of a package that cells choose is an axis by its name, behind all others."""
    cells = [{"ctk": "13.0", "numpy": version, "cuda-bindings": version} for version in ("1", "2")]
    assert explain(cells, [False, True]) == "either cuda-bindings 2, or numpy 2"
    assert explain([*cells, {"ctk": "13.0"}], [False, False, True]) == "either cuda-bindings none, or numpy none"
    pairs = [{"ctk": ctk, "numpy": version} for ctk in ("12.9", "13.0") for version in ("1", "2")]
    assert explain(pairs, [False, False, False, True]) == "ctk 13.0 with numpy 2"


def test_the_cell_that_decides_is_named() -> None:
    """One that runs on the failing driver with a toolkit that passes; others would fail or pass whatever the cause."""
    ran = [{"ctk": "13.0", "driver": "13.0"}, {"ctk": "13.2", "driver": "13.2"}]
    others = {
        "same": {"ctk": "13.2", "driver": "13.2"},
        "unseen": {"ctk": "13.2", "driver": "12.9"},
        "unknown": {"ctk": "13.2"},
        "decides": {"ctk": "13.0", "driver": "13.2"},
        "also": {"ctk": "13.2", "driver": "13.0"},
    }
    assert explain(ran, [False, True], others) == "either ctk 13.2, or driver 13.2; run decides to tell"
    del others["decides"], others["also"]
    assert explain(ran, [False, True], others) == "either ctk 13.2, or driver 13.2"
    assert explain(ran[:1], [True], others) == "no axis explains it"


def test_the_cell_that_divides_the_causes_most_evenly_is_named() -> None:
    """Half of four causes remains after one cell, where another would leave three."""
    axes = ("ctk", "driver", "nvjitlink", "arch")
    ran = [dict.fromkeys(axes, "old"), dict.fromkeys(axes, "new")]
    others = {"one": {**ran[0], "ctk": "new"}, "two": {**ran[0], "ctk": "new", "driver": "new"}}
    assert explain(ran, [False, True], others).endswith("; run two to tell")
    four = [{"ctk": ctk, "driver": driver} for ctk in ("12.9", "13.0") for driver in ("12.9", "13.0")]
    relations = causes(four, [False, True, False, False])
    assert [str(relation) for relation in relations] == ["ctk older major than driver", "ctk 12.9 with driver 13.0"]
    unseen = {"ctk": "12.8", "driver": "13.0"}
    assert [relation.predicts(unseen) for relation in relations] == [True, None]
    assert [relation.predicts({}) for relation in relations] == [None, None]
    (policy,) = causes([{"policy": "released"}, {}], [True, False])
    assert [policy.predicts(axes) for axes in ({"policy": "released"}, {"policy": "none"}, {})] == [True, False, None]
    assert deciding_cell(relations, {"unseen": unseen, "unknown": {}}) == ""


def test_pairs_beside_a_relation() -> None:
    """A relation takes the place of pairs of toolkit and driver, and of no others."""
    cells = [
        {"ctk": ctk, "driver": driver, "backend": ctk, "python": driver, "arch": arch}
        for ctk, driver, arch in itertools.product(("12.9", "13.0"), ("12.9", "13.0"), "ab")
    ]
    assert explain(cells, [cell["ctk"] == cell["driver"] for cell in cells]) == (
        "either ctk same as driver, or ctk 12.9 with python 12.9 and ctk 13.0 with python 13.0, "
        "or driver 12.9 with backend 12.9 and driver 13.0 with backend 13.0, or one other cause"
    )
    two = [("12.9", "13.0"), ("13.2", "13.0")]
    nine = [{**cell, "python": python} for cell in CELLS for python in ("3.11", "3.12")]
    assert explain(nine, [(cell["ctk"], cell["driver"]) in two for cell in nine]) == (
        "ctk 12.9 with driver 13.0 and ctk 13.2 with driver 13.0"
    )


def test_many_pairs_are_counted() -> None:
    """Three pairs are named, and how many more there are."""
    names = ("ctk", "backend", "policy", "python", "arch")
    cells = [{name: "b" if name in new else "a" for name in names} for new in ([], names, ["ctk", "python"], ["arch"])]
    cells += [{**cells[1], name: "a"} for name in names]
    cells[2:] = [{**cells[0], name: "b"} for name in names]
    assert explain(cells, [False, True, *[False] * 5]) == (
        "either ctk b with backend b, or ctk b with policy b, or ctk b with python b, or one of 7 other causes"
    )
    four = [{name: cell[name] for name in names[:4]} for cell in cells[:-1]]
    four.append({**four[0], "ctk": "b", "backend": "b"})
    assert explain(four, [False, True, *[False] * 5]) == (
        "either ctk b with policy b, or ctk b with python b, or backend b with policy b, or one of 2 other causes"
    )


@pytest.mark.parametrize(
    ("ctk", "driver", "words"),
    [
        ("13.0", "13.0", "ctk same as driver"),
        ("13.2", "13.0", "ctk newer minor than driver"),
        ("13.0", "13.2", "ctk older minor than driver"),
        ("13.0", "12.9", "ctk newer major than driver"),
        ("12.9", "13.0", "ctk older major than driver"),
        ("12.10", "12.9", "ctk newer minor than driver"),
        *(("13.0", driver, "") for driver in ("none", "13", "13.x")),
        *((ctk, "13.0", "") for ctk in ("x.0", "")),
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
    assert explain(eight, unlike) == "backend a with python f and backend b with python e"
    four = [{"backend": b, "python": v} for b in "ab" for v in "ef"]
    assert explain(four, [False, True, True, False]) == "no axis explains it"
    assert explain(four, [False, True, False, False]) == "backend a with python f"
    finer = [{"ctk": c, "backend": "a" if v == "e" else "b", "python": v} for c in ("12.9", "13.0") for v in "efg"]
    words = "either ctk 13.0 with backend a, or ctk 13.0 with python e"
    assert explain(finer, [False, False, False, True, False, False]) == words
    absent = [{"ctk": c, **n} for c in ("12.9", "13.0") for n in ({"nvjitlink": "13.0"}, {})]
    assert explain(absent, [False, False, False, True]) == "ctk 13.0 with nvjitlink none"


VALUES = ("12.9", "13.0", "13.2")


@st.composite
def matrices(draw) -> tuple[list[dict[str, str]], list[bool | None], tuple[tuple[str, str], ...]]:
    """Cells, the result of each, and the planted cause: one value of an axis, or one of each of two axes."""
    names = draw(st.lists(st.sampled_from(AXES), min_size=2, max_size=5, unique=True))
    cell = st.fixed_dictionaries({name: st.sampled_from(VALUES[: draw(st.integers(2, 3))]) for name in names})
    cells = draw(st.lists(cell, min_size=2, max_size=14))
    axes = draw(st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True))
    cause = tuple((axis, draw(st.sampled_from(VALUES))) for axis in axes)
    known = draw(st.lists(st.booleans(), min_size=len(cells), max_size=len(cells)))
    fails = [all(cell[axis] == value for axis, value in cause) for cell in cells]
    return cells, [failed if ran else None for failed, ran in zip(fails, known, strict=True)], cause


def agrees(cells, bad, axes) -> bool:
    """Whether cells with equal values on these axes have equal results, and some fail and some pass."""
    ran = [(tuple(cell[axis] for axis in axes), failed) for cell, failed in zip(cells, bad, strict=True)]
    ran = [(value, failed) for value, failed in ran if failed is not None]
    same = all(a == b for (value, a), (other, b) in itertools.combinations(ran, 2) if value == other)
    return same and {failed for _, failed in ran} == {True, False}


@given(matrices())
def test_the_planted_cause_is_among_the_answers(matrix) -> None:
    """A single cause is always named, and so is each other single one that the cells allow; pairs if none is."""
    cells, bad, planted = matrix
    named = causes(cells, bad)
    words = explain(cells, bad)
    if not {True, False} <= set(bad):
        assert named == []
        assert words == "no axis explains it"
        return
    single = [axis for axis in cells[0] if agrees(cells, bad, (axis,))]
    if single:
        assert sorted(cause.axes[0] for cause in named) == sorted(single)
        assert sorted(words.removeprefix("either ").split(", or ")) == sorted(str(cause) for cause in named)
    else:
        assert all(len(cause.axes) == 2 or cause.axes == ("relation",) for cause in named)
    if len(planted) == 1:
        ((axis, value),) = planted
        assert f"{axis} {value}" in words.removeprefix("either ").split(", or ")
    elif not single:
        pairs = [set(zip(cause.axes, value, strict=True)) for cause in named for value in cause.failing]
        assert set(planted) in pairs


@given(matrices(), st.randoms(use_true_random=False))
def test_a_sentence_can_be_read_in_one_way(matrix, random) -> None:
    """Each joining word has one meaning, by which a sentence gives the causes back, in their order."""
    cells, _, _ = matrix
    bad = [random.random() < 0.4 for _ in cells]
    named = causes(cells, bad)
    words = explain(cells, bad)
    assert words.startswith("either ") == (len(named) > 1)
    if not named:
        return
    read = [part for part in words.removeprefix("either ").split(", or ") if "other cause" not in part]
    for sentence, cause in zip(read, named, strict=False):
        if cause.axes != ("relation",):
            failing = [dict(zip(cause.axes, value, strict=True)) for value in cause.failing]
            assert sorted(map(str, read_cause(sentence))) == sorted(map(str, failing))


def read_cause(words: str) -> list[dict[str, str]]:
    """Return the values of axes with which a test fails by the words of a cause."""
    result: list[dict[str, str]] = []
    axis = value = ""
    for part in words.split(" and "):
        first, _, second = f" {part}".partition(" with ")
        match first.split():
            case [axis, value]:
                pass
            case [value]:
                pass
        result.append({axis: value, **(dict([second.split()]) if second else {})})
    return result


@given(matrices(), st.randoms(use_true_random=False))
def test_no_answer_claims_more_than_the_cells_show(matrix, random) -> None:
    """Each cause predicts every result, planted or not, and knows nothing of values that no cell had."""
    cells, bad, _ = matrix
    for results in (bad, [failed if failed is None else random.random() < 0.3 for failed in bad]):
        for cause in causes(cells, results):
            ran = [(cell, failed) for cell, failed in zip(cells, results, strict=True) if failed is not None]
            assert [cause.predicts(cell) for cell, _ in ran] == [failed for _, failed in ran]
            seen = {tuple(cell[axis] for axis in cause.axes) for cell, _ in ran if cause.axes != ("relation",)}
            for cell in cells if seen else ():
                assert (cause.predicts(cell) is None) == (tuple(cell[axis] for axis in cause.axes) not in seen)


@pytest.mark.slow
@given(matrices(), matrices())
def test_the_cell_that_is_named_decides(matrix, more) -> None:
    """Whatever its result, fewer causes remain."""
    cells, bad, _ = matrix
    named = causes(cells, bad)
    others = {str(number): cell for number, cell in enumerate(more[0])}
    if name := deciding_cell(named, others):
        for failed in (True, False):
            assert any(cause.predicts(others[name]) == failed for cause in named)
    else:
        split = [{cause.predicts(cell) for cause in named} >= {True, False} for cell in others.values()]
        assert not any(split)
