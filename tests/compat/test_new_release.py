"""The command for a new CUDA release: it gives back a release that was taken out of the tables."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_cudalink.compat.atlas import atlas_of, load
from tools import make_atlas, make_exports, new_major, new_release

ROOT = Path(__file__).parents[2]
NEWEST, BEFORE = "13.5", "13.4"
DATA = Path("pytest_cudalink/data")
EXPORTS = ("libnvJitLink", "libcudart", "libnvvm")  # a few kilobytes of each wheel


@pytest.fixture(scope="module")
def checkout(tmp_path_factory) -> Path:
    """The parts of the checkout that the command reads and writes, without the newest release."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in ("pytest_cudalink", "tools", "matrices"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    without_newest(folder)
    return folder


def edit(file: Path, *replacements: tuple[str, str]) -> None:
    """Replace patterns, each of which must be there."""
    text = file.read_text(encoding="utf-8")
    for pattern, new in replacements:
        text, count = re.subn(pattern, new, text, flags=re.MULTILINE)
        assert count, (file, pattern)
    file.write_text(text, encoding="utf-8")


def without_newest(folder: Path) -> None:
    """Take the newest release out of every table that the command writes."""
    data, escaped = folder / DATA, re.escape(NEWEST)
    edit(data / "toolkit_extras.toml", (rf'\n\[versions\."{escaped}\.(?s:.*)', ""))
    edit(data / "toolchains.toml", (rf'\n\[releases\."{escaped}"\](?s:.*)', ""))
    for name in ("architectures.toml", "device_code.toml", "emulator/images.toml"):
        edit(data / name, (rf"^(#.*to ){escaped}\b", rf"\g<1>{BEFORE}"))
    edit(data / "releases.toml", (rf'^"{escaped}" = .*\n', ""))
    edit(data / "emulator/functions.toml", (rf'^"{escaped}" = \[(?s:.*?)^\]\n', ""), (r"^cuTensorMapSetAlloc.*\n", ""))
    edit(data / "emulator/enums.toml", (rf"to {escaped}:", f"to {BEFORE}:"), (r"^CU_TARGET_COMPUTE_12.*\n", ""))
    edit(data / "emulator/returns.toml", (rf"to {escaped},", f"to {BEFORE},"), (r"^cuTensorMapSetAlloc.*\n", ""))
    edit(data / "emulator/nvml_names.toml", (rf'^\w+ = \["{escaped}".*\n', ""))
    edit(data / "cudadevrt.toml", (rf'^"{escaped}" = .*\n', ""), (rf', "{escaped}" = \d', ""))
    edit(folder / "pytest_cudalink/compat/names.py", (r"^    \(\(13, 5\).*\n", ""))
    edit(folder / "matrices/compat.json", (rf'"{escaped}": \{{', '"x": {'))
    for stem in EXPORTS:
        file = data / "exports" / f"{stem}.json"
        content = json.loads(file.read_text(encoding="utf-8"))
        major = content["majors"]["13"]
        gone = major["wheels"].pop(NEWEST)
        major["changes"] = [change for change in major["changes"] if change["wheel"] not in gone]
        major["aarch64"] = [{"wheel": "13.4.92"}]
        file.write_text(make_exports._text(content), encoding="utf-8")


def tables(folder: Path) -> dict[str, bytes]:
    """The content of each file that the command writes."""
    data = [*(folder / DATA).rglob("*.toml"), *(folder / DATA / "exports").glob("*.json")]
    files = [*data, folder / "matrices/compat.json", folder / "pytest_cudalink/compat/names.py"]
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


@pytest.mark.weekly
@pytest.mark.slow  # it needs the package index, and the toolchain of each release
def test_a_release_comes_back(checkout) -> None:
    """Every part but the atlas's writes what is there, byte for byte, for the newest release that the tables have."""
    there = tables(ROOT)
    assert sum(there[name] != content for name, content in tables(checkout).items()) == 16
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    parts = [word for part in new_release.PARTS if part != "atlas" for word in ("--only", part)]
    command = [sys.executable, "-m", "tools.new_release", NEWEST, *parts]
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [name for name, content in tables(checkout).items() if there[name] != content] == []
    assert done.stdout.startswith("A person must decide:\n- releases.toml: driver 620.10.01 is the branch that follows")
    for said in ("emulator/functions.toml: 13.5 has 2", "emulator/nvml_names.toml: 13.5 has 8"):
        assert f"\n- {said} new functions" in done.stdout


@pytest.mark.weekly
@pytest.mark.slow  # it needs the toolchain of each release
def test_the_atlas_gets_a_release(tmp_path) -> None:
    """What the release makes and reads is measured again, the rest stays; what only a GPU can say is marked."""
    loaded = load()
    known = {
        question: answer
        for question, answer in make_atlas.answers_of(loaded).items()
        if question.kind in ("ltoir", "merged-cubin") and question.arch == "sm_90"
    }
    older = {q: answer for q, answer in known.items() if NEWEST not in (q.producer, q.consumer)}
    wheels = {release: version for release, version in loaded.wheels.items() if release != NEWEST}
    file = tmp_path / "atlas.json"
    file.write_text(make_atlas.text_of(make_atlas.content_of(older, wheels, loaded.measured, loaded.real)))
    words = ["--kind", "ltoir", "--kind", "merged-cubin", "--arch", "sm_90", "--file", str(file)]
    assert make_atlas.main(["--new", NEWEST, *words]) == 0
    now = atlas_of(json.loads(file.read_text(encoding="utf-8")))
    assert now.wheels == loaded.wheels
    measured = make_atlas.answers_of(now)
    assert measured.keys() == known.keys()
    different = {question for question, answer in measured.items() if known[question] != answer}
    # a GPU was asked about these, and is not here
    assert {measured[question] for question in different} == {make_atlas.NOT_ASKED}
    assert {question.step for question in different} == {"real-driver", "real-load", "real-run"}
    assert all(NEWEST in (question.producer, question.consumer) for question in different)
    before = file.read_bytes()
    assert make_atlas.main(["--new", NEWEST, *words[2:]]) == 0
    assert file.read_bytes() == before


@pytest.fixture
def data(tmp_path, monkeypatch) -> Path:
    """A copy of the tables, which the parts in this process write."""
    shutil.copytree(ROOT / DATA, tmp_path / "data")
    monkeypatch.setattr(new_release, "DATA", tmp_path / "data")
    return tmp_path / "data"


def test_architectures_come_and_go(data) -> None:
    """A new number gets a row, one that is missing is dropped, and other suffixes are a person's decision."""
    known = new_release._table("architectures.toml")["architectures"]
    now = {int(number): row.get("suffixes", "") for number, row in known.items() if "dropped" not in row}
    assert new_release._architectures("13.6", now) == []
    del now[75]
    said = new_release._architectures("13.6", now | {90: "af", 130: "af"})
    assert [text.partition("sm_")[2].split()[0] for text in said] == ["90", "130", "75:"]
    assert 'sm_90 has suffixes "a"; NVRTC compiles for "af"' in said[0]
    text = (data / "architectures.toml").read_text(encoding="utf-8")
    assert text.endswith('121 = { since = "12.9", suffixes = "af" }\n130 = { since = "13.6", suffixes = "af" }\n')
    assert '75 = { since = "12.0", dropped = "13.6" }\n80 = ' in text


def test_an_unknown_release(data, monkeypatch, capsys) -> None:
    """A release that the index does not have, and a word that is not one, end with a sentence; nothing is written."""
    monkeypatch.setattr("tools.make_toolkit_extras.main", lambda _: 0)
    before = {file: file.read_bytes() for file in data.rglob("*.toml")}
    wanted = r"the package index has no cuda-toolkit 13\.77; its newest is 13\.5\.0; check the number"
    with pytest.raises(SystemExit, match=wanted):
        new_release.main(["13.77", "--only", "pins"])
    with pytest.raises(SystemExit, match="2"):
        new_release.main(["newest"])
    assert "newest" in capsys.readouterr().err
    assert {file: file.read_bytes() for file in data.rglob("*.toml")} == before


@pytest.mark.slow  # it parses the whole package
def test_places_that_name_majors() -> None:
    """The lists of majors, packages and SONAMEs by major, and comparisons of a major are found; docstrings are not."""
    places = list(new_major.places())
    files = {place.partition(":")[0].removeprefix("pytest_cudalink/") for place in places}
    assert files >= {
        *("guardrails/can_link.py", "cli/demo.py", "cli/stubs.py", "environment/wheels.py", "plugin/records/facts.py"),
        *("data/cuda_libraries.toml", "data/stubs_catalog.toml", "emulator/__init__.py", "emulator/native/config.c"),
        *("guardrails/repair.py", "linker/causes.py", "linker/dispatch.py", "matrix/init.py"),
        *("plugin/conditions/nvjitlink.py", "stubs/catalog.py", "stubs/c_source.py", "stubs/native/adapters.h"),
        *("toolchains/__init__.py", "versions.py", "matrices/dispatch.toml"),
        *("pyproject.toml", "tools/make_exports.py", "tools/make_requires.py", "tools/make_toolchains.py"),
    }
    texts = [place.split(": ", 1)[1] for place in places]
    assert 'majors = ["11", "12", "13"]' in texts
    assert not [text for text in texts if text.startswith(("#", '"""', "/*"))]


@pytest.mark.weekly
@pytest.mark.slow
def test_dry_run_of_a_major(capsys) -> None:
    """Everything that a minor gets and 14.0 would not is named with what it says; nothing is written."""
    before = tables(ROOT)
    assert new_release.main(["14.0", "--dry-run"]) == 0
    said = capsys.readouterr().out
    named = re.findall(r"^- (\S+?)[,:] ", said.partition("\n\n")[0], re.MULTILINE)
    assert named == [
        *("releases.toml", "tools/make_toolchains.py", "tools/make_exports.py", "data/exports", "cuda_libraries.toml"),
        *("stubs/c_source.py", "stubs_catalog.toml", "pyproject.toml", "pyproject.toml"),
        "matrix/init.py",
    ]
    assert "(GeneratorError: headers 14: expected the CUDA major that callers are compiled with: 11, 12 or 13)" in said
    assert re.search(r"^- pytest_cudalink/versions\.py:\d+: package = ", said, re.MULTILINE)
    assert new_major.broken("13.7") == {}
    assert tables(ROOT) == before
    with pytest.raises(SystemExit, match="2"):
        new_release.main(["13.5", "--dry-run"])
    assert "CUDA 13.5 is in the tables; --dry-run expects a release that does not exist" in capsys.readouterr().err
