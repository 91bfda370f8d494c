"""The JSON of what is known of CUDA: current, valid by its schema, and the same data again."""

import json

import jsonschema
import pytest

from pytest_cudalink.base.tables import matrices_dir
from pytest_cudalink.compat import exports, known_bad, releases
from tools import export_json


def test_files_are_up_to_date(tmp_path) -> None:
    """The checked-in files are what ``nox -s generate`` writes, byte by byte."""
    export_json.main(tmp_path)
    for name in ("compat.json", "compat.schema.json"):
        assert (tmp_path / name).read_bytes() == (matrices_dir() / name).read_bytes(), "run: nox -s generate"


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("compat", [("known_bad", {"seen": "perhaps"}), ("releases", {"13": {}})]),
        ("atlas", [("grids", {key: bad}) for key, bad in (("step", "jump"), ("kind", "sass"), ("arch", "90"))]),
        ("atlas", [("grids", {"rows": {"13": "a"}}), ("answers", {"ab": {"status": "works"}})]),
    ],
)
def test_valid_by_the_schema(name, changes) -> None:
    """The schema is one, holds for the file, and refuses what it must refuse."""
    written, schema = (
        json.loads((matrices_dir() / f"{name}{suffix}.json").read_text(encoding="utf-8")) for suffix in ("", ".schema")
    )
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
    validator.validate(written)
    for key in schema["required"]:
        assert not validator.is_valid({name: value for name, value in written.items() if name != key})
    for key, change in changes:
        wrong = [{**written[key][0], **change}] if isinstance(written[key], list) else change
        assert not validator.is_valid({**written, key: wrong})


def test_round_trip() -> None:
    """Read again, the file has what Python has, and finds the files that it names."""
    written = json.loads((matrices_dir() / "compat.json").read_text(encoding="utf-8"))
    assert set(written["releases"]) == {str(release) for release in releases.PTX_ISA}
    for row, entry in zip(written["known_bad"], known_bad.entries(), strict=True):
        read = {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
        assert known_bad.KnownBad(**read | {"date": entry.date}) == entry
    for stem, library in written["libraries"].items():
        assert {int(major): entry["soname"] for major, entry in library["majors"].items()} == exports.sonames(stem)
        assert not library["exports"] or (matrices_dir().parent / library["exports"]).is_file()
    assert {*written["atlas"].values()} == {"atlas.json", "atlas.schema.json"}
