"""The pages of the atlas are drawn from its data, and say nothing that the data do not."""

import re
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from pytest_cudalink.compat import atlas
from pytest_cudalink.compat.link_rules import statements
from tools.atlas_differences import disagreements, reasons

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {path.stem: path.read_text(encoding="utf-8") for path in sorted((DOCS / "atlas").glob("*.md"))}


@pytest.fixture
def drawing(script) -> ModuleType:
    """The module that draws the atlas."""
    return script("docs/_ext", "cudalink_atlas", "sphinx")


def test_every_kind_is_drawn() -> None:
    """Each kind is drawn once, on one page."""
    drawn = re.findall(r"^```\{atlas-grids\} (\S+)$", PAGES["grids"], re.MULTILINE)
    assert sorted(drawn) == sorted(atlas.load().kinds)


def test_grids_have_every_cell(drawing: ModuleType) -> None:
    """Each step of a kind is a section; the grids of its architectures have a cell for every answer."""
    loaded = atlas.load()
    made = {letter for letter, answer in loaded.answers.items() if answer.status != "not-made"}
    grids = [grid for grid in loaded.grids if made.intersection("".join(grid.rows.values()))]
    assert {grid.kind for grid in grids} == set(loaded.kinds)
    for kind in loaded.kinds:
        sections = drawing.AtlasGrids.run(SimpleNamespace(arguments=[kind]))
        steps = [step for step in loaded.steps if any((grid.kind, grid.step) == (kind, step) for grid in grids)]
        assert [section["ids"] for section in sections] == [
            [f"{kind}-{step}"] for step in drawing.STEPS if step in steps
        ]
        for section, step in zip(sections, [step for step in drawing.STEPS if step in steps], strict=True):
            html = "".join(node.astext() for node in section.children)
            archs = [grid.arch for grid in grids if (grid.kind, grid.step) == (kind, step)]
            captions = re.findall(r"<caption>([^:]+):", html)
            assert sorted(arch for caption in captions for arch in caption.split(", ")) == sorted(archs)


def test_an_excerpt_is_the_atlas(drawing: ModuleType) -> None:
    """Each cell of a small table has the atlas's answer; equal architectures and equal releases share a place."""
    made = ["12.9", "13.0"]
    directive = SimpleNamespace(arguments=["nvjitlink", "cubin"], options={"made": made})
    (drawn,) = drawing.AtlasExcerpt.run(directive)
    head, *rows = ([node.astext() for node in row] for row in drawn.findall(drawing.nodes.row))
    assert head[0] == "nvJitLink"
    releases = list(atlas.load().releases)

    def named(words: str) -> list[str]:
        """The releases that a row is for."""
        ends = [word.split(" to ") for word in words.split(", ")]
        return [name for end in ends for name in releases[releases.index(end[0]) : releases.index(end[-1]) + 1]]

    assert sum(len(named(row[0])) for row in rows) == len(releases)
    for row in rows:
        for column, said in zip(head[1:], row[1:], strict=True):
            archs, _, producer = column.partition(": ")
            for arch in archs.split(", "):
                for reader in named(row[0]):
                    answer = atlas.load().ask(producer, reader, "cubin", "nvjitlink", arch)
                    words = {"works": "links", "crashed": "SIGSEGV", "not-made": "-"}
                    assert said == words.get(answer.status, f"refused, {answer.code}")


def test_letters_say_what_kind_of_answer(drawing: ModuleType) -> None:
    """No two answers share a letter; a refusal has a small one, a wrong result and a crash have capitals."""
    letters = drawing.letters(atlas.load())
    marks = [mark for key, mark in letters.items() if key[0] not in drawing.MARKS]
    assert len(marks) == len(set(marks))
    for (status, *_), mark in letters.items():
        assert mark == drawing.MARKS.get(status, mark)
        assert status in drawing.MARKS or mark.islower() == (status == "refused")


def test_differences_are_listed(drawing: ModuleType) -> None:
    """Every disagreement with the documentation is on the page, and every rule that stays has its reason."""
    listed = disagreements(atlas.load())
    text = "\n".join(node.astext() for node in drawing.atlas_disagreements())
    assert {disagreement.statement.says.rstrip(".") for disagreement in listed} == {
        statement.says.rstrip(".") for statement in statements() if statement.says.rstrip(".") in text
    }
    assert all(disagreement.where in text and disagreement.grid.arch in text for disagreement in listed)
    text = drawing.atlas_contradictions()[0].astext()
    assert all(row.because in text for row in reasons())
