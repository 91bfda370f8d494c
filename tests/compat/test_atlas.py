"""The atlas: valid by its schema, complete, and read as it was written."""

import json

import pytest

from pytest_cudalink.base.tables import matrices_dir
from pytest_cudalink.compat import atlas
from pytest_cudalink.versions import CudaVersion


@pytest.fixture(scope="module")
def written() -> dict:
    return json.loads((matrices_dir() / "atlas.json").read_text(encoding="utf-8"))


def test_complete(written) -> None:
    """Every grid has a row and a letter for each release, or for each that has tileiras; every answer is used."""
    loaded = atlas.load()
    assert len(loaded.releases) == 15
    assert set(loaded.wheels) == set(loaded.releases)
    assert loaded.kinds == (*atlas.KINDS, *atlas.HEADERS)
    assert set(loaded.steps) >= {"nvjitlink", "driver", "load"}
    used = set()
    for grid in loaded.grids:
        assert tuple(grid.rows) == (loaded.releases[-5:] if grid.kind == atlas.TILE else loaded.releases)
        assert {len(row) for row in grid.rows.values()} == {len(grid.consumers)}
        used |= set("".join(grid.rows.values()))
    assert used == set(loaded.answers) == set(written["answers"])
    assert {answer.status for answer in loaded.answers.values()} <= set(atlas.STATUSES)
    keys = [(grid.step, grid.kind, grid.arch) for grid in loaded.grids]
    assert len(keys) == len(set(keys))


def test_asking() -> None:
    """An answer has the numbers of its pair in the text; what was not measured is None."""
    loaded = atlas.load()
    assert loaded.ask("12.9", CudaVersion(13, 0), "ltoir", "nvjitlink").works
    refused = loaded.ask(CudaVersion(13, 2), "12.9", "ptx", "nvjitlink")
    assert (refused.status, refused.call, refused.code) == ("refused", "nvJitLinkAddData", 4)
    assert refused.name == "NVJITLINK_ERROR_PTX_COMPILE"
    assert "Unsupported .version 9.2; current version is '8.8'" in refused.text
    assert str(refused).startswith("refused, nvJitLinkAddData: 4 NVJITLINK_ERROR_PTX_COMPILE, ptxas application")
    for question in (
        ("11.8", "13.0", "ptx", "nvjitlink"),
        ("13.0", "13.0", "sass", "nvjitlink"),
        ("13.0", "13.0", "ptx", "jump"),
        ("13.0", "13.0", "ptx", "nvjitlink", "sm_61"),
        ("13.0", "12.7", "ptx", "nvjitlink"),
    ):
        assert loaded.ask(*question) is None
    assert loaded.ask("12.6", "13.0", "ptx", "nvjitlink", "sm_100").status == "not-made"


@pytest.mark.parametrize(
    ("arch", "bytecode", "releases"),
    [
        ("sm_89", None, "13.2 13.3 13.4 13.5"),
        ("sm_89", "13.4", "13.4 13.5"),
        ("sm_107", "13.1", "13.4 13.5"),
        ("sm_75", None, ""),
        ("sm_61", None, ""),
        ("sm_100", "13.0", ""),
    ],
)
def test_tileiras_for_a_gpu(arch, bytecode, releases) -> None:
    """The releases that compile Tile IR for a GPU; none for bytecode or a GPU that was not measured."""
    compilers = atlas.load().tileiras_for(arch, bytecode and CudaVersion.parse(bytecode))
    assert compilers == tuple(map(CudaVersion.parse, releases.split()))


SMALL = {
    "format": 1,
    "releases": ["13.0", "13.1", "13.2"],
    "wheels": {"13.0": {}, "13.1": {"tileiras": "1"}, "13.2": {"tileiras": "2"}},
    "measured": {},
    "real": [{"driver": "580.65.06", "cuda": "13.0", "device": "x", "date": "2026-01-01", "command": "y"}],
    "answers": {
        "a": {"status": "works"},
        "b": {"status": "refused", "call": "f", "code": 4, "text": "{bytecode} {gpu}: {written} is not {read}"},
        "c": {"status": "crashed", "name": "SIGSEGV"},
    },
    "grids": [
        {"step": "real-load", "kind": "cubin", "arch": "sm_90", "rows": {"13.2": "c"}},
        {"step": "tileiras", "kind": "tileir", "arch": "sm_90", "rows": {"13.1": "ba", "13.2": "ab"}},
        {"step": "nvjitlink", "kind": "ptx", "arch": "sm_90", "rows": {"13.0": "abc"}},
    ],
}


def test_a_small_atlas() -> None:
    """What a file leaves out is empty; each step has its consumers, and placeholders are filled in."""
    small = atlas.atlas_of(SMALL)
    assert small.answers["a"] == atlas.AtlasAnswer("works", "", 0, "", "")
    assert small.grid("real-load", "cubin").consumers == ("13.0",)
    assert (small.kinds, small.steps) == (("ptx", "cubin", "tileir"), ("nvjitlink", "tileiras", "real-load"))
    refused = "f: 4, 13.1 90: 9.1 is not "
    assert str(small.ask("13.1", "13.1", "tileir", "tileiras")) == f"refused, {refused}9.1"
    assert [str(small.ask("13.0", read, "ptx", "nvjitlink")) for read in small.releases] == [
        *("works", "refused, f: 4, 13.0 90: 9.0 is not 9.1", "crashed, SIGSEGV")
    ]
    unknown = atlas.atlas_of({**SMALL, "grids": [{**SMALL["grids"][2], "rows": {"99.0": "b"}}]})
    assert str(unknown.ask("99.0", "13.0", "ptx", "nvjitlink")) == "refused, f: 4, 99.0 90: ? is not 9.0"
    assert small.tileiras_for("sm_90") == ((13, 2),)
    assert small.tileiras_for("sm_90", CudaVersion(13, 2)) == ((13, 1),)
    assert small.tileiras_for("sm_90", CudaVersion(13, 0)) == ()


def test_another_format_is_refused(written) -> None:
    """A file of a later format is refused in a sentence, not misread."""
    with pytest.raises(ValueError, match="the atlas has format 2; expected 1; install a newer pytest-cudalink"):
        atlas.atlas_of({**written, "format": 2})
