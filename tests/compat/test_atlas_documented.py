"""What NVIDIA documents, and where the atlas disagrees."""

from dataclasses import replace

import pytest

from pytest_cudalink.base.tables import read_table
from pytest_cudalink.compat import atlas
from pytest_cudalink.compat.link_rules import statements
from tools import atlas_differences


def test_statements() -> None:
    """Each names its document, its address and the day; kinds, steps and rules are known words."""
    listed = statements()
    assert len({claim.name for claim in listed}) == len(listed) == len(read_table("documented.toml")["statements"])
    for claim in listed:
        assert claim.url.startswith("https://docs.nvidia.com/")
        assert claim.source
        assert claim.cited.endswith("; unverified") is not claim.verified
        # a statement is verified on a day, or says what was not read
        assert claim.read.startswith("2026-") or not claim.verified
        assert claim.says.endswith(".")
        assert set(claim.kinds) <= set(atlas.KINDS)
        assert set(claim.steps) <= set(atlas.STEPS)
        assert claim.predicts("13.0", "12.9") in (True, False, None)


def test_what_the_page_says_of_a_gpu() -> None:
    """Of LTO-IR, every pair that nvJitLink links ran right; a driver of 13.0 loads what every release linked."""
    loaded = atlas.load()
    run = loaded.grid("real-run", "ltoir")
    assert run is not None
    answers = [loaded.answers[letter] for letters in run.rows.values() for letter in letters]
    assert [answer.status for answer in answers].count("works") == 120
    assert {answer.status for answer in answers} == {"works", "not-made"}
    loads = [grid for grid in loaded.grids if grid.step == "real-load"]
    statuses = {loaded.answers[letter].status for grid in loads for letters in grid.rows.values() for letter in letters}
    assert statuses == {"works", "not-made"}
    ask = loaded.ask("13.5", "13.0", "fatbin-ltoir", "real-driver")
    assert ask is not None
    assert (ask.status, ask.text) == ("wrong", "the image does not have the kernel")


@pytest.mark.parametrize(
    ("name", "producer", "consumer", "predicted"),
    [
        ("nvjitlink-newer-input", "12.1", "12.0", False),
        ("nvjitlink-newer-input", "12.0", "12.1", None),
        ("nvjitlink-older-input", "12.0", "12.1", True),
        ("nvjitlink-older-input", "12.0", "13.0", None),
        ("nvjitlink-across-majors", "12.9", "13.0", True),
        ("nvjitlink-ltoir-across-majors", "12.9", "13.0", False),
        ("driver-ptx-isa", "12.6", "12.5", True),
        ("driver-ptx-isa", "12.8", "12.5", False),
        ("minor-version-compatibility", "13.5", "13.0", True),
        ("newer-major-needs-newer-driver", "13.0", "12.9", False),
    ],
)
def test_predictions(name, producer, consumer, predicted) -> None:
    """A statement predicts where it speaks, and only there."""
    statement = next(statement for statement in statements() if statement.name == name)
    assert statement.predicts(producer, consumer) is predicted


def test_known_disagreements() -> None:
    """LTO-IR crosses majors, older minors take cubins of CUDA 13; each has a command."""
    clashes = atlas_differences.disagreements(atlas.load())
    texts = [str(disagreement) for disagreement in clashes if disagreement.grid.arch == "sm_90"]
    # a GPU ran these images, and its numbers are right
    runs = [(clash.statement.name, clash.grid.kind, clash.where) for clash in clashes if clash.grid.step == "real-run"]
    for name, kind, where in (
        ("nvjitlink-ltoir-across-majors", "ltoir", "12.0 to 12.9 into 13.0 to 13.5"),
        ("nvjitlink-newer-input", "cubin", "13.0 to 13.5 into 12.5 to 12.9"),
    ):
        assert f"{name}: documented that it is refused, works (nvjitlink {kind}: {where})" in texts
        assert (name, kind, where) in runs
    assert any(text.startswith("only-relocatable-code-links: documented that it is refused, wrong") for text in texts)
    assert {clash.reproducer for clash in clashes} >= {
        "nox -s atlas -- 12.0 13.0 --kind ltoir --arch sm_90 --show",
        "nox -s atlas -- 12.8 12.6 --kind linked-cubin --arch sm_100 --show",
    }
    assert all(clash.predicted == bool(clash.statement.predicts(*clash.cells[-1])) for clash in clashes)


@pytest.mark.parametrize(
    ("status", "yes", "no"),
    [
        ("works", False, True),
        ("wrong", True, True),
        ("refused", True, False),
        ("crashed", True, True),
        ("not-made", False, False),
    ],
)
def test_what_contradicts(status: str, yes: bool, no: bool) -> None:
    """Success contradicts a documented no, anything else a yes, a crash both; what could not be asked neither."""
    grid = atlas.Grid("nvjitlink", "ptx", "sm_90", {"12.0": "xx", "12.1": "xx"}, ("12.0", "12.1"))
    answered = replace(atlas.load(), answers={"x": atlas.AtlasAnswer(status)}, grids=(grid,))
    cells = {cell for disagreement in atlas_differences.disagreements(answered) for cell in disagreement.cells}
    newer, others = {("12.1", "12.0")}, {("12.0", "12.0"), ("12.0", "12.1"), ("12.1", "12.1")}
    assert (cells & newer, cells & others) == (newer if no else set(), others if yes else set())


def test_ranges() -> None:
    """Pairs are named in groups of producers with the same consumers; 12.7, which has no wheels, breaks no range."""
    statement = statements()[0]
    grid = atlas.Grid("nvjitlink", "ptx", "sm_90", {}, ())
    cells = (("12.6", "12.0"), ("12.8", "12.0"), ("13.0", "12.0"), ("13.0", "12.9"))
    disagreement = atlas_differences.Disagreement(statement, grid, cells, atlas.AtlasAnswer("works"), "")
    assert disagreement.where == "12.6 to 12.8 into 12.0; 13.0 into 12.0, 12.9"
