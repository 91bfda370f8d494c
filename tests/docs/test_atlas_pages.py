"""The pages of the atlas are drawn from its data, and say nothing that the data do not."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from pytest_cudalink.compat import atlas
from pytest_cudalink.compat.documented import disagreements, statements
from pytest_cudalink.skew.rules import reasons

__all__ = ()

DOCS = Path(__file__).parents[2] / "docs"
PAGES = {path.stem: path.read_text(encoding="utf-8") for path in sorted((DOCS / "atlas").glob("*.md"))}


@pytest.fixture
def drawing(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module of docs/_ext that draws the atlas."""
    pytest.importorskip("sphinx")
    monkeypatch.syspath_prepend(DOCS / "_ext")
    return importlib.import_module("cudalink_atlas")


def statuses(step: str, kind: str, producer: str, arch: str) -> dict[str, str]:
    """The status of each consumer for what one release made."""
    found = atlas.load()
    answers = {read: found.ask(producer, read, kind, step, arch) for read in found.releases}
    return {read: answer.status for read, answer in answers.items() if answer}


def test_every_kind_has_a_page() -> None:
    """Each kind is drawn once, and every page names the command and the date of the measurement."""
    drawn = [kind for text in PAGES.values() for kind in re.findall(r"^```\{atlas-grids\} (\S+)$", text, re.MULTILINE)]
    assert sorted(drawn) == sorted(atlas.load().kinds)
    assert [name for name, text in PAGES.items() if "```{atlas-measured}" not in text] == []
    listed = re.findall(r"^(\S+)$", PAGES["index"].partition("{toctree}")[2].partition("```")[0], re.MULTILINE)
    assert {name for name in listed if not name.startswith(":")} == PAGES.keys() - {"index"}


def test_grids_have_every_cell(drawing: ModuleType) -> None:
    """Each step of a kind is a section; the grids of its architectures have a cell for every answer."""
    found = atlas.load()
    for kind in found.kinds:
        sections = drawing.AtlasGrids.run(SimpleNamespace(arguments=[kind]))
        steps = [step for step in found.steps if any((one.kind, one.step) == (kind, step) for one in found.grids)]
        assert [section["ids"] for section in sections] == [
            [f"{kind}-{step}"] for step in drawing.STEPS if step in steps
        ]
        for section, step in zip(sections, [step for step in drawing.STEPS if step in steps], strict=True):
            html = "".join(node.astext() for node in section.children)
            archs = [one.arch for one in found.grids if (one.kind, one.step) == (kind, step)]
            captions = re.findall(r"<caption>([^:]+):", html)
            assert sorted(arch for one in captions for arch in one.split(", ")) == sorted(archs)


def test_letters_say_what_kind_of_answer(drawing: ModuleType) -> None:
    """No two answers share a letter; a refusal has a small one, a wrong result and a crash have capitals."""
    found = drawing.letters(atlas.load())
    marks = [mark for key, mark in found.items() if key[0] not in drawing.MARKS]
    assert len(marks) == len(set(marks))
    for (status, *_), mark in found.items():
        assert mark == drawing.MARKS.get(status, mark)
        assert status in drawing.MARKS or mark.islower() == (status == "refused")


def test_differences_are_listed(drawing: ModuleType) -> None:
    """Every disagreement with the documentation is on the page, and every rule that stays has its reason."""
    found = disagreements(atlas.load())
    text = "\n".join(node.astext() for node in drawing.AtlasDisagreements.run(None))
    assert {one.statement.says.rstrip(".") for one in found} == {
        one.says.rstrip(".") for one in statements() if one.says.rstrip(".") in text
    }
    assert all(one.where in text and one.grid.arch in text for one in found)
    text = drawing.AtlasContradictions.run(None)[0].astext()
    assert all(row.because in text for row in reasons())


def test_what_the_pages_say_of_cubins() -> None:
    """12.5 to 12.9 link cubins of CUDA 13 for sm_75 and sm_90; 12.8 crashes on those for sm_100 and sm_120."""
    assert "12.5 to 12.9 link cubins of CUDA 13 for sm_75 and sm_90, and 12.8\ncrashes on" in PAGES["cubin"]
    for arch in ("sm_75", "sm_90"):
        found = statuses("nvjitlink", "cubin", "13.5", arch)
        assert {read for read, status in found.items() if status == "works"} == {"12.5", "12.6", "12.8", "12.9", "13.5"}
    for arch in ("sm_100", "sm_120"):
        assert statuses("nvjitlink", "cubin", "13.0", arch)["12.8"] == "crashed"


def test_what_the_pages_say_of_linked_cubins() -> None:
    """From 12.6 on nvJitLink reports success for nearly every one; older ones refuse them."""
    assert "nvJitLink from 12.6 on reports success for nearly every one" in PAGES["linked-cubin"]
    found = [
        (read, status)
        for made in atlas.load().releases
        for read, status in statuses("nvjitlink", "linked-cubin", made, "sm_90").items()
    ]
    assert {status for read, status in found if read in ("12.0", "12.1", "12.2", "12.3", "12.4", "12.5")} == {"refused"}
    later = [status for read, status in found if read not in ("12.0", "12.1", "12.2", "12.3", "12.4", "12.5")]
    assert later.count("wrong") > 0.9 * len(later)


def test_what_the_pages_say_of_the_rest() -> None:
    """LTO-IR links into an nvJitLink that is not older, across majors too; 12.0 crashes on a fatbin with PTX of 13."""
    releases = atlas.load().releases
    for number, made in enumerate(releases):
        found = statuses("nvjitlink", "ltoir", made, "sm_90")
        assert [found[read] == "works" for read in releases] == [at >= number for at in range(len(releases))]
    assert statuses("nvjitlink", "fatbin-ptx", "13.0", "sm_90")["12.0"] == "crashed"
    assert set(statuses("driver", "ltoir", "13.0", "sm_90").values()) == {"refused"}
